// Random collective operations: what all ranks get, as one number. With the companion and without it is the same.
//
//   random SEED CASES [verbose|hosts|plain]
//
// `hosts`: MPICH 5.0 gives up where a reduce_scatter in place moves bytes to where they are, or nearly so; within a host where they are many.
// `plain`: in addition, what goes from rank to rank lies one behind the other. Between hosts, Open MPI 5.0 mixes up (coll/han) what a rank lays out in
// another way, or waits for ever.
//
// All numbers are whole and small enough for every order of a sum to give the same. What is not is compared between ranks.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS = 5, ROOM = 1 << 26, GUARD = 64, MOST = 16 };
enum { BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, ALLTOALL, REDUCE_SCATTER, SCAN, EXSCAN, SAME_BITS, GATHERV, SCATTERV,
       ALLGATHERV, ALLTOALLV, ALLTOALLW, REDUCE_SCATTERV, OPERATIONS };

static const char *const NAMES[] = {"barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall",
                                    "reduce_scatter_block", "scan", "exscan", "same bits", "gatherv", "scatterv",
                                    "allgatherv", "alltoallv", "alltoallw", "reduce_scatter"};
static uint64_t state, digest = 1469598103934665603u;
static unsigned char *sent, *received;
static MPI_Comm comms[COMMS];
static int world_rank, world_size;
static MPI_Op compose;

// the same on all ranks
static unsigned draw(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    return a ^ a >> 29;
}

static void take(const void *at, size_t bytes) {
    const unsigned char *byte = at;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ byte[i]) * 1099511628211u;
}

// x -> a x + b, of numbers of 32 bits: the order matters
static void composed(void *in, void *into, int *count, MPI_Datatype *type) {
    (void)type;
    const uint64_t *f = in;
    uint64_t *g = into;
    for (int i = 0; i < *count; i++) {
        const uint32_t a = (uint32_t)(f[i] >> 32), b = (uint32_t)f[i], c = (uint32_t)(g[i] >> 32), d = (uint32_t)g[i];
        g[i] = (uint64_t)(a * c) << 32 | (uint32_t)(a * d + b);
    }
}

// lengths of one rank's parts, and where they are: one element apart. What goes from one rank to another is as long as what goes back
struct parts {
    int counts[MOST], places[MOST], bytes[MOST];
    MPI_Datatype types[MOST];
};

static void part(struct parts *parts, uint64_t values, int rank, int size, int most, MPI_Datatype type, size_t apart) {
    for (int other = 0, place = 1; other < size; other++) {
        const int low = rank < other ? rank : other, high = rank < other ? other : rank;
        const uint64_t drawn = mix(values, (uint64_t)(low * MOST + high + 7));
        parts->counts[other] = drawn % 5 ? (int)(drawn / 5 % (uint64_t)(most + 1)) : 0;
        parts->places[other] = place;
        parts->bytes[other] = (int)((size_t)place * apart);
        parts->types[other] = type;
        place += parts->counts[other] + 1;
    }
}

static void make_comms(void) {
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms[2]);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[3]);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? MPI_UNDEFINED : 0, (world_rank * 7) % 5, &comms[4]);
}

static void free_comms(void) {
    for (int i = 1; i < COMMS; i++)
        if (comms[i] != MPI_COMM_NULL) MPI_Comm_free(&comms[i]);
}

struct kind {
    MPI_Datatype type;
    size_t size;
    int whole; // 1: bits may be operated on; 0: a number with a point; 2: a pair
};

