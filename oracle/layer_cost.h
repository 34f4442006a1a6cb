/* How many seconds and bytes a layer takes. */
#ifndef BPPSA_ORACLE_LAYER_COST_H
#define BPPSA_ORACLE_LAYER_COST_H

#include "oracle/query.h"

/* FW and BW are seconds of one sample, WU of one update. They are measured where the model has measurements; otherwise each is
 * the longer of FLOP / (peak efficiency) and bytes / bandwidth. They hold for one processor by itself and are multiplied by the
 * query's slowdown. BW of a layer with weights takes twice the forward pass's FLOP (gradients of inputs and of weights). An
 * update by SGD with momentum reads three arrays and writes two, and takes 4 FLOP a weight. */
double bppsa_layer_forward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
double bppsa_layer_backward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
double bppsa_layer_update_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
/* The same three at an end of the measured time's spread. */
double bppsa_layer_forward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
double bppsa_layer_backward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
double bppsa_layer_update_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* Returns the factors of all layers' FW, BW or WU together, if their spread was measured. */
bppsa_oracle_spread bppsa_oracle_model_spread(const bppsa_oracle_query *q, bppsa_oracle_phase phase);
/* Returns the seconds that `flops` take on one processor. */
double bppsa_flops_s(const bppsa_oracle_query *q, double flops);
/* Returns the seconds of one sample for the product of two steps' Jacobians of a recurrent layer: measured, or by its FLOPs. */
double bppsa_layer_product_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* Returns the seconds of one sample for a recurrent layer's backward pass by a linear scan: BW plus the measured time that the
 * scan takes longer. */
double bppsa_layer_walk_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* Returns the seconds of a product of the scan over ranks, for gradients of size `hidden` and this many samples at once:
 * measured, or by its FLOPs. */
double bppsa_scan_product_at(const bppsa_oracle_query *q, bppsa_oracle_product product, double hidden, double samples,
                             bppsa_oracle_end end);

/* Returns how many elements a layer holds, ParaDL's table 3: 2 B (|x| + |y|) + 2 |w| + |bi|. `batch` is B; `activations` and
 * `weights` are the shares of both that a processor has. */
double bppsa_layer_elements(const bppsa_oracle_layer *layer, double batch, double activations, double weights);

/* Returns the link that an operation uses over the level that joins p processors; `shared`: the groups of a hybrid strategy talk
 * at the same time (phi). */
bppsa_link bppsa_oracle_link(const bppsa_oracle_query *q, bppsa_oracle_operation operation, int64_t p, bool shared);
/* Returns the seconds of an allreduce of this many bytes among `ways` processors, over the level that joins p; the query chooses
 * the algorithm. */
double bppsa_oracle_allreduce_s(const bppsa_oracle_query *q, int64_t p, bool shared, int64_t ways, double bytes);
/* Returns the seconds of an allgather among the p processors of a group; bytes: the segment of one processor. */
double bppsa_oracle_allgather_s(const bppsa_oracle_query *q, int64_t p, double bytes);
/* Returns the link between stages of a pipeline: measured with the executor of schedules, otherwise that of any message. */
bppsa_link bppsa_oracle_stage_link(const bppsa_oracle_query *q, int64_t p);
/* Returns the seconds of a message between two of p processors. */
double bppsa_oracle_message_s(const bppsa_oracle_query *q, int64_t p, double bytes);

/* Returns the mini-batch for p processors: b with strong scaling, b p with weak scaling. */
int64_t bppsa_mini_batch(const bppsa_oracle_query *q, int64_t p);
/* Returns S, the number of micro-batches into which p processors cut a mini-batch: what the query asks for, or 4 p, but no more
 * than there are samples. */
int64_t bppsa_micro_batches(const bppsa_oracle_query *q, int64_t p, int64_t mini_batch);

#endif
