// Datagrams that nobody should heed, beside a connection by UDP: to where its datagrams go, so many a second.
//
//   flood INTERFACE WAIT SECONDS RATE
//
// For WAIT seconds nothing is sent; in the last of them datagrams that leave by INTERFACE are recorded. Needs root (packet(7), raw(7)). Then a
// quarter each: noise from anybody of the network; a recorded datagram again, as it was; one that is cut off, or has a bit that is not as it
// was, in its sender's name; and the beginning of a connection, from anybody of the network, under a key that nobody has.
// Prints: flood SENT REFUSED SECONDS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 512, LONGEST = 1500, BATCH = 20 };
struct packet {
    size_t len;
    unsigned char bytes[LONGEST];
};
static struct packet kept[KEPT];
static size_t count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t dice(void) { // splitmix64
    static uint64_t state = 1;
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint16_t sum(const unsigned char *bytes, size_t len) {
    uint32_t all = 0;
    for (size_t i = 0; i + 1 < len; i += 2) all += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    while (all >> 16) all = (all & 0xffff) + (all >> 16);
    return htons((uint16_t)~all);
}

// The lengths and checksums of a packet are those of what it is now. No checksum of UDP is allowed by IPv4 (RFC 768).
static void finish(struct packet *p) {
    struct ip *ip = (struct ip *)p->bytes;
    struct udphdr *udp = (struct udphdr *)(p->bytes + 4 * ip->ip_hl);
    ip->ip_len = htons((uint16_t)p->len);
    ip->ip_off = htons(IP_DF);
    ip->ip_sum = 0;
    ip->ip_sum = sum(p->bytes, 4 * ip->ip_hl);
    udp->uh_ulen = htons((uint16_t)(p->len - 4 * ip->ip_hl));
    udp->uh_sum = 0;
}

// Keeps the long datagrams that leave until that time; the last ones if there are many.
static void record(unsigned interface, double until) {
    const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), yes = 1;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)interface};
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at)) fail("recording needs root");
    // trains are recorded whole, and told so
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes)) fail("recording trains");
    static unsigned char all[1 << 17];
    while (now() < until) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 50) != 1) continue;
        struct sockaddr_ll from;
        socklen_t size = sizeof from;
        const struct virtio_net_hdr *train = (const struct virtio_net_hdr *)all;
        const ssize_t front = sizeof *train + ETH_HLEN;
        const ssize_t len = recvfrom(fd, all, sizeof all, 0, (struct sockaddr *)&from, &size) - front;
        const unsigned char *bytes = all + front;
        const struct ip *ip = (const struct ip *)bytes;
        const ssize_t head = len >= 20 ? 4 * ip->ip_hl + 8 : 0;
        if (len < head + 60 || head < 28 || ip->ip_v != 4 || ip->ip_p != IPPROTO_UDP || from.sll_pkttype != PACKET_OUTGOING) continue;
        // the first of a train
        const size_t one = train->gso_size ? (size_t)head + train->gso_size : (size_t)len;
        if (one > LONGEST || one > (size_t)len) continue;
        struct packet *p = &kept[count++ % KEPT];
        p->len = one;
        memcpy(p->bytes, bytes, p->len);
        finish(p);
    }
    close(fd);
    count = count < KEPT ? count : KEPT;
}

static void make(struct packet *p, uint64_t kind) {
    *p = kept[dice() % count];
    struct ip *ip = (struct ip *)p->bytes;
    const size_t head = 4 * (size_t)ip->ip_hl + 8;
    struct udphdr *udp = (struct udphdr *)(p->bytes + head - 8);
    unsigned char *payload = p->bytes + head;
    if (kind == 1) return;
    if (kind == 2) {
        if (dice() % 2) p->len = head + 29 + dice() % (p->len - head - 29);
        else payload[dice() % (p->len - head)] ^= (unsigned char)(1 << dice() % 8);
    } else {
        ((unsigned char *)&ip->ip_src)[3] = (unsigned char)(3 + dice() % 250);
        udp->uh_sport = htons((uint16_t)(1024 + dice() % 60000));
        p->len = head + 29 + dice() % (kind == 0 ? 1000 : 100);
        for (size_t i = 0; head + i < p->len; i++) payload[i] = (unsigned char)dice();
        // the header of OPEN, and HELLO behind it
        if (kind == 3) memcpy(payload, (unsigned char[13]){0x12, [12] = 9}, 13);
    }
    finish(p);
}

int main(int argc, char **argv) {
    const unsigned interface = argc == 5 ? if_nametoindex(argv[1]) : 0;
    const double wait = argc == 5 ? atof(argv[2]) : 0, seconds = argc == 5 ? atof(argv[3]) : 0, rate = argc == 5 ? atof(argv[4]) : 0;
    if (!interface || wait < 1 || seconds <= 0 || rate <= 0) {
        fprintf(stderr, "flood INTERFACE WAIT SECONDS RATE\n");
        return 2;
    }
    const double begun = now();
    usleep((useconds_t)((wait - 1) * 1e6));
    record(interface, begun + wait);
    if (count < 10) {
        fprintf(stderr, "flood: hardly a datagram has left by %s\n", argv[1]);
        return 1;
    }
    const int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW), yes = 1, room = 4 << 20;
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &yes, sizeof yes)) fail("sending in the names of others needs root");
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    static struct packet packets[BATCH];
    struct sockaddr_in to[BATCH];
    struct iovec iov[BATCH];
    struct mmsghdr messages[BATCH];
    memset(messages, 0, sizeof messages);
    uint64_t sent = 0, refused = 0;
    const double start = now();
    while (now() < start + seconds) {
        if ((double)(sent + refused) > (now() - start) * rate) {
            usleep(100);
            continue;
        }
        for (size_t i = 0; i < BATCH; i++) {
            make(&packets[i], i % 4);
            to[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = ((struct ip *)packets[i].bytes)->ip_dst};
            iov[i] = (struct iovec){.iov_base = packets[i].bytes, .iov_len = packets[i].len};
            messages[i].msg_hdr = (struct msghdr){.msg_name = &to[i], .msg_namelen = sizeof to[i], .msg_iov = &iov[i], .msg_iovlen = 1};
        }
        const int did = sendmmsg(fd, messages, BATCH, 0);
        sent += did > 0 ? (uint64_t)did : 0;
        refused += BATCH - (did > 0 ? (uint64_t)did : 0);
    }
    printf("flood %llu %llu %.2f\n", (unsigned long long)sent, (unsigned long long)refused, now() - start);
    return 0;
}
