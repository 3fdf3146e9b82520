/* Peers: processes that compute together, in step or not. For C11 and later, C++11 and later, and Fortran by bind(C).
 *
 * A run is divided into parts, each process holds some, iterates, and tells the others what it has of its parts' edges. The order of an
 * iteration: P2Psend and P2Preceive for each link, the computing, P2Pconverged. docs/peers.md has what they mean in step and out of step,
 * and examples/p2p/poisson.c is a whole program. Compile by `pkg-config --cflags --libs polyrail-p2p`.
 *
 * Calls return 0, or one of the negative numbers below; P2Perror has the words. P2P_E_USE: nothing of what was asked for was done, and the
 * run goes on. Pointers that are named `optional` may be null, and those to no bytes.
 *
 * Threads: a handle is used by one thread at a time; which one may change. Another that calls meanwhile is told P2P_E_USE, but for P2Pleave,
 * which is the last call of all with a handle. A process may have several handles, and a child made by fork uses none of its parent's. */
#ifndef POLYRAIL_P2P_H
#define POLYRAIL_P2P_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    P2P_E_USE = -1,      /* a call that cannot be carried out: a null pointer, a part that there is not, a value that cannot be */
    P2P_E_CHANGED = -2,  /* who takes part has changed: P2Pchange says what that means here */
    P2P_E_OUT = -3,      /* the others have gone on without this process; it can join again */
    P2P_E_GONE = -4,     /* a member is gone, and the run cannot go on without it */
    P2P_E_BREACH = -5,   /* a member said what it had no reason to, or sent another length than is received */
    P2P_E_REFUSED = -6,  /* the run does not take this process */
    P2P_E_SILENT = -7,   /* nothing came for as long as was to be waited */
    P2P_E_RAILS = -8,    /* an endpoint cannot be opened or reached, or a setting of the environment is none */
    P2P_E_LAUNCHER = -9, /* what the launcher says of the other processes cannot be used */
    P2P_E_INTERNAL = -10 /* a fault of the library: of this handle only P2Pleave is possible any more */
};

/* Who waits for whom. */
enum {
    P2P_SYNCHRONOUS = 0,  /* each iteration is computed with what neighbours sent in the same one */
    P2P_ASYNCHRONOUS = 1, /* with the newest that is there; nobody waits */
    P2P_BOUNDED = 2,      /* with the newest, but none that is more than `bound` iterations behind */
    P2P_HYBRID = 3        /* in step with processes of the same site, the newest of others */
};

/* What a receive found. */
enum {
    P2P_NOTHING = 0,   /* nothing has come yet; the buffer is as it was */
    P2P_UNCHANGED = 1, /* nothing that was not received before; the buffer is as it was */
    P2P_NEW = 2        /* something new */
};

/* Bytes of an address as text, with the zero at its end. */
#define P2P_ADDRESS 87

/* One process's place in a run. */
typedef struct P2Peers P2Peers;

/* The two structs that a program fills in begin with their size, and zero is each field's usual value: later versions append fields, and
 * programs that do not have them mean zero. So there is no call for each field, and Fortran has them as plain derived types.
 * `P2Pjob job = {.size = sizeof job, .parts = 4};` */

/* What is computed, and how: the founder's counts for all. */
typedef struct P2Pjob {
    size_t size;      /* sizeof(P2Pjob) */
    double tolerance; /* the norm at which all stop */
    uint64_t every;   /* in step: iterations between two times that they ask whether to stop; 0: 16 */
    uint64_t keep;    /* iterations between two times that states are kept, so that members may be lost, and join; 0: never */
    uint64_t bound;   /* of P2P_BOUNDED: iterations, at least 1; else 0 */
    const void *task; /* what the program's members have to know besides: any bytes, at most 65536 */
    size_t task_len;
    uint32_t parts;   /* how many there are: at least 1 for each process that computes, at most 131072 */
    uint32_t scheme;  /* P2P_SYNCHRONOUS, ... */
} P2Pjob;

