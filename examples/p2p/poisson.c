/* Jacobi's method for -Lap u = 1 in a square, in slabs of rows, one for each of four processes: poisson [async].
 *   cc -std=c11 -O2 poisson.c -o poisson $(pkg-config --cflags --libs polyrail-p2p) -lm
 * They are children of the first here, which hands the run's address to them; on other machines they would have it from elsewhere, or call
 * P2Pstart under a launcher. Nothing but the scheme differs in step and out of step. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <polyrail/p2p.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POINTS = 64, MEMBERS = 4, ROWS = POINTS / MEMBERS, LENGTH = POINTS * sizeof(double) };
static double u[ROWS + 2][POINTS + 2], before[ROWS + 2][POINTS + 2]; /* a slab, and a row of each neighbour's around it */

static void require(int holds, const char *what) {
    if (!holds)
        fprintf(stderr, "poisson: %s\n", what), exit(1);
}
static void check(int code) { require(code == 0, P2Perror()); }

/* The largest value of this process's slab. */
static double solve(P2Peers *peers) {
    uint32_t part;
    size_t held;
    check(P2Pparts(peers, &part, 1, &held));
    double most = 0, h2 = 1.0 / ((POINTS + 1) * (POINTS + 1));
    for (P2Pverdict verdict = {0}; !verdict.stop;) {
        for (uint32_t other = part - 1; other != part + 3; other += 2) /* before the first is none: that is a large number */
            if (other < MEMBERS)
                check(P2Psend(peers, (P2Plink){part, other, 0}, &u[other < part ? 1 : ROWS][1], LENGTH));
        for (uint32_t other = part - 1; other != part + 3; other += 2) /* out of step the row may stay as it is */
            if (other < MEMBERS)
                check(P2Preceive(peers, (P2Plink){other, part, 0}, &u[other < part ? 0 : ROWS + 1][1], LENGTH, NULL));
        memcpy(before, u, sizeof u);
        double change = most = 0;
        for (int y = 1; y <= ROWS; y++)
            for (int x = 1; x <= POINTS; x++) {
                u[y][x] = (before[y][x - 1] + before[y][x + 1] + before[y - 1][x] + before[y + 1][x] + h2) / 4;
                change = fmax(change, fabs(u[y][x] - before[y][x]));
                most = fmax(most, before[y][x]);
            }
        check(P2Pconverged(peers, change, &verdict));
    }
    check(P2Pleave(peers, 5));
    return most;
}

int main(int argc, char **argv) {
    int addresses[2], answers[2], rank = 0, status;
    require(pipe(addresses) == 0 && pipe(answers) == 0, "there are no pipes");
    for (int child = 1; child < MEMBERS && rank == 0; child++) /* first of all: a child uses none of its parent's handles */
        rank = fork() == 0 ? child : 0;
    char address[P2P_ADDRESS];
    P2Peers *peers;
    double most, other;
    if (rank > 0) {
        close(addresses[1]); /* so that a parent that has ended is not waited for */
        require(read(addresses[0], address, sizeof address) == sizeof address, "no address came");
        check(P2Pjoin(NULL, address, &peers));
        most = solve(peers);
        return write(answers[1], &most, sizeof most) != sizeof most;
    }
    P2Pjob job = {.size = sizeof job, .parts = MEMBERS, .tolerance = 1e-8};
    job.scheme = argc > 1 && strcmp(argv[1], "async") == 0 ? P2P_ASYNCHRONOUS : P2P_SYNCHRONOUS;
    check(P2Pfound(NULL, &peers));
    check(P2Paddress(peers, address, sizeof address));
    for (int child = 1; child < MEMBERS; child++)
        require(write(addresses[1], address, sizeof address) == sizeof address, "the address cannot be written");
    check(P2Pgather(peers, &job, MEMBERS - 1, 60));
    most = solve(peers);
    for (int child = 1; child < MEMBERS; child++) {
        require(wait(&status) > 0 && status == 0 && read(answers[0], &other, sizeof other) == sizeof other, "a child has failed");
        most = fmax(most, other);
    }
    printf("the largest value is %.4f\n", most);
    require(fabs(most - 0.07367) < 1e-3, "it is another solution: between the points it is 0.07367");
}
