// A child of fork uses threads of its own; so does the parent afterwards.
#include <omp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static long sum(int n) {
    long s = 0;
#pragma omp parallel for reduction(+ : s) schedule(dynamic, 5)
    for (int i = 0; i < n; i++) s += i;
    return s;
}
int main(void) {
#ifdef __clang__ // libgomp hangs in a child if its parent has had threads
    printf("%ld\n", sum(1000));
#endif
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %ld\n", sum(2000));
        printf("child %ld\n", sum(3000));
        fflush(stdout);
        _exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    printf("parent %d %ld\n", WEXITSTATUS(status), sum(4000));
    return 0;
}
