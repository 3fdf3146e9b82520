// C++: exceptions that are caught in the region where they are thrown, through functions and destructors.
#include <iostream>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <vector>
static int destroyed;
struct Guard {
    ~Guard() {
#pragma omp atomic
        destroyed++;
    }
};
static int thrower(int i) {
    Guard g;
    if (i % 3 == 0) throw std::runtime_error("three " + std::to_string(i));
    if (i % 5 == 0) throw i;
    return i;
}
int main() {
    int runtime = 0, number = 0, fine = 0;
#pragma omp parallel for reduction(+ : runtime, number, fine)
    for (int i = 1; i <= 60; i++) {
        try {
            fine += thrower(i);
        } catch (const std::exception &e) {
            runtime += std::string(e.what()).size();
        } catch (int n) {
            number += n;
        }
    }
    std::cout << runtime << ' ' << number << ' ' << fine << ' ' << destroyed << '\n';
#pragma omp parallel
    {
#pragma omp critical
        try {
            std::vector<int>().at(3);
        } catch (const std::out_of_range &) {
            runtime = -1;
        }
#pragma omp single
        {
#pragma omp task
            try {
                throw 5;
            } catch (int n) {
                number = n;
            }
#pragma omp taskwait
        }
    }
    std::cout << runtime << ' ' << number << '\n';
    try {
        throw std::logic_error("outside");
    } catch (const std::logic_error &e) {
        std::cout << e.what() << '\n';
    }
}
