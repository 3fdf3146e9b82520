/* One process and many peers through libfabric: what crates/rails/examples/peers.rs does through the API of rails, so that
 * providers can stand beside each other. It prints a name and a number a line.
 *
 *   fi_peers PROVIDER [PEERS [PROCESSES [UNEXPECTED]]]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { PING = 1, ASK = 2, FIRST = 1000, ROUNDS = 20, EMPTY = 10000, TRIPS = 1000, CHUNKS = 20, LIMIT_S = 60, NAME_MAX_BYTES = 256 };
static const uint64_t PING_BYTES = 0x0101010101010101;

/* A receive: libfabric may use the context while it is posted. */
struct slot {
    struct fi_context2 context;
    struct fid_ep *ep;
    uint64_t data;
};

static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fi_info *info;

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static void check(int status, const char *what)
{
    if (status < 0)
        fail("%s: %s", what, fi_strerror(-status));
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double now(void)
{
    return seconds(CLOCK_MONOTONIC);
}

/* What this process has used of the processor: other processes make no difference to it. */
static double processor_time(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static double resident(void)
{
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %lf", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib * 1024;
}

static void open_domain(const char *provider, size_t peers)
{
    struct fi_info *hints = fi_allocinfo();
    struct fid_fabric *fabric;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 65536};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = peers};

    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    int status = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
    if (status)
        fail("provider %s: %s", provider, fi_strerror(-status));
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    fi_freeinfo(hints);
}

static struct fid_ep *open_endpoint(void)
{
    struct fid_ep *ep;
    check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT | FI_SELECTIVE_COMPLETION), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    return ep;
}

/* An endpoint's name as hexadecimal digits, so that it fits a line. */
static void print_name(FILE *out, struct fid_ep *ep)
{
    unsigned char name[NAME_MAX_BYTES];
    size_t len = sizeof name;
    check(fi_getname(&ep->fid, name, &len), "fi_getname");
    for (size_t i = 0; i < len; i++)
        fprintf(out, "%02x", name[i]);
    fputc('\n', out);
    fflush(out);
}

static fi_addr_t read_name(FILE *in)
{
    char line[2 * NAME_MAX_BYTES + 2];
    unsigned char name[NAME_MAX_BYTES] = {0};
    fi_addr_t addr;
    if (!fgets(line, sizeof line, in))
        fail("a name is missing: the other side ended early");
    for (size_t i = 0; line[2 * i] > ' '; i++)
        if (sscanf(line + 2 * i, "%2hhx", &name[i]) != 1)
            fail("not a name: %s", line);
    if (fi_av_insert(av, name, 1, &addr, 0, NULL) != 1)
        fail("fi_av_insert");
    return addr;
}

/* The next receive that has ended, or NULL. */
static struct slot *progress(void)
{
    struct fi_cq_tagged_entry entry;
    ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(cq, &error, 0);
        fail("an operation failed: %s", fi_strerror(error.err));
    }
    if (n != 1 && n != -FI_EAGAIN)
        fail("fi_cq_read: %s", fi_strerror((int)-n));
    return n == 1 && (entry.flags & FI_RECV) ? entry.op_context : NULL;
}

static void post(struct slot *slot, fi_addr_t from, uint64_t tag)
{
    ssize_t n;
    struct iovec iov = {&slot->data, sizeof slot->data};
    struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = from, .tag = tag, .context = slot};
    while ((n = fi_trecvmsg(slot->ep, &msg, FI_COMPLETION)) == -FI_EAGAIN)
        progress();
    check((int)n, "fi_trecvmsg");
}

/* Progress while a send finds no room gives receives that must not be lost. */
static struct slot *early[65536];
static size_t early_count;

static void put(struct fid_ep *ep, fi_addr_t to, uint64_t tag, uint64_t data)
{
    ssize_t n;
    while ((n = fi_tinject(ep, &data, sizeof data, to, tag)) == -FI_EAGAIN) {
        struct slot *slot = progress();
        if (slot && early_count == sizeof early / sizeof *early)
            fail("too much comes while nothing leaves");
        if (slot)
            early[early_count++] = slot;
    }
    check((int)n, "fi_tinject");
}

