/* The cost model: predicts from a plan alone how long a kind of device takes to execute it.
 *
 *     seconds = Σ levels ( level + Σ records max(1, count·B / workers) · length · (product + FLOPs · flop) )
 *
 * where `length` is that of the longest item, or the mean of all items if there are more items than workers. On a GPU, recurrent
 * elements that the layer's own kernels run have tables of cycles instead (fused_seconds), and sparse elements have the costs of
 * the kernels of products and mat-vecs (jacobian/gpu_cost.h).
 *
 * Products differ in what they apply (a leaf or a held product) and in what they apply it to (a vector or a matrix). Each kind has
 * its own `product` (seconds for a product), `flop` (seconds for a FLOP) and `workers` (products at the same time). The constants
 * of the CPU are for one worker: the choice of `auto`, and with it the bits of a gradient, must not depend on the number of
 * threads. */
#include <math.h>

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

/* ---- the kernels of a recurrent layer on a GPU (recurrent/gpu/chunk_kernels.cuh): measured on an H200 (docs/gpu.md, "Measured")
 * ----
 *
 * Cycles of f32 at 1.98 GHz, from the times of single kernels (ncu, warm caches) at T = 1000 and 10 000, B = 16:
 *
 *     alone   what a link, or a step, of an item (a chunk of a sample) takes with nothing else on the scheduler
 *     few     likewise, where there are so few items that more threads work on each
 *     busy    what a link takes of a scheduler that has enough to do
 *     item    what an item takes of it beside its links: weights are read, sums are written
 *     seconds of a level = max(links of the longest item · alone, links of all items · busy / schedulers)
 *                          + item · max(1, items / schedulers)
 *
 * transition   the first link is no product, but a Jacobian: counted as 0.4 of a link
 * carry        a link is a chunk of a sample; busy: of all warps of the block, estimated
 * walk         a step, sums of weight gradients included; K = 3 at H = 32, and pairs: without them. One launch takes all chunks, so
 *              that the plan's records of single chunks do not count
 *
 * The table has K = 1 (the RNN) and K = 3 (the GRU), and H = 20 and H = 32. Other K are interpolated, or extrapolated, linearly. H
 * up to 20 counts as 20, every larger H as 32. f64 counts twice. Of H = 32 only few was measured of a transition; alone and busy
 * have its ratio to what was replayed from the machine code. */
enum { TRANSITION, CARRY, WALK };

typedef struct {
  double few, alone, busy, item;
} cycles;

static const cycles fused_cycles[][2][2] = {
    /* H = 20: K = 1, K = 3, H = 32: K = 1, K = 3 */
    [TRANSITION] = {{{4120, 4215, 531, 0}, {5850, 6420, 803, 0}}, {{5030, 8300, 1720, 0}, {16900, 32000, 5240, 0}}},
    [CARRY] = {{{236, 236, 560, 0}, {236, 236, 560, 0}}, {{450, 450, 900, 0}, {450, 450, 900, 0}}},
    [WALK] = {{{128, 128, 86, 1680}, {316, 316, 391, 3470}}, {{168, 168, 122, 4080}, {445, 445, 414, 2150}}},
};
/* The same of transitions and carries of pairs (recurrent/gpu/pair_kernels.cuh), H = 20 and H = 32. few was not measured: alone,
 * halved. A carry takes 1450 cycles a chunk while the products fit in the second-level cache, as at T = 1000, and 2240 at T = 10
 * 000. */
static const cycles pair_cycles[][2] = {
    [TRANSITION] = {{10400, 20840, 4260, 0}, {20500, 20500, 20500, 0}},
    [CARRY] = {{1450, 1450, 1500, 0}, {1140, 1140, 3200, 0}},
};
/* The same of a walk through a wide layer (recurrent/gpu/wide_kernels.cuh): BPPSA_SCAN_WALK_SIZES, for each K = 1 and K = 3. alone:
 * measured at H = 64 and 256, and at H = 512 of K = 1; the others are replayed cycles times 1.1 to 1.3, the ratio of their
 * neighbours. busy: issue slots of all warps of all blocks, replayed. blocks: of a cluster. */
static const struct {
  double alone, busy, blocks;
} wide_cycles[][2] = {{{312, 424, 1}, {680, 1320, 1}},
                      {{400, 956, 1}, {950, 3760, 2}},
                      {{776, 4192, 4}, {1158, 14336, 8}},
                      {{850, 10848, 8}, {1180, 34944, 16}},
                      {{1224, 17024, 8}, {1860, 44800, 16}}};

static const double few_items[] = {132 * 16, 132 * 8}, few_pairs = 132 * 4; /* a block of four warps on each multiprocessor */

/* H200. fused_level: the seconds of a kernel beside its items and links, including a launch that follows another one in a graph;
 * after a walk they include the kernel that adds the blocks' sums, although the walk itself does so now where blocks are few:
 * 1.5 µs less, which was not measured. */
static const double clock_rate = 1.98e9, multiprocessors = 132, schedulers = 132 * 4;
static const double fused_level[] = {[TRANSITION] = 2.1e-6, [CARRY] = 3.4e-6, [WALK] = 9.5e-6};
static const double first_link = 0.4; /* of a transition, in links */

