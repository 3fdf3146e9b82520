// A stream of messages from rank 0 to rank 1, of which every word is checked, and what it felt like at the receiving end.
//
//   stream_check SECONDS BYTES check|nocheck [WINDOW]
//
// WINDOW messages are under way at once, 4 if it is not said.
//
// Rank 1 prints, as it goes; times are those of CLOCK_MONOTONIC, which all hosts of scripts/lab share:
//   begin TIME                    when the first message had arrived
//   slice TIME MB/S               what arrived in each 100 ms, by their beginning; told by the first message after them
//   wrong MESSAGE WORD            each of the first ten messages that are not what was sent
//   memory KIB                    that its process had in use at most
//   end TIME BYTES WRONG GAP CPU  messages with wrong data; the longest time without a message; processor seconds of both
//                                 ranks, from the first message on
// Exit status 1 if anything was wrong.
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WINDOW_MAX = 64, DATA = 1, CPU = 2, MAX_TOLD = 10 };
static const double SLICE = 0.1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

// Word i of message m is first_word(m) + i * STEP: it tells a word out of place and one of another message, and costs an
// addition where a checksum would cost more and tell less.
static const uint64_t STEP = 0x9e3779b97f4a7c15;

static uint64_t first_word(uint64_t message) { // splitmix64
    uint64_t z = (message + 1) * STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void fill(uint64_t *words, size_t count, uint64_t message) {
    const uint64_t first = first_word(message);
    for (size_t i = 0; i < count; i++) words[i] = first + i * STEP;
}

// The first word that differs, or count. A block without a difference is added up without a branch.
static size_t first_wrong(const uint64_t *words, size_t count, uint64_t message) {
    enum { BLOCK = 512 };
    const uint64_t first = first_word(message);
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t end = at + BLOCK < count ? at + BLOCK : count;
        uint64_t differs = 0;
        for (size_t i = at; i < end; i++) differs |= words[i] ^ (first + i * STEP);
        for (size_t i = at; differs && i < end; i++)
            if (words[i] != first + i * STEP) return i;
    }
    return count;
}

// Messages of no bytes, one for each buffer of the receiver, say that there are no more.
static void send_stream(uint64_t **buffers, int window, size_t count, double seconds, int check) {
    MPI_Request requests[WINDOW_MAX];
    for (int slot = 0; slot < window; slot++) requests[slot] = MPI_REQUEST_NULL;
    const int bytes = (int)(count * sizeof(uint64_t));
    double begun = 0, cpu_before = 0;
    uint64_t message = 0;
    for (; message == 0 || now() - begun < seconds; message++) {
        const int slot = message % window;
        MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
        if (check) fill(buffers[slot], count, message);
        MPI_Isend(buffers[slot], bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &requests[slot]);
        if (message == 0) { // the first message has the connecting in it
            MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
            begun = now();
            cpu_before = cpu();
        }
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    for (int slot = 0; slot < window; slot++) MPI_Send(NULL, 0, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
    const double used = cpu() - cpu_before;
    MPI_Send(&used, 1, MPI_DOUBLE, 1, CPU, MPI_COMM_WORLD);
}

static int receive_stream(uint64_t **buffers, int window, size_t count, int check) {
    MPI_Request requests[WINDOW_MAX];
    const int bytes = (int)(count * sizeof(uint64_t));
    for (int slot = 0; slot < window; slot++)
        MPI_Irecv(buffers[slot], bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[slot]);
    double slice = 0, last = 0, gap = 0, cpu_before = 0, in_slice = 0, total = 0;
    uint64_t wrong = 0;
    int open = window;
    for (uint64_t message = 0; open > 0; message++) {
        const int slot = message % window;
        MPI_Status status;
        int got = 0;
        MPI_Wait(&requests[slot], &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        const double arrived = now();
        if (got == 0) {
            open--;
            continue;
        }
        if (message == 0) {
            slice = last = arrived;
            cpu_before = cpu();
            printf("begin %.4f\n", arrived);
        } else {
            total += got;
        }
        for (; arrived >= slice + SLICE; slice += SLICE, in_slice = 0) printf("slice %.4f %.2f\n", slice, in_slice / SLICE / 1e6);
        fflush(stdout);
        if (message > 0) in_slice += got;
        if (arrived - last > gap) gap = arrived - last;
        last = arrived;
        const size_t at = got != bytes ? 0 : check ? first_wrong(buffers[slot], count, message) : count;
        if (at < count && wrong++ < MAX_TOLD) printf("wrong %" PRIu64 " %zu\n", message, at);
        MPI_Irecv(buffers[slot], bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[slot]);
    }
    const double mine = cpu() - cpu_before;
    double theirs = 0;
    MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, CPU, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("memory %ld\n", use.ru_maxrss);
    printf("end %.4f %.0f %" PRIu64 " %.4f %.4f\n", last, total, wrong, gap, mine + theirs);
    fflush(stdout);
    return wrong > 0;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, status = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int complete = argc == 4 || argc == 5;
    const double seconds = complete ? atof(argv[1]) : 0;
    const size_t count = complete ? strtoul(argv[2], NULL, 10) / sizeof(uint64_t) : 0;
    const int window = argc == 5 ? atoi(argv[4]) : 4;
    if (size != 2 || seconds <= 0 || window < 1 || window > WINDOW_MAX || count == 0 || count > INT32_MAX / sizeof(uint64_t)) {
        fprintf(stderr, "usage, with two ranks: stream_check SECONDS BYTES check|nocheck [WINDOW] (8 bytes to 2 GB, 1 to 64 messages)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int check = strcmp(argv[3], "nocheck") != 0;
    uint64_t *buffers[WINDOW_MAX];
    for (int slot = 0; slot < window; slot++) {
        buffers[slot] = malloc(count * sizeof(uint64_t));
        if (!buffers[slot]) MPI_Abort(MPI_COMM_WORLD, 2);
        fill(buffers[slot], count, 0); // pages in, so that their first use costs nothing later
    }
    if (rank == 0)
        send_stream(buffers, window, count, seconds, check);
    else
        status = receive_stream(buffers, window, count, check);
    for (int slot = 0; slot < window; slot++) free(buffers[slot]);
    MPI_Finalize();
    return status;
}
