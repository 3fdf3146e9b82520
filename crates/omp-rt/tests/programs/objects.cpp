// C++: objects that are private, firstprivate, lastprivate, reduced, in tasks: constructed and destroyed as often as copied.
#include <iostream>
#include <omp.h>
#include <string>
static int alive;
struct Box {
    long value = 1;
    std::string text = "a text that does not fit into a short string";
    Box() { count(1); }
    Box(const Box &o) : value(o.value), text(o.text) { count(1); }
    Box &operator=(const Box &) = default;
    ~Box() { count(-1); }
    Box &operator+=(const Box &o) {
        value += o.value;
        return *this;
    }
    static void count(int by) {
#pragma omp atomic
        alive += by;
    }
};
static Box zero() {
    Box b;
    b.value = 0;
    return b;
}
#pragma omp declare reduction(+ : Box : omp_out += omp_in) initializer(omp_priv = zero())
static Box statics;
template <typename T> struct Local {
    static int &value() {
        static int kept = 3;
#pragma omp threadprivate(kept)
        return kept;
    }
};
int main() {
    {
        Box first, last, sum;
        first.value = 10;
        long total = 0;
#pragma omp parallel firstprivate(first) reduction(+ : total)
        {
            first.value += omp_get_thread_num();
            total += first.value - omp_get_thread_num();
        }
#pragma omp parallel for lastprivate(last)
        for (int i = 0; i < 25; i++) last.value = i;
#pragma omp parallel for reduction(+ : sum)
        for (int i = 0; i < 40; i++) sum.value += i;
        int n = 1;
#pragma omp parallel
#pragma omp single
        {
            n = omp_get_num_threads();
            for (int i = 0; i < 5; i++)
#pragma omp task firstprivate(first)
            {
                first.value++;
                if (first.text.size() != 44) std::cout << "torn\n";
            }
#pragma omp taskloop firstprivate(first) lastprivate(last) grainsize(3)
            for (int i = 0; i < 20; i++) {
                first.value += i;
                last.value = i * 2;
            }
        }
        std::cout << total / n << ' ' << first.value << ' ' << last.value << ' ' << sum.value << '\n';
    }
    int lambda = 0, tls = 0;
    auto add = [&](int by) {
#pragma omp atomic
        lambda += by;
    };
#pragma omp parallel for
    for (int i = 0; i < 10; i++) add(i);
#pragma omp parallel reduction(+ : tls)
    {
        Local<int>::value() += omp_get_thread_num();
        tls += Local<int>::value() != 3 + omp_get_thread_num();
    }
    std::cout << "alive " << alive << ' ' << lambda << ' ' << tls << '\n';
}
