/* Seconds and bytes of a layer. */
#ifndef BPPSA_ORACLE_LAYER_COST_H
#define BPPSA_ORACLE_LAYER_COST_H

#include "oracle/query.h"

/* FW, BW: of one sample; WU: of one update. Measured where the model has it; otherwise the longer of FLOP / (peak efficiency) and
 * bytes / bandwidth. All times of computing are those of one processor by itself times the query's slowdown. BW of a layer with
 * weights takes twice the forward pass's FLOP (gradients of inputs and of weights). An update by SGD with momentum reads three
 * arrays and writes two, and takes 4 FLOP a weight. */
double bppsa_layer_forward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
double bppsa_layer_backward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
double bppsa_layer_update_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer);
/* The same at an end of the measured time's spread. */
double bppsa_layer_forward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
double bppsa_layer_backward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
double bppsa_layer_update_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* The factors of FW, BW or WU of all layers together, where their spread was measured. */
bppsa_oracle_spread bppsa_oracle_model_spread(const bppsa_oracle_query *q, bppsa_oracle_phase phase);
/* Seconds of `flops` on one processor. */
double bppsa_flops_s(const bppsa_oracle_query *q, double flops);
/* The product of two steps' Jacobians of a recurrent layer, one sample: measured, or by its FLOPs. */
double bppsa_layer_product_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* The backward pass of a recurrent layer by a linear scan, one sample: BW, and where it was measured what the scan takes longer. */
double bppsa_layer_walk_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end);
/* A product of the scan over ranks, of gradients of size `hidden` for so many samples at once: measured, or by its FLOPs. */
double bppsa_scan_product_at(const bppsa_oracle_query *q, bppsa_oracle_product product, double hidden, double samples,
                             bppsa_oracle_end end);

/* ParaDL, table 3: 2 B (|x| + |y|) + 2 |w| + |bi|, in elements; `batch` samples, shares of activations and of weights. */
double bppsa_layer_elements(const bppsa_oracle_layer *layer, double batch, double activations, double weights);

/* An operation over the level that joins p processors, as a link; `shared`: groups of a hybrid strategy talk at the same time
 * (phi). */
bppsa_link bppsa_oracle_link(const bppsa_oracle_query *q, bppsa_oracle_operation operation, int64_t p, bool shared);
/* An allreduce of so many bytes among `ways` processors, over the level that joins p; the query says how. */
double bppsa_oracle_allreduce_s(const bppsa_oracle_query *q, int64_t p, bool shared, int64_t ways, double bytes);
/* An allgather among the p processors of a group; bytes: of one processor's segment. */
double bppsa_oracle_allgather_s(const bppsa_oracle_query *q, int64_t p, double bytes);
/* Messages between stages of a pipeline whose executor was measured; otherwise messages. */
bppsa_link bppsa_oracle_stage_link(const bppsa_oracle_query *q, int64_t p);
/* A message between two of p processors. */
double bppsa_oracle_message_s(const bppsa_oracle_query *q, int64_t p, double bytes);

/* The mini-batch at p processors: b with strong scaling, b p with weak scaling. */
int64_t bppsa_mini_batch(const bppsa_oracle_query *q, int64_t p);
/* S, into how many micro-batches p processors cut a mini-batch: what is asked for, or 4 p; at most a sample each. */
int64_t bppsa_micro_batches(const bppsa_oracle_query *q, int64_t p, int64_t mini_batch);

#endif
