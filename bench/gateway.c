// One TCP connection, or several one after the other, between two ends, directly or through something between.
//
//   gateway server PORT
//   gateway client IP PORT VIA pings COUNT          one byte and back: prints "pings MEDIAN P99", in microseconds
//   gateway client IP PORT VIA stream BYTES STREAMS as fast as it goes: prints "stream MB/s"
//   gateway client IP PORT VIA rests COUNT BYTES MS a message and a byte back, after so many milliseconds: prints "rests MEDIAN", in ms
//   gateway client IP PORT VIA fresh COUNT BYTES    the same, each on a connection of its own that just stands
//
// VIA is - (directly), socks:IP:PORT (a gateway), or IP:PORT (what leads to the server by itself). All use CUBIC.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int less(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int read_all(int s, void *to, size_t len) {
    for (char *at = to; len > 0;) {
        const ssize_t got = recv(s, at, len, 0);
        if (got <= 0) return -1;
        at += got, len -= (size_t)got;
    }
    return 0;
}

static void write_all(int s, const void *from, size_t len) {
    for (const char *at = from; len > 0;) {
        const ssize_t put = send(s, at, len, MSG_NOSIGNAL);
        if (put <= 0) fail("send");
        at += put, len -= (size_t)put;
    }
}

static void prepare(int s) {
    const int one = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

// Answers each message, a length and so many bytes, with a byte.
static void *serve(void *socket) {
    const int s = (int)(intptr_t)socket;
    char *room = malloc(1 << 20);
    uint64_t left;
    while (read_all(s, &left, sizeof left) == 0) {
        while (left > 0) {
            const ssize_t got = recv(s, room, left < 1 << 20 ? left : 1 << 20, 0);
            if (got <= 0) break;
            left -= (uint64_t)got;
        }
        if (left > 0) break;
        write_all(s, "k", 1);
    }
    free(room);
    close(s);
    return NULL;
}

static struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, ip, &at.sin_addr) != 1) fail(ip);
    return at;
}

static int dial(const char *ip, int port, const char *via) {
    const struct sockaddr_in to = address(ip, port);
    struct sockaddr_in first = to;
    const int socks = strncmp(via, "socks:", 6) == 0;
    if (strcmp(via, "-") != 0) {
        char text[64];
        snprintf(text, sizeof text, "%s", via + (socks ? 6 : 0));
        char *colon = strrchr(text, ':');
        if (!colon) fail(via);
        *colon = 0;
        first = address(text, atoi(colon + 1));
    }
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    prepare(s);
    if (connect(s, (const struct sockaddr *)&first, sizeof first)) fail("connect");
    if (socks) {
        unsigned char ask[13] = {5, 1, 0, 5, 1, 0, 1}, answer[12];
        memcpy(ask + 7, &to.sin_addr, 4);
        memcpy(ask + 11, &to.sin_port, 2);
        write_all(s, ask, sizeof ask);
        if (read_all(s, answer, sizeof answer) || answer[3] != 0) fail("the gateway refuses");
    }
    return s;
}

static char *zeros;

static void message(int s, uint64_t len) {
    char byte;
    write_all(s, &len, sizeof len);
    for (uint64_t left = len; left > 0;) {
        const uint64_t part = left < 1 << 20 ? left : 1 << 20;
        write_all(s, zeros, part);
        left -= part;
    }
    if (read_all(s, &byte, 1)) fail("recv");
}

struct share {
    int socket;
    uint64_t bytes;
};

static void *send_share(void *of) {
    const struct share *share = of;
    message(share->socket, share->bytes);
    return NULL;
}

int main(int argc, char **argv) {
    zeros = calloc(1, 1 << 20);
    if (argc == 3 && strcmp(argv[1], "server") == 0) {
        const int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        const struct sockaddr_in at = address("0.0.0.0", atoi(argv[2]));
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(s, (const struct sockaddr *)&at, sizeof at) || listen(s, 128)) fail("listen");
        for (;;) {
            const int caller = accept(s, NULL, NULL);
            pthread_t thread;
            if (caller < 0) continue;
            prepare(caller);
            pthread_create(&thread, NULL, serve, (void *)(intptr_t)caller);
            pthread_detach(thread);
        }
    }
    if (argc < 7) return fprintf(stderr, "see the head of gateway.c\n"), 2;
    const char *ip = argv[2], *via = argv[4], *what = argv[5];
    const int port = atoi(argv[3]), count = atoi(argv[6]);
    double *times = calloc((size_t)count + 1, sizeof *times);
    if (strcmp(what, "stream") == 0) {
        const int streams = argc > 7 ? atoi(argv[7]) : 1;
        struct share *shares = calloc((size_t)streams, sizeof *shares);
        pthread_t *threads = calloc((size_t)streams, sizeof *threads);
        const uint64_t bytes = strtoull(argv[6], NULL, 10) / (uint64_t)streams;
        for (int i = 0; i < streams; i++) shares[i] = (struct share){dial(ip, port, via), bytes};
        const double begun = now();
        for (int i = 0; i < streams; i++) pthread_create(&threads[i], NULL, send_share, &shares[i]);
        for (int i = 0; i < streams; i++) pthread_join(threads[i], NULL);
        printf("stream %.3f\n", (double)bytes * streams / (now() - begun) / 1e6);
        return 0;
    }
    int s = dial(ip, port, via);
    const int pings = strcmp(what, "pings") == 0, rests = strcmp(what, "rests") == 0;
    const uint64_t bytes = pings ? 1 : strtoull(argv[7], NULL, 10);
    for (int i = 0; i < 3; i++) message(s, 1);
    for (int i = 0; i < count; i++) {
        if (rests) usleep((useconds_t)atoi(argv[8]) * 1000);
        if (!pings && !rests) close(s), s = dial(ip, port, via);
        const double begun = now();
        message(s, bytes);
        times[i] = now() - begun;
    }
    qsort(times, (size_t)count, sizeof *times, less);
    if (pings) printf("pings %.2f %.2f\n", times[count / 2] * 1e6, times[count * 99 / 100] * 1e6);
    else printf("%s %.3f\n", what, times[count / 2] * 1e3);
    return 0;
}