/* What is this process's alone. A null pointer in its place: all zero. Which networks are used, and how, the environment says (docs/settings.md). */
typedef struct P2Psettings {
    size_t size;       /* sizeof(P2Psettings) */
    double patience;   /* seconds to wait for a member that is connected and says nothing; 0: as long as it is connected */
    uint32_t site;     /* at which of the sites it is, for P2P_HYBRID; 0: where POLYRAIL_SITE says */
    uint32_t weight;   /* how much of the work it is given, as a share, at most 65535; 0: a share of 1 */
    uint32_t looks_on; /* not 0: it is given none */
    uint32_t reserved; /* 0 */
} P2Psettings;

/* From which part to which, and which of several between those: a tag of less than 4096. */
typedef struct P2Plink {
    uint32_t from, to, tag;
} P2Plink;

typedef struct P2Pstatus {
    uint32_t what; /* P2P_NEW, P2P_UNCHANGED, P2P_NOTHING */
    uint32_t reserved;
    uint64_t iteration; /* of the one who sent what was received last; 0 where nothing was */
    double age;         /* seconds since that came here; 0 where it is new */
} P2Pstatus;

typedef struct P2Pverdict {
    uint32_t stop; /* not 0: all stop, and what follows is set */
    uint32_t reserved;
    uint64_t round;
    uint64_t iteration; /* of this process: what it sent in it, with what the others sent in theirs, is what was judged */
    double norm;        /* the largest that a member had for that */
} P2Pverdict;

/* A part that is to be set, and to what. */
typedef struct P2Pset {
    const void *state; /* the bytes that were given to P2Pkeep; null: as at the beginning */
    size_t len;
    uint32_t part;
    uint32_t reserved;
} P2Pset;

typedef struct P2Pchanges {
    uint64_t iteration;   /* the one that is gone on with */
    const uint32_t *lost; /* parts that are not held here any more */
    size_t lost_count;
    const P2Pset *set; /* parts that are to be set; all that are in neither list go on as they are */
    size_t set_count;
} P2Pchanges;

/* Bytes that another member told or posted. */
typedef struct P2Ppiece {
    const void *bytes; /* null: none came */
    size_t len;
    uint32_t member; /* who sent them */
    uint32_t reserved;
} P2Ppiece;

/* What was wrong with this thread's last call that failed: text that holds until its next that fails. Never null. */
const char *P2Perror(void);

/* ---- To begin. Each gives a handle, which P2Pleave takes back. `settings` is optional. ---- */

/* Meets the processes that the same launcher started: mpiexec, srun, an indexed job of Kubernetes. The first one's job counts. Without a launcher
 * the process is alone. Once in a process, and not after MPI_Init. */
int P2Pstart(const P2Psettings *settings, const P2Pjob *job, P2Peers **peers);

/* Opens a run that others are to join by P2Paddress; it begins with P2Pgather, until which no other call is possible. */
int P2Pfound(const P2Psettings *settings, P2Peers **peers);

/* Waits until `others` have joined, and begins. P2P_E_SILENT when they have not within so many seconds (INFINITY: as long as it takes). When it fails by
 * anything but P2P_E_USE for a value of the job or a pointer, the run is over: P2Pleave, and begin anew. */
int P2Pgather(P2Peers *peers, const P2Pjob *job, uint32_t others, double seconds);

/* Joins the run of which this is an address. Waits until it begins. */
int P2Pjoin(const P2Psettings *settings, const char *address, P2Peers **peers);

/* The address of this process as text, of which P2P_ADDRESS bytes are room enough. It is the key to the run: give it to those only who may join. */
int P2Paddress(const P2Peers *peers, char *text, size_t room);

/* Leaves: what was sent is brought to its end, for at most so many seconds. The handle, null too, is gone then. */
int P2Pleave(P2Peers *peers, double seconds);

/* ---- Who takes part, in what. Numbers begin with 0. ---- */

int P2Pme(const P2Peers *peers, uint32_t *member);
int P2Pmembers(const P2Peers *peers, uint32_t *count);
/* The parts that this process holds, in order. `count` is how many; with room for 0 nothing else is done, with too little it is P2P_E_USE. */
int P2Pparts(const P2Peers *peers, uint32_t *parts, size_t room, size_t *count);
/* The member that holds a part. */
int P2Pholder(const P2Peers *peers, uint32_t part, uint32_t *member);
/* The job, as the founder gave it. `job->size` is to be set; the task's bytes hold until P2Pleave. */
int P2Pget_job(const P2Peers *peers, P2Pjob *job);

