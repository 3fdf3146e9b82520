// Threads that a region starts.
// ranks: refused
// expect: refused: pthread_create: in a parallel region
#include <cstdio>
#include <thread>
static int squares[8];
int main() {
#pragma omp parallel for
    for (int i = 0; i < 8; i++) std::thread([i] { squares[i] = i * i; }).join();
    int sum = 0;
    for (int square : squares) sum += square;
    printf("%d\n", sum);
}
