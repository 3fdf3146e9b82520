/* Three processes hold two parts each of a ring, x(p) = 0.9 x(p - 1) + 0.1, which ends with 1 everywhere; one of them is killed on the way. The others go
 * on from what was kept, with its parts. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <polyrail/p2p.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 6, MEMBERS = 3, KEEP = 10, LAST = 57 };

static double x[PARTS];
static uint32_t parts[PARTS];
static size_t held;

static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "process %d: %s (%s)\n", (int)getpid(), what, P2Perror());
        exit(1);
    }
}

/* One iteration, as far as it comes. */
static int iterate(P2Peers *peers, int is_killed, P2Pverdict *verdict) {
    uint64_t iteration;
    int code, keeps;
    require(P2Piteration(peers, &iteration) == 0 && P2Pkeeps(peers, &keeps) == 0, "where it is");
    if (is_killed && iteration == LAST)
        raise(SIGKILL);
    for (size_t i = 0; keeps && i < held; i++)
        if ((code = P2Pkeep(peers, parts[i], &x[parts[i]], sizeof *x)))
            return code;
    for (size_t i = 0; i < held; i++)
        if ((code = P2Psend(peers, (P2Plink){parts[i], (parts[i] + 1) % PARTS, 3}, &x[parts[i]], sizeof *x)))
            return code;
    double norm = 0;
    for (size_t i = 0; i < held; i++) {
        double before;
        P2Pstatus status;
        if ((code = P2Preceive(peers, (P2Plink){(parts[i] + PARTS - 1) % PARTS, parts[i], 3}, &before, sizeof before, &status)))
            return code;
        require(status.what == P2P_NEW && status.iteration == iteration, "in step there is always something new");
        double new = 0.9 * before + 0.1;
        norm = fmax(norm, fabs(new - x[parts[i]]));
        x[parts[i]] = new;
    }
    return P2Pconverged(peers, norm, verdict);
}

/* Whether a part was to be set to a state that was kept. */
static int take_change(P2Peers *peers) {
    P2Pchanges changes;
    int code, restored = 0;
    while ((code = P2Pchange(peers, &changes)) == P2P_E_CHANGED)
        ;
    require(code == 0, "the change");
    for (size_t i = 0; i < changes.set_count; i++) {
        const P2Pset *set = &changes.set[i];
        require(set->part < PARTS && (!set->state || set->len == sizeof *x), "a part is set to its state");
        x[set->part] = 0;
        if (set->state)
            memcpy(&x[set->part], set->state, sizeof *x);
        restored |= set->state != NULL;
    }
    require(changes.iteration % KEEP == 0 && changes.iteration <= LAST, "in step all go on from what was kept");
    require(P2Pparts(peers, parts, PARTS, &held) == 0, "the parts");
    return restored;
}

static int take_part(P2Peers *peers, int is_killed) {
    P2Pverdict verdict = {0};
    int restored = 0;
    uint32_t me, members;
    require(P2Pparts(peers, parts, PARTS, &held) == 0 && held == PARTS / MEMBERS, "two parts each");
    while (!verdict.stop) {
        int code = iterate(peers, is_killed, &verdict);
        if (code == P2P_E_CHANGED)
            restored |= take_change(peers);
        else
            require(code == 0, "an iteration");
    }
    require(restored && held == PARTS / (MEMBERS - 1), "what was kept has been gone on from");
    for (size_t i = 0; i < held; i++)
        require(fabs(x[parts[i]] - 1) < 1e-8, "another solution");
    /* nobody leaves before the other has its verdict: who leaves is one who is lost */
    require(P2Pme(peers, &me) == 0 && P2Pmembers(peers, &members) == 0 && members == MEMBERS - 1, "two are left");
    P2Ppiece piece = {0};
    int gone = 0;
    require(P2Ppost(peers, 1 - me, "done", 4) == 0, "a word to the other");
    while (!piece.bytes && !gone) {
        int code = P2Pposted(peers, 0.1, &piece);
        require(code == 0 || code == P2P_E_CHANGED, "the other's word");
        require(P2Pgone(peers, 1 - me, &gone) == 0, "whether it is gone");
        gone |= code == P2P_E_CHANGED; /* it had this one's word, and so its own verdict */
    }
    require(gone || (piece.member == 1 - me && piece.len == 4 && memcmp(piece.bytes, "done", 4) == 0), "the other's word is another");
    return P2Pleave(peers, 5);
}

int main(void) {
    int addresses[2], rank = 0, killed = 0;
    require(pipe(addresses) == 0, "a pipe");
    for (int child = 1; child < MEMBERS && rank == 0; child++)
        rank = fork() == 0 ? child : 0;
    char address[P2P_ADDRESS];
    P2Peers *peers;
    if (rank > 0) {
        close(addresses[1]);
        require(read(addresses[0], address, sizeof address) == sizeof address, "an address");
        require(P2Pjoin(NULL, address, &peers) == 0, "joining");
        return take_part(peers, rank == 1);
    }
    P2Pjob job = {.size = sizeof job, .parts = PARTS, .tolerance = 1e-10, .keep = KEEP};
    require(P2Pfound(NULL, &peers) == 0 && P2Paddress(peers, address, sizeof address) == 0, "founding");
    for (int child = 1; child < MEMBERS; child++)
        require(write(addresses[1], address, sizeof address) == sizeof address, "telling the address");
    require(P2Pgather(peers, &job, MEMBERS - 1, 60) == 0, "gathering");
    require(take_part(peers, 0) == 0, "leaving");
    for (int child = 1, status; child < MEMBERS; child++) {
        require(wait(&status) > 0, "a child ends");
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            killed++;
        else
            require(status == 0, "a child fails");
    }
    require(killed == 1, "one was killed");
    puts("the others went on, and the sums are right");
}
