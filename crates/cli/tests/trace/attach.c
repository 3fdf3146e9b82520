// Waits in calls that end early when they are interrupted, and says how often that was. Told to by a line of its input, it ends the waiting.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int pairs[4][2];
static int interrupted[4];
static volatile sig_atomic_t handled;

static void handle(int signal) { handled++; }

static void *by_epoll(void *unused) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, pairs[0][0], &event);
    while (epoll_wait(set, &event, 1, -1) < 0) interrupted[0]++;
    return unused;
}

// a socket with a timeout, and one without
static void *by_recv(void *which) {
    int at = (int)(long)which;
    struct timeval long_ago = {.tv_sec = 100};
    if (at == 1) setsockopt(pairs[at][0], SOL_SOCKET, SO_RCVTIMEO, &long_ago, sizeof long_ago);
    char byte;
    while (recv(pairs[at][0], &byte, 1, 0) < 0 && errno == EINTR) interrupted[at]++;
    return NULL;
}

int main(void) {
    alarm(300);
    // so that a signal ends a call that waits
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN + 3, &action, NULL);
    for (int at = 0; at < 4; at++) socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[at]);
    pthread_t threads[4];
    pthread_create(&threads[0], NULL, by_epoll, NULL);
    for (long at = 1; at < 4; at++) pthread_create(&threads[at], NULL, by_recv, (void *)at);
    char line[100];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] != 's') break;
        // one thread gets these
        int before = handled;
        pthread_kill(threads[3], SIGUSR1);
        while (handled == before) usleep(1000);
        pthread_sigqueue(threads[3], SIGRTMIN + 3, (union sigval){.sival_int = 5});
        while (handled == before + 1) usleep(1000);
        printf("%d handled\n", (int)handled);
        fflush(stdout);
    }
    for (int at = 0; at < 4; at++) write(pairs[at][1], "x", 1);
    for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
    printf("%d %d %d %d\n", interrupted[0], interrupted[1], interrupted[2], interrupted[3]);
    return 5;
}