static void fill(unsigned char *at, const struct kind *kind, size_t count, uint64_t seed, int rank) {
    for (size_t i = 0; i < count; i++) {
        // Open MPI adds bytes by two means, one of which wraps and one of which does not: nothing is to overflow
        const uint64_t value = mix(mix(seed, (uint64_t)rank + 1), i) % (kind->size == 1 ? 25 : 200);
        unsigned char *to = at + i * kind->size;
        if (kind->type == MPI_DOUBLE) *(double *)to = (double)value;
        else if (kind->type == MPI_FLOAT) *(float *)to = (float)value;
        else if (kind->type == MPI_DOUBLE_INT) {
            memset(to, 0, kind->size);
            *(double *)to = (double)(value % 10);
            *(int *)(to + sizeof(double)) = rank;
        } else memcpy(to, &value, kind->size);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int cases = argc > 2 ? atoi(argv[2]) : 100, verbose = argc > 3 && strcmp(argv[3], "verbose") == 0;
    const int plain = argc > 3 && strcmp(argv[3], "plain") == 0, hosts = argc > 3 && !verbose;
    state = mix(seed, 77);
    sent = calloc(1, ROOM);
    received = calloc(1, ROOM);
    MPI_Op_create(composed, 0, &compose);
    make_comms();
    const struct kind kinds[] = {{MPI_INT, 4, 1},           {MPI_LONG, 8, 1},   {MPI_DOUBLE, 8, 0},
                                 {MPI_FLOAT, 4, 0},         {MPI_SHORT, 2, 1},  {MPI_UNSIGNED_CHAR, 1, 1},
                                 {MPI_UNSIGNED_LONG, 8, 1}, {MPI_DOUBLE_INT, 16, 2}};
    const int counts[] = {0,    1,    2,    3,    7,    16,   50,    127,   128,   129,
                          500,  1024, 1025, 2047, 3000, 4100, 9000,  20000, 70000, 400000};

    for (int one = 0; one < cases; one++) {
        if (one % 60 == 59) {
            free_comms();
            make_comms();
        }
        const unsigned which = draw(COMMS);
        const MPI_Comm comm = comms[which];
        const unsigned operation = draw(OPERATIONS), of = draw(8), many = draw(sizeof counts / sizeof *counts), how = draw(6);
        const unsigned in_place_drawn = draw(3) == 0, laid_out = draw(3), root_drawn = draw(1000);
        const uint64_t values = mix(seed, (uint64_t)one + 1000);
        if (comm == MPI_COMM_NULL) continue;
        int rank, size;
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        const int root = (int)root_drawn % size;
        struct kind kind = how == 5 ? kinds[6] : kinds[of];
        int count = counts[many];
        while ((size_t)count * kind.size * (size_t)size * 2 > ROOM - 2 * GUARD) count /= 2;
        MPI_Op op = (MPI_Op[]){MPI_SUM, MPI_MAX, MPI_MIN, MPI_SUM, MPI_BXOR, MPI_SUM}[how];
        if (how == 4 && kind.whole != 1) op = MPI_MAX;
        if (how == 5) op = compose;
        if (kind.whole == 2) op = how % 2 ? MPI_MAXLOC : MPI_MINLOC;
        const size_t bytes = (size_t)count * kind.size;
        const int in_place = in_place_drawn && !(operation == REDUCE_SCATTERV && (hosts || bytes * (size_t)size > 1 << 18));
        memset(sent, 0xa5, GUARD + 2 * bytes * (size_t)size + GUARD);
        memset(received, 0x5a, GUARD + 2 * bytes * (size_t)size + GUARD);
        unsigned char *from = sent + GUARD, *into = received + GUARD;
        fill(from, &kind, (size_t)count * (size_t)size, values, rank);

        // every second element, on some ranks only; the signature is the same
        MPI_Datatype spread = MPI_DATATYPE_NULL;
        MPI_Datatype kinds_sent = kind.type, kinds_received = kind.type;
        int sends = count, receives = count;
        const int moves = (operation == BCAST || (operation >= GATHER && operation <= ALLTOALL)) && !plain;
        if (moves && laid_out && count > 0) {
            MPI_Datatype vector;
            MPI_Type_vector(count, 1, 2, kind.type, &vector);
            MPI_Type_create_resized(vector, 0, (MPI_Aint)(2 * bytes), &spread);
            MPI_Type_commit(&spread);
            MPI_Type_free(&vector);
            if (laid_out == 1 || rank % 2) kinds_sent = spread, sends = 1;
            if (laid_out == 2 || rank % 2) kinds_received = spread, receives = 1;
            fill(from, &kind, 2 * (size_t)count * (size_t)size, values, rank);
        }
        // the same for parts of other lengths: an element and a gap
        MPI_Datatype wide = MPI_DATATYPE_NULL;
        size_t sent_apart = kind.size, received_apart = kind.size;
        struct parts sending, receiving;
        if (operation >= GATHERV && operation <= ALLTOALLW) {
            if (laid_out && !plain) {
                MPI_Type_create_resized(kind.type, 0, (MPI_Aint)(2 * kind.size), &wide);
                MPI_Type_commit(&wide);
                // MPICH's own rings cut what is long into pieces by extents, which are to be the same on all ranks
                const int mixed = operation != ALLGATHERV && rank % 2;
                if (laid_out == 1 || mixed) kinds_sent = wide, sent_apart *= 2;
                if (laid_out == 2 || mixed) kinds_received = wide, received_apart *= 2;
                fill(from, &kind, 2 * (size_t)count * (size_t)size, values, rank);
            }
            const int all_to_all = operation == ALLTOALLV || operation == ALLTOALLW;
            const int most = count > 2 ? count - 2 : 0;
            if (all_to_all && in_place) kinds_sent = kinds_received, sent_apart = received_apart;
            part(&sending, values, all_to_all ? rank : 0, size, most, kinds_sent, sent_apart);
            part(&receiving, values, all_to_all ? rank : 0, size, most, kinds_received, received_apart);
            if (size * 2 > count) memset(sending.counts, 0, sizeof sending.counts), memset(receiving.counts, 0, sizeof receiving.counts);
        }
        if (operation == REDUCE_SCATTERV) part(&sending, values, 0, size, count, kind.type, kind.size);
        void *place = in_place ? MPI_IN_PLACE : (void *)from;
        const size_t all = GUARD + 2 * bytes * (size_t)size + GUARD;
        switch (operation) {
        case BARRIER: MPI_Barrier(comm); break;
        case BCAST:
            if (rank == root) memcpy(into, from, 2 * bytes);
            if (rank == root) MPI_Bcast(into, sends, kinds_sent, root, comm);
            else MPI_Bcast(into, receives, kinds_received, root, comm);
            break;
        case REDUCE:
            if (in_place && rank == root) memcpy(into, from, bytes);
            MPI_Reduce(rank == root ? place : from, rank == root ? into : NULL, count, kind.type, op, root, comm);
            break;
        case ALLREDUCE:
            if (in_place) memcpy(into, from, bytes);
            MPI_Allreduce(place, into, count, kind.type, op, comm);
            break;
        case GATHER: {
            const size_t apart = kinds_received == spread && spread != MPI_DATATYPE_NULL ? 2 * bytes : bytes;
            if (in_place && rank == root) memcpy(into + (size_t)root * apart, from, apart);
            MPI_Gather(rank == root ? place : from, sends, kinds_sent, rank == root ? into : NULL, receives, kinds_received, root, comm);
            break;
        }
        case SCATTER:
            MPI_Scatter(rank == root ? from : NULL, sends, kinds_sent, rank == root && in_place ? MPI_IN_PLACE : (void *)into, receives,
                        kinds_received, root, comm);
            break;
        case ALLGATHER: {
            const size_t apart = kinds_received == spread && spread != MPI_DATATYPE_NULL ? 2 * bytes : bytes;
            if (in_place) memcpy(into + (size_t)rank * apart, from, apart);
            MPI_Allgather(place, sends, kinds_sent, into, receives, kinds_received, comm);
            break;
        }
        case ALLTOALL:
            if (in_place) memcpy(into, from, 2 * bytes * (size_t)size);
            MPI_Alltoall(place, sends, kinds_sent, into, receives, kinds_received, comm);
            break;
        case REDUCE_SCATTER:
            if (in_place) memcpy(into, from, bytes * (size_t)size);
            MPI_Reduce_scatter_block(place, into, count, kind.type, op, comm);
            if (in_place) memset(into + bytes, 0, bytes * (size_t)(size - 1)); // what is left there is the MPI's business
            break;
        case SCAN:
            if (in_place) memcpy(into, from, bytes);
            MPI_Scan(place, into, count, kind.type, op, comm);
            break;
        case EXSCAN:
            if (in_place) memcpy(into, from, bytes);
            MPI_Exscan(place, into, count, kind.type, op, comm);
            if (rank == 0) memset(into, 0, bytes);
            break;
        case GATHERV:
            if (in_place && rank == root) memcpy(into + receiving.bytes[root], from, (size_t)receiving.counts[root] * received_apart);
            MPI_Gatherv(rank == root ? place : from, sending.counts[rank], kinds_sent, rank == root ? into : NULL, receiving.counts,
                        receiving.places, kinds_received, root, comm);
            break;
        case SCATTERV:
            MPI_Scatterv(rank == root ? from : NULL, sending.counts, sending.places, kinds_sent,
                         rank == root && in_place ? MPI_IN_PLACE : (void *)into, receiving.counts[rank], kinds_received, root, comm);
            break;
        case ALLGATHERV:
            if (in_place) memcpy(into + receiving.bytes[rank], from, (size_t)receiving.counts[rank] * received_apart);
            MPI_Allgatherv(place, sending.counts[rank], kinds_sent, into, receiving.counts, receiving.places, kinds_received, comm);
            break;
        case ALLTOALLV:
            if (in_place) memcpy(into, from, 2 * bytes * (size_t)size);
            MPI_Alltoallv(place, sending.counts, sending.places, kinds_sent, into, receiving.counts, receiving.places, kinds_received, comm);
            break;
        case ALLTOALLW:
            if (in_place) memcpy(into, from, 2 * bytes * (size_t)size);
            MPI_Alltoallw(place, sending.counts, sending.bytes, sending.types, into, receiving.counts, receiving.bytes, receiving.types, comm);
            break;
        case REDUCE_SCATTERV: {
            const size_t own = (size_t)sending.counts[rank] * kind.size;
            if (in_place) memcpy(into, from, bytes * (size_t)size);
            MPI_Reduce_scatter(place, in_place || own > 0 ? into : NULL, sending.counts, kind.type, op, comm);
            if (in_place) memset(into + own, 0, bytes * (size_t)size - own);
            break;
        }
        case SAME_BITS: {
            const int numbers = count < 8000 ? count : 8000;
            double *mine = (double *)from, *sums = (double *)into;
            for (int i = 0; i < numbers; i++) mine[i] = (double)mix(values, (uint64_t)(i * 64 + rank)) / 1e7;
            MPI_Allreduce(mine, sums, numbers, MPI_DOUBLE, MPI_SUM, comm);
            if (rank > 0) MPI_Send(sums, numbers, MPI_DOUBLE, 0, 5, comm);
            for (int other = 1; rank == 0 && other < size; other++) {
                MPI_Recv(mine, numbers, MPI_DOUBLE, other, 5, comm, MPI_STATUS_IGNORE);
                if (memcmp(mine, sums, (size_t)numbers * sizeof(double)) != 0) {
                    printf("case %d: rank %d has other bits than rank 0\n", one, other);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
            }
            memset(received, 0, all > GUARD + (size_t)numbers * 8 ? all : GUARD + (size_t)numbers * 8);
            break;
        }
        }
        if (kind.type == MPI_DOUBLE_INT)
            for (size_t i = 0; i + 16 <= all - 2 * GUARD; i += 16) memset(into + i + 12, 0, 4); // padding is nobody's
        const uint64_t before = digest;
        digest = 1469598103934665603u;
        take(received, all);
        if (verbose)
            printf("%d %s comm %u of %d rank %d root %d count %d of %zu op %u in place %d laid out %u: %016llx\n", one, NAMES[operation], which,
                   size, rank, root, count, kind.size, how, in_place, moves ? laid_out : 0, (unsigned long long)digest);
        digest = mix(before, digest);
        if (spread != MPI_DATATYPE_NULL) MPI_Type_free(&spread);
        if (wide != MPI_DATATYPE_NULL) MPI_Type_free(&wide);
    }
    if (world_rank > 0) MPI_Send(&digest, 1, MPI_UINT64_T, 0, 9, MPI_COMM_WORLD);
    for (int other = 1; world_rank == 0 && other < world_size; other++) {
        uint64_t theirs;
        MPI_Recv(&theirs, 1, MPI_UINT64_T, other, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        digest = mix(digest, theirs);
    }
    if (world_rank == 0) printf("%d cases of seed %llu: %016llx\n", cases, (unsigned long long)seed, (unsigned long long)digest);
    free_comms();
    MPI_Op_free(&compose);
    MPI_Finalize();
    return 0;
}
