/* The cost model: predicts from a plan alone how long a kind of device takes to execute it.
 *
 *     seconds = Σ levels ( level + Σ records max(1, count·B / workers) · length · (product + FLOPs · flop) )
 *
 * where `length` is that of the longest item, or the mean of all items if there are more items than workers.
 *
 * Products differ in what they apply (a leaf or a held product) and in what they apply it to (a vector or a matrix). Each kind
 * has its own `product` (seconds for a product), `flop` (seconds for a FLOP) and `workers` (products at the same time). The
 * constants of the CPU are for one worker: the choice of `auto`, and with it the bits of a gradient, must not depend on the
 * number of threads.
 */
#include "scan/plan_internal.h"

typedef struct {
  double product, flop; /* seconds for a product, and for each of its FLOPs */
  double workers;       /* products at the same time */
} rate;

enum { FUSED = BPPSA_CUDA + 1 }; /* recurrent elements of up to a certain size on a GPU: the layer's own kernels */

typedef struct {
  double level; /* seconds between two levels: a barrier, or a launch */
  rate mv[2];   /* [the operand is a held product] */
  rate mm[2];
} costs;

/* CPU: fitted to the backward passes of blelloch and chunked at H 2 .. 128, T 300 .. 1000 and B 16 on one thread of a Xeon with
 * AVX-512 (`bppsa bench rnn --threads 1`), with errors up to 27 %; only ratios matter. A FLOP in f64 takes twice as long. */
static const costs table[] = {
    [BPPSA_CPU] =
        {
            .level = 1e-6,
            .mv = {{5e-9, 1.2e-11, 1}, {20e-9, 1.8e-9, 1}},
            .mm = {{16e-9, 9.5e-12, 1}, {180e-9, 6e-12, 1}},
        },
    /* GPU: calculated, not measured, from issue slots and latencies of the compiled kernels at 1.9 GHz, 132 multiprocessors with
     * 4 schedulers (H200). Fused kernels: a step of a walk takes about 90 issue slots and a chain of 110 cycles; a warp of a
     * transition works on eight products at 85 % of its scheduler's multiply-adds. The other kernels read their matrices from
     * caches, with one block for each product or each tile of it. Trees are never fused. */
    [BPPSA_CUDA] =
        {
            .level = 3e-6,
            .mv = {{300e-9, 7e-11, 1056}, {1e-6, 7e-11, 1056}},
            .mm = {{500e-9, 2e-12, 264}, {5e-6, 1.2e-10, 1056}},
        },
    [FUSED] =
        {
            .level = 3e-6,
            .mv = {{60e-9, 8e-12, 700}, {60e-9, 8e-12, 1056}},
            .mm = {{0, 7.7e-11, 4224}, {5e-6, 1.2e-10, 1056}},
        },
};

static const costs *costs_of(const bppsa_scan_config *config) {
  const bool fused = bppsa_scan_fusion_of(config) != BPPSA_FUSION_NONE;
  return &table[config->device == BPPSA_CUDA ? (fused ? FUSED : BPPSA_CUDA) : BPPSA_CPU];
}

static double record_seconds(const bppsa_scan_plan *plan, const costs *c, int64_t record) {
  const bppsa_scan_level *level = &plan->records[record];
  bppsa_scan_iterator iterator = {.record = record};
  bppsa_scan_step step;
  if (level->dead) {
    return 0;
  }
  const rate *rates = level->op == BPPSA_OP_MV ? c->mv : c->mm;
  const rate *r = &rates[level->span > 1 || level->wider > 0];
  const double flop = plan->config.dtype == BPPSA_F64 ? 2 * r->flop : r->flop;
  double item = 0; /* of the first item, which stands for all unless sizes differ */
  const double items = (double)level->count * (double)plan->config.batch;
  const int64_t links = bppsa_scan_level_links(level), looked_at = plan->dims != NULL ? links : 1;
  for (int64_t i = 0; i < looked_at; ++i) {
    bppsa_scan_plan_next(plan, &iterator, &step);
    item += (r->product + flop * (double)step.flops) / (double)looked_at;
  }
  const double longest = (double)bppsa_scan_item_length(level, 0), mean = (double)links / (double)level->count;
  return item * (items > r->workers ? items / r->workers * mean : longest);
}

double bppsa_scan_plan_seconds(const bppsa_scan_plan *plan) {
  const costs *c = costs_of(&plan->config);
  double seconds = 0;
  for (int64_t r = 0; r < plan->record_count; ++r) {
    const bool last = r + 1 == plan->record_count || plan->records[r + 1].level != plan->records[r].level;
    seconds += record_seconds(plan, c, r) + (last ? c->level : 0);
  }
  return seconds;
}
