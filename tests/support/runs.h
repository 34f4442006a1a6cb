/* What programs need that kill or fault runs at random moments (kill_resume, rank_faults): draws, seconds, words, files. They
 * have no test framework: a failure ends the program. */
#ifndef BPPSA_TESTS_SUPPORT_RUNS_H
#define BPPSA_TESTS_SUPPORT_RUNS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/philox.h"

enum { RUN_WORDS = 64 }; /* room for the words of a command line, and NULL */

static uint64_t run_seed, run_drawn; /* the seed of all draws, and how many there were */

/* Draws the next number, 0 <= x < 1. */
static inline double run_uniform(void) {
  return bppsa_random_double(run_seed, BPPSA_STREAM_TEST, run_drawn++);
}

/* Returns the seconds since some fixed moment. */
static inline double run_now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline void run_pause(double seconds) {
  const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&time, NULL);
}

/* Cuts a command line into its words and puts NULL after them; returns their number. */
static inline int run_words(char *line, char *words[RUN_WORDS]) {
  int count = 0;
  char *rest = line;
  for (char *word = strtok_r(line, " ", &rest); word != NULL && count < RUN_WORDS - 1; word = strtok_r(NULL, " ", &rest)) {
    words[count++] = word;
  }
  words[count] = NULL;
  return count;
}

/* Reads the bytes of a file and adds a 0 (free them); NULL if there is no file. */
static inline char *run_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  struct stat info;
  if (file == NULL) {
    return NULL;
  }
  char *bytes = fstat(fileno(file), &info) == 0 ? calloc((size_t)info.st_size + 1, 1) : NULL;
  if (bytes == NULL || fread(bytes, 1, (size_t)info.st_size, file) != (size_t)info.st_size) {
    perror(path);
    exit(1);
  }
  *size = (size_t)info.st_size;
  fclose(file);
  return bytes;
}

#endif
