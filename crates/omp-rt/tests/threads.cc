// Threads that allocate and free each other's memory, exceptions, fork, mapped memory; tells nothing that differs from run to run.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static std::vector<std::string> before_main(1000, std::string(100, 'b'));
static std::atomic<std::string *> mail[64];

static void work(int t, long *sum) {
    std::map<int, std::string> map;
    unsigned state = 12345 + t;
    for (int i = 0; i < 50000; i++) {
        state = state * 1664525 + 1013904223;
        map[state % 3000] = std::string(state % 500, 'a' + t);
        if (i % 3 == 0)
            map.erase(state % 2999);
        delete mail[state % 64].exchange(new std::string(state % 90, 'm'));
        if (i % 10000 == 0) {
            try {
                throw std::runtime_error("thrown");
            } catch (const std::exception &e) {
                *sum += strlen(e.what());
            }
        }
    }
    for (auto &entry : map)
        *sum += entry.first * entry.second.size();
}

int main() {
    std::vector<long> sums(6);
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; t++)
        threads.emplace_back(work, t, &sums[t]);
    // Children come into being while others hold locks.
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            std::vector<std::string> strings(1000, std::string(i * 10, 'c'));
            _exit(strings.size() == 1000 ? i : 99);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != i)
            printf("child %d ended with %d\n", i, status);
    }
    for (auto &thread : threads)
        thread.join();
    for (long sum : sums)
        printf("%ld\n", sum);
    void *aligned = nullptr;
    int error = posix_memalign(&aligned, 1 << 16, 12345);
    printf("%d %lu\n", error, (unsigned long)aligned % (1 << 16));
    char *grown = (char *)malloc(10);
    strcpy(grown, "grown");
    for (size_t size = 10; size < 10000000; size *= 3)
        grown = (char *)realloc(grown, size);
    printf("%s %d\n", grown, malloc(~0ul / 2) == nullptr);
    char *pages = (char *)mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages[5] = 'p';
    pages = (char *)mremap(pages, 1 << 20, 1 << 24, MREMAP_MAYMOVE);
    printf("%c %d\n", pages[5], pages[(1 << 24) - 1]);
    printf("%d\n", munmap(pages, 1 << 24));
    char *text;
    int length = asprintf(&text, "%d", 4711);
    printf("%d %s %zu\n", length, text, before_main[999].size());
    free(text);
    free(aligned);
}
