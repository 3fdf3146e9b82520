// Mutexes of the C++ library, and what is initialized by whichever thread comes first; it is destroyed when the program ends.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <vector>
struct Table {
    std::vector<std::string> words;
    explicit Table(int n) {
        for (int i = 0; i < n; i++) words.push_back("a word that is longer than a string keeps in itself " + std::to_string(i));
    }
    ~Table() { printf("%zu words are gone\n", words.size()); }
};
static const Table &table() {
    static const Table table(100);
    return table;
}
static int tries;
struct Third {
    Third() {
        if (++tries < 3) throw std::runtime_error("not yet");
    }
};
static bool third() {
    try {
        static Third it;
        return true;
    } catch (const std::runtime_error &) {
        return false;
    }
}
static std::mutex plain;
static std::recursive_mutex recursive;
static std::timed_mutex timed;
static std::once_flag flag, thrown;
int main() {
    int sum = 0, called = 0, failed = 0, other = 0;
    long letters = 0;
#pragma omp parallel reduction(+ : letters)
    for (auto &word : table().words) letters += word.size();
    printf("%ld\n", letters / omp_get_max_threads());
#pragma omp parallel for
    for (int i = 0; i < 100; i++) {
        std::lock_guard<std::mutex> guard(plain);
        std::lock_guard<std::recursive_mutex> once(recursive), again(recursive);
        std::unique_lock<std::timed_mutex> soon(timed, std::chrono::seconds(40));
        sum += soon.owns_lock();
        std::call_once(flag, [&] { called++; });
    }
#pragma omp parallel for reduction(+ : failed)
    for (int i = 0; i < 24; i++) {
        failed += !third();
        try {
            std::call_once(thrown, [&] {
                if (++other < 3) throw std::runtime_error("not yet");
            });
        } catch (const std::runtime_error &) {
            failed++;
        }
    }
    printf("%d %d, %d tries, %d times not\n", sum, called, tries + other, failed);
}
