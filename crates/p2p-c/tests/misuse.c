/* Calls that cannot be carried out: each has to be refused by its number and in words, and nothing else may happen. */
#include <math.h>
#include <polyrail/p2p.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

static int wrong;

static void expect(int line, int code, int wanted, const char *words) {
    const char *text = wanted ? P2Perror() : "";
    if (code == wanted && strstr(text, words))
        return;
    printf("line %d: %d and not %d, \"%s\" and not \"%s\"\n", line, code, wanted, P2Perror(), words);
    wrong = 1;
}
#define FAILS(call, code, words) do { int told = (call); expect(__LINE__, told, code, words); } while (0)
#define USE(call, words) FAILS(call, P2P_E_USE, words)
#define WORKS(call) FAILS(call, 0, "")

static void before_a_run(void) {
    P2Peers *peers = NULL;
    char address[P2P_ADDRESS] = "?";
    if (strcmp(P2Perror(), "") != 0)
        wrong = 1;
    USE(P2Pfound(NULL, NULL), "null pointer");
    USE(P2Pjoin(NULL, "", NULL), "null pointer");
    USE(P2Pstart(NULL, NULL, NULL), "null pointer");
    USE(P2Pstart(NULL, NULL, &peers), "the P2Pjob is a null pointer");
    USE(P2Pjoin(NULL, NULL, &peers), "the address is a null pointer");
    USE(P2Pjoin(NULL, "", &peers), "is no address of a run");
    USE(P2Pjoin(NULL, "not an address", &peers), "is no address of a run");
    USE(P2Pjoin(NULL, "\xff\xfe", &peers), "UTF-8");
    /* as many letters as an address has, and bytes that are none */
    memset(address, 'A', sizeof address - 1);
    address[sizeof address - 1] = 0;
    FAILS(P2Pjoin(NULL, address, &peers), P2P_E_RAILS, "address");

    P2Psettings settings = {0};
    USE(P2Pfound(&settings, &peers), "sizeof(P2Psettings)");
    settings.size = sizeof settings;
    settings.weight = 65536;
    USE(P2Pfound(&settings, &peers), "a weight of 65536");
    settings.weight = 0;
    settings.patience = -1;
    USE(P2Pfound(&settings, &peers), "-1 seconds");
    settings.patience = NAN;
    USE(P2Pfound(&settings, &peers), "seconds");
    settings.patience = 0;
    settings.reserved = 1;
    USE(P2Pfound(&settings, &peers), "reserved");
    if (peers)
        wrong = 1;
    USE(P2Pleave(NULL, -1), "seconds");
    WORKS(P2Pleave(NULL, 0));
}

static void without_a_handle(void) {
    uint32_t number;
    uint64_t iteration;
    size_t count;
    int is;
    char text[P2P_ADDRESS];
    P2Pjob job = {.size = sizeof job, .parts = 1};
    P2Plink link = {0, 0, 0};
    P2Pverdict verdict;
    P2Pchanges changes;
    P2Ppiece piece;
    USE(P2Pgather(NULL, &job, 0, 1), "the handle is a null pointer");
    USE(P2Paddress(NULL, text, sizeof text), "the handle is a null pointer");
    USE(P2Pme(NULL, &number), "the handle is a null pointer");
    USE(P2Pmembers(NULL, &number), "the handle is a null pointer");
    USE(P2Pparts(NULL, &number, 1, &count), "the handle is a null pointer");
    USE(P2Pholder(NULL, 0, &number), "the handle is a null pointer");
    USE(P2Pget_job(NULL, &job), "the handle is a null pointer");
    USE(P2Piteration(NULL, &iteration), "the handle is a null pointer");
    USE(P2Psend(NULL, link, "", 0), "the handle is a null pointer");
    USE(P2Preceive(NULL, link, text, 1, NULL), "the handle is a null pointer");
    USE(P2Pwait(NULL, NULL, 0, 0, NULL), "the handle is a null pointer");
    USE(P2Pjudged(NULL, &is), "the handle is a null pointer");
    USE(P2Pconverged(NULL, 1, &verdict), "the handle is a null pointer");
    USE(P2Pkeeps(NULL, &is), "the handle is a null pointer");
    USE(P2Pkeep(NULL, 0, "", 0), "the handle is a null pointer");
    USE(P2Pchange(NULL, &changes), "the handle is a null pointer");
    USE(P2Ptell(NULL, 0, "", 0), "the handle is a null pointer");
    USE(P2Ptold(NULL, 0, &piece), "the handle is a null pointer");
    USE(P2Ppost(NULL, 0, "", 0), "the handle is a null pointer");
    USE(P2Pposted(NULL, 0, &piece), "the handle is a null pointer");
    USE(P2Pgone(NULL, 0, &is), "the handle is a null pointer");
    USE(P2Palone(NULL, &is), "the handle is a null pointer");
}

