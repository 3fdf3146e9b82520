// Streams that serial code opened, and threads use and close; files that constructors opened, and all write to.
// serial: refused
// expect: refused: of a stream that serial code has opened
#include <errno.h>
#include <fstream>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>
static std::string name(const char *what, int i) { return std::string(program_invocation_name) + what + std::to_string(i); }
static std::ofstream all(name(".all", 0));
static FILE *log = fopen(name(".log", 0).c_str(), "w");
static bool opened = fprintf(log, "opened\n") > 0;
int main() {
    int n = omp_get_max_threads(), bad = 0;
    FILE *out[8], *in[8];
    std::ofstream *stream[8];
    char line[100];
    void *reused[8];
    for (int turn = 0; turn < 3; turn++) {
        FILE *serial = fopen(name(".serial", 0).c_str(), turn ? "w" : "w+");
        for (int i = 0; i < n; i++) {
            out[i] = fopen(name(".out", i).c_str(), "w");
            fprintf(out[i], "begin %d\n", i);
            in[i] = fopen(name(".in", i).c_str(), "w+");
            fprintf(in[i], "%d\n", 17 * i + turn), rewind(in[i]);
            stream[i] = new std::ofstream(name(".stream", i));
            *stream[i] << "begin " << i << '\n';
        }
#pragma omp parallel reduction(+ : bad)
        {
            int i = omp_get_thread_num(), number = -1;
            fprintf(out[i], "thread %d\n", i);
            bad += fclose(out[i]) != 0;
            bad += fscanf(in[i], "%d", &number) != 1 || number != 17 * i + turn;
            bad += fclose(in[i]) != 0;
            *stream[i] << "thread " << i << '\n';
            stream[i]->close();
            bad += stream[i]->fail();
#pragma omp barrier
            for (int k = 0; k < 100; k++) free(malloc(k * 10));
            fprintf(serial, "%d\n", i);
#pragma omp critical
            {
                all << "a line" << std::endl;
                fprintf(log, "a line\n");
            }
        }
        for (int i = 0; i < n; i++) {
            delete stream[i];
            for (auto what : {".out", ".stream"}) {
                std::string begin, thread;
                int first = -1, second = -1;
                std::ifstream(name(what, i)) >> begin >> first >> thread >> second;
                bad += begin != "begin" || thread != "thread" || first != i || second != i;
                unlink(name(what, i).c_str());
            }
            unlink(name(".in", i).c_str());
        }
        for (int k = 0; k < 100; k++) free(malloc(k * 10));
        fflush(NULL);
        fclose(serial);
        for (int i = 0; i < 8; i++) reused[i] = memset(malloc(552), 0x5a, 552);
        unlink(name(".serial", 0).c_str());
#pragma omp parallel
#pragma omp critical
        bad += strlen((char *)reused[1]) < 552;
        for (int i = 0; i < 8; i++) free(reused[i]);
    }
    fclose(log), all.close();
    for (auto what : {".log", ".all"}) {
        int lines = 0;
        std::ifstream file(name(what, 0));
        while (file.getline(line, sizeof line)) lines++;
        bad += lines != 3 * n + (what == std::string(".log"));
        unlink(name(what, 0).c_str());
    }
    printf("%d wrong\n", bad);
    return 0;
}
