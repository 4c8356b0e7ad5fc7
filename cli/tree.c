/*
 * tree.c - finds the processes that a command has started, in /proc, and signals them.
 *
 * The command shares holdfast's process group (see child.c). So the group as a whole can't be
 * signalled: holdfast is in it, and perhaps the script that called holdfast. Instead each
 * descendant of the command is signalled by a pidfd, so that a process that has got a reused number
 * isn't hit. Orphans among the descendants become children of holdfast (PR_SET_CHILD_SUBREAPER), so
 * none is missed. A process that has made a session of its own (a daemon) is left alone.
 */
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct process {
    pid_t pid, parent, group, session;
    char state;
    unsigned long long start;
    int ours; /* 1: the command's main process or a descendant of it */
};

/* Reads /proc/PID/stat: "pid (name) state ppid pgrp session ... [22] starttime". */
static int read_process(pid_t pid, struct process *ret)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char *s = strrchr(text, ')'); /* a name may contain anything */
    int parent, group, session;
    if (!s || sscanf(s + 1,
                     " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                     "%*d %llu",
                     &ret->state, &parent, &group, &session, &ret->start) != 5)
        return -1;
    ret->pid = pid;
    ret->parent = parent;
    ret->group = group;
    ret->session = session;
    ret->ours = 0;
    return 0;
}

/* Returns all processes; NULL: /proc can't be read. */
static struct process *read_all(size_t *ret_n)
{
    struct process *all = NULL;
    size_t n = 0, cap = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        if (*end || pid <= 0) continue;
        if (n == cap) {
            struct process *more = realloc(all, (cap = cap ? cap * 2 : 256) * sizeof *all);
            if (!more) break;
            all = more;
        }
        if (!read_process((pid_t)pid, &all[n])) n++;
    }
    if (dir) closedir(dir);
    *ret_n = n;
    return all;
}

/* Sets `ours` of the command's processes: the main process, its descendants, and orphans that have
   become children of this process. A child that is older than the command isn't one: it was started
   by the program that became `holdfast` by exec. */
static void mark(const struct tree *t, struct process *all, size_t n)
{
    pid_t self = getpid();
    for (int again = 1; again;) {
        again = 0;
        for (size_t i = 0; i < n; i++) {
            if (all[i].ours || all[i].start < t->start) continue;
            int ours = all[i].parent == self;
            for (size_t j = 0; j < n && !ours; j++)
                ours = all[j].ours && all[j].pid == all[i].parent;
            all[i].ours = ours;
            again |= ours;
        }
    }
}

void tree_init(struct tree *t, pid_t pid)
{
    memset(t, 0, sizeof *t);
    t->pid = pid;
    t->group = getpgrp();
    t->session = getsid(0);
}

/* Notes the group and the session of the main process, which it may change. After its end those
   that were noted last stay. */
static void learn(struct tree *t, const struct process *all, size_t n)
{
    for (size_t i = 0; !t->reaped && i < n; i++)
        if (all[i].pid == t->pid) {
            t->group = all[i].group;
            t->session = all[i].session;
            t->start = all[i].start;
        }
}

static int chosen(const struct tree *t, enum which which, const struct process *p)
{
    if (!p->ours || p->state == 'Z' || p->state == 'X') return 0;
    if (p->pid == t->pid && !t->reaped) return 1;
    if (which == MAIN_GROUP) return p->group == t->group;
    return p->session == t->session || p->session == getsid(0);
}

/* Signals this process, unless it has ended and another has got its number. */
static void signal_exactly(const struct process *p, int sig)
{
    struct process now;
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0) {
        if (errno == ENOSYS) kill(p->pid, sig);
        return;
    }
    if (!read_process(p->pid, &now) && now.start == p->start)
        syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    close(fd);
}

size_t tree_signal(struct tree *t, enum which which, int sig)
{
    size_t n, hit = 0;
    struct process *all = read_all(&n);
    if (!n) { /* no /proc: signals at least the main process, whose number isn't reused before
                 waitpid */
        free(all);
        return !t->reaped && !kill(t->pid, sig);
    }
    learn(t, all, n);
    mark(t, all, n);
    for (size_t i = 0; i < n; i++)
        if (chosen(t, which, &all[i])) {
            hit++;
            if (sig) signal_exactly(&all[i], sig);
        }
    free(all);
    return hit;
}

char tree_state(const struct tree *t)
{
    struct process p;
    return read_process(t->pid, &p) ? 0 : p.state;
}

int tree_has(struct tree *t, pid_t pid)
{
    size_t n;
    int has = 0;
    struct process *all = read_all(&n);
    learn(t, all, n);
    mark(t, all, n);
    for (size_t i = 0; i < n; i++) has |= all[i].ours && all[i].pid == pid;
    free(all);
    return has;
}
