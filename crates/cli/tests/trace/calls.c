/* Every recorded function, on TCP over both families, UDP and within the host. */
#include "truth.h"

static char buffer[1 << 16];
/* Unknown to the compiler: with _FORTIFY_SOURCE, reads become checked ones. */
static volatile size_t some = 1000;

static socklen_t any(int family, struct sockaddr_storage *name)
{
    memset(name, 0, sizeof *name);
    name->ss_family = family;
    if (family == AF_INET) {
        ((struct sockaddr_in *)name)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof(struct sockaddr_in);
    }
    ((struct sockaddr_in6 *)name)->sin6_addr = in6addr_loopback;
    return sizeof(struct sockaddr_in6);
}

static void whole(int fd, size_t size)
{
    while (size) {
        ssize_t got = C(recv, fd, buffer, size < sizeof buffer ? size : sizeof buffer, 0);
        CHECK(got > 0);
        size -= got;
    }
}

static void stream(int to, int from)
{
    char part[3][100];
    struct iovec parts[3] = { { part[0], 10 }, { part[1], 20 }, { part[2], 30 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    int file = open("/proc/self/exe", O_RDONLY), tube[2];
    CHECK(file >= 0 && pipe(tube) == 0);

    CHECK(C(send, to, buffer, some, MSG_NOSIGNAL) == 1000);
    whole(from, 1000);
    CHECK(C(write, to, buffer, some) == 1000);
    CHECK(C(read, from, buffer, some) == 1000);
    CHECK(C(writev, to, parts, 3) == 60);
    CHECK(C(readv, from, parts, 3) == 60);
    CHECK(C(sendmsg, to, &message, 0) == 60);
    CHECK(C(recvmsg, from, &message, 0) == 60);
    CHECK(C(sendto, to, buffer, some, 0, NULL, 0) == 1000);
    CHECK(C(recvfrom, from, buffer, some, MSG_WAITALL, NULL, NULL) == 1000);
    CHECK(C(sendfile, to, file, NULL, 5000) == 5000);
    whole(from, 5000);
    /* into a pipe and out of it */
    CHECK(C(send, to, buffer, 700, 0) == 700);
    CHECK(C(splice, from, NULL, tube[1], NULL, 700, 0) == 700);
    CHECK(C(splice, tube[0], NULL, to, NULL, 700, 0) == 700);
    whole(from, 700);
    /* files are none of our business */
    CHECK(read(file, buffer, some) == 1000 && write(tube[1], buffer, 10) == 10 && read(tube[0], buffer, 10) == 10);
    close(file), close(tube[0]), close(tube[1]);
}

static void waits(int to, int from)
{
    struct pollfd one = { .fd = from, .events = POLLIN };
    struct timespec short_time = { 0, 1000000 }, none = { 0, 0 };
    struct timeval no_time = { 0, 0 };
    struct epoll_event event = { .events = EPOLLIN };
    fd_set set;
    int epoll = epoll_create1(0);

    for (int i = 0; i < 1000; i++)
        CHECK(C(recv, from, buffer, some, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    for (int i = 0; i < 100; i++)
        CHECK(C(poll, &one, 1, 0) == 0);
    CHECK(C(ppoll, &one, 1, &short_time, NULL) == 0);
    FD_ZERO(&set);
    FD_SET(from, &set);
    CHECK(C(select, from + 1, &set, NULL, NULL, &no_time) == 0);
    FD_SET(from, &set);
    CHECK(C(pselect, from + 1, &set, NULL, NULL, &none, NULL) == 0);
    CHECK(C(epoll_ctl, epoll, EPOLL_CTL_ADD, from, &event) == 0);
    CHECK(C(epoll_wait, epoll, &event, 1, 0) == 0);
    CHECK(C(send, to, buffer, 1, 0) == 1);
    CHECK(C(epoll_pwait, epoll, &event, 1, -1, NULL) == 1);
    CHECK(C(poll, &one, 1, -1) == 1);
    whole(from, 1);
    close(epoll);
}

static void duplicates(int to, int from)
{
    int more[4];
    CHECK((more[0] = C(dup, to)) >= 0);
    CHECK((more[1] = C(dup2, to, 200)) == 200);
    CHECK((more[2] = C(dup3, to, 201, O_CLOEXEC)) == 201);
    CHECK((more[3] = C(fcntl, to, F_DUPFD, 202)) >= 202);
    for (int i = 0; i < 4; i++) {
        CHECK(C(send, more[i], buffer, 11, 0) == 11);
        whole(from, 11);
        CHECK(C(close, more[i]) == 0);
    }
    /* a number that was a socket and is a file now */
    int file = open("/dev/null", O_RDWR);
    CHECK((more[0] = C(dup, to)) >= 0 && dup2(file, more[0]) == more[0]);
    CHECK(write(more[0], buffer, 50) == 50);
    close(more[0]), close(file);
}

static void tcp(int family)
{
    struct sockaddr_storage name;
    socklen_t length = any(family, &name);
    int one = 1, listener, client, server;
    CHECK((listener = C(socket, family, SOCK_STREAM, 0)) >= 0);
    CHECK(C(setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(C(bind, listener, (void *)&name, length) == 0);
    CHECK(C(listen, listener, 5) == 0);
    CHECK(C(getsockname, listener, (void *)&name, &length) == 0);
    for (int round = 0; round < 2; round++) {
        CHECK((client = C(socket, family, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
        CHECK(C(connect, client, (void *)&name, length) == 0);
        server = round ? C(accept, listener, NULL, NULL) : C(accept4, listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(server >= 0);
        CHECK(C(setsockopt, client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        stream(client, server);
        stream(server, client);
        waits(client, server);
        duplicates(client, server);
        CHECK(C(shutdown, client, SHUT_WR) == 0);
        CHECK(C(recv, server, buffer, some, 0) == 0);
        CHECK(C(close, client) == 0 && C(close, server) == 0);
    }
    CHECK(C(close, listener) == 0);
}

static void udp(int family)
{
    struct sockaddr_storage name, from;
    socklen_t length = any(family, &name), from_length = sizeof from;
    struct iovec parts[2] = { { buffer, 100 }, { buffer, 200 } };
    struct mmsghdr many[2];
    int a, b;
    CHECK((a = C(socket, family, SOCK_DGRAM, 0)) >= 0 && (b = C(socket, family, SOCK_DGRAM, 0)) >= 0);
    CHECK(C(bind, b, (void *)&name, length) == 0);
    CHECK(C(getsockname, b, (void *)&name, &length) == 0);
    CHECK(C(sendto, a, buffer, 500, 0, (void *)&name, length) == 500);
    CHECK(C(recvfrom, b, buffer, some, 0, (void *)&from, &from_length) == 500);
    memset(many, 0, sizeof many);
    for (int i = 0; i < 2; i++) {
        many[i].msg_hdr = (struct msghdr){ .msg_name = &name, .msg_namelen = length, .msg_iov = &parts[i], .msg_iovlen = 1 };
    }
    CHECK(sendmmsg(a, many, 2, 0) == 2);
    counted("sendmmsg", 300);
    for (int i = 0; i < 2; i++)
        many[i].msg_hdr.msg_namelen = 0, many[i].msg_hdr.msg_name = NULL;
    CHECK(recvmmsg(b, many, 2, MSG_WAITFORONE, NULL) == 2);
    counted("recvmmsg", 300);
    CHECK(C(close, a) == 0 && C(close, b) == 0);
}

/* What the kernel refuses must be refused the same way, also pointers to nowhere. */
static void refused(void)
{
    int pair[2], fd;
    void *nowhere = (void *)8;
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(C(send, pair[0], nowhere, 10, 0) == -1 && errno == EFAULT);
    CHECK(C(writev, pair[0], nowhere, 3) == -1 && errno == EFAULT);
    CHECK(C(readv, pair[0], nowhere, 3) == -1 && errno == EFAULT);
    CHECK(C(sendmsg, pair[0], nowhere, 0) == -1 && errno == EFAULT);
    CHECK(C(recvmsg, pair[0], nowhere, 0) == -1 && errno == EFAULT);
    CHECK(C(bind, pair[0], nowhere, 16) == -1 && errno == EFAULT);
    CHECK(C(connect, pair[0], nowhere, 16) == -1 && errno == EFAULT);
    CHECK(poll(nowhere, 1, 0) == -1 && errno == EFAULT);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere) == -1 && errno == EFAULT);
    CHECK(C(close, pair[1]) == 0);
    CHECK(C(send, pair[0], buffer, 10, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    CHECK(C(close, pair[0]) == 0);
    CHECK(send(pair[0], buffer, 10, 0) == -1 && errno == EBADF);
    CHECK(close(pair[0]) == -1 && errno == EBADF && close(-1) == -1 && errno == EBADF);
    CHECK(recv(1 << 21, buffer, 1, 0) == -1 && errno == EBADF);
    CHECK(C(socket, 12345, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT);
    CHECK((fd = open("/dev/null", O_RDWR)) >= 0 && send(fd, buffer, 1, 0) == -1 && errno == ENOTSOCK);
    /* errors before stay what they were */
    errno = 77;
    CHECK(C(socketpair, AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && C(send, pair[0], buffer, 1, 0) == 1 && errno == 77);
    CHECK(C(close, pair[0]) == 0 && C(close, pair[1]) == 0 && close(fd) == 0 && errno == 77);
}

int main(void)
{
    int fd;
    talk(10, 100);
    tcp(AF_INET);
    udp(AF_INET);
    if ((fd = socket(AF_INET6, SOCK_STREAM, 0)) >= 0) {
        struct sockaddr_storage name;
        socklen_t length = any(AF_INET6, &name);
        int usable = bind(fd, (void *)&name, length) == 0;
        counted("socket", fd), counted("bind", 0), C(close, fd);
        if (usable)
            tcp(AF_INET6), udp(AF_INET6);
        else
            dprintf(2, "SKIPPED: no IPv6\n");
    }
    refused();
    tell();
    return 3;
}
