// A global locale of the program's own making, which other ranks cannot be told of.
// ranks: refused
// expect: refused: a parallel region after std::locale::global
#include <iostream>
#include <locale>
#include <omp.h>
#include <sstream>
struct Comma : std::numpunct<char> {
    char do_decimal_point() const { return ','; }
};
int main() {
    std::locale::global(std::locale(std::locale::classic(), new Comma));
    std::string texts[64];
#pragma omp parallel
    {
        std::ostringstream text;
        text << 1.5;
        texts[omp_get_thread_num()] = text.str();
    }
    for (int i = 0; i < omp_get_max_threads(); i++) std::cout << texts[i] << '\n';
}
