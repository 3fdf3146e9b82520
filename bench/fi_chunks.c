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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { NAME_BYTES = 256, SECONDS = 100, WINDOW = 64, WINDOWS = 4, ROUNDS = 100, WARM = 20, ENTRIES = 16, ANSWER = 8, PAGE = 4096, TAG = 1 };

static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_av *av;
static fi_addr_t peer;
static struct fi_context2 receives[WINDOW], sends[WINDOW];
static char *out, *in;
static long received, sent;

static void check(ssize_t status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-status));
        _exit(1);
    }
}

static void open_endpoint(const char *provider)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 4};

    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), provider);
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    fi_freeinfo(hints);
}

static void look(void)
{
    struct fi_cq_tagged_entry entries[ENTRIES];
    ssize_t got = fi_cq_read(cq, entries, ENTRIES);
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
        while ((status = fi_trecv(ep, in, bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, &receives[i])) == -FI_EAGAIN)
            look();
        check(status, "fi_trecv");
    }
}

static void send_all(size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        ssize_t status;
        while ((status = fi_tsend(ep, out, bytes, NULL, peer, TAG, &sends[i])) == -FI_EAGAIN)
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
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
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(first, &own);
    sched_setaffinity(0, sizeof own, &own); /* without two processors, anywhere */

    open_endpoint(argv[1]);
    out = aligned_alloc(PAGE, room), in = aligned_alloc(PAGE, room);
    memset(out, 1, room), memset(in, 2, room);
    char name[NAME_BYTES] = {0}, other[NAME_BYTES];
    size_t len = sizeof name;
    check(fi_getname(&ep->fid, name, &len), "fi_getname");
    if (write(write_end, name, sizeof name) != sizeof name || read(read_end, other, sizeof other) != sizeof other)
        check(-FI_EIO, "the other process");
    if (fi_av_insert(av, other, 1, &peer, 0, NULL) != 1)
        check(-FI_EINVAL, "fi_av_insert");

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
