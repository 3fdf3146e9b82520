// Messages of 8 bytes there and back between two ranks, alone at first and then beside a stream of long ones from rank 0 to rank 1: how
// long they take when nobody asks for the mean.
//
//   tails SECONDS BYTES
//
// Rank 0 prints two lines of a word and figures, times in us, the last in MB/s:
//   alone P50 P99 P99.9 MOST COUNT 0
//   beside P50 P99 P99.9 MOST COUNT RATE     WINDOW messages of BYTES are always under way
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WINDOW = 4, BULK = 1, PING = 2, PONG = 3, MOST = 4 << 20 };
// what a ping says: go on, from now on long messages come, no more of them come, it is over
enum { GO, BEGIN, END, STOP };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *name, double *times, int count, double rate) {
    qsort(times, count, sizeof *times, by_size);
    printf("%s", name);
    const double shares[] = {0.5, 0.99, 0.999, 1};
    for (int i = 0; i < 4; i++) printf(" %.1f", times[(int)(shares[i] * (count - 1))] * 1e6);
    printf(" %d %.1f\n", count, rate / 1e6);
    fflush(stdout);
}

// long messages, and after them the short one that is waited for: one call waits for all, as programs do
static MPI_Request requests[WINDOW + 1];
static MPI_Request *const bulk = requests, *const answer = &requests[WINDOW];
static char *buffers[WINDOW];
// long messages that were sent, or receives of such that were posted
static uint64_t sent, posted;

// Pings for so long; long messages of so many bytes leave all the while, if any. Returns how many.
static int ping(double seconds, int bytes, double *times, double *rate) {
    int count = 0, slot;
    const uint64_t before = sent;
    const uint64_t go = GO;
    uint64_t word;
    const double begun = now();
    while (now() - begun < seconds && count < MOST) {
        const double start = now();
        MPI_Irecv(&word, 1, MPI_UINT64_T, 1, PONG, MPI_COMM_WORLD, answer);
        MPI_Send(&go, 1, MPI_UINT64_T, 1, PING, MPI_COMM_WORLD);
        for (slot = 0; slot < WINDOW && bytes; slot++) {
            if (bulk[slot] != MPI_REQUEST_NULL) continue;
            MPI_Isend(buffers[slot], bytes, MPI_BYTE, 1, BULK, MPI_COMM_WORLD, &bulk[slot]);
            sent++;
        }
        while (MPI_Waitany(WINDOW + 1, requests, &slot, MPI_STATUS_IGNORE), slot != WINDOW) {
            MPI_Isend(buffers[slot], bytes, MPI_BYTE, 1, BULK, MPI_COMM_WORLD, &bulk[slot]);
            sent++;
        }
        times[count++] = now() - start;
    }
    *rate = (double)(sent - before) * bytes / (now() - begun);
    return count;
}

static uint64_t say(uint64_t word) {
    MPI_Send(&word, 1, MPI_UINT64_T, 1, PING, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_UINT64_T, 1, PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return word;
}

static void send_all(double seconds, int bytes) {
    double *times = malloc(MOST * sizeof *times), rate;
    ping(seconds / 10, 0, times, &rate);
    tell("alone", times, ping(seconds, 0, times, &rate), 0);
    say(BEGIN);
    // what the first long messages bring about is not what is asked for
    ping(seconds / 2, bytes, times, &rate);
    const int count = ping(seconds, bytes, times, &rate);
    tell("beside", times, count, rate);
    MPI_Waitall(WINDOW, bulk, MPI_STATUSES_IGNORE);
    // each receive that was posted gets its message
    for (const uint64_t all = say(END); sent < all; sent++) MPI_Send(buffers[0], bytes, MPI_BYTE, 1, BULK, MPI_COMM_WORLD);
    say(STOP);
}

static void post(int slot, int bytes) {
    MPI_Irecv(buffers[slot], bytes, MPI_BYTE, 0, BULK, MPI_COMM_WORLD, &bulk[slot]);
    posted++;
}

static void answer_all(int bytes) {
    uint64_t word = GO;
    int slot, ending = 0;
    while (word != STOP) {
        MPI_Irecv(&word, 1, MPI_UINT64_T, 0, PING, MPI_COMM_WORLD, answer);
        while (MPI_Waitany(WINDOW + 1, requests, &slot, MPI_STATUS_IGNORE), slot != WINDOW)
            if (!ending) post(slot, bytes);
        for (slot = 0; slot < WINDOW && word == BEGIN; slot++) post(slot, bytes);
        ending |= word == END;
        MPI_Send(&posted, 1, MPI_UINT64_T, 0, PONG, MPI_COMM_WORLD);
    }
    MPI_Waitall(WINDOW, bulk, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const double seconds = argc == 3 ? atof(argv[1]) : 0;
    const int bytes = argc == 3 ? atoi(argv[2]) : 0;
    // shorter ones are sent without waiting for the receiver: they are always ready, and the short ones would have no turn
    if (!(seconds > 0) || bytes < 256 << 10 || size != 2) {
        if (rank == 0) fprintf(stderr, "usage: tails SECONDS BYTES, by two ranks; 256 KiB at least\n");
        MPI_Finalize();
        return 2;
    }
    for (int slot = 0; slot < WINDOW; slot++) {
        bulk[slot] = MPI_REQUEST_NULL;
        buffers[slot] = calloc(1, bytes);
    }
    if (rank == 0)
        send_all(seconds, bytes);
    else
        answer_all(bytes);
    MPI_Finalize();
    return 0;
}
