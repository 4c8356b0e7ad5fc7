/*
 * history_text.c - a history as text, and Porcupine, which reads it so; see history.h.
 *
 * One object a line: {"t0":ns,"t1":ns|null,"cli":number,"op":"acquire","key":"..","req":"hex",
 * "ttl":ms,"res":"ok","tok":number, ...}. "asked" is the first call with this request, "queued"
 * when it was seen in the queue, "first" and "last" when the grant was believed; "mode", "limit"
 * and "val" are as in history.h. What is 0 is left out.
 */
#include "history.h"

#include "holdfast.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *h_answer_word(const struct h_op *op)
{
    switch (op->answer) {
    case 0: return "ok";
    case H_OPEN: return "open";
    case H_DONE: return "done";
    case H_REFUSED: return "refused";
    case HF_BUSY: return "busy";
    case HF_TIMEOUT: return "timeout";
    case HF_CANCELED: return "canceled";
    case HF_LOST: return "lost";
    case HF_UNKNOWN: return "unknown";
    case HF_UNAVAILABLE: return "unavailable";
    default: return "failed";
    }
}

static void number(FILE *to, const char *name, int64_t value)
{
    if (value) fprintf(to, ",\"%s\":%" PRId64, name, value);
}

static void line(FILE *to, const struct h_op *op, const char *prefix)
{
    static const char *const words[] = {
#define H_KIND_WORD(name, word) word,
        H_KINDS(H_KIND_WORD)
#undef H_KIND_WORD
    };
    static const char *const modes[] = {"exclusive", "shared", "limited"};
    fprintf(to, "{\"t0\":%" PRId64 ",\"t1\":", op->t0);
    if (op->t1)
        fprintf(to, "%" PRId64, op->t1);
    else
        fputs("null", to);
    fprintf(to, ",\"cli\":%u,\"life\":%u,\"op\":\"%s\",\"key\":\"%s%u\",\"res\":\"%s\"", op->client,
            op->life, words[op->kind], prefix, op->key, h_answer_word(op));
    if (op->request[0])
        fprintf(to, ",\"req\":\"%016" PRIx64 "%016" PRIx64 "\"", op->request[0], op->request[1]);
    if (op->asked != op->t0) number(to, "asked", op->asked);
    if (op->mode) fprintf(to, ",\"mode\":\"%s\"", modes[op->mode]);
    number(to, "limit", op->limit);
    number(to, "ttl", op->lease_ms);
    number(to, "tok", (int64_t)op->token);
    number(to, "val", (int64_t)op->value);
    number(to, "queued", op->queued);
    number(to, "first", op->first);
    number(to, "last", op->last);
    fputs("}\n", to);
}

void h_write(FILE *to, const struct h_history *h, const char *prefix)
{
    for (size_t i = 0; i < h->n; i++) line(to, &h->op[i], prefix);
}

/* ---- the second judge ---- */

/* The path that the tool says. */
static int find_program(const char *tool, char *ret, size_t cap)
{
    FILE *f = popen(tool, "r");
    if (!f) return -1;
    char *got = fgets(ret, (int)cap, f);
    int status = pclose(f);
    if (!got || status) return -1;
    ret[strcspn(ret, "\n")] = 0;
    return 0;
}

int h_porcupine_start(struct h_porcupine *p, const char *tool)
{
    char program[1200];
    int there[2], back[2];
    memset(p, 0, sizeof *p);
    if (find_program(tool, program, sizeof program)) {
        snprintf(p->why, sizeof p->why, "'%.300s' doesn't say where Porcupine is", tool);
        return -1;
    }
    if (pipe(there) || pipe(back)) return -1;
    p->pid = fork();
    if (p->pid < 0) return -1;
    if (!p->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(there[0], 0);
        dup2(back[1], 1);
        for (int i = 0; i < 2; i++) close(there[i]), close(back[i]);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    p->to = fdopen(there[1], "w");
    p->from = fdopen(back[0], "r");
    return p->to && p->from ? 0 : -1;
}

int h_porcupine_judge(struct h_porcupine *p, const struct h_history *h, const char *prefix)
{
    char line_back[600];
    uint64_t keys, operations, illegal, unknown, busy, busy_open;
    h_write(p->to, h, prefix);
    fputs("\n", p->to); /* an empty line ends the history */
    if (fflush(p->to) || !fgets(line_back, sizeof line_back, p->from)) {
        snprintf(p->why, sizeof p->why, "Porcupine has gone");
        return -1;
    }
    int said = 0;
    if (sscanf(line_back,
               "keys %" SCNu64 " operations %" SCNu64 " illegal %" SCNu64 " unknown %" SCNu64
               " busy %" SCNu64 " open %" SCNu64 "%n",
               &keys, &operations, &illegal, &unknown, &busy, &busy_open, &said) != 6) {
        snprintf(p->why, sizeof p->why, "Porcupine: %.300s", line_back);
        return -1;
    }
    p->histories += keys;
    p->operations += operations;
    p->illegal += illegal;
    p->unknown += unknown;
    p->busy += busy;
    p->busy_open += busy_open;
    if ((illegal || unknown) && !*p->why)
        snprintf(p->why, sizeof p->why, "%.*s", (int)strcspn(line_back + said, "\n"),
                 line_back + said);
    return 0;
}

void h_porcupine_end(struct h_porcupine *p)
{
    if (p->to) fclose(p->to);
    if (p->from) fclose(p->from);
    if (p->pid > 0) waitpid(p->pid, NULL, 0);
    p->to = p->from = NULL;
    p->pid = 0;
}