static bool is_fused(const bppsa_scan_config *config) {
  return config->device == BPPSA_CUDA && bppsa_scan_fusion_of(config) != BPPSA_FUSION_NONE;
}

/* How many clusters of so many blocks, each with a multiprocessor to itself, run at once. 16 clusters of 8 blocks were seen to
 * take two turns, because a cluster stays within one group of 16 or 18 multiprocessors. */
static double clusters_at_once(double blocks) {
  return blocks > 1 ? floor(multiprocessors / (blocks + 1)) : INFINITY;
}

/* The cycles of a walk through a wide layer, and the blocks of a cluster. */
typedef struct {
  double alone, busy, blocks;
} wide_walk;

static wide_walk wide_walk_of(const bppsa_scan_config *config) {
  int64_t padded;
  const int size = bppsa_scan_walk_place(bppsa_scan_shared_dim(config), &padded);
  const double more = ((double)config->matrices - 1) / 2;
  return (wide_walk){.alone = wide_cycles[size][0].alone + more * (wide_cycles[size][1].alone - wide_cycles[size][0].alone),
                     .busy = wide_cycles[size][0].busy + more * (wide_cycles[size][1].busy - wide_cycles[size][0].busy),
                     .blocks = wide_cycles[size][config->matrices > 1].blocks};
}

/* Seconds of a walk through a wide layer. */
static double wide_seconds(const bppsa_scan_config *config, double items, double steps) {
  const wide_walk walk = wide_walk_of(config);
  const double turns = ceil(items / clusters_at_once(walk.blocks)), slots = items / schedulers * walk.busy;
  return steps / clock_rate * fmax(fmax(turns, 1) * walk.alone, slots);
}

/* A block with several matrices takes all registers of a multiprocessor. */
int64_t bppsa_scan_walks_at_once(const bppsa_scan_config *config, int64_t of_gpu) {
  const wide_walk walk = wide_walk_of(config);
  const double slots = floor(schedulers / multiprocessors * walk.alone / walk.busy), all = (double)of_gpu;
  const double each = config->matrices > 1 ? 1 : fmax(1, slots);
  return (int64_t)fmax(1, walk.blocks > 1 ? floor(all / (walk.blocks + 1)) : each * all);
}

/* Seconds of `items` items of a kernel, `longest` and on average `mean` links long. */
static double fused_seconds(const bppsa_scan_config *config, int kernel, double items, double longest, double mean) {
  const int64_t hidden = bppsa_scan_shared_dim(config);
  const bool wide = hidden > 20, pairs = config->element == BPPSA_ELEMENT_PAIR && kernel != WALK;
  const bool few = items <= (pairs ? few_pairs : few_items[wide]);
  const double width = config->dtype == BPPSA_F64 ? 2 : 1;
  if (hidden > BPPSA_SCAN_FUSED_DIM) {
    return width * wide_seconds(config, items, longest);
  }
  const cycles *c = fused_cycles[kernel][wide], *of_pair = pairs ? &pair_cycles[kernel][wide] : NULL;
  const double more = ((double)config->matrices - 1) / 2;
  const double first = few ? c[0].few : c[0].alone, third = few ? c[1].few : c[1].alone;
  const double of_one = pairs ? (few ? of_pair->few : of_pair->alone) : first + more * (third - first);
  const double slots = pairs ? of_pair->busy : c[0].busy + more * (c[1].busy - c[0].busy);
  const double of_item = pairs ? of_pair->item : c[0].item + more * (c[1].item - c[0].item);
  const double each = fmax(1, items / schedulers);
  return width / clock_rate * (fmax(longest * of_one, items * mean / schedulers * slots) + each * fmax(0, of_item));
}

double bppsa_scan_walk_seconds(const bppsa_scan_config *config, double items, double steps) {
  return is_fused(config) ? fused_level[WALK] + fused_seconds(config, WALK, items, steps, steps) : INFINITY;
}

static bool is_sparse_on_gpu(const bppsa_scan_plan *plan) {
  return plan->config.element == BPPSA_ELEMENT_CSR && plan->planner_kind == BPPSA_CUDA;
}

/* Seconds of a record's products and mat-vecs, with their launches. Those of a level share launches, and run one after the
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

/* Returns which of a recurrent layer's own kernels executes a record. */
static int kernel_of(const bppsa_scan_level *level) {
  return level->op == BPPSA_OP_MM ? TRANSITION : level->span > 1 || level->wider > 0 ? CARRY : WALK;
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
  double item = 0; /* of the first item, which stands for all of them where sizes are uniform */
  const double items = (double)level->count * (double)plan->config.batch;
  if (is_fused(&plan->config)) {
    const int kernel = kernel_of(level);
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
  const bool sparse = is_sparse_on_gpu(plan), fused = is_fused(&plan->config);
  double seconds = 0;
  for (int64_t r = 0; r < plan->record_count; ++r) {
    const double between = sparse ? 0 : fused ? fused_level[kernel_of(&plan->records[r])] : table[plan->config.device].level;
    const bool last = r + 1 == plan->record_count || plan->records[r + 1].level != plan->records[r].level;
    seconds += (sparse ? sparse_seconds(plan, r) : record_seconds(plan, r)) + (last ? between : 0);
  }
  return seconds;
}