static void before_it_begins(P2Peers *peers) {
    char address[P2P_ADDRESS];
    uint32_t number;
    P2Pverdict verdict;
    USE(P2Pme(peers, &number), "P2Pgather begins it");
    USE(P2Pconverged(peers, 1, &verdict), "P2Pgather begins it");
    USE(P2Paddress(peers, address, P2P_ADDRESS - 1), "87 bytes of room");
    USE(P2Paddress(peers, NULL, P2P_ADDRESS), "null pointer");
    WORKS(P2Paddress(peers, address, sizeof address));
    if (strlen(address) != P2P_ADDRESS - 1)
        wrong = 1;

    USE(P2Pgather(peers, NULL, 0, 1), "the P2Pjob is a null pointer");
    P2Pjob job = {0};
    USE(P2Pgather(peers, &job, 0, 1), "sizeof(P2Pjob)");
    job.size = sizeof job;
    USE(P2Pgather(peers, &job, 0, 1), "0 parts");
    job.parts = 131073;
    USE(P2Pgather(peers, &job, 0, 1), "131073 parts");
    job.parts = 2;
    job.scheme = 4;
    USE(P2Pgather(peers, &job, 0, 1), "scheme is 4");
    job.scheme = P2P_BOUNDED;
    USE(P2Pgather(peers, &job, 0, 1), "bound of 0");
    job.scheme = P2P_SYNCHRONOUS;
    job.bound = 1;
    USE(P2Pgather(peers, &job, 0, 1), "P2P_BOUNDED");
    job.bound = 0;
    job.tolerance = NAN;
    USE(P2Pgather(peers, &job, 0, 1), "tolerance");
    job.tolerance = -1;
    USE(P2Pgather(peers, &job, 0, 1), "tolerance is -1");
    job.tolerance = 0.5;
    job.task_len = 65537;
    USE(P2Pgather(peers, &job, 0, 1), "65537 bytes");
    job.task_len = 4;
    USE(P2Pgather(peers, &job, 0, 1), "null pointer, to 4");
    job.task = "abcd";
    USE(P2Pgather(peers, &job, 4096, 1), "4096 others");
    USE(P2Pgather(peers, &job, 0, -1), "-1 seconds");
    /* none of these has ended it */
    WORKS(P2Pgather(peers, &job, 0, INFINITY));
    USE(P2Pgather(peers, &job, 0, 1), "has begun already");
}