/* ---- The iteration ---- */

/* The iteration that is computed, from 0 on. */
int P2Piteration(const P2Peers *peers, uint64_t *iteration);

/* What a part of this process has for another in this iteration; once for each link and iteration. The bytes may be changed when it returns. It waits only
 * where the other is in step and has not taken what was sent before. */
int P2Psend(P2Peers *peers, P2Plink link, const void *bytes, size_t len);

/* What another part has for one of this process, `len` bytes. In step it is what that sent in this iteration, and waited for; else the newest
 * that has come, and not waited for unless it is too old for the scheme. `status` is optional. */
int P2Preceive(P2Peers *peers, P2Plink link, void *into, size_t len, P2Pstatus *status);

/* Waits until each of these links (of none: until time is over) has what a receive would take at once, or so many seconds have passed (INFINITY: as long as it
 * takes). `there` (optional): not 0 where they have. Whoever computes for long calls P2Pwait(peers, NULL, 0, 0, NULL) now and then, which moves what there is to be moved. */
int P2Pwait(P2Peers *peers, const P2Plink *links, size_t count, double seconds, int *there);

/* Whether what is sent in this iteration may be what all stop with (*judged is not 0): then the norm has to be exact, and what was sent has to be kept until P2Pconverged
 * has returned. */
int P2Pjudged(const P2Peers *peers, int *judged);

/* Ends the iteration. `norm`: how far the vector was from a solution, by this process's parts and what they received, before they were computed anew; not negative,
 * not NaN. The largest of all counts. */
int P2Pconverged(P2Peers *peers, double norm, P2Pverdict *verdict);

/* ---- One problem after another ---- */

/* After a verdict, in place of stopping: all go on with a problem that follows from the vector that was judged, a time step say. All members call it, or none. Iterations go on counting.
 * `stage` (optional): how many verdicts have been gone on from. P2P_E_USE: there is no verdict. */
int P2Pnext_stage(P2Peers *peers, uint32_t *stage);

/* How many verdicts have been gone on from. Where the job's `keep` is not 0 it may be less after P2Pchange than before, 0 even: those stages then end anew, with other verdicts; states that
 * are kept hold what the stage is besides the vector. */
int P2Pstage(const P2Peers *peers, uint32_t *stage);

/* ---- Members that are lost, and join: where the job's `keep` is not 0 ---- */

/* Whether the states of all parts held here are to be given to P2Pkeep now, before anything is sent (*keeps is not 0). */
int P2Pkeeps(const P2Peers *peers, int *keeps);

/* Keeps the state with which a part begins this iteration, here and at another member. The bytes may be changed when it returns. */
int P2Pkeep(P2Peers *peers, uint32_t part, const void *state, size_t len);

/* After P2P_E_CHANGED: what has changed for this process. Waits for states that come from others; when it returns P2P_E_CHANGED, call it again. What the lists point to
 * holds until the next P2Pchange or P2Pleave. */
int P2Pchange(P2Peers *peers, P2Pchanges *changes);

/* ---- Besides iterations, between members. What a piece points to holds until the next P2Ptold, P2Pposted or P2Pleave. ---- */

/* Gives another member the newest of something: how far this one is, say. Nothing is waited for. */
int P2Ptell(P2Peers *peers, uint32_t member, const void *bytes, size_t len);
/* The newest that another member told, if it was not had before. */
int P2Ptold(P2Peers *peers, uint32_t member, P2Ppiece *piece);
/* Sends bytes to another member, after all that was posted to it before; they come in pieces of at most 1 MiB. No bytes make no piece. */
int P2Ppost(P2Peers *peers, uint32_t member, const void *bytes, size_t len);
/* The next piece that somebody posted. Waits for at most so many seconds (INFINITY: as long as it takes). What was posted before a change is gone. */
int P2Pposted(P2Peers *peers, double seconds, P2Ppiece *piece);
/* Whether a member is known to be gone (*gone is not 0). */
int P2Pgone(const P2Peers *peers, uint32_t member, int *gone);
/* Whether all others who compute are gone, or say nothing (*alone is not 0): then the run cannot go on. */
int P2Palone(const P2Peers *peers, int *alone);

#ifdef __cplusplus
}
#endif

#endif
