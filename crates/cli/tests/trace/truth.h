/* What a test program knows of its own calls, to be compared with what was recorded of it: a line for each function,
 * PID NAME CALLS BYTES, on the standard output. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    const char *name;
    long calls, bytes;
} truth[64];

/* In signal handlers and threads too. */
static long counted(const char *name, long result)
{
    int i, saved = errno;
    for (i = 0; i < 64; i++) {
        const char *free_one = NULL;
        if (!truth[i].name && __atomic_compare_exchange_n(&truth[i].name, &free_one, name, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
        if (!strcmp(truth[i].name, name))
            break;
    }
    __atomic_add_fetch(&truth[i].calls, 1, __ATOMIC_SEQ_CST);
    if (result > 0)
        __atomic_add_fetch(&truth[i].bytes, result, __ATOMIC_SEQ_CST);
    errno = saved;
    return result;
}

/* A call on a socket. */
#define C(function, ...) counted(#function, function(__VA_ARGS__))

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            dprintf(2, "%s:%d: %s: %m\n", __FILE__, __LINE__, #what);    \
            _exit(99);                                                   \
        }                                                                \
    } while (0)

static void tell(void)
{
    char text[4096];
    int length = 0;
    for (int i = 0; i < 64 && truth[i].name; i++)
        length += snprintf(text + length, sizeof text - length, "%d %s %ld %ld\n", getpid(), truth[i].name, truth[i].calls,
                           truth[i].bytes);
    CHECK(write(1, text, length) == length);
}

/* In a child: what the parent did is not its own. */
static void forget(void)
{
    memset(truth, 0, sizeof truth);
}

/* n messages of a size, there and back. */
static void talk(int n, int size)
{
    static char buffer[65536];
    int pair[2];
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int i = 0; i < n; i++) {
        CHECK(C(send, pair[0], buffer, size, 0) == size);
        CHECK(C(recv, pair[1], buffer, sizeof buffer, MSG_WAITALL & 0) == size);
    }
    CHECK(C(close, pair[0]) == 0);
    CHECK(C(close, pair[1]) == 0);
}
