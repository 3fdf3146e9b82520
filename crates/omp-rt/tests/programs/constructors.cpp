// What constructors do to files and to the output is done once.
#include <errno.h>
#include <fcntl.h>
#include <fstream>
#include <omp.h>
#include <stdio.h>
#include <string>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
static std::string name(const char *end) { return std::string(program_invocation_name) + end; }
static std::ofstream result(name(".result"));
struct Start {
    Start() {
        iovec line[2] = {{(void *)"con", 3}, {(void *)"structed\n", 9}};
        writev(1, line, 2);
        int out = dup(1);
        write(out, "twice\n", 6);
        close(out);
        int lock = open(name(".lock").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (lock < 0) printf("locked\n"), _exit(3);
        write(lock, "1", 1), close(lock);
        FILE *log = fopen(name(".log").c_str(), "a");
        fprintf(log, "one line\n"), fclose(log);
        if (mkdir(name(".dir").c_str(), 0700)) printf("no directory\n"), _exit(4);
    }
} start;
int main() {
    result << "hello" << std::endl;
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads++;
    std::string word;
    struct stat log, lock;
    std::ifstream(name(".result")) >> word;
    stat(name(".log").c_str(), &log), stat(name(".lock").c_str(), &lock);
    printf("%d %s %d %d\n", threads == omp_get_max_threads(), word.c_str(), (int)log.st_size, (int)lock.st_size);
    for (auto end : {".result", ".lock", ".log"}) unlink(name(end).c_str());
    printf("%d\n", rmdir(name(".dir").c_str()));
    return 0;
}
