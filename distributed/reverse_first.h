/* The k of reverse first-k: given, or measured during the first steps of a run. Internal. */
#ifndef BPPSA_DISTRIBUTED_REVERSE_FIRST_H
#define BPPSA_DISTRIBUTED_REVERSE_FIRST_H

#include "comm/comm.h"
#include "core/model.h"

enum { BPPSA_REVERSE_FIRST_MOST = 64, BPPSA_REVERSE_FIRST_ROUNDS = 3 };

/* Every k from 0 to the number of layers with weights takes some steps in turn, and the fastest one stays. A network with more
 * layers tries as many k, evenly spread. Delaying weight gradients costs this library no memory, because a network keeps the
 * gradients between all layers anyway; so the memory clamp of Algorithm 2 never binds. */
typedef struct {
  int64_t k;    /* in use */
  bool running; /* still measuring */
  int64_t count, tried, round;
  int64_t candidates[BPPSA_REVERSE_FIRST_MOST];
  double seconds[BPPSA_REVERSE_FIRST_MOST]; /* the shortest step with each candidate */
} bppsa_reverse_first;

/* wanted: k, or -1: measure. ERR_UNSUPPORTED: of bppsa_model_delay. */
bppsa_status bppsa_reverse_first_begin(bppsa_model *model, int64_t wanted, bppsa_reverse_first *search);
/* Takes the time of a step with a full batch; *changed: k is another one from here on. After the last step of the search,
 * collective: every rank takes the k whose slowest rank is the fastest. ERR_COMM. */
bppsa_status bppsa_reverse_first_measured(bppsa_reverse_first *search, bppsa_comm *comm, double seconds, bool *changed);

#endif
