/* Tagged messages between two processes of this host through libfabric, timed in short chunks: of these the median says what messages
 * take where the machine does other things too, which a mean does not.
 *
 *   fi_chunks PROVIDER latency|stream BYTES CHUNKS
 *
 * latency: there and back, 100 times a chunk. stream: windows of 64 messages, each answered by one, 4 of them a chunk. Each process keeps to
 * a processor of its own, the first two. It prints nanoseconds of a message one way: the median chunk's, the best one's.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fi_side.h"

enum { SECONDS = 100, WINDOW = 64, WINDOWS = 4, ROUNDS = 100, WARM = 20, ENTRIES = 16, ANSWER = 8, PAGE = 4096, TAG = 1 };

static struct fi_side own;
static fi_addr_t peer;
static struct fi_context2 receives[WINDOW], sends[WINDOW];
static char *out, *in;
static long received, sent;

static void look(void)
{
    struct fi_cq_tagged_entry entries[ENTRIES];
    ssize_t got = fi_cq_read(own.cq, entries, ENTRIES);
    if (got == -FI_EAGAIN)
        return;
    check(got, "fi_cq_read");
    for (ssize_t i = 0; i < got; i++)
        *(entries[i].flags & FI_RECV ? &received : &sent) += 1;
}

static void until(const long *counter, long value)
{
    while (*counter < value)
        look();
}

static void post(size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        ssize_t status;
        while ((status = fi_trecv(own.ep, in, bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, &receives[i])) == -FI_EAGAIN)
            look();
        check(status, "fi_trecv");
    }
}

static void send_all(size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        ssize_t status;
        while ((status = fi_tsend(own.ep, out, bytes, NULL, peer, TAG, &sends[i])) == -FI_EAGAIN)
            look();
        check(status, "fi_tsend");
    }
}

/* There and back. */
static void ping(int first, size_t bytes)
{
    long came = received + 1, left = sent + 1;
    post(bytes, 1);
    if (first) {
        send_all(bytes, 1);
        until(&received, came);
    } else {
        until(&received, came);
        send_all(bytes, 1);
    }
    until(&sent, left);
}

/* A window, and its answer. */
static void window(int first, size_t bytes)
{
    long came = received, left = sent;
    if (first) {
        post(ANSWER, 1);
        send_all(bytes, WINDOW);
        until(&received, came + 1);
        until(&sent, left + WINDOW);
    } else {
        post(bytes, WINDOW);
        until(&received, came + WINDOW);
        send_all(bytes < ANSWER ? bytes : ANSWER, 1);
        until(&sent, left + 1);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: fi_chunks PROVIDER latency|stream BYTES CHUNKS\n");
        return 2;
    }
    int streams = strcmp(argv[2], "stream") == 0, chunks = atoi(argv[4]);
    size_t bytes = strtoul(argv[3], NULL, 10), room = (bytes + 2 * PAGE) / PAGE * PAGE;
    int to[2], from[2];
    if (chunks < 1 || bytes < 1 || pipe(to) != 0 || pipe(from) != 0)
        check(-FI_EINVAL, "arguments");
    pid_t child = fork();
    int first = child != 0;
    check(child, "fork");
    /* who is left alone polls in vain: neither outlives the other for long */
    alarm(SECONDS);
    if (!first)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    int read_end = first ? from[0] : to[0], write_end = first ? to[1] : from[1];
    cpu_set_t place;
    CPU_ZERO(&place);
    CPU_SET(first, &place);
    sched_setaffinity(0, sizeof place, &place); /* without two processors, anywhere */

    open_side(&own, argv[1]);
    out = aligned_alloc(PAGE, room), in = aligned_alloc(PAGE, room);
    memset(out, 1, room), memset(in, 2, room);
    char name[NAME_MAX_BYTES], other[NAME_MAX_BYTES];
    name_of(&own, name);
    if (write(write_end, name, sizeof name) != sizeof name || read(read_end, other, sizeof other) != sizeof other)
        check(-FI_EIO, "the other process");
    peer = peer_of(&own, other);

    double *each = calloc(chunks, sizeof *each);
    for (int chunk = -WARM; chunk < chunks; chunk++) {
        double begun = now();
        for (int i = 0; i < (streams ? WINDOWS : ROUNDS); i++)
            (streams ? window : ping)(first, bytes);
        if (chunk >= 0)
            each[chunk] = (now() - begun) / (streams ? WINDOWS * WINDOW : 2 * ROUNDS);
    }
    if (!first)
        _exit(0); /* the last answer has left: both ends wait for their completions */
    qsort(each, chunks, sizeof *each, by_size);
    printf("%.1f %.1f\n", each[chunks / 2], each[0]);
    fflush(stdout);
    waitpid(child, NULL, 0);
    _exit(0);
}