static struct slot *next(void)
{
    return early_count ? early[--early_count] : progress();
}

static void be_peers(int count)
{
    /* who stands still hears of no end of input */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fi_addr_t hub = read_name(stdin);
    struct slot *slots = calloc(count + 1, sizeof *slots);
    for (int i = 0; i < count; i++) {
        slots[i].ep = open_endpoint();
        print_name(stdout, slots[i].ep);
        post(&slots[i], FI_ADDR_UNSPEC, PING);
    }
    struct slot *asked = &slots[count];
    asked->ep = slots[0].ep;
    post(asked, FI_ADDR_UNSPEC, ASK);
    for (unsigned round = 0;; round++) {
        struct slot *slot = next();
        if (slot == asked) {
            for (uint64_t n = 0; n < asked->data; n++)
                put(asked->ep, hub, FIRST + n, PING_BYTES);
            post(asked, FI_ADDR_UNSPEC, ASK);
            puts("sent");
            fflush(stdout);
        } else if (slot) {
            post(slot, FI_ADDR_UNSPEC, PING);
            put(slot->ep, hub, PING, PING_BYTES);
        }
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (round % 1024 == 0 && poll(&in, 1, 0) > 0)
            exit(0);
    }
}

static void await(int count)
{
    double begun = now();
    for (int done = 0; done < count;) {
        if (next())
            done++;
        else if (now() - begun > LIMIT_S)
            fail("%d of %d messages came within %d s", done, count, LIMIT_S);
    }
}

/* Sends that may wait in the provider, so that connections come about at the same time. */
static void ping(struct slot *slots, fi_addr_t *peers, int count)
{
    static struct fi_context2 context;
    ssize_t n;
    for (int i = 0; i < count; i++) {
        post(&slots[i], peers[i], PING);
        while ((n = fi_tsend(slots[i].ep, &PING_BYTES, sizeof PING_BYTES, NULL, peers[i], PING, &context)) == -FI_EAGAIN) {
            struct slot *slot = progress();
            if (slot)
                early[early_count++] = slot;
        }
        check((int)n, "fi_tsend");
    }
    await(count);
}

/* A process of peers: what it writes and what it reads. */
struct process {
    FILE *out, *in;
    int count;
    pid_t pid;
};

static struct process start(const char *self, const char *provider, int count, struct fid_ep *ep)
{
    int to[2], from[2];
    char number[16];
    check(pipe(to), "pipe");
    check(pipe(from), "pipe");
    snprintf(number, sizeof number, "%d", count);
    pid_t child = fork();
    check(child, "fork");
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int fd = 3; fd < 4096; fd++)
            close(fd);
        execl(self, self, provider, "peer", number, (char *)NULL);
        fail("%s: %s", self, strerror(errno));
    }
    close(to[0]);
    close(from[1]);
    struct process process = {fdopen(from[0], "r"), fdopen(to[1], "w"), count, child};
    print_name(process.in, ep);
    return process;
}

/* Microseconds to one peer and back, in the best of some chunks: who else runs shall not count. */
static double round_trip(struct slot *slots, fi_addr_t peer)
{
    double best = 1e9;
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        double begun = now();
        for (int i = 0; i < TRIPS; i++)
            ping(slots, &peer, 1);
        double each = (now() - begun) * 1e6 / TRIPS;
        best = each < best ? each : best;
    }
    return best;
}

static void ask_for(struct slot *slots, fi_addr_t peer, int count, struct process *process)
{
    double begun = now(), quiet = now();
    int sent = 0;
    put(slots[0].ep, peer, ASK, count);
    while (!sent || now() - quiet < 0.1) {
        struct pollfd out = {.fd = fileno(process->out), .events = POLLIN};
        struct slot *slot = progress();
        if (slot)
            fail("a message came that nobody sent");
        if (!sent && poll(&out, 1, 0) > 0) {
            char line[16];
            sent = fgets(line, sizeof line, process->out) != NULL;
            quiet = now();
        }
        if (now() - begun > LIMIT_S)
            fail("%d messages that nobody has asked for did not all leave within %d s", count, LIMIT_S);
    }
}

