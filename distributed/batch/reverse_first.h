/* The k of reverse first-k (ooo-backprop, Algorithm 2): given, or measured during the first steps of a run. Internal. */
#ifndef BPPSA_DISTRIBUTED_BATCH_REVERSE_FIRST_H
#define BPPSA_DISTRIBUTED_BATCH_REVERSE_FIRST_H

#include "comm/comm.h"
#include "core/compute/model.h"

enum { BPPSA_REVERSE_FIRST_MOST = 64, BPPSA_REVERSE_FIRST_ROUNDS = 3, BPPSA_REVERSE_FIRST_TEXT = 200 };

/* k is at most the number of layers for which every rank has memory (bppsa_model_delay). Where it is measured, every k from 0 to
 * that number takes some steps in turn, and the fastest one stays. Where there are more than BPPSA_REVERSE_FIRST_MOST, so many of
 * them are tried, evenly spread. */
typedef struct {
  int64_t wanted;         /* as asked for; -1: measured */
  int64_t k;              /* in use */
  int64_t most, possible; /* the largest k that fits, and the largest one there would be without a limit; 0 where wanted is 0 */
  bool running;           /* still measuring */
  int64_t count, tried, round;
  int64_t candidates[BPPSA_REVERSE_FIRST_MOST];
  double seconds[BPPSA_REVERSE_FIRST_MOST]; /* the shortest step with each candidate */
} bppsa_reverse_first;

/* wanted: k, or -1: measure. Collective, unless it is 0. ERR_UNSUPPORTED: of bppsa_model_delay. ERR_COMM. */
bppsa_status bppsa_reverse_first_begin(bppsa_comm *comm, bppsa_model *model, int64_t wanted, bppsa_reverse_first *search);
/* Takes the time of a step with a full batch; *changed: k is another one from here on. After the last step of the search,
 * collective: every rank takes the k whose slowest rank is the fastest. ERR_COMM. */
bppsa_status bppsa_reverse_first_measured(bppsa_reverse_first *search, bppsa_comm *comm, double seconds, bool *changed);
/* What came of it, in words: "2 of 4 layers", "1 of 4 layers, 3 asked for: there is memory for 1 of 4", "0 to 4 layers are
 * measured", "2 of 4 layers, the fastest of 0 to 4: 0.0121 s a step, 0.0129 s with 0". Returns text. */
const char *bppsa_reverse_first_text(const bppsa_reverse_first *search, char text[BPPSA_REVERSE_FIRST_TEXT]);

#endif
