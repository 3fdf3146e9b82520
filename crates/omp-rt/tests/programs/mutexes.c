// What POSIX and C11 have for mutual exclusion, in regions: mutexes of all kinds, spin locks, readers and writers, what is done once, keys, regular expressions.
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, checking;
static pthread_spinlock_t spin;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static mtx_t c11;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t keys[3];
static int first, sum[8], begun, bad;
static void begin(void) { begun++; }
static void twice(void) {
    bad += pthread_mutex_lock(&recursive) != 0;
    sum[1]++;
    bad += pthread_mutex_unlock(&recursive) != 0;
}
int main(void) {
    pthread_mutexattr_t kind;
    regex_t expression;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &kind);
    pthread_spin_init(&spin, 0);
    mtx_init(&c11, mtx_plain);
    for (int i = 0; i < 3; i++) pthread_key_create(&keys[i], NULL);
    regcomp(&expression, "a[0-9]+b(c|d)*", REG_EXTENDED);
    pthread_mutex_t *many = malloc(10 * sizeof *many);
    long cells[10] = {0};
    for (int i = 0; i < 10; i++) pthread_mutex_init(&many[i], NULL);
    pthread_mutex_lock(&plain); // serial code's is not a region's
    first++;
    pthread_mutex_unlock(&plain);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < 48; i++) { // the same on all threads: a lost update would not be a conflict
        pthread_mutex_lock(&plain);
        first++;
        pthread_mutex_unlock(&plain);
    }
#pragma omp parallel for reduction(+ : bad)
    for (int i = 0; i < 24; i++) {
        struct timespec until;
        pthread_mutex_lock(&plain);
        sum[0]++;
        pthread_mutex_unlock(&plain);
        pthread_mutex_lock(&recursive);
        twice();
        pthread_mutex_unlock(&recursive);
        bad += pthread_mutex_unlock(&recursive) != EPERM;
        pthread_mutex_lock(&checking);
        sum[2]++;
        bad += pthread_mutex_lock(&checking) != EDEADLK;
        pthread_mutex_unlock(&checking);
        bad += pthread_mutex_unlock(&checking) != EPERM;
        pthread_spin_lock(&spin);
        sum[3]++;
        pthread_spin_unlock(&spin);
        pthread_rwlock_rdlock(&rw);
        bad += sum[4] < 0;
        pthread_rwlock_unlock(&rw);
        pthread_rwlock_wrlock(&rw);
        sum[4]++;
        pthread_rwlock_unlock(&rw);
        mtx_lock(&c11);
        sum[5]++;
        mtx_unlock(&c11);
        while (pthread_mutex_trylock(&plain) == EBUSY) {
        }
        sum[6]++;
        pthread_mutex_unlock(&plain);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 40;
        if (pthread_mutex_timedlock(&plain, &until) == 0) {
            sum[7]++;
            pthread_mutex_unlock(&plain);
        }
        pthread_mutex_lock(&many[i % 10]);
        cells[i % 10] += i;
        pthread_mutex_unlock(&many[i % 10]);
        pthread_once(&once, begin);
        bad += begun != 1;
        // a mutex of one thread
        pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
        bad += pthread_mutex_lock(&own) || pthread_mutex_unlock(&own);
        bad += pthread_setspecific(keys[i % 3], &sum[i % 8]) != 0 || pthread_getspecific(keys[i % 3]) != &sum[i % 8];
        char text[40];
        snprintf(text, sizeof text, "xx a%dbcdc %s", i, i % 3 ? "a" : "e");
        bad += regexec(&expression, text, 0, NULL, 0) != 0;
    }
    printf("%d bad, once %d, first %d:", bad, begun, first);
    for (int i = 0; i < 8; i++) printf(" %d", sum[i]);
    for (int i = 0; i < 10; i++) printf(" %ld", cells[i]);
    puts("");
    regfree(&expression);
    free(many);
    return 0;
}
