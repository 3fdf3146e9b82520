// A message of vectors there and back, beside the same bytes in one piece, and packed by the program into a buffer of its own.
//
//   vectors BYTES...
//
// For each message of so many bytes in segments of 64 bytes and more, each as far from the next as it is long: rank 0 prints `BYTES SEGMENT` and
// what one way takes in us as a vector, packed, and in one piece, medians. What arrives is checked, and changed each time.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 201, KINDS = 3 };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int rank;

// one turn: sends `count` of `type` to the other, and takes over what comes back
static double turn(void *buffer, int count, MPI_Datatype type) {
    const double begun = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(buffer, count, type, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, count, type, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, count, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, count, type, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begun) / 2 * 1e6;
}

static double packed(char *buffer, char *whole, int bytes, MPI_Datatype type) {
    int at = 0;
    const double begun = MPI_Wtime();
    if (rank == 0) {
        MPI_Pack(buffer, 1, type, whole, bytes, &at, MPI_COMM_WORLD);
        MPI_Send(whole, at, MPI_PACKED, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Recv(whole, bytes, MPI_PACKED, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    at = 0;
    MPI_Unpack(whole, bytes, &at, buffer, 1, type, MPI_COMM_WORLD);
    if (rank == 1) {
        at = 0;
        MPI_Pack(buffer, 1, type, whole, bytes, &at, MPI_COMM_WORLD);
        MPI_Send(whole, at, MPI_PACKED, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begun) / 2 * 1e6;
}

static void check(const unsigned char *buffer, int segments, int segment, unsigned char value) {
    for (int i = 0; i < segments; i++)
        for (int at = 0; at < segment; at += segment - 1)
            if (buffer[(size_t)i * 2 * segment + at] != (unsigned char)(value + i)) {
                fprintf(stderr, "rank %d: byte %d of segment %d of %d is wrong\n", rank, at, i, segment);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
}

static void measure(int bytes, int segment) {
    const int segments = bytes / segment;
    unsigned char *buffer = calloc(2, bytes);
    char *whole = calloc(1, bytes);
    MPI_Datatype type;
    MPI_Type_vector(segments, segment, 2 * segment, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    static double times[KINDS][TURNS];
    for (int i = 0; i < TURNS; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            const unsigned char value = (unsigned char)(i * KINDS + kind);
            if (rank == 0)
                for (int at = 0; at < segments; at++)
                    memset(buffer + (size_t)at * 2 * segment, value + at, segment);
            times[kind][i] = kind == 0   ? turn(buffer, 1, type)
                             : kind == 1 ? packed((char *)buffer, whole, bytes, type)
                                         : turn(whole, bytes, MPI_BYTE);
            if (kind < 2) check(buffer, segments, segment, value);
        }
    }
    for (int kind = 0; kind < KINDS; kind++) qsort(times[kind], TURNS, sizeof(double), by_size);
    if (rank == 0) printf("%d %d %.2f %.2f %.2f\n", bytes, segment, times[0][TURNS / 2], times[1][TURNS / 2], times[2][TURNS / 2]);
    MPI_Type_free(&type);
    free(whole);
    free(buffer);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++)
        for (int segment = 64; segment <= atoi(argv[i]) && segment <= 65536; segment *= 4) measure(atoi(argv[i]), segment);
    MPI_Finalize();
    return 0;
}
