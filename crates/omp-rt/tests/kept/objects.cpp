// What a C++ program may have between two regions: objects with destructors, static ones that functions make, streams, containers, exceptions, threads' own objects.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>
static std::string path;
struct Said {
    std::string what;
    explicit Said(std::string w) : what(std::move(w)) {}
    ~Said() { std::ofstream(path + "." + what.substr(0, 3)) << what << " ends\n"; }
};
static Said global("global");
static thread_local std::vector<int> own;
static Said &made(int i) {
    if (i % 2) { static Said odd("odd"); return odd; }
    static Said even("even");
    return even;
}
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]);
    path = argv[2];
    std::ofstream log(path);
    log << std::setprecision(17);
    std::mt19937_64 random(3);
    std::map<std::string, std::shared_ptr<std::vector<double>>> all;
    std::vector<double> field(5000, 1.0);
    std::ostringstream text;
    text << std::hex;
    long caught = 0;
    std::cout << std::boolalpha << std::setprecision(9);
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel
        {
            own.assign(3, round);
#pragma omp for
            for (int i = 0; i < 5000; i++) field[i] = field[i] * 0.999 + i % 7;
        }
        auto &list = all[std::to_string(random() % 300)];
        if (!list) list = std::make_shared<std::vector<double>>();
        list->push_back(field[random() % 5000]);
        if (round % 5 == 0) all.erase(all.begin());
        try {
            if (round % 4 == 0) throw std::runtime_error("round " + std::to_string(round));
        } catch (const std::exception &e) { caught += std::string(e.what()).size(); }
        if (round > 20) made(round).what += "x";
        text << round << ' ';
        log << round << ' ' << field[round % 5000] << ' ' << all.size() << '\n';
        usleep(500);
    }
    double sum = 0;
    for (auto &[key, list] : all)
        for (double value : *list) sum += value * key.size();
    long owns = 0;
#pragma omp parallel reduction(+ : owns)
    owns += own.size() + own.back();
    std::cout << sum << ' ' << caught << ' ' << true << ' ' << text.str().size() << ' ' << owns << ' ' << made(0).what.size() << '\n';
}
