// A library that the program loads while it runs: other ranks have not got it.
// ranks: refused
// expect: refused: which other ranks have not
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
int main(void) {
    void *library = dlopen("libBrokenLocale.so.1", RTLD_NOW);
    int (*function)(void) = (int (*)(void))dlsym(library, "__ctype_get_mb_cur_max");
    long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 64; i++) sum += function();
    printf("%d\n", sum > 0);
    return 0;
}
