// What the companion has to hold to, one case a run: cases NAME
#include "case.h"

#include <pthread.h>
#include <signal.h>

static void warm(MPI_Comm comm) {
    for (int i = 0; i < 8; i++) MPI_Barrier(comm);
}

// A message that needs its sender's help goes on while the sender waits in a barrier.
static void progress(void) {
    enum { LONG = 4 << 20 };
    char *bytes = malloc(LONG);
    warm(MPI_COMM_WORLD);
    for (int round = 0; round < 5; round++) {
        if (rank == 0) {
            MPI_Request request;
            memset(bytes, round + 1, LONG);
            MPI_Isend(bytes, LONG, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            if (rank == 1) {
                usleep(20000);
                MPI_Recv(bytes, LONG, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                must(bytes[0] == round + 1 && bytes[LONG - 1] == round + 1, "the message is wrong");
            }
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    free(bytes);
}

static MPI_Comm of_thread[4];

static void *sums(void *argument) {
    const int thread = (int)(long)argument;
    for (int i = 0; i < 500; i++) {
        long mine = rank + thread + i, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, of_thread[thread]);
        must(sum == (long)size * (thread + i) + (long)size * (size - 1) / 2, "a thread's sum is wrong");
        if (i % 100 == 0) {
            int number = thread * 1000 + i;
            const int to = (rank + 1) % size, from = (rank + size - 1) % size;
            MPI_Sendrecv_replace(&number, 1, MPI_INT, to, thread, from, thread, of_thread[thread], MPI_STATUS_IGNORE);
            must(number == thread * 1000 + i, "a thread's message is wrong");
        }
    }
    return NULL;
}

// Operations of several communicators at once.
static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++) MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[i]);
    for (long i = 0; i < 4; i++) pthread_create(&all[i], NULL, sums, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < 4; i++) MPI_Comm_free(&of_thread[i]);
}

// More communicators than there is memory for, at once and one after the other.
static void communicators(void) {
    enum { MANY = 40 };
    MPI_Comm all[MANY];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            if (i % 3 == 0) MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &all[i]);
            else MPI_Comm_dup(MPI_COMM_WORLD, &all[i]);
        }
        for (int i = 0; i < MANY; i++)
            for (int again = 0; again < 7; again++) {
                int among, value = rank + i + again, most;
                MPI_Comm_size(all[i], &among);
                MPI_Allreduce(&value, &most, 1, MPI_INT, MPI_MAX, all[i]);
                const int highest = i % 3 ? size - 1 : size - 1 - (size - 1 - rank) % 2;
                must(most == highest + i + again, "the largest is wrong");
            }
        for (int i = MANY - 1; i >= 0; i--) MPI_Comm_free(&all[i]);
    }
    for (int i = 0; i < 300; i++) {
        MPI_Comm one;
        MPI_Comm_dup(MPI_COMM_WORLD, &one);
        for (int again = 0; again < 6; again++) {
            int value = again == 5 && rank == 1 ? i : -1;
            MPI_Bcast(&value, 1, MPI_INT, 1, one);
            must(value == (again == 5 ? i : -1), "a broadcast is wrong");
        }
        MPI_Comm_free(&one);
    }
}

// Operations that do not fit each other.
static void differ(void) {
    warm(MPI_COMM_WORLD);
    int number = 1, sum;
    if (rank == 1) MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody has noticed\n");
}

