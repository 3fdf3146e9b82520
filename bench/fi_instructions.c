/* Small tagged messages between two endpoints of one process, through libfabric: for counting instructions, which are the same on
 * a busy machine as on an idle one, and for the time of a message without another process.
 *
 *   fi_instructions PROVIDER send|inject|poll COUNT [BYTES]
 *
 * send: COUNT messages, each with its completion at the sender; inject: without; poll: after each of 200 windows of messages COUNT reads
 * of a queue that stays empty, so that few of them wait. It prints the nanoseconds of a message (or read) in the best chunk.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { NAME_MAX_BYTES = 256, WINDOW = 16, CHUNK = 1000, POLLED = 200, BYTES_MAX = 16 << 10 };

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fi_context2 context[WINDOW];
    fi_addr_t peer;
    char bytes[WINDOW][BYTES_MAX];
};

static struct side a, b;

static void check(ssize_t status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-status));
        exit(1);
    }
}

static void open_side(struct side *s, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 4};

    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info), provider);
    check(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), "fi_fabric");
    check(fi_domain(s->fabric, s->info, &s->domain, NULL), "fi_domain");
    check(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL), "fi_cq_open");
    check(fi_av_open(s->domain, &av_attr, &s->av, NULL), "fi_av_open");
    check(fi_endpoint(s->domain, s->info, &s->ep, NULL), "fi_endpoint");
    check(fi_ep_bind(s->ep, &s->av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(s->ep, &s->cq->fid, FI_RECV | FI_TRANSMIT), "fi_ep_bind");
    check(fi_enable(s->ep), "fi_enable");
    fi_freeinfo(hints);
}

static void insert(struct side *into, struct side *other)
{
    char name[NAME_MAX_BYTES];
    size_t len = sizeof name;
    check(fi_getname(&other->ep->fid, name, &len), "fi_getname");
    if (fi_av_insert(into->av, name, 1, &into->peer, 0, NULL) != 1)
        check(-FI_EINVAL, "fi_av_insert");
}

/* Entries that came; the other side may need progress to let this one have any. */
static ssize_t take(struct side *s, int most)
{
    struct fi_cq_tagged_entry entries[WINDOW];
    ssize_t got = fi_cq_read(s->cq, entries, most);
    if (got == -FI_EAGAIN)
        return 0;
    check(got, "fi_cq_read");
    return got;
}

/* A window of messages, each received before the next is sent. */
static void window(int injects, size_t bytes)
{
    for (int i = 0; i < WINDOW; i++)
        check(fi_trecv(b.ep, b.bytes[i], bytes, NULL, FI_ADDR_UNSPEC, 1, 0, &b.context[i]), "fi_trecv");
    for (int i = 0; i < WINDOW; i++) {
        ssize_t sent;
        do {
            if (injects)
                sent = fi_tinject(a.ep, a.bytes[i], bytes, a.peer, 1);
            else
                sent = fi_tsend(a.ep, a.bytes[i], bytes, NULL, a.peer, 1, &a.context[i]);
            if (sent == -FI_EAGAIN)
                take(&a, 0), take(&b, 0);
        } while (sent == -FI_EAGAIN);
        check(sent, "send");
    }
    /* who sends reads, too: it may be owed room */
    int sent = take(&a, WINDOW), came = 0;
    while ((!injects && sent < WINDOW) || came < WINDOW) {
        if (sent < WINDOW)
            sent += take(&a, WINDOW);
        came += take(&b, WINDOW);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: fi_instructions PROVIDER send|inject|poll COUNT [BYTES]\n");
        return 2;
    }
    long count = atol(argv[3]);
    size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 8;
    int polls = strcmp(argv[2], "poll") == 0, injects = strcmp(argv[2], "inject") == 0;
    double best = 1e18;
    if (bytes > BYTES_MAX)
        check(-FI_EMSGSIZE, "BYTES");
    open_side(&a, argv[1]);
    open_side(&b, argv[1]);
    insert(&a, &b);
    insert(&b, &a);
    for (int i = 0; i < 4; i++)
        window(0, bytes);
    long chunk = polls ? count : CHUNK, all = polls ? POLLED * count : count;
    for (long done = 0; done < all;) {
        if (polls)
            window(0, bytes);
        double begun = now();
        long until = done + chunk < all ? done + chunk : all, before = done;
        for (; done < until; done += polls ? 1 : WINDOW)
            if (polls)
                take(&b, 1);
            else
                window(injects, bytes);
        double each = (now() - begun) / (done - before);
        best = each < best ? each : best;
    }
    printf("%.1f\n", best);
    return 0;
}
