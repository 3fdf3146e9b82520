// Threads that block all signals, and handlers that do, write, update atomically and have fences.
// each: one
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
static long sum;
static void work(const char *text) {
    if (write(1, text, 2) != 2) return;
#pragma omp atomic
    sum++;
    atomic_thread_fence(memory_order_seq_cst);
}
static void handler(int signal) {
    work("h\n");
}
int main(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
#pragma omp parallel
    work("i\n");
    sigprocmask(SIG_SETMASK, &before, NULL);
#pragma omp parallel
    {
#pragma omp critical
        {
            sigset_t mine;
            pthread_sigmask(SIG_SETMASK, &all, &mine);
            work("t\n");
            pthread_sigmask(SIG_SETMASK, &mine, NULL);
            struct sigaction action = {.sa_handler = handler, .sa_mask = all};
            sigaction(SIGUSR1, &action, NULL);
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, SIGUSR1);
            pthread_sigmask(SIG_UNBLOCK, &one, NULL);
            pthread_kill(pthread_self(), SIGUSR1);
        }
    }
    printf("%ld\n", sum / omp_get_max_threads());
    return 0;
}
