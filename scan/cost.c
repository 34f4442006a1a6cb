/* The cost model: predicts from a plan alone how long a kind of device takes to execute it.
 *
 *     seconds = Σ levels ( level + Σ records max(1, count·B / workers) · length · (product + FLOPs · flop) )
 *
 * where `length` is that of the longest item, or the mean of all items if there are more items than workers. Recurrent elements
 * that the layer's own kernels run on a GPU have a table of cycles instead (fused_cycles), and sparse elements on a GPU what is
 * known of the kernels of products and mat-vecs (jacobian/gpu_cost.h).
 *
 * Products differ in what they apply (a leaf or a held product) and in what they apply it to (a vector or a matrix). Each kind
 * has its own `product` (seconds for a product), `flop` (seconds for a FLOP) and `workers` (products at the same time). The
 * constants of the CPU are for one worker: the choice of `auto`, and with it the bits of a gradient, must not depend on the
 * number of threads.
 */
#include "jacobian/apply.h"
#include "scan/plan_internal.h"

typedef struct {
  double product, flop; /* seconds for a product, and for each of its FLOPs */
  double workers;       /* products at the same time */
} rate;

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
     * 4 schedulers (H200). These kernels read their matrices from caches, with one block for each product or each tile of it. */
    [BPPSA_CUDA] =
        {
            .level = 3e-6,
            .mv = {{300e-9, 7e-11, 1056}, {1e-6, 7e-11, 1056}},
            .mm = {{500e-9, 2e-12, 264}, {5e-6, 1.2e-10, 1056}},
        },
};

/* ---- the kernels of a recurrent layer on a GPU (recurrent/chunk_kernels.cuh): predicted, not measured ----
 *
 * Cycles that a step of an item (a chunk of a sample) takes, of the code that nvcc 13 makes for sm_90 in f32: the assembler's stall
 * counts along the path of a step, with latencies of 33 cycles for shared memory, 300 for global memory, 22 for a special function
 * and 26 for a shuffle.
 *
 *     alone   nothing else is on the scheduler: what a chain of steps takes
 *     few     likewise, where there are so few items that more threads work on each
 *     busy    issue slots: what a step takes of a scheduler that has enough to do
 *     seconds of a level = max(steps of the longest item · alone, steps of all items · busy / schedulers) / clock
 *
 * transition   a link, a rescale every fourth. few: rows_of::FEW rows a thread; otherwise V; busy: slots of a warp shared by its
 *              items (8 at H = 20, 4 at H = 32). The first link is no product, but a Jacobian: 0.2 to 0.45 of a link
 * carry        a link of carry_follow_near, and its part of a tile's beginning and end (10 links at H = 20, 4 at H = 32); busy: of
 *              all warps of the block, estimated
 * walk         a step of a whole round, WALK_PLAIN; K = 3, H = 32: WALK_FREE, without the products for weight gradients. One launch
 *              takes all chunks, so that the plan's records of single chunks do not count
 *
 * The table has K = 1 (the RNN) and K = 3 (the GRU), and H = 20 and H = 32. Other K are interpolated, or extrapolated, linearly. H
 * up to 20 counts as 20, every larger H as 32. f64 counts twice. */
enum { TRANSITION, CARRY, WALK };

typedef struct {
  double few, alone, busy;
} cycles;

static const cycles fused_cycles[][2][2] = {
    /* H = 20: K = 1, K = 3, H = 32: K = 1, K = 3 */
    [TRANSITION] = {{{2310, 3940, 326}, {2910, 4220, 374}}, {{3630, 6000, 1244}, {4370, 8280, 1356}}},
    [CARRY] = {{{147, 147, 560}, {147, 147, 560}}, {{211, 211, 900}, {211, 211, 900}}},
    [WALK] = {{{112, 112, 64}, {255, 255, 188}}, {{147, 147, 91}, {359, 359, 199}}},
};
/* The same of transitions and carries of pairs (recurrent/pair_kernels.cuh), H = 20 and H = 32, estimated and not replayed: a
 * thread of a transition has 4 V H² multiply-adds, the GRU's 2 V H², with V = 2 rows where there are few; an item has four times
 * as many. A carry has two barriers a link. */
static const cycles pair_cycles[][2] = {
    [TRANSITION] = {{3900, 8400, 1500}, {8700, 8700, 5400}},
    [CARRY] = {{400, 400, 1500}, {420, 420, 3200}},
};
/* The same of a walk through a wide layer (recurrent/wide_kernels.cuh): BPPSA_SCAN_WALK_SIZES, for each K = 1 and K = 3. alone: a
 * warp's path through a step of a whole round, replayed: 295, 296, 341, 422, 372 and 458, 578, 532, 497, 647; the multiply-adds
 * of the other warps on its scheduler, 0, 64, 64, 96, 192 and 48, 96, 96, 144; and where several blocks share a step (all but
 * H = 64, and 128 of K = 1) 250 cycles, assumed, until a number sent has arrived and opened the gate. K = 3, H = 512 waits for
 * shared memory instead: for 864 cycles at 128 bytes a cycle, 30 in front of them and 290 behind. busy: issue slots of all warps of
 * all blocks. */
static const cycles wide_cycles[][2] = {{{295, 295, 424}, {506, 506, 1320}},
                                        {{360, 360, 956}, {924, 924, 3760}},
                                        {{655, 655, 4192}, {878, 878, 14336}},
                                        {{768, 768, 10848}, {891, 891, 34944}},
                                        {{814, 814, 17024}, {1434, 1434, 44800}}};

