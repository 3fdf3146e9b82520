// Functions of the program's own that are called like system calls. ISO C leaves these names to programs.
// only: gcc
#include <stdio.h>
#define MINE(name) \
    int name(const char *text) { return printf("%s says %s\n", #name, text); }
MINE(read)
MINE(write)
MINE(open)
MINE(open64)
MINE(close)
MINE(statx)
MINE(lseek64)
int main(void) {
    int n = 0;
#pragma omp parallel for reduction(+ : n)
    for (int i = 0; i < 100; i++) n += i;
    read("one"), write("two"), open("three"), open64("four"), close("five"), statx("six"), lseek64("seven");
    printf("%d\n", n);
    return 0;
}
