// Files that threads map, and read and write much of at once.
#include <errno.h>
#include <fcntl.h>
#include <fstream>
#include <omp.h>
#include <stdio.h>
#include <string>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>
static std::string name(const char *what, int i) { return std::string(program_invocation_name) + what + std::to_string(i); }
int main() {
    const int n = 600000;
    int spare = open("/dev/null", O_RDONLY), file = open(name(".in", 0).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600), bad = 0;
    std::vector<int> numbers(n);
    for (int i = 0; i < n; i++) numbers[i] = 7 * i;
    const size_t bytes = n * sizeof(int);
    bad += write(file, numbers.data(), bytes) != (ssize_t)bytes;
    close(spare);
#pragma omp parallel reduction(+ : bad)
    {
        int me = omp_get_thread_num();
        for (int flags : {MAP_PRIVATE, MAP_SHARED}) {
            int *all = (int *)mmap(NULL, bytes, PROT_READ, flags, file, 0);
            bad += all == MAP_FAILED || memcmp(all, numbers.data(), bytes);
            if (all != MAP_FAILED) bad += munmap(all, bytes);
        }
        int *later = (int *)mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 8192);
        bad += later == MAP_FAILED || later[10] != 7 * (2048 + 10);
        bad += mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, 1000, 0) != MAP_FAILED || errno != EBADF;
        std::vector<int> mine(n);
        bad += pread(file, mine.data(), bytes, 0) != (ssize_t)bytes || mine != numbers;
        int out = open(name(".out", me).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        bad += write(out, mine.data(), bytes) != (ssize_t)bytes;
        bad += pwrite(out, mine.data(), bytes, bytes) != (ssize_t)bytes;
        iovec parts[3] = {{mine.data(), 100}, {mine.data() + 1000, bytes - 4000}, {NULL, 0}};
        bad += writev(out, parts, 3) != (ssize_t)(bytes - 3900);
        std::vector<int> again(n + 10);
        bad += pread(out, again.data(), bytes, bytes) != (ssize_t)bytes || memcmp((char *)again.data() + 100, mine.data() + 1000, bytes - 4000);
        lseek(out, 0, SEEK_SET);
        iovec to[2] = {{again.data(), 12}, {again.data() + 3, bytes - 12}};
        bad += readv(out, to, 2) != (ssize_t)bytes || memcmp(again.data(), mine.data(), bytes);
        bad += lseek(out, 0, SEEK_END) != (off_t)(2 * bytes);
        lseek(out, -10, SEEK_END);
        bad += read(out, again.data(), bytes) != 10;
        close(out);
        std::ofstream stream(name(".out", me));
        stream << "begin" << std::string(100000, 'x') << std::string(1000, 'y');
        stream.close();
        std::ifstream read(name(".out", me));
        std::string word;
        read >> word;
        bad += word.size() != 101005;
        unlink(name(".out", me).c_str());
    }
    unlink(name(".in", 0).c_str());
    printf("%d wrong\n", bad);
    return 0;
}
