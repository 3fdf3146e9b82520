// Reductions of objects that own memory, which are moved from, and destroyed as soon as they are reduced.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <list>
#include <map>
#include <omp.h>
#include <string>
#include <unistd.h>
#include <vector>
using Sums = std::vector<long>;
using Words = std::vector<std::string>;
using List = std::list<long>;
using Counts = std::map<long, std::string>;
#pragma omp declare reduction(add : Sums : [](Sums &a, const Sums &b) { for (size_t i = 0; i < a.size(); i++) a[i] += b[i]; }(omp_out, omp_in)) \
    initializer(omp_priv = Sums(omp_orig.size()))
#pragma omp declare reduction(join : Words : omp_out.insert(omp_out.end(), std::make_move_iterator(omp_in.begin()), \
                                                          std::make_move_iterator(omp_in.end())))
#pragma omp declare reduction(join : List : omp_out.splice(omp_out.end(), omp_in))
#pragma omp declare reduction(join : Counts : (omp_out.size() < omp_in.size() ? omp_out.swap(omp_in) : void()), omp_out.insert(omp_in.begin(), omp_in.end()))
int main() {
    Sums sums(5, 1);
    Words words{"the first, which is longer than a string keeps in itself"};
    List list{-1};
    Counts counts;
    int n = 0;
#pragma omp parallel
    {
        // thread 0 is late: the others have been through the critical section, and their copies are gone
#pragma omp for reduction(add : sums) nowait
        for (int i = 0; i < 20; i++) {
            if (omp_get_thread_num() == 0) usleep(5000);
            sums[i % 5] += i;
        }
#pragma omp critical
        n++;
#pragma omp for reduction(join : words) reduction(join : list) reduction(join : counts) nowait
        for (int i = 0; i < 40; i++) {
            if (omp_get_thread_num() == 0) usleep(1000);
            words.push_back("a word that is longer than a string keeps in itself " + std::to_string(i));
            list.push_back(i);
            counts[i] = "a value that is longer than a string keeps in itself " + std::to_string(i);
        }
        // what the copies' memory may be used for again
        std::vector<std::string> others(50, std::string(52, 'x'));
#pragma omp critical
        n += others.size() / 50;
    }
    std::sort(words.begin(), words.end());
    list.sort();
    for (long x : sums) std::cout << x << ' ';
    for (auto &w : words) std::cout << w << '\n';
    for (long x : list) std::cout << x << ' ';
    for (auto &[key, value] : counts) std::cout << key << value << '\n';
    std::cout << (n == 2 * omp_get_max_threads()) << '\n';
    // the program flushes: what ranks have changed is told when they come to a barrier
    long last = 0;
#pragma omp parallel for reduction(join : words)
    for (int i = 0; i < 20; i++) {
        if (omp_get_thread_num() == 0) usleep(1000);
        words.push_back("one more word that is longer than a string keeps in itself " + std::to_string(i));
    }
#pragma omp parallel
#pragma omp master
    {
        last = words.size();
#pragma omp flush
    }
    std::sort(words.begin(), words.end());
    for (auto &w : words) std::cout << w << '\n';
    std::cout << last << '\n';
}
