// C++: vectors, strings, maps and streams in regions.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <omp.h>
#include <set>
#include <sstream>
#include <string>
#include <vector>
int main() {
    std::vector<double> v(1000), w;
    std::map<std::string, int> counts;
    std::set<int> members;
    std::vector<std::string> names(100);
    std::vector<std::unique_ptr<std::vector<int>>> lists(30);
#pragma omp parallel for
    for (size_t i = 0; i < v.size(); i++) v[i] = i * .25;
#pragma omp parallel for schedule(dynamic, 3)
    for (int i = 0; i < 100; i++) {
        std::ostringstream s;
        s << "name number " << i << " which is longer than a short string";
        names[i] = s.str();
    }
#pragma omp parallel for
    for (int i = 0; i < 200; i++) {
        std::string key = "key" + std::to_string(i % 17);
#pragma omp critical
        {
            counts[key] += i;
            members.insert(i % 23);
            w.push_back(i);
        }
    }
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < 30; i++) {
        lists[i] = std::make_unique<std::vector<int>>();
        for (int k = 0; k < i * 10; k++) lists[i]->push_back(k);
    }
    size_t total = 0;
    for (auto &l : lists) total += l->size();
#pragma omp parallel for reduction(+ : total)
    for (int i = 0; i < 30; i += 1) {
        total += lists[i]->size();
        lists[i].reset();
    }
    std::sort(w.begin(), w.end());
    double sum = 0;
    for (double x : v) sum += x;
    std::cout << sum << ' ' << names[57] << ' ' << w.size() << ' ' << w[199] << ' ' << total << '\n';
    for (auto &[key, n] : counts) std::cout << key << '=' << n << ' ';
    std::cout << members.size() << std::endl;
#pragma omp parallel for ordered
    for (int i = 0; i < 5; i++)
#pragma omp ordered
        std::cout << "ordered " << i << '\n';
#pragma omp parallel
#pragma omp critical
    std::cout << "one line of each" << std::endl;
    std::vector<int> r = {1, 2, 3, 4, 5, 6, 7};
    long ranged = 0;
#pragma omp parallel for reduction(+ : ranged)
    for (auto x : r) ranged += x;
#pragma omp parallel for reduction(+ : ranged)
    for (auto it = r.begin(); it < r.end(); ++it) ranged += *it;
    std::cout << ranged << '\n';
}
