/* A timeline of a run on ranks, for Perfetto: what each rank did for the training loop and when; if the ranks execute a schedule,
 * each operation of its list. It stands between the loop and the ranks, and notes the calls. */
#ifndef BPPSA_RUNS_TRAIN_TRACE_H
#define BPPSA_RUNS_TRAIN_TRACE_H

#include "core/base/text.h"
#include "distributed/pipeline/pipeline_train.h"

typedef struct bppsa_train_trace bppsa_train_trace;

/* Notes what the ranks do from now on: 20 000 calls, or the first 100 000 operations of a list and at least one run of it. Ranks
 * of one node share a clock; on several nodes each starts its own after a barrier. comm, ranks, list and executor are borrowed;
 * list and executor are NULL if the ranks execute no schedule. Collective. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_train_trace_create(bppsa_comm *comm, const bppsa_train_ranks *ranks, const bppsa_schedule *list,
                                      const bppsa_pipeline *executor, bppsa_train_trace **trace);
void bppsa_train_trace_destroy(bppsa_train_trace *trace); /* NULL is legal */

/* Returns what the training loop drives instead of the ranks; borrowed. */
const bppsa_train_ranks *bppsa_train_trace_ranks(const bppsa_train_trace *trace);
/* Counts the steps that the trace has so far: the first ones, or all of them. */
int64_t bppsa_train_trace_steps(const bppsa_train_trace *trace);

/* Ends the trace and writes it on rank 0; `text` stays empty on other ranks. predicted: the trace also shows the list's simulated
 * times, which are in seconds. Collective. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_train_trace_finish(bppsa_train_trace *trace, bool predicted, bppsa_text *text);

#endif