static void receive(struct slot *slots, fi_addr_t peer, int count, int last_first)
{
    for (int i = 0; i < count; i++)
        post(&slots[i], peer, FIRST + (last_first ? count - 1 - i : i));
    await(count);
}

static void hub(const char *self, const char *provider, int count, int processes, int unexpected)
{
    int slots_needed = count > unexpected ? count : unexpected;
    struct slot *slots = calloc(slots_needed, sizeof *slots);
    struct process *started = calloc(processes, sizeof *started);
    fi_addr_t *peers = calloc(count, sizeof *peers);
    struct fid_ep *ep = open_endpoint();
    for (int i = 0; i < slots_needed; i++)
        slots[i].ep = ep;
    struct process near = start(self, provider, 1, ep);
    fi_addr_t near_peer = read_name(near.out);
    printf("round_trip_alone_us %g\n", round_trip(slots, near_peer));
    kill(near.pid, SIGSTOP);
    for (int i = 0; i < processes; i++)
        started[i] = start(self, provider, count / processes + (i < count % processes), ep);

    /* what was freed before must not hide what peers take */
    malloc_trim(0);
    double before = resident();
    for (int i = 0, n = 0; i < processes; i++)
        for (int j = 0; j < started[i].count; j++)
            peers[n++] = read_name(started[i].out);
    double known = resident(), begun = now();
    ping(slots, peers, count);
    printf("first_message_to_all_s %g\n", now() - begun);
    printf("memory_per_known_peer_bytes %g\n", (known - before) / count);
    printf("memory_per_connected_peer_bytes %g\n", (resident() - before) / count);

    begun = now();
    for (int i = 0; i < ROUNDS; i++)
        ping(slots, peers, count);
    printf("round_trip_with_all_us %g\n", (now() - begun) * 1e6 / ROUNDS / count);
    begun = processor_time();
    for (int i = 0; i < EMPTY; i++)
        if (progress())
            fail("a message came that nobody sent");
    printf("progress_without_work_cpu_us %g\n", (processor_time() - begun) * 1e6 / EMPTY);
    for (int i = 0; i < processes; i++)
        kill(started[i].pid, SIGSTOP);
    kill(near.pid, SIGCONT);
    printf("round_trip_with_one_us %g\n", round_trip(slots, near_peer));
    kill(near.pid, SIGSTOP);
    for (int i = 0; i < processes; i++)
        kill(started[i].pid, SIGCONT);
    fflush(stdout);

    for (int order = 0; order < 2; order++) {
        before = resident();
        ask_for(slots, peers[0], unexpected, &started[0]);
        if (order == 0)
            printf("memory_per_unexpected_message_bytes %g\n", (resident() - before) / unexpected);
        begun = now();
        receive(slots, peers[0], unexpected, order);
        printf("receive_unexpected_%s_us %g\n", order ? "last_first" : "as_sent", (now() - begun) * 1e6 / unexpected);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        fail("usage: fi_peers PROVIDER [PEERS [PROCESSES [UNEXPECTED]]]");
    int peer = argc == 4 && strcmp(argv[2], "peer") == 0;
    int count = argc > 2 && !peer ? atoi(argv[2]) : 1000;
    int processes = argc > 3 && !peer ? atoi(argv[3]) : 4;
    int unexpected = argc > 4 ? atoi(argv[4]) : 10000;
    if (count < processes || processes < 1 || unexpected < 1)
        fail("at least one process, one peer in each, and one message");
    open_domain(argv[1], peer ? 1 : count + 1);
    if (peer)
        be_peers(atoi(argv[3]));
    else
        hub(argv[0], argv[1], count, processes, unexpected);
    /* peers end when their standard input does, which is now */
    return 0;
}
