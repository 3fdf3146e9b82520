/* Processes and threads in all the ways in which they come and go: processes WAY [NUMBER]. Each tells what it did. */
#include "truth.h"
#include <spawn.h>

extern char **environ;
static const char *self;

static void child_talks(int n)
{
    forget();
    talk(n, 100);
    tell();
}

static void reap(pid_t pid)
{
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *in_thread(void *n)
{
    talk((long)n, 64);
    return NULL;
}

static void threads(int count, size_t stack, int talks)
{
    pthread_t all[1000];
    pthread_attr_t attributes;
    CHECK(count <= 1000);
    pthread_attr_init(&attributes);
    if (stack)
        CHECK(pthread_attr_setstacksize(&attributes, stack) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&all[i], &attributes, in_thread, (void *)(long)talks) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

static int ticks_socket, ticks;
static void on_tick(int signal)
{
    char byte = 0;
    if (C(send, ticks_socket, &byte, 1, MSG_DONTWAIT) == 1)
        ticks++;
}

static void signals(int rounds)
{
    struct itimerval every = { { 0, 100 }, { 0, 100 } }, never = { 0 };
    struct sigaction action = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
    int pair[2], timer[2];
    char buffer[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, timer) == 0);
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    ticks_socket = timer[0];
    on_tick(0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        CHECK(C(send, pair[0], buffer, 64, 0) == 64);
        CHECK(C(recv, pair[1], buffer, 64, 0) == 64);
        if (i % 1000 == 0) {
            int got;
            char drop[8192];
            while ((got = C(recv, timer[1], drop, sizeof drop, MSG_DONTWAIT)) > 0)
                ;
        }
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(ticks > 10);
}

/* The next one comes so long after this: on a busy machine the program would do nothing else. */
static void fork_soon(void)
{
    static int forks;
    struct itimerval once = { { 0 }, { 0, 1500 } };
    if (forks++ < 200)
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void on_fork(int signal)
{
    pid_t pid = fork();
    if (pid == 0)
        return;
    int status;
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        _exit(98);
    fork_soon();
}

/* A handler forks in the middle of anything; the child goes on where the parent was, and ends well. */
static void fork_in_handler(void)
{
    struct sigaction action = { .sa_handler = on_fork, .sa_flags = SA_RESTART };
    pid_t first = getpid();
    int pair[2];
    char buffer[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    fork_soon();
    for (int i = 0; i < 20000; i++) {
        /* children send and receive on it as well */
        CHECK(send(pair[0], buffer, 64, MSG_DONTWAIT) == 64 || errno == EAGAIN);
        if (getpid() != first) {
            talk(2, 10);
            exit(0);
        }
        CHECK(recv(pair[1], buffer, 64, MSG_DONTWAIT) == 64 || errno == EAGAIN);
    }
}

static void *blocked(void *fd)
{
    char byte;
    C(recv, (int)(long)fd, &byte, 1, 0);
    return NULL;
}

static void cancelled(void)
{
    for (int i = 0; i < 50; i++) {
        int pair[2];
        void *result;
        pthread_t thread;
        CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(pthread_create(&thread, NULL, blocked, (void *)(long)pair[1]) == 0);
        usleep(i % 5 * 500);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(C(close, pair[0]) == 0 && C(close, pair[1]) == 0);
    }
    talk(5, 5);
}

static pthread_key_t key;
static void late(void *rounds)
{
    talk(1, 7);
    if ((long)rounds > 1)
        pthread_setspecific(key, (void *)((long)rounds - 1));
}

static void *ends_late(void *unused)
{
    talk(1, 7);
    pthread_setspecific(key, (void *)3);
    return NULL;
}

static void *forks(void *n)
{
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            child_talks((long)n);
            _exit(0);
        }
        reap(pid);
    }
    return NULL;
}

static volatile int handled;
static void on_small_stack(int signal)
{
    char bytes[8] = { 0 };
    handled += C(send, ticks_socket, bytes, 8, 0) == 8;
}

static void small_stack(void)
{
    long size = sysconf(_SC_MINSIGSTKSZ) + 1024;
    char *memory = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size = (size + 4095) & ~4095L;
    CHECK(memory != MAP_FAILED && mprotect(memory + 65536, size, PROT_READ | PROT_WRITE) == 0);
    stack_t stack = { .ss_sp = memory + 65536, .ss_size = size };
    struct sigaction action = { .sa_handler = on_small_stack, .sa_flags = SA_ONSTACK };
    int pair[2];
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    ticks_socket = pair[0];
    for (int i = 0; i < 3000; i++) { /* the ring grows in the handler */
        char drop[8];
        CHECK(raise(SIGUSR1) == 0 && C(recv, pair[1], drop, 8, 0) == 8);
    }
    CHECK(handled == 3000);
}

static void close_all(int way)
{
    int before[2];
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, before) == 0 && C(send, before[0], "x", 1, 0) == 1);
    int out = dup2(1, 700);
    CHECK(out == 700);
    if (way == 0)
        for (int fd = 0; fd < 1024; fd++)
            fd == out ? 0 : fd == before[0] || fd == before[1] ? C(close, fd) : close(fd);
    else if (way == 1)
        CHECK(close_range(0, 699, 0) == 0);
    else
        for (int fd = 699; fd >= 0; fd--)
            syscall(SYS_close, fd);
    /* the numbers of the sockets are files now, and then sockets again */
    int files[12];
    char byte;
    for (int i = 0; i < 12; i++)
        CHECK((files[i] = open("/dev/zero", O_RDWR)) == i && read(files[i], &byte, 1) == 1 && write(i, &byte, 1) == 1);
    closefrom(701);
    for (int i = 0; i < 12; i++)
        close(i);
    talk(7, 70);
    int pair[2];
    CHECK(C(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pair[0] == 0 && C(write, 0, "abc", 3) == 3);
    CHECK(C(close, 0) == 0 && C(close, pair[1]) == 0);
    CHECK(dup2(out, 1) == 1);
}

static void again(const char *number)
{
    char *words[] = { (char *)self, "talk", (char *)number, NULL };
    char *empty[] = { "ONLY=this", NULL };
    pid_t pid;
    if ((pid = fork()) == 0) {
        execve(self, words, empty);
        _exit(97);
    }
    reap(pid);
    for (int i = 0; i < 3; i++) {
        if ((pid = vfork()) == 0) {
            close(0), dup2(1, 5);
            execv(i == 2 ? "/nonexistent" : self, words);
            _exit(i == 2 ? 0 : 97);
        }
        reap(pid);
    }
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, empty) == 0);
    reap(pid);
    CHECK(posix_spawnp(&pid, self, NULL, NULL, words, environ) == 0);
    reap(pid);
    for (int i = 0; i < 3; i++) {
        if ((pid = fork()) == 0) {
            clearenv();
            if (i == 0)
                execl(self, self, "talk", number, NULL);
            else if (i == 1)
                execlp(self, self, "talk", number, "4", "5", "6", "7", "8", NULL);
            else
                execle(self, self, "talk", number, "4", "5", "6", "7", "8", NULL, empty);
            _exit(97);
        }
        reap(pid);
    }
    int fd = open(self, O_RDONLY | O_CLOEXEC);
    if ((pid = fork()) == 0) {
        fexecve(fd, words, empty);
        _exit(97);
    }
    reap(pid);
    if ((pid = fork()) == 0) {
        execveat(fd, "", words, empty, AT_EMPTY_PATH);
        _exit(97);
    }
    reap(pid);
    char text[600];
    snprintf(text, sizeof text, "%s talk %s; env -i %s talk %s", self, number, self, number);
    CHECK(system(text) == 0);
    FILE *tube = popen(text, "r");
    while (fgets(text, sizeof text, tube))
        CHECK(write(1, text, strlen(text)) > 0);
    CHECK(pclose(tube) == 0);
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    int number = count > 2 ? atoi(words[2]) : 1;
    self = words[0];
    if (!strcmp(way, "talk")) {
        talk(number, 50);
    } else if (!strcmp(way, "fork")) {
        talk(1, 1);
        for (int i = 0; i < number; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                child_talks(i + 2);
                i % 2 ? exit(0) : _exit(0);
            }
            reap(pid);
        }
    } else if (!strcmp(way, "again")) {
        talk(1, 1);
        again("9");
    } else if (!strcmp(way, "becomes")) {
        char *next[] = { words[0], "talk", "4", NULL };
        talk(3, 10);
        tell();
        execv(words[0], next);
    } else if (!strcmp(way, "threads")) {
        threads(number, 0, 20);
    } else if (!strcmp(way, "small")) {
        threads(20, PTHREAD_STACK_MIN, 3000);
    } else if (!strcmp(way, "daemon")) {
        /* which ends when the daemon has */
        int gate[2];
        char byte;
        CHECK(pipe(gate) == 0);
        if (fork() == 0) {
            setsid();
            pid_t pid = fork();
            if (pid == 0)
                child_talks(6);
            _exit(0);
        }
        close(gate[1]);
        CHECK(read(gate[0], &byte, 1) == 0);
        talk(1, 1);
    } else if (!strcmp(way, "signals")) {
        signals(number);
    } else if (!strcmp(way, "forkhandler")) {
        fork_in_handler();
    } else if (!strcmp(way, "cancelled")) {
        cancelled();
    } else if (!strcmp(way, "late")) {
        pthread_t thread;
        CHECK(pthread_key_create(&key, late) == 0 && pthread_create(&thread, NULL, ends_late, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else if (!strcmp(way, "keys")) {
        pthread_key_t all;
        while (pthread_key_create(&all, NULL) == 0)
            ;
        threads(50, 0, 3);
    } else if (!strcmp(way, "threadsfork")) {
        pthread_t all[8];
        for (long i = 0; i < 8; i++)
            CHECK(pthread_create(&all[i], NULL, forks, (void *)(i + 1)) == 0);
        talk(2000, 10);
        for (int i = 0; i < 8; i++)
            pthread_join(all[i], NULL);
    } else if (!strcmp(way, "smallstack")) {
        small_stack();
    } else if (!strcmp(way, "closes")) {
        close_all(number);
    } else if (!strcmp(way, "sockets")) {
        for (int i = 0; i < number; i++) {
            int fd = C(socket, AF_INET, SOCK_DGRAM, 0);
            CHECK(fd >= 0 && C(close, fd) == 0);
        }
    } else if (!strcmp(way, "busy")) {
        talk(number, 8);
    } else if (!strcmp(way, "many")) {
        /* all at once: they wait for the last */
        int gate[2];
        CHECK(pipe(gate) == 0);
        for (int i = 0; i < number; i++)
            if (fork() == 0) {
                char byte;
                forget();
                close(gate[1]);
                talk(2, 10);
                CHECK(read(gate[0], &byte, 1) == 0);
                talk(2, 10);
                _exit(0);
            }
        close(gate[1]);
        for (int i = 0; i < number; i++) {
            int status;
            CHECK(wait(&status) > 0 && status == 0);
        }
    } else if (!strcmp(way, "short")) {
        for (int i = 0; i < number; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                int fd = socket(AF_INET, SOCK_DGRAM, 0);
                _exit(fd < 0);
            }
            reap(pid);
        }
    } else {
        return 2;
    }
    if (strcmp(way, "many") && strcmp(way, "short"))
        tell();
    return 0;
}
