// Serial code that reads, writes, draws numbers, and asks for the time and for itself; what it got must be the same on every rank, and happen once.
#define _GNU_SOURCE
#include <omp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int caught;
static void handler(int signal) { caught = signal; }

// Every rank comes to here with its own words, and must have taken the same way: each bit of `words` decides about a region.
static long regions(unsigned long words) {
    long sum = 0;
    for (int bit = 0; bit < 16; bit++) {
        if (words >> bit & 1) {
#pragma omp parallel reduction(+ : sum)
            sum += 1;
        } else {
#pragma omp parallel reduction(+ : sum) num_threads(1)
            sum += 0;
        }
    }
    return sum - omp_get_max_threads() * (long)__builtin_popcountl(words & 0xffff);
}

int main(int argc, char **argv) {
    long numbers[100], sum = 0, bad = 0;
    int count = 0;
    while (count < 100 && scanf("%ld", &numbers[count]) == 1) count++;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < count; i++) sum += numbers[i];

    srand((unsigned)(time(NULL) ^ getpid()));
    bad += regions((unsigned long)rand());
    unsigned long chance;
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance) return 1;
    bad += regions(chance);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    bad += regions((unsigned long)now.tv_nsec);
    struct timeval day;
    gettimeofday(&day, NULL);
    bad += regions((unsigned long)day.tv_usec);
    bad += regions((unsigned long)clock());
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    bad += regions((unsigned long)usage.ru_utime.tv_usec ^ (unsigned long)usage.ru_maxrss);
    bad += regions((unsigned long)(omp_get_wtime() * 1e9));
    bad += regions((unsigned long)gettid() + (unsigned long)getppid());
    FILE *urandom = fopen("/dev/urandom", "r");
    if (!urandom || fread(&chance, sizeof chance, 1, urandom) != 1) return 1;
    fclose(urandom);
    bad += regions(chance);

    // memory of the kernel's choice, a file in memory, a signal to itself, a way back
    unsigned long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bad += regions((unsigned long)shared >> 12);
    FILE *file = fopen(argv[1], "w+");
    if (!file) return 1;
    fprintf(file, "written once\n");
    fflush(file);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    bad += mapped == MAP_FAILED || memcmp(mapped, "written once\n", 13) != 0;
    fclose(file);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    bad += caught != SIGUSR1;
    jmp_buf back;
    if (setjmp(back) == 0) {
        bad += regions(0x5555);
        longjmp(back, 1);
    }

    // memory of a region, given back by serial code; and a region of fewer threads than there may be ranks
    char *blocks[4] = {0};
#pragma omp parallel for
    for (int i = 0; i < 4; i++) memset(blocks[i] = malloc(10000 + i), 'a' + i, 10000);
    for (int i = 0; i < 4; i++) bad += blocks[i][9999] != 'a' + i, free(blocks[i]);
#pragma omp parallel num_threads(2)
#pragma omp single
    printf("%d numbers, sum %ld, bad %ld, %s\n", count, sum, bad, isatty(1) ? "terminal" : "no terminal");
    fprintf(stderr, "said once\n");
    return 7;
}
