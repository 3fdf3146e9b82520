/* Programs for which something is scarce or forbidden: limits WAY. */
#include "truth.h"
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static void *in_thread(void *n)
{
    talk((long)n, 64);
    return NULL;
}

static void thread(long n)
{
    pthread_t one;
    CHECK(pthread_create(&one, NULL, in_thread, (void *)n) == 0 && pthread_join(one, NULL) == 0);
}

static int most, *pair_of_all;

/* All descriptors are in use at first, and then one is not. */
static void *without_descriptors(void *unused)
{
    char byte;
    for (int i = 0; i < 1000; i++) {
        CHECK(C(send, pair_of_all[0], "x", 1, 0) == 1 && C(recv, pair_of_all[1], &byte, 1, 0) == 1);
        if (i == 500)
            close(most);
    }
    return NULL;
}

static void limit(int what, rlim_t value)
{
    struct rlimit limit = { value, value };
    CHECK(setrlimit(what, &limit) == 0);
}

/* Only what the rest of the program needs itself; anything else ends it. */
static void sandbox(int by_number)
{
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_sendto), ALLOW(SYS_recvfrom), ALLOW(SYS_close), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_getpid),
        ALLOW(SYS_socketpair), ALLOW(SYS_poll),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_number)
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void filtered(int by_number)
{
    int pair[2];
    char buffer[64];
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(C(send, pair[0], buffer, 64, 0) == 64 && C(recv, pair[1], buffer, 64, 0) == 64);
    sandbox(by_number);
    for (int i = 0; i < 100; i++)
        CHECK(C(send, pair[0], buffer, 64, 0) == 64 && C(recv, pair[1], buffer, 64, 0) == 64);
    CHECK(C(close, pair[0]) == 0 && C(close, pair[1]) == 0);
    tell();
    /* more than its ring holds, on sockets that nobody has looked at: lost, but nothing else */
    talk(100000, 10);
    _exit(0);
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    if (!strcmp(way, "talk")) {
        talk(atoi(words[2]), 100);
    } else if (!strcmp(way, "memory")) {
        limit(RLIMIT_AS, 40 << 20);
        talk(10000, 10);
        thread(1000);
    } else if (!strcmp(way, "files")) {
        /* SIGXFSZ ends who would write a file */
        talk(10, 10);
        limit(RLIMIT_FSIZE, atoi(words[2]));
        thread(5000);
        if (fork() == 0) {
            talk(5, 5);
            _exit(0);
        }
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    } else if (!strcmp(way, "descriptors")) {
        int all[2000], n = 0, pair[2];
        limit(RLIMIT_NOFILE, 64);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        while ((all[n] = dup(0)) >= 0)
            n++;
        CHECK(errno == EMFILE);
        most = all[0], pair_of_all = pair;
        pthread_t one;
        CHECK(pthread_create(&one, NULL, without_descriptors, NULL) == 0 && pthread_join(one, NULL) == 0);
    } else if (!strcmp(way, "chroot")) {
        CHECK(mkdir(words[2], 0755) == 0 && chroot(words[2]) == 0 && chdir("/") == 0);
        talk(5, 5);
        thread(50);
    } else if (!strcmp(way, "nobody")) {
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        talk(50, 5);
        thread(50);
        if (count > 2) {
            execl(words[0], words[0], "talk", "3", NULL);
            CHECK(!"exec");
        }
    } else if (!strcmp(way, "seccomp")) {
        filtered(0);
    } else if (!strcmp(way, "seccompnumber")) {
        filtered(1);
    } else if (!strcmp(way, "stops")) {
        talk(20, 20);
        tell();
        raise(SIGSTOP);
        return 0;
    } else if (!strcmp(way, "signal")) {
        talk(20, 20);
        tell();
        raise(atoi(words[2]));
    } else if (!strcmp(way, "waits")) {
        /* for a signal, after having said so */
        sigset_t set;
        int got = 0;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
        talk(20, 20);
        CHECK(write(1, "ready\n", 6) == 6);
        CHECK(sigwait(&set, &got) == 0);
        return got;
    } else if (!strcmp(way, "until")) {
        /* a file is there, or its directory is not, since the test has failed; talks all the while */
        char text[64], *directory = strdup(words[2]);
        long rounds = 0;
        *strrchr(directory, '/') = 0;
        CHECK(write(1, "ready\n", 6) == 6);
        while (access(words[2], F_OK) != 0 && access(directory, F_OK) == 0)
            talk(500, 100), rounds++;
        talk(100, 100);
        snprintf(text, sizeof text, "%d\n", rounds > 0);
        CHECK(write(1, text, strlen(text)) > 0);
        return 5;
    } else {
        return 2;
    }
    tell();
    return 0;
}
