// Threads that do nothing but make calls: each sends 8 bytes to itself and receives them. trace_threads THREADS CALLS (of all together);
// prints how long a call took, in processor time of the whole process and by the clock.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

static long rounds;

static void *calls(void *unused) {
  (void)unused;
  int ends[2];
  char bytes[8] = "1234567";
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
  for (long i = 0; i < rounds; i++)
    if (send(ends[0], bytes, 8, 0) != 8 || recv(ends[1], bytes, 8, 0) != 8) abort();
  return NULL;
}

static double now(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return at.tv_sec + at.tv_nsec / 1e9;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  int threads = atoi(words[1]);
  long all = atol(words[2]);
  rounds = all / threads / 2;
  pthread_t ids[64];
  if (threads < 1 || threads > 64) return 2;
  double wall = now(CLOCK_MONOTONIC), processor = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, calls, NULL)) abort();
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  double made = (double)rounds * threads * 2;
  printf("wall %.1f ns\nprocessor %.1f ns\n", (now(CLOCK_MONOTONIC) - wall) / made * 1e9,
         (now(CLOCK_PROCESS_CPUTIME_ID) - processor) / made * 1e9);
  return 0;
}