static const double few_items[] = {132 * 16, 132 * 8}, few_pairs = 132 * 4; /* a block of four warps on each multiprocessor */

/* H200. Between two levels: a launch, assumed to take 1.2 µs, and the beginning and end of a kernel, on average 3500 cycles with
 * the sums behind the walk. */
static const double clock_rate = 1.98e9, schedulers = 132 * 4, fused_level = 3.4e-6;
static const double first_link = 0.4; /* of a transition, in links */

static bool is_fused(const bppsa_scan_config *config) {
  return config->device == BPPSA_CUDA && bppsa_scan_fusion_of(config) != BPPSA_FUSION_NONE;
}

/* Seconds of `items` items of a kernel, `longest` and on average `mean` steps long. */
static double fused_seconds(const bppsa_scan_config *config, int kernel, double items, double longest, double mean) {
  const int64_t hidden = bppsa_scan_shared_dim(config);
  const bool wide = hidden > 20, pairs = config->element == BPPSA_ELEMENT_PAIR && kernel != WALK;
  const bool few = items <= (pairs ? few_pairs : few_items[wide]);
  int64_t padded;
  const int size = bppsa_scan_walk_place(hidden, &padded);
  const cycles *c = hidden > BPPSA_SCAN_FUSED_DIM ? wide_cycles[size] : fused_cycles[kernel][wide];
  const double more = ((double)config->matrices - 1) / 2, width = config->dtype == BPPSA_F64 ? 2 : 1;
  const double first = few ? c[0].few : c[0].alone, third = few ? c[1].few : c[1].alone;
  const cycles *of_pair = pairs ? &pair_cycles[kernel][wide] : NULL;
  const double of_one = pairs ? (few ? of_pair->few : of_pair->alone) : first + more * (third - first);
  const double slots = pairs ? of_pair->busy : c[0].busy + more * (c[1].busy - c[0].busy);
  const double alone = longest * of_one, busy = items * mean / schedulers * slots;
  return width / clock_rate * (alone > busy ? alone : busy);
}

static bool is_sparse_on_gpu(const bppsa_scan_plan *plan) {
  return plan->config.element == BPPSA_ELEMENT_CSR && plan->planner_kind == BPPSA_CUDA;
}

/* Seconds of a record's products and mat-vecs, with their launches; those of a level share them, and do not run beside each
 * other. */
static double sparse_seconds(const bppsa_scan_plan *plan, int64_t record) {
  const bppsa_scan_config *c = &plan->config;
  const bppsa_scan_level *level = &plan->records[record];
  const int64_t links = bppsa_scan_level_links(level);
  bppsa_scan_iterator iterator = {.record = record};
  bppsa_scan_step step;
  double seconds = 0;
  for (int64_t i = 0; !level->dead && i < links; ++i) {
    bppsa_scan_plan_next(plan, &iterator, &step);
    seconds += level->op == BPPSA_OP_MV ? bppsa_apply_gpu_seconds(bppsa_scan_csr_pattern(plan, step.first, step.last), c->dtype,
                                                                  c->batch, level->count)
               : step.copy              ? 0
                                        : bppsa_product_seconds(step.product, c->batch);
  }
  return seconds;
}

static double record_seconds(const bppsa_scan_plan *plan, int64_t record) {
  const costs *c = &table[plan->config.device];
  const bppsa_scan_level *level = &plan->records[record];
  bppsa_scan_iterator iterator = {.record = record};
  bppsa_scan_step step;
  if (level->dead) {
    return 0;
  }
  const rate *rates = level->op == BPPSA_OP_MV ? c->mv : c->mm;
  const bool held = level->span > 1 || level->wider > 0;
  const rate *r = &rates[held];
  const double flop = plan->config.dtype == BPPSA_F64 ? 2 * r->flop : r->flop;
  const int64_t links = bppsa_scan_level_links(level), looked_at = plan->dims != NULL ? links : 1;
  const double longest = (double)bppsa_scan_item_length(level, 0), mean = (double)links / (double)level->count;
  double item = 0; /* of the first item, which stands for all unless sizes differ */
  const double items = (double)level->count * (double)plan->config.batch;
  if (is_fused(&plan->config)) {
    const int kernel = level->op == BPPSA_OP_MM ? TRANSITION : held ? CARRY : WALK;
    const double begin = kernel == TRANSITION ? first_link : 0;
    const bool beside = kernel == WALK && level->count == 1 && plan->config.method.chunks > 2; /* other chunks' walks */
    return beside ? 0 : fused_seconds(&plan->config, kernel, items, longest + begin, mean + begin);
  }
  for (int64_t i = 0; i < looked_at; ++i) {
    bppsa_scan_plan_next(plan, &iterator, &step);
    item += (r->product + flop * (double)step.flops) / (double)looked_at;
  }
  return item * (items > r->workers ? items / r->workers * mean : longest);
}

double bppsa_scan_plan_seconds(const bppsa_scan_plan *plan) {
  const bool sparse = is_sparse_on_gpu(plan);
  const double between = sparse ? 0 : is_fused(&plan->config) ? fused_level : table[plan->config.device].level;
  double seconds = 0;
  for (int64_t r = 0; r < plan->record_count; ++r) {
    const bool last = r + 1 == plan->record_count || plan->records[r + 1].level != plan->records[r].level;
    seconds += (sparse ? sparse_seconds(plan, r) : record_seconds(plan, r)) + (last ? between : 0);
  }
  return seconds;
}
