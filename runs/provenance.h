/* Where a result comes from, with everything that is needed to compute it again. */
#ifndef BPPSA_RUNS_PROVENANCE_H
#define BPPSA_RUNS_PROVENANCE_H

#include "core/files/json.h"

/* A file or directory that was read, and the option that names it: "--weights". */
typedef struct {
  const char *option, *path;
} bppsa_provenance_input;

/* All pointers are borrowed. */
typedef struct {
  int argc; /* words of the command line, the first is the program's name */
  char *const *argv;
  const char *data; /* the data set's text (train/data/dataset.h); NULL: none */
  int count;        /* how many other inputs follow */
  const bppsa_provenance_input *inputs;
} bppsa_provenance;

/* Puts members into a JSON object: version, commit, command (the words of the command line), inputs: {option, path, size_bytes,
 * file_count} for every file and directory that was read. A directory's size is the sum of the files in it; null where it cannot
 * be determined. Returns false when out of memory. */
bool bppsa_provenance_put(json_t *object, const bppsa_provenance *provenance);

#endif
