// What windows have to hold to, one case a run: windows NAME
#include "case.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

static unsigned next(void) {
    static unsigned state;
    if (state == 0) state = 12345 + 977 * (unsigned)rank;
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

enum { WORDS = 4 };
static long *mine;
static MPI_Win win;

// All words of a target are the same, except while somebody has its lock alone.
static void look(int target) {
    long seen[WORDS];
    MPI_Get(seen, WORDS, MPI_LONG, target, 0, WORDS, MPI_LONG, win);
    MPI_Win_flush(target, win);
    for (int i = 1; i < WORDS; i++) must(seen[i] == seen[0], "a reader sees half of a change");
}

static void change(int target) {
    long now[WORDS];
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    MPI_Get(now, WORDS, MPI_LONG, target, 0, WORDS, MPI_LONG, win);
    MPI_Win_flush(target, win);
    for (int i = 1; i < WORDS; i++) must(now[i] == now[0], "a writer sees half of a change");
    for (int i = 0; i < WORDS; i++) now[i]++;
    for (int i = 0; i < WORDS; i++) MPI_Put(&now[i], 1, MPI_LONG, target, i, 1, MPI_LONG, win);
    MPI_Win_unlock(target, win);
}

static void rounds(int many) {
    long changes[64] = {0}, all[64];
    must(size <= 64, "too many ranks");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < many; i++) {
        // the first rank's is wanted most
        const int target = next() % 2 ? 0 : (int)(next() % (unsigned)size);
        switch (next() % 4) {
        case 0:
            MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
            look(target);
            MPI_Win_unlock(target, win);
            break;
        case 1:
            MPI_Win_lock_all(0, win);
            for (int other = 0; other < size; other++) look(other);
            MPI_Win_unlock_all(win);
            break;
        default:
            change(target);
            changes[target]++;
        }
    }
    MPI_Allreduce(changes, all, size, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    for (int i = 0; i < WORDS; i++) must(mine[i] == all[rank], "a change is lost");
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Nobody changes what another reads or changes: in windows of each kind.
static void alone(void) {
    MPI_Win_allocate(WORDS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    memset(mine, 0, WORDS * sizeof(long));
    rounds(60);
    MPI_Win_free(&win);
    mine = calloc(WORDS, sizeof(long));
    MPI_Win_create(mine, WORDS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    rounds(60);
    MPI_Win_free(&win);
    free(mine);
}

// Locks, puts and their end come to a rank that calls nothing of MPI's, and so do readers' locks of all.
static void passive(void) {
    volatile long *words;
    const int target = size - 1;
    MPI_Win_allocate(WORDS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    memset(mine, 0, WORDS * sizeof(long));
    words = mine;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == target) {
        const double start = MPI_Wtime();
        while (words[0] < (size - 1) * 20) must(MPI_Wtime() - start < 60, "nothing comes while this rank computes");
    } else {
        for (int i = 0; i < 20; i++) {
            change(target);
            MPI_Win_lock_all(0, win);
            look(target);
            MPI_Win_unlock_all(win);
        }
    }
    MPI_Win_free(&win);
}

// How often Polyrail has given this thread's processor away. (MPICH gives it away, too, where there may be threads.)
static _Thread_local long given_away;

static void give_away(const void *caller) {
    Dl_info info;
    if (dladdr(caller, &info) && strstr(info.dli_fname, "libpolyrail")) given_away++;
}

int sched_yield(void) {
    give_away(__builtin_return_address(0));
    return (int)syscall(SYS_sched_yield);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask) {
    struct timespec left = {0};
    if (time) left = *time;
    give_away(__builtin_return_address(0));
    return (int)syscall(SYS_ppoll, fds, count, time ? &left : NULL, mask, sizeof(long));
}

// Who completes what he did to himself hardly waits: MPICH does it in many small steps, after which there is nothing at the provider.
static void itself(void) {
    enum { INTS = 1 << 21 };
    int *const from = malloc(INTS * sizeof(int)), *const window = calloc(INTS, sizeof(int));
    for (int i = 0; i < INTS; i++) from[i] = i;
    MPI_Win_create(window, INTS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    given_away = 0;
    for (int i = 0; i < 8; i++) {
        MPI_Accumulate(from, INTS, MPI_INT, rank, 0, INTS, MPI_INT, MPI_SUM, win);
        if (i % 2) MPI_Win_flush_local(rank, win);
        MPI_Win_flush(rank, win);
    }
    MPI_Accumulate(from, INTS, MPI_INT, rank, 0, INTS, MPI_INT, MPI_SUM, win);
    MPI_Win_unlock(rank, win);
#ifndef OPEN_MPI // between hosts it takes a lock of its own for each, by the provider, and does wait
    // now and then it might wait for others; else it is thousands of times
    must(given_away < 200, "waits for itself as for others");
#endif
    for (int i = 0; i < INTS; i++) must(window[i] == 9 * i, "a sum is wrong");
    MPI_Win_free(&win);
    free(from);
    free(window);
}

// What the program asserts, or says of a window, holds; and there may be many.
static void asserted(void) {
    enum { MANY = 80 };
    static MPI_Win many[MANY];
    long *memory, one = 1, seen = 0;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", "true");
    MPI_Win_allocate(sizeof(long), sizeof(long), info, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_fence(0, win);
    MPI_Put(&one, 1, MPI_LONG, (rank + 1) % size, 0, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    must(*memory == 1, "a fence is none");
    MPI_Win_free(&win);
    MPI_Info_free(&info);

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);

    for (int i = 0; i < MANY; i++) {
        MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &many[i]);
        *memory = 7;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i += 7) {
        const int other = (rank + i) % size;
        MPI_Win_lock(MPI_LOCK_SHARED, other, i % 2 ? MPI_MODE_NOCHECK : 0, many[i]);
        MPI_Get(&seen, 1, MPI_LONG, other, 0, 1, MPI_LONG, many[i]);
        MPI_Win_unlock(other, many[i]);
        must(seen == 7, "a window is another");
        // two at once
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, many[i]);
        MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, many[i]);
        MPI_Win_unlock(0, many[i]);
        MPI_Win_unlock(size - 1, many[i]);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, many[i]);
        MPI_Win_unlock_all(many[i]);
#ifndef OPEN_MPI // 5.0 says that it is no rank
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, many[i]);
        MPI_Win_unlock(MPI_PROC_NULL, many[i]);
#endif
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) MPI_Win_free(&many[i]);
}

// Errors are the MPI's own.
static void codes(void) {
    int class;
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
#define SAY(call)                                                    \
    MPI_Error_class(call, &class);                                   \
    if (rank == 0) printf("%s: %d\n", #call, class);
    SAY(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win));
    SAY(MPI_Win_lock(MPI_LOCK_SHARED, -7, 0, win));
    SAY(MPI_Win_lock(99, 0, 0, win));
    SAY(MPI_Win_unlock(0, win));
    SAY(MPI_Win_unlock_all(win));
    SAY(MPI_Win_lock_all(0, win));
    SAY(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    SAY(MPI_Win_lock_all(0, win));
    SAY(MPI_Win_unlock(0, win));
    SAY(MPI_Win_unlock_all(win));
    SAY(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    SAY(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    SAY(MPI_Win_unlock(0, win));
    // nobody has it
    SAY(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    SAY(MPI_Win_unlock(0, win));
    MPI_Win_free(&win);
    must(win == MPI_WIN_NULL, "a window that was freed is one");
    must(MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_SELF, &mine, &win) == MPI_SUCCESS, "none of one rank");
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Win_unlock(0, win);
    MPI_Win_free(&win);
}

// One that ends while it has a lock ends all that wait for it.
static void killed(void) {
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(200000);
        raise(9);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    MPI_Win_unlock(1, win);
    fprintf(stderr, "nobody has noticed\n");
}

int main(int argc, char **argv) {
    static const struct run all[] = {{"alone", alone}, {"passive", passive}, {"asserted", asserted}, {"itself", itself}, {"codes", codes}, {"killed", killed}};
    if (argc > 1 && strcmp(argv[1], "itself") == 0) level = MPI_THREAD_SINGLE;
    return run_case(argc, argv, all, sizeof all / sizeof *all);
}
