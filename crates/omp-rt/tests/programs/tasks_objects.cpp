// Objects that tasks have copies of, which point into themselves or have memory of their own; trees without a taskwait; a task loop; what threads allocate and others free.
// env: POLYRAIL_OMP_TASKS=always
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>
struct Node {
    int key;
    std::unique_ptr<Node> left, right;
    std::string text;
};
static void build(std::unique_ptr<Node> &at, int low, int high) {
    if (low >= high) return;
    int middle = (low + high) / 2;
    at.reset(new Node{middle, nullptr, nullptr, std::string("node ") + std::to_string(middle)});
    Node *node = at.get();
#pragma omp task firstprivate(node)
    build(node->left, low, middle);
#pragma omp task firstprivate(node)
    build(node->right, middle + 1, high);
}
static long sum(const Node *at) { return at ? at->key + long(at->text.size()) + sum(at->left.get()) + sum(at->right.get()) : 0; }
static void quick(std::vector<int> &all, int low, int high) {
    while (high - low > 40) {
        int pivot = all[(low + high) / 2];
        auto begin = all.begin() + low, end = all.begin() + high;
        int first = int(std::partition(begin, end, [=](int x) { return x < pivot; }) - all.begin());
        int second = int(std::partition(all.begin() + first, end, [=](int x) { return x <= pivot; }) - all.begin());
#pragma omp task shared(all)
        quick(all, low, first);
        low = second;
    }
    std::sort(all.begin() + low, all.begin() + high);
}
int main() {
    std::unique_ptr<Node> root;
    std::vector<int> numbers(4000), counts(16);
    std::vector<std::string> said(12);
    std::map<std::string, int> lengths;
    for (size_t i = 0; i < numbers.size(); i++) numbers[i] = int(i * 7919 % 4001);
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskgroup
        build(root, 0, 200);
#pragma omp taskgroup
        quick(numbers, 0, int(numbers.size()));
        for (int i = 0; i < 12; i++) {
            // short ones stand in the object itself
            std::string name(size_t(i * 4), char('a' + i));
            std::vector<int> own(size_t(i) + 1, i);
#pragma omp task firstprivate(name, own, i) shared(said, lengths)
            {
                own.push_back(100);
                said[size_t(i)] = name + ":" + std::to_string(std::accumulate(own.begin(), own.end(), 0));
#pragma omp critical
                lengths[name] = int(name.size());
            }
        }
#pragma omp taskwait
#pragma omp taskloop grainsize(3) shared(counts)
        for (int i = 0; i < 16; i++) {
            std::vector<int> local(static_cast<size_t>(i), 2);
            counts[size_t(i)] = int(local.size()) * (local.empty() ? 1 : local[0]);
        }
        try {
            long total = 0;
#pragma omp task shared(total)
            {
                try {
                    throw std::string("inside");
                } catch (const std::string &what) {
                    total += long(what.size());
                }
            }
#pragma omp taskwait
            std::printf("caught %ld\n", total);
        } catch (...) {
            std::puts("outside");
        }
    }
    std::printf("tree %ld sorted %d counts %d\n", sum(root.get()), int(std::is_sorted(numbers.begin(), numbers.end())),
                std::accumulate(counts.begin(), counts.end(), 0));
    for (auto &one : said) std::printf("%s\n", one.c_str());
    for (auto &one : lengths) std::printf("%s %d\n", one.first.c_str(), one.second);
}
