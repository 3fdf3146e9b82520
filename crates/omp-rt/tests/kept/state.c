// All that a C program may have between two regions: memory, static data, threadprivate copies, streams that are being read and written, descriptors and copies of them, a handler, the
// environment, the locale, random numbers, strtok's place, a function for its end, settings of the runtime, floating point.
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <omp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
static double field[200][200], next[200][200];
static int mine;
#pragma omp threadprivate(mine)
static __thread int here = 7;
static volatile sig_atomic_t heard;
static void hear(int signal) { heard += signal == SIGUSR1; }
static void last(void) { printf("last\n"); }
static jmp_buf place;
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]);
    int began = open(argv[6], O_WRONLY | O_CREAT | O_APPEND, 0644);
    write(began, "began\n", 6);
    close(began);
    // standard output is something else for a while
    int saved = dup(1), elsewhere = open("/dev/null", O_WRONLY);
    dup2(elsewhere, 1);
    char name[500];
    snprintf(name, sizeof name, "%s.both", argv[4]);
    FILE *both = fopen(name, "a+");
    static char flip[8192];
    int flips = 0;
    FILE *log = fopen(argv[2], "w+");
    FILE *self = fopen(argv[3], "r");
    int appended = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644), copy = dup(appended), place_file = open(argv[5], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (!log || !self || appended < 0 || place_file < 0) return 9;
    static char buffer[1 << 16];
    setvbuf(log, buffer, _IOFBF, sizeof buffer);
    write(place_file, "0000000000 tail", 15);
    signal(SIGUSR1, hear);
    setenv("KEPT", "yes", 1);
    srand(5);
    srand48(6);
    umask(027);
    char words[] = "one two three four five six seven eight nine ten";
    char *word = strtok(words, " ");
    char *mapped = mmap(0, 100000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    omp_set_dynamic(0);
    omp_set_schedule(omp_sched_dynamic, 3);
    atexit(last);
    setlocale(LC_ALL, "C.UTF-8");
    volatile int jumps = 0;
    for (int i = 0; i < 200; i++) field[i][0] = field[0][i] = i;
    char **lists = 0;
    int lines = 0;
    long sum = 0;
    errno = 77;
    fesetround(FE_DOWNWARD);
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel for schedule(runtime)
        for (int i = 1; i < 199; i++)
            for (int j = 1; j < 199; j++) next[i][j] = (field[i - 1][j] + field[i + 1][j] + field[i][j - 1] + field[i][j + 1]) / 4;
#pragma omp parallel
        {
            mine++;
            here += omp_get_thread_num();
#pragma omp for
            for (int i = 1; i < 199; i++) memcpy(&field[i][1], &next[i][1], 198 * sizeof(double));
        }
        // serial code
        lists = realloc(lists, (round + 1) * sizeof *lists);
        lists[round] = malloc(50 + round % 700);
        sprintf(lists[round], "%d %d", round, rand());
        if (round % 3 == 0) { free(lists[round / 2]); lists[round / 2] = strdup("again"); }
        char line[200];
        if (!fgets(line, sizeof line, self)) rewind(self);
        else { lines++; sum += strlen(line); }
        fprintf(log, "%d %.17g %ld %d %s\n", round, field[50][50], lrand48(), lines, getenv("KEPT"));
        if (round % 10 == 0) {
            long at = ftell(log);
            fseek(log, at / 2, SEEK_SET);
            sum += fgetc(log);
            fseek(log, at, SEEK_SET);
            word = strtok(0, " ");
            if (!word) { strcpy(words, "one two three"); word = strtok(words, " "); }
            sum += word[0];
            raise(SIGUSR1);
            setenv("ROUND", lists[round], 1);
        }
        dprintf(round % 2 ? appended : copy, "%d\n", round);
        // what becomes again what it was
        for (int i = 0; i < 8192; i++) flips += flip[i] != (round / 5 % 2 ? 3 : 0);
        memset(flip, (round + 1) / 5 % 2 ? 3 : 0, sizeof flip);
        if (round % 100 == 0) fprintf(both, "%d\n", round);
        // what is read, changed and written in place
        char number[11] = {0};
        pread(place_file, number, 10, 0);
        sprintf(number, "%010d", atoi(number) + 1);
        pwrite(place_file, number, 10, 0);
        mapped[round % 100000] += round;
        if (setjmp(place) == 0 && round % 50 == 0) { jumps++; longjmp(place, 1); }
        usleep(500);
    }
    long total = 0, all = 0;
#pragma omp parallel reduction(+ : total, all)
    total += mine, all += here - 7;
    for (int i = 0; i < 100000; i++) sum += mapped[i];
    for (int i = 0; i < rounds; i++) sum = sum * 31 + strlen(lists[i]) + lists[i][0];
    omp_sched_t kind;
    int chunk;
    omp_get_schedule(&kind, &chunk);
    struct stat status;
    fstat(place_file, &status);
    fflush(stdout);
    dup2(saved, 1);
    printf("%.17g %ld %ld %ld heard %d jumps %d lines %d schedule %d %d round %d errno %d locale %s env %s mask %o size %ld flips %d\n", field[77][77], sum, total, all, (int)heard, jumps, lines, (int)kind, chunk,
           fegetround() == FE_DOWNWARD, errno == 77, setlocale(LC_ALL, 0), getenv("ROUND"), umask(0), (long)status.st_size, flips);
    fclose(both);
    fclose(log);
    return 5;
}
