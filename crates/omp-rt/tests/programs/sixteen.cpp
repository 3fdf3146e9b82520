// Atomics that compilers leave to functions of libatomic: std::atomic of 16 bytes, and C's functions by name.
// flags: -Wl,--no-as-needed -latomic
#include <atomic>
#include <cstdio>
struct Pair {
    long a, b;
};
static std::atomic<Pair> pair{Pair{0, 0}};
static long plain[4];
unsigned long fetch_add(void *, unsigned long, int) __asm__("__atomic_fetch_add_8");
unsigned fetch_or(void *, unsigned, int) __asm__("__atomic_fetch_or_4");
bool compare_exchange(void *, void *, unsigned short, int, int) __asm__("__atomic_compare_exchange_2");
int main() {
    unsigned long by_name = 0;
    unsigned bits = 0;
    unsigned short small = 0;
#pragma omp parallel for
    for (int i = 0; i < 60; i++) {
        Pair old = pair.load(), wanted;
        do {
            wanted.a = old.a + 1;
            wanted.b = old.b + 2;
        } while (!pair.compare_exchange_weak(old, wanted));
        fetch_add(&by_name, i, 5);
        // the same object, by an instruction
#pragma omp atomic
        by_name += 1;
        fetch_or(&bits, 1u << i % 32, 5);
        unsigned short found = 0;
        while (!compare_exchange(&small, &found, found + 1, 5, 5)) {}
    }
    Pair end = pair.exchange(Pair{7, 8});
    std::printf("%ld %ld %lu %x %d %ld\n", end.a, end.b, by_name, bits, small, pair.load().b + plain[0]);
    return 0;
}
