// Untied tasks, which clang has end and be called again where another thread may go on with them: behind `taskwait`, `taskyield`, and where tasks are met.
// LLVM's own runtime (14) hangs in some of them now and then, with several threads.
// elsewhere: one thread
// env: POLYRAIL_OMP_TASKS=always
#include <cstdio>
#include <string>
#include <vector>

static long counted[64];

static long tree(int depth, std::string name) {
    if (depth == 0)
        return name.size();
    long left = 0, right = 0;
#pragma omp task untied shared(left) firstprivate(name, depth)
    {
        name += std::string(20, 'l');
        long inner = 0;
#pragma omp task shared(inner) firstprivate(name, depth)
        inner = tree(depth - 1, name);
#pragma omp taskwait
        name += "!";
#pragma omp taskyield
        left = inner + name.size();
    }
#pragma omp task untied shared(right) firstprivate(name, depth)
    {
        name += std::string(30, 'r');
        long inner = 0, other = 0;
#pragma omp task untied shared(inner) firstprivate(name, depth)
        inner = tree(depth - 1, name);
#pragma omp taskwait
#pragma omp task shared(other)
        other = inner + 1;
#pragma omp taskwait
        right = inner + other + name.size();
    }
#pragma omp taskwait
    return left + 3 * right;
}

int main() {
    long all = 0, parts = 0;
#pragma omp parallel
#pragma omp single
    {
        all = tree(4, "a name that has memory of its own");
#pragma omp taskloop untied num_tasks(8) shared(counted)
        for (int i = 0; i < 64; i++) {
            long before = 0;
#pragma omp task shared(before)
            before = i * i;
#pragma omp taskwait
            counted[i] += before + 1;
        }
    }
#pragma omp parallel for reduction(+ : parts)
    for (int i = 0; i < 16; i++) {
        long own = 0, doubled = 0;
#pragma omp task untied shared(own, doubled) firstprivate(i)
        {
            own += i;
#pragma omp task shared(doubled) firstprivate(i)
            doubled = 2 * i;
#pragma omp taskwait
            own += doubled;
        }
#pragma omp taskwait
        parts += own;
    }
    long sum = 0;
    for (long count : counted)
        sum = sum * 31 % 1000003 + count;
    printf("%ld %ld %ld\n", all, sum, parts);
    return 0;
}