static void while_it_runs(P2Peers *peers) {
    uint32_t number, parts[2];
    size_t count = 0;
    int is = 1;
    char bytes[8] = "as it is";
    P2Pstatus status;
    P2Pverdict verdict;
    P2Pchanges changes;
    P2Ppiece piece;
    const P2Plink link = {0, 1, 0};
    P2Pjob job = {.size = 8};
    USE(P2Pget_job(peers, &job), "sizeof(P2Pjob)");
    USE(P2Pget_job(peers, NULL), "null pointer");
    job.size = sizeof job;
    WORKS(P2Pget_job(peers, &job));
    if (job.parts != 2 || job.tolerance != 0.5 || job.every != 16 || job.task_len != 4 || memcmp(job.task, "abcd", 4) != 0)
        expect(__LINE__, 0, 1, "the job");

    USE(P2Pparts(peers, parts, 2, NULL), "null pointer");
    USE(P2Pparts(peers, NULL, 2, &count), "null pointer");
    USE(P2Pparts(peers, parts, 1, &count), "holds 2 parts, and there is room for 1");
    WORKS(P2Pparts(peers, NULL, 0, &count));
    WORKS(P2Pparts(peers, parts, 2, &count));
    if (count != 2 || parts[0] != 0 || parts[1] != 1)
        expect(__LINE__, 0, 1, "the parts");
    USE(P2Pholder(peers, 2, &number), "there is no part 2");
    USE(P2Pholder(peers, 0, NULL), "null pointer");

    USE(P2Psend(peers, (P2Plink){2, 0, 0}, bytes, 8), "part 2 is not held here");
    USE(P2Psend(peers, (P2Plink){0, 2, 0}, bytes, 8), "there is no part 2");
    USE(P2Psend(peers, (P2Plink){0, 1, 4096}, bytes, 8), "tag is 4096");
    USE(P2Psend(peers, (P2Plink){0, 1, 1 << 20}, bytes, 8), "tag is 1048576");
    USE(P2Psend(peers, link, NULL, 8), "null pointer, to 8");
    USE(P2Psend(peers, link, bytes, SIZE_MAX), "is a length negative");
    USE(P2Preceive(peers, link, bytes, 8, &status), "has sent nothing");
    USE(P2Preceive(peers, link, NULL, 8, &status), "null pointer, to 8");
    USE(P2Preceive(peers, link, bytes, SIZE_MAX, &status), "is a length negative");
    if (memcmp(bytes, "as it is", 8) != 0)
        expect(__LINE__, 0, 1, "a receive that fails leaves the buffer as it was");
    WORKS(P2Psend(peers, link, "12345678", 8));
    WORKS(P2Preceive(peers, link, bytes, 8, &status));
    if (memcmp(bytes, "12345678", 8) != 0 || status.what != P2P_NEW || status.iteration != 0 || status.age != 0)
        expect(__LINE__, 0, 1, "the status");
    WORKS(P2Psend(peers, link, NULL, 0));
    WORKS(P2Preceive(peers, link, NULL, 0, NULL));
    WORKS(P2Psend(peers, link, "1234567", 7));
    FAILS(P2Preceive(peers, link, bytes, 8, NULL), P2P_E_BREACH, "sends 7 bytes");

    USE(P2Pwait(peers, NULL, 1, 0, NULL), "links is a null pointer");
    USE(P2Pwait(peers, &link, SIZE_MAX, 0, NULL), "is a length negative");
    USE(P2Pwait(peers, NULL, 0, NAN, NULL), "seconds");
    USE(P2Pwait(peers, &(P2Plink){7, 0, 0}, 1, 0, NULL), "there is no part 7");
    WORKS(P2Pwait(peers, NULL, 0, 0, &is));
    if (is)
        expect(__LINE__, 0, 1, "nothing is not there");
    USE(P2Pjudged(peers, NULL), "null pointer");
    USE(P2Pconverged(peers, NAN, &verdict), "has the iteration diverged");
    USE(P2Pconverged(peers, -1, &verdict), "a norm is -1");
    USE(P2Pconverged(peers, 0, NULL), "null pointer");
    USE(P2Pnext_stage(peers, &number), "there is no verdict to go on from");
    USE(P2Pstage(peers, NULL), "null pointer");

    USE(P2Pkeep(peers, 2, bytes, 8), "part 2 is not held here");
    USE(P2Pkeep(peers, 0, NULL, 8), "null pointer, to 8");
    USE(P2Pchange(peers, NULL), "null pointer");
    WORKS(P2Pchange(peers, &changes));
    if (changes.lost_count || changes.set_count || changes.iteration != 0)
        expect(__LINE__, 0, 1, "nothing has changed");
    USE(P2Ptell(peers, 1, bytes, 8), "there is no member 1");
    USE(P2Ptold(peers, 1, &piece), "there is no member 1");
    USE(P2Ptold(peers, 0, NULL), "null pointer");
    USE(P2Ppost(peers, 0, bytes, 8), "no other member 0");
    USE(P2Ppost(peers, 1, NULL, 8), "null pointer, to 8");
    USE(P2Pposted(peers, -1, &piece), "seconds");
    WORKS(P2Pposted(peers, 0, &piece));
    if (piece.bytes)
        expect(__LINE__, 0, 1, "nobody has posted");
    USE(P2Pgone(peers, UINT32_MAX, &is), "there is no member 4294967295");

    /* after all of these the run goes on, to its end, and with another stage */
    for (uint32_t stage = 0; stage < 3; stage++) {
        WORKS(P2Pstage(peers, &number));
        if (number != stage)
            expect(__LINE__, 0, 1, "the stage");
        verdict.stop = 0;
        while (!verdict.stop)
            WORKS(P2Pconverged(peers, 0.25, &verdict));
        if (verdict.norm != 0.25)
            expect(__LINE__, 0, 1, "the norm");
        if (stage < 2)
            WORKS(P2Pnext_stage(peers, stage ? NULL : &number));
        if (stage == 0 && number != 1)
            expect(__LINE__, 0, 1, "the next stage");
    }
    USE(P2Pleave(peers, NAN), "seconds");
    WORKS(P2Pleave(peers, 1));
}

