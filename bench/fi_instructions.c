/* Small tagged messages between two endpoints of one process, through libfabric: for counting instructions, which are the same on
 * a busy machine as on an idle one, and for the time of a message without another process.
 *
 *   fi_instructions PROVIDER send|inject|poll COUNT [BYTES]
 *
 * send: COUNT messages, each with its completion at the sender; inject: without; poll: after each of 200 windows of messages COUNT reads
 * of a queue that stays empty, so that few of them wait. It prints the nanoseconds of a message (or read) in the best chunk.
 */
#define _GNU_SOURCE
#include "fi_side.h"

enum { WINDOW = 16, CHUNK = 1000, POLLED = 200, BYTES_MAX = 16 << 10 };

struct side {
    struct fi_side fi;
    struct fi_context2 context[WINDOW];
    fi_addr_t peer;
    char bytes[WINDOW][BYTES_MAX];
};

static struct side a, b;

static void insert(struct side *into, struct side *other)
{
    char name[NAME_MAX_BYTES];
    name_of(&other->fi, name);
    into->peer = peer_of(&into->fi, name);
}

/* Entries that came; the other side may need progress to let this one have any. */
static ssize_t take(struct side *s, int most)
{
    struct fi_cq_tagged_entry entries[WINDOW];
    ssize_t got = fi_cq_read(s->fi.cq, entries, most);
    if (got == -FI_EAGAIN)
        return 0;
    check(got, "fi_cq_read");
    return got;
}

/* A window of messages, each received before the next is sent. */
static void window(int injects, size_t bytes)
{
    for (int i = 0; i < WINDOW; i++)
        check(fi_trecv(b.fi.ep, b.bytes[i], bytes, NULL, FI_ADDR_UNSPEC, 1, 0, &b.context[i]), "fi_trecv");
    for (int i = 0; i < WINDOW; i++) {
        ssize_t sent;
        do {
            if (injects)
                sent = fi_tinject(a.fi.ep, a.bytes[i], bytes, a.peer, 1);
            else
                sent = fi_tsend(a.fi.ep, a.bytes[i], bytes, NULL, a.peer, 1, &a.context[i]);
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
    open_side(&a.fi, argv[1]);
    open_side(&b.fi, argv[1]);
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
