/* What a socket call costs, in nanoseconds: the least of many short rounds, so that what else the machine does falls out.
 *   trace_calls [ROUNDS]
 * Run by itself and under a tracer; the difference is the tracer's cost for a call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int pair[2], file, epoll;
static char byte[64];

static void moved(void)
{
    if (send(pair[0], byte, 8, 0) != 8 || recv(pair[1], byte, 8, 0) != 8) {
        perror("send, recv");
        exit(1);
    }
}

static void nothing(void)
{
    if (recv(pair[1], byte, 8, MSG_DONTWAIT) != -1 || errno != EAGAIN)
        exit(1);
}

static void polled(void)
{
    struct epoll_event event;
    if (epoll_wait(epoll, &event, 1, 0) != 0)
        exit(1);
}

static void other(void)
{
    if (read(file, byte, 0) != 0)
        exit(1);
}

int main(int count, char **words)
{
    const struct {
        const char *name;
        void (*call)(void);
        int calls;
    } kinds[] = {
        { "send or recv", moved, 2 },
        { "recv, nothing there", nothing, 1 },
        { "epoll_wait, nothing there", polled, 1 },
        { "read of a file", other, 1 },
    };
    int rounds = count > 1 ? atoi(words[1]) : 400;
    struct epoll_event event = { .events = EPOLLIN };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (file = open("/dev/null", O_RDONLY)) < 0
        || (epoll = epoll_create1(0)) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], &event)) {
        perror("trace_calls");
        return 1;
    }
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        double least = 1e18;
        for (int round = 0; round < rounds; round++) {
            double begin = now();
            for (int i = 0; i < CALLS; i++)
                kinds[kind].call();
            double each = (now() - begin) / CALLS / kinds[kind].calls;
            if (each < least)
                least = each;
        }
        printf("%-28s %8.1f ns\n", kinds[kind].name, least);
    }
    return 0;
}