static void a_run_that_did_not_begin(void) {
    P2Peers *peers = NULL;
    uint32_t number;
    P2Pjob job = {.size = sizeof job, .parts = 2};
    WORKS(P2Pfound(NULL, &peers));
    FAILS(P2Pgather(peers, &job, 1, 0), P2P_E_SILENT, "0 of 1 others have joined");
    USE(P2Pgather(peers, &job, 1, 0), "did not begin");
    USE(P2Pme(peers, &number), "did not begin");
    WORKS(P2Pleave(peers, 1));
}

static atomic_int enough;

static void *stay_in_calls(void *peers) {
    while (!enough)
        P2Pwait(peers, NULL, 0, 0.05, NULL); /* refused where the other was faster */
    return NULL;
}

/* Without a launcher a process is alone; of two threads that are in calls at once one is told so. */
static void two_threads(void) {
    P2Peers *peers = NULL;
    P2Pjob job = {.size = sizeof job, .parts = 1, .scheme = P2P_BOUNDED, .bound = 3};
    uint32_t members = 0;
    pthread_t other;
    WORKS(P2Pstart(NULL, &job, &peers));
    WORKS(P2Pmembers(peers, &members));
    WORKS(P2Pget_job(peers, &job));
    if (members != 1 || job.scheme != P2P_BOUNDED || job.bound != 3)
        expect(__LINE__, 0, 1, "one member");
    WORKS(pthread_create(&other, NULL, stay_in_calls, peers));
    int code;
    while ((code = P2Pmembers(peers, &members)) == 0)
        thrd_sleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* meanwhile the other may begin its call */
    USE(code, "another thread is in a call with this handle");
    enough = 1;
    WORKS(pthread_join(other, NULL));
    WORKS(P2Pmembers(peers, &members));
    WORKS(P2Pleave(peers, 1));
}

int main(void) {
    P2Peers *peers = NULL;
    before_a_run();
    without_a_handle();
    WORKS(P2Pfound(NULL, &peers));
    before_it_begins(peers);
    while_it_runs(peers);
    a_run_that_did_not_begin();
    two_threads();
    return wrong;
}