static void lengths(void) {
    warm(MPI_COMM_WORLD);
    char bytes[64] = {0};
    MPI_Bcast(bytes, rank == 0 ? 64 : 8, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody has noticed\n");
}

// Rank 0 sends one more number to each than rank 1 wants; to those that are short, and to those that are not.
static void longer(int numbers) {
    warm(MPI_COMM_WORLD);
    int *sent = calloc((size_t)(size * (numbers + 1)), sizeof *sent), *received = calloc((size_t)(size * (numbers + 1)), sizeof *received);
    int sends[size], receives[size], places[size];
    for (int other = 0; other < size; other++) {
        sends[other] = rank == 0 ? numbers + 1 : numbers;
        receives[other] = other == 0 && rank != 1 ? numbers + 1 : numbers;
        places[other] = other * (numbers + 1);
    }
    MPI_Alltoallv(sent, sends, places, MPI_INT, received, receives, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody has noticed\n");
}

// Ranks of two hosts call for other numbers of whole pieces: none of them is short of anything.
static void unequal(int first, int others) {
    static char data[1 << 19];
    warm(MPI_COMM_WORLD);
    MPI_Bcast(data, rank < size / 2 ? first : others, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody has noticed\n");
}

static void pieces(void) { unequal(1 << 19, 1 << 18); }
static void more(void) { unequal(1 << 18, 1 << 19); }
static void shorter(void) { unequal(1 << 18, 100); }

static void longer_short(void) { longer(1); }
static void longer_long(void) { longer(40000); }

// Errors come as codes to who wants them so.
static void codes(void) {
    warm(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int number = 1, sum;
    const int codes[] = {MPI_Bcast(&number, 1, MPI_INT, size, MPI_COMM_WORLD), MPI_Bcast(&number, -1, MPI_INT, 0, MPI_COMM_WORLD),
                         MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD),
                         MPI_Allreduce(&number, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
                         MPI_Reduce(NULL, NULL, 1, MPI_INT, MPI_SUM, -3, MPI_COMM_WORLD), MPI_Barrier(MPI_COMM_NULL)};
    for (int i = 0; i < 6; i++) {
        int class;
        MPI_Error_class(codes[i], &class);
        if (rank == 0) printf("%d\n", class);
    }
    warm(MPI_COMM_WORLD);
    number = 1; // Open MPI takes it for an operation in place
    // an operation that is well is well still
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    must(sum == size, "the sum is wrong");
}

// A rank is killed while the others wait for it.
static void killed(void) {
    warm(MPI_COMM_WORLD);
    if (rank == size - 1) raise(SIGKILL);
    for (int i = 0; i < 100; i++) MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody has noticed\n");
}

// One rank computes, and the others wait for long: asleep, and woken by what it writes.
static void asleep(void) {
    warm(MPI_COMM_WORLD);
    if (rank == 0) sleep(2);
    MPI_Barrier(MPI_COMM_WORLD);
}

// In a communicator that has an outstanding operation that does not block.
static void mixed(void) {
    for (int i = 0; i < 50; i++) {
        MPI_Request request;
        int number = rank, sum = -1, all = -1;
        MPI_Iallreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Allreduce(&number, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        must(all == size - 1, "the largest is wrong");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        must(sum == size * (size - 1) / 2, "the sum is wrong");
    }
}

static const char *polyrail, *way;

// What `polyrail top` says of the first rank, there, while the ranks go on; asked again where that had too much else to do to answer in time.
static const char *asked(void) {
    static char command[1000], line[100000], file[100];
    snprintf(file, sizeof file, "/tmp/polyrail-told-%d", (int)getpid());
    snprintf(command, sizeof command, "(%s top --once --json --pid %d > %s.part; mv %s.part %s) &", polyrail, (int)getpid(), file, file, file);
    for (int again = 30; again > 0;) {
        if (rank == 0) must(system(command) == 0, "no command runs");
        for (int over = 0; !over;) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) over = access(file, R_OK) == 0;
            MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        if (rank == 0) {
            memset(line, 0, sizeof line);
            FILE *answer = fopen(file, "r");
            must(answer && fread(line, 1, sizeof line - 1, answer) > 0, "there is no answer");
            fclose(answer);
            unlink(file);
            again = strstr(line, "\"state\":\"computing\"") ? again - 1 : 0;
        }
        MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return rank > 0 ? NULL : line;
}

static void told(void) {
    warm(MPI_COMM_WORLD);
    const char *line = asked();
    if (rank > 0) return;
    must(strstr(line, "{\"algorithm\":\"slots\"") != NULL, line);
    must(strstr(line, "\"algorithm\":\"the MPI's\",\"bytes\":0,\"calls\":4,\"operation\":\"MPI_Barrier\"") != NULL, line);
}

// Hosts of one rank each: what takes a message of each to each is the MPI's, all else is not.
static void singles(void) {
    static int own, all[64];
    warm(MPI_COMM_WORLD);
    for (int round = 0; round < 8; round++) {
        own = rank + round;
        MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
        for (int other = 0; other < size; other++) must(all[other] == other + round, "an element is wrong");
        MPI_Allreduce(&own, all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        must(all[0] == size * round + size * (size - 1) / 2, "a sum is wrong");
    }
    const char *line = asked();
    if (rank > 0) return;
    must(strstr(line, "\"operation\":\"MPI_Allgather\",\"why\":\"several hosts of one rank each\"") != NULL, line);
    must(strstr(line, "{\"algorithm\":\"hosts exchange all they have\"") != NULL, line);
    must(strstr(line, "{\"algorithm\":\"rounds of hosts\"") != NULL, line);
}

// Of what no order of additions gives the same as another: the result's bits, the same wherever ranks stand.
static void bits(void) {
    enum { MOST = 200000 };
    static const int counts[] = {1, 100, 1024, 5000, 40000, MOST};
    static double own[MOST], all[MOST], one[MOST];
    unsigned long long seen = 0;
    warm(MPI_COMM_WORLD);
    for (unsigned n = 0; n < sizeof counts / sizeof *counts; n++)
        for (int root = 0; root < size; root++) {
            for (int i = 0; i < counts[n]; i++) own[i] = 1.0 / (3 + i * 7 + rank * 1000003 + root);
            MPI_Allreduce(own, all, counts[n], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            MPI_Reduce(own, one, counts[n], MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
            MPI_Bcast(one, counts[n], MPI_DOUBLE, root, MPI_COMM_WORLD);
            for (int i = 0; i < counts[n]; i++) {
                unsigned long long bits[2];
                memcpy(bits, all + i, 8);
                memcpy(bits + 1, one + i, 8);
                seen = (seen ^ bits[0]) * 0x100000001b3ULL;
                seen = (seen ^ bits[1]) * 0x100000001b3ULL;
            }
        }
    // so long that all stages of it are under way, and more
    enum { LONG = 900001 };
    double *many = malloc(LONG * sizeof *many);
    for (int i = 0; i < LONG; i++) many[i] = 1.0 / (3 + i * 7 + rank * 1000003);
    MPI_Allreduce(MPI_IN_PLACE, many, LONG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < LONG; i++) {
        unsigned long long bits;
        memcpy(&bits, many + i, 8);
        seen = (seen ^ bits) * 0x100000001b3ULL;
    }
    free(many);
    unsigned long long theirs[64];
    MPI_Allgather(&seen, 8, MPI_BYTE, theirs, 8, MPI_BYTE, MPI_COMM_WORLD);
    for (int other = 0; other < size; other++) must(theirs[other] == seen, "ranks have other bits");
    MPI_Barrier(MPI_COMM_WORLD);
    const char *line = asked();
    if (rank > 0) return;
    printf("bits %016llx\n", seen);
    if (*way == 0) return;
    must(strstr(line, "{\"algorithm\":\"2 sites, of ranks 0") != NULL, line);
    must(strstr(line, "{\"algorithm\":\"sites exchange once\"") != NULL, line);
    must(strstr(line, "{\"algorithm\":\"hosts combine a part each at each site\"") != NULL, line);
    must(strstr(line, "{\"algorithm\":\"a block from site to site\"") != NULL, line);
}

static char pattern(long at, int seed) { return (char)((at * 131 + (at >> 9) + seed * 17) % 251); }

static void broadcast(MPI_Comm comm, int root, long bytes, int seed) {
    static char all[3000100];
    int here;
    MPI_Comm_rank(comm, &here);
    memset(all, 0x5a, (size_t)bytes + 64);
    char *data = all + 32;
    if (here == root)
        for (long i = 0; i < bytes; i++) data[i] = pattern(i, seed);
    MPI_Bcast(data, (int)bytes, MPI_BYTE, root, comm);
    for (long i = 0; i < bytes; i++) must(data[i] == pattern(i, seed), "a byte is wrong");
    for (int i = 0; i < 32; i++) must(all[i] == 0x5a && data[bytes + i] == 0x5a, "it goes beyond its place");
}

// Long broadcasts from all ranks, one after the other without a pause, of all and of some; and which way they went.
static void cast(void) {
    static const long lengths[] = {8193, 100001, 1 << 20, 3000001};
    MPI_Comm some, other;
    warm(MPI_COMM_WORLD);
    for (int round = 0; round < 2; round++)
        for (int which = 0; which < 4; which++)
            for (int root = 0; root < size; root++) broadcast(MPI_COMM_WORLD, (root * 3 + round) % size, lengths[which], round + which + root);
    // without the first rank, and the other way round
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, -rank, &some);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank > 0) {
        warm(some);
        for (int round = 0; round < 10; round++) broadcast(some, round % (size - 1), 200000 + round, round);
        MPI_Comm_free(&some);
    }
    // two at once
    warm(other);
    for (int round = 0; round < 10; round++) broadcast(round % 2 ? other : MPI_COMM_WORLD, round % size, 50000, round);
    MPI_Comm_free(&other);
    // a type with gaps
    MPI_Datatype gaps;
    static int table[40000];
    MPI_Type_vector(20000, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < 40000; i++) table[i] = rank == 1 ? i : -1;
    MPI_Bcast(table, 1, gaps, 1, MPI_COMM_WORLD);
    for (int i = 0; i < 40000; i++) must(table[i] == (i % 2 && rank != 1 ? -1 : i), "an element is wrong");
    MPI_Type_free(&gaps);
    const char *line = asked();
    if (rank == 0 && strstr(line, way) == NULL) fprintf(stderr, "not %s: %s\n", way, line), must(0, "it went another way");
}

static long times;

// Allreduces while lanes between hosts are cut: each gives what the first of its length gave, to all.
static void cut(void) {
    enum { LENGTHS = 4, LONGEST = 40000 };
    static const int counts[LENGTHS] = {1, 100, 3000, LONGEST};
    static double mine[LONGEST], sum[LONGEST], first[LENGTHS][LONGEST], others[LONGEST];
    for (int i = 0; i < LONGEST; i++) mine[i] = 1.0 / (3 + (rank * 7919 + i * 31) % 1009);
    warm(MPI_COMM_WORLD);
    for (long n = 0; n < times; n++) {
        const int which = (int)(n % LENGTHS);
        const size_t bytes = (size_t)counts[which] * sizeof *mine;
        memset(sum, 0x5a, bytes);
        MPI_Allreduce(mine, sum, counts[which], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (n < LENGTHS) {
            memcpy(first[which], sum, bytes);
            memcpy(others, sum, bytes);
            MPI_Bcast(others, counts[which], MPI_DOUBLE, 0, MPI_COMM_WORLD);
            must(memcmp(others, sum, bytes) == 0, "not all have the same sum");
        }
        must(memcmp(first[which], sum, bytes) == 0, "a sum is another than before");
    }
    double exact = 0;
    for (int i = 0; i < size; i++) exact += 1.0 / (3 + (i * 7919) % 1009);
    must(first[0][0] - exact < 1e-9 && exact - first[0][0] < 1e-9, "a sum is wrong");
}

int main(int argc, char **argv) {
    static const struct run all[] = {{"progress", progress}, {"threads", threads}, {"communicators", communicators}, {"differ", differ}, {"lengths", lengths},
               {"codes", codes},       {"killed", killed},   {"asleep", asleep},               {"mixed", mixed},   {"longer_short", longer_short},
               {"longer_long", longer_long},
               {"told", told},         {"cast", cast},         {"pieces", pieces},     {"more", more},
               {"short", shorter},     {"cut", cut},         {"singles", singles},
               {"bits", bits}};
    times = argc > 2 ? atol(argv[2]) : 0;
    polyrail = argc > 2 ? argv[2] : "polyrail";
    way = argc > 3 ? argv[3] : "";
    return run_case(argc, argv, all, sizeof all / sizeof *all);
}
