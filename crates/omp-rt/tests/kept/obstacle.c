// What of a process cannot be had again: named, and the program goes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
__attribute__((constructor)) static void begins(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "constructor")) open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
}
static pthread_key_t key;
static void *over(void *unused) { return unused; }
static void *sleeps(void *unused) { pause(); return 0; }
int main(int argc, char **argv) {
    const char *what = argv[1];
    int ends[2], child = 0;
    if (!strcmp(what, "socket")) socket(AF_INET, SOCK_DGRAM, 0);
    if (!strcmp(what, "pipe")) pipe(ends);
    if (!strcmp(what, "deleted")) { int file = open(argv[2], O_RDWR | O_CREAT, 0600); unlink(argv[2]); if (file < 0) return 1; }
    if (!strcmp(what, "shared")) mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(what, "library")) dlopen("libresolv.so.2", RTLD_NOW);
    if (!strcmp(what, "thread")) { pthread_t thread; pthread_create(&thread, 0, sleeps, 0); }
    if (!strcmp(what, "child") && !(child = fork())) { pause(); _exit(0); }
    if (!strcmp(what, "timer")) { timer_t timer; struct sigevent none = {.sigev_notify = SIGEV_NONE}; timer_create(CLOCK_MONOTONIC, &none, &timer); }
    if (!strcmp(what, "unjoined")) { pthread_t thread; pthread_create(&thread, 0, over, 0); usleep(20000); }
    static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    if (!strcmp(what, "mutex")) pthread_mutex_lock(&mutex);
    if (!strcmp(what, "executable")) mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(what, "specific")) {
        pthread_key_create(&key, 0);
#pragma omp parallel
        pthread_setspecific(key, &key);
    }
    long sum = 0;
    for (int round = 0; round < 20; round++) {
#pragma omp parallel for reduction(+ : sum)
        for (int i = 0; i < 100; i++) sum += i;
        usleep(2000);
    }
    if (child) { kill(child, SIGKILL); waitpid(child, 0, 0); }
    printf("%ld\n", sum);
    return 0;
}
