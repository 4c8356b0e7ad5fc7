/*
 * answers.h - a server over HTTP that answers what the test wants it to: for drivers that speak it.
 */
#ifndef HF_ANSWERS_H
#define HF_ANSWERS_H

#include <stddef.h>

enum {
    ANSWER_CLOSED = -1,  /* the connection is closed instead */
    ANSWER_CUT = -2,     /* the connection is closed in the middle of the answer */
    ANSWER_OPEN = -3,    /* 200, and the body goes on until the client goes */
    ANSWER_BARE = -4,    /* 200, without a Date */
    ANSWER_TAGGED = -5,  /* 200, with the ETag of the request's body (answers_tags) */
    ANSWER_FOREIGN = -6, /* 200, with an ETag that is no body's sum */
    ANSWER_OTHER = -7,   /* what a server of another protocol answers */
    ANSWER_NO_HEAD = -1000
};
/* The connection is closed within the header of the answer, behind the line with this status. */
#define ANSWER_HEAD_CUT(status) (ANSWER_NO_HEAD - (status))

struct answer {
    const char *path; /* a part of the request's; NULL: of any; "PATH?BODY": and of its body */
    int status;
    const char *body;
    int times; /* how often it is given; 0: always */
};

#define ANSWERS_DATE "Sat, 31 Jan 2026 12:00:00 GMT"

/* Before it begins: in which other way a connection is served, until it ends. */
void answers_by(void (*serve)(int fd));
/* Before it begins: what writes the ETag of a body. */
void answers_tags(void (*tag_of)(const char *body, char to[40]));
/* On a port of the loopback device, which is returned; once a program. */
int answers_begin(void);
/* For a way of serving: the answer to that request, which is the last from now on. */
struct answer answers_find(const char *path, const char *text);
/* From now on the first that fits and isn't used up; none fits: 500. The list is copied, its texts
   aren't. */
void answers_are(const struct answer *list, size_t n);
/* From now on all answers have this date. */
void answers_date(const char *date);
/* How many requests came since then. */
int answers_given(void);
/* The last request, head and body. */
const char *answers_asked(void);
/* The bytes in base64; good for the next seven calls. */
const char *answers_base64(const char *bytes, size_t n);

#endif
