// C++: a reduction of vectors, whose copies are in memory that threads allocate.
#include <iostream>
#include <omp.h>
#include <vector>
using V = std::vector<long>;
#pragma omp declare reduction(add : V : [](V &a, const V &b) { for (size_t i = 0; i < a.size(); i++) a[i] += b[i]; }(omp_out, omp_in)) \
    initializer(omp_priv = V(omp_orig.size()))
int main() {
    V v(20, 1);
#pragma omp parallel for reduction(add : v)
    for (int i = 0; i < 2000; i++) v[i % 20] += i;
    for (long x : v) std::cout << x << ' ';
    std::cout << '\n';
}
