/* Connections of a program that ends with them: 400 kB each by a child and by two threads, one of which does not wait for its
   connection and writes by a copy of its descriptor; then one by which nothing is ever said. With an argument: 1000 bytes to whatever
   the standard input is. Linked statically. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (perror(#what), exit(1)))

static struct sockaddr_in to = { .sin_family = AF_INET };

static int connected(int flags)
{
    int s = socket(AF_INET, SOCK_STREAM | flags, 0);
    struct pollfd wait = { .fd = s, .events = POLLOUT };
    CHECK(s >= 0);
    if (connect(s, (void *)&to, sizeof to) < 0)
        CHECK(errno == EINPROGRESS && poll(&wait, 1, -1) == 1 && fcntl(s, F_SETFL, 0) == 0);
    return s;
}

static void *say(void *copy)
{
    static const char bytes[4000];
    int first = connected(copy ? SOCK_NONBLOCK : 0), s = copy ? dup(first) : first;
    CHECK(s >= 0 && (!copy || (fcntl(s, F_SETFL, 0) == 0 && close(first) == 0)));
    for (int i = 0; i < 100; i++)
        CHECK(write(s, bytes, sizeof bytes) == sizeof bytes);
    CHECK(close(s) == 0);
    return NULL;
}

int main(int count, char **words)
{
    static char bytes[70000];
    socklen_t length = sizeof to;
    (void)words;
    if (count > 1)
        return write(0, bytes, 1000) != 1000;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    alarm(300);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (void *)&to, sizeof to) == 0 && listen(listener, 10) == 0);
    CHECK(getsockname(listener, (void *)&to, &length) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        int child = 0, status = 0;
        long all = 0, got;
        if (i == 0) {
            CHECK((child = fork()) >= 0);
            if (!child) {
                say(NULL);
                _exit(0);
            }
        } else {
            CHECK(pthread_create(&thread, NULL, say, i == 1 ? NULL : bytes) == 0);
        }
        int s = accept(listener, NULL, NULL);
        CHECK(s >= 0);
        while ((got = read(s, bytes, sizeof bytes)) > 0)
            all += got;
        CHECK(got == 0 && all == 400000 && close(s) == 0);
        if (child)
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        else
            CHECK(pthread_join(thread, NULL) == 0);
    }
    connected(0);
    CHECK(accept(listener, NULL, NULL) >= 0);
    _exit(0);
}
