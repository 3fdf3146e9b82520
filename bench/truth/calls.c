/* Threads that do nothing but socket calls, and count them: each sends and receives, in turn, on a connection of its own, TCP or Unix, and
 * looks once in between where nothing is.
 *   calls THREADS ROUNDS
 * Prints what was called how often, and how many bytes went. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static long rounds;

struct totals {
    int pair[2];
    unsigned long sends, receives, empty, bytes;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void connected(int pair[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    if ((pair[0] = socket(AF_INET, SOCK_STREAM, 0)) < 0 || connect(pair[0], (struct sockaddr *)&address, length)
        || (pair[1] = accept(listener, NULL, NULL)) < 0)
        fail("connect");
    close(listener);
}

static void *work(void *given)
{
    struct totals *mine = given;
    char message[64] = "what is sent";
    for (long round = 0; round < rounds; round++) {
        size_t length = 1 + round % sizeof message;
        if (recv(mine->pair[1], message, sizeof message, MSG_DONTWAIT) != -1 || errno != EAGAIN)
            fail("there was something");
        mine->empty++;
        if (send(mine->pair[0], message, length, 0) != (ssize_t)length)
            fail("send");
        mine->sends++;
        if (recv(mine->pair[1], message, length, MSG_WAITALL) != (ssize_t)length)
            fail("recv");
        mine->receives++;
        mine->bytes += length;
    }
    return NULL;
}

int main(int count, char **words)
{
    int threads = count > 1 ? atoi(words[1]) : 4;
    rounds = count > 2 ? atol(words[2]) : 1000;
    pthread_t *all = calloc(threads, sizeof *all);
    struct totals *totals = calloc(threads, sizeof *totals), sum = { 0 };
    if (!all || !totals)
        fail("calloc");
    for (int i = 0; i < threads; i++) {
        if (i % 2)
            connected(totals[i].pair);
        else if (socketpair(AF_UNIX, SOCK_STREAM, 0, totals[i].pair))
            fail("socketpair");
    }
    for (int i = 0; i < threads; i++)
        if ((errno = pthread_create(&all[i], NULL, work, &totals[i])))
            fail("pthread_create");
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        close(totals[i].pair[0]);
        close(totals[i].pair[1]);
        sum.sends += totals[i].sends;
        sum.receives += totals[i].receives;
        sum.empty += totals[i].empty;
        sum.bytes += totals[i].bytes;
    }
    printf("send %lu\nrecv %lu\nempty %lu\nbytes %lu\ntcp %d\nunix %d\n", sum.sends, sum.receives, sum.empty, sum.bytes, threads / 2,
           threads - threads / 2);
    return 0;
}
