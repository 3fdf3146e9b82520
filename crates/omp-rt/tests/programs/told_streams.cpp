// How serial code has numbers written: flags of the standard streams, and the global locale by its name.
// serial: refused
// expect: refused: a parallel region after std::locale::global: with --serial replicated
#include <iomanip>
#include <iostream>
#include <locale>
#include <omp.h>
#include <sstream>
int main() {
    std::string texts[64];
    std::cout << std::fixed << std::setprecision(3) << std::hex << std::showbase;
#pragma omp parallel for ordered schedule(static, 1)
    for (int i = 0; i < 12; i++)
#pragma omp ordered
        std::cout << 1.5 * i << ' ' << 10 * i << (i == 5 ? std::noshowbase : std::showbase) << '\n';
    std::cout << 255 << '\n';
    std::locale::global(std::locale("C.UTF-8"));
#pragma omp parallel
    {
        std::ostringstream text;
        text << std::locale().name() << ' ' << 1234567.5;
        texts[omp_get_thread_num()] = text.str();
    }
    for (int i = 0; i < omp_get_max_threads(); i++) std::cout << texts[i] << '\n';
}
