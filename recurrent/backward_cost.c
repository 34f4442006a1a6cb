/* The cost model of a speculative backward pass (recurrent/parallel_backward.h).
 *
 * On a CPU, by one thread, a step of r rows at once takes
 *
 *     start + r · each        start = step + reads · read · w
 *                             each  = row + unit · u + product · w          u = G·H, w = G·H² numbers; twice as many in f64
 *
 * where rows are the samples of BP, or the lanes of a group of up to 16. Weights beyond the first-level cache have constants of
 * their own, because BP then reads panels (core/compute/matmul.h), and lanes do not: `panel` and `panel_row` take the place of read
 * and product in its steps. Within the cache two rows share less of reading the weights than more do: reads is 1.5 for BP of two
 * samples, otherwise 1. A lane's row costs `lane` + `gathered` · u besides: what the cell reads is copied, and the gradients are
 * searched for the largest. A pass of C chunks of B samples takes (L + W) steps of ceil(C·B / 16) groups, and mends take a step of
 * their path each, and their rows. Gradients of weights are in `product`.
 *
 * On a GPU a team of two warps has a chunk of a sample. A pass takes its path, in cycles of a step, and for mends a round in each
 * chunk besides. A step takes as long as the slower warp of its team. Where a multiprocessor has more than two teams, its
 * schedulers have two warps each, and a step takes at least the instructions of both. Where there are more teams than schedulers,
 * blocks take turns. Samples, chunks and gradients of weights cost nothing else. Where a scan computes what is given up, its five
 * launches are behind every pass, also those that end at once.
 */
#include <math.h>

#include "recurrent/backward_walk.h"
#include "recurrent/parallel_backward.h"

/* Nanoseconds, fitted by least squares of relative errors to backward passes on one thread: RNN, GRU and LSTM, H 8 .. 256, B 1, 2
 * and 4, C 8, 16 and T / 100. Within the cache f32 on a Xeon with AVX-512 (minima of 12), beyond it both types on an EPYC with AVX2
 * (minima of 3), both beside other load. tests/recurrent/backward_costs.c measures them, prints what is predicted, and fits both
 * rows anew. Only ratios within a row matter. */
enum { CACHE = 8192 /* w */ };
static const struct cpu_cost {
  double step, read, row, unit, product, lane, gathered, panel, panel_row;
} cpu_costs[] = {{18.1, .0094, 7.97, 2, .0358, 21.4, .081, .0094, .0358}, {70, .166, 101, 1, .0488, 0, 0, .0349, .0557}};

enum { GROUP = 16 /* lanes, as in recurrent/walk_back.h */ };

/* GPUs, in f32; f64 counts twice. step: cycles of a step of the slower warp of a team; slots: instructions of both warps, one of
 * which a scheduler issues in a cycle; round: cycles of a round of mends beside its steps (estimate, as of a forward pass); fixed:
 * microseconds of a pass beside its steps and rounds. Steps were replayed from the machine code for sm_90, and `fixed` is measured
 * in part (docs/gpu-parallel.md). With gates: the longer of the GRU's and the LSTM's. Wider layers walk as the cost model of scans
 * has it, a step longer by what was replayed, with two launches more (estimate). */
static const struct gpu_cost {
  int64_t most_hidden;
  double step, slots, round, fixed_us;
} gpu_costs[][2] = {{{20, 103, 95, 2600, 14}, {20, 213, 249, 2600, 16}},   /* the RNN, cells with gates */
                    {{32, 140, 130, 2600, 16}, {32, 305, 355, 2600, 18}}}; /* estimates: as much longer as BP's steps */
static const double wide_step = 1.1, wide_fixed_s = 12.5e-6;
/* A launch that begins early and ends at once (estimate: docs/gpu-parallel.md, "Launches of a step"). */
static const double idle_launch_s = 1.1e-6;
enum {
  GPU_WIDTHS = sizeof gpu_costs / sizeof gpu_costs[0],
  SCHEDULERS = 4,    /* of a multiprocessor */
  SCAN_LAUNCHES = 5, /* walks from 0, products, carry, walk, sums */
  CLUSTER = 8,       /* the most blocks of a sample, as in recurrent/gpu/speculate_back.cuh */
  APART = 2          /* so many teams of a multiprocessor have a scheduler for each of their warps */
};
static const double gpu_clock = 1.98e9;

static const double patience = 1.25; /* a pass may take so many times as long as one that mends nothing */

/* Seconds of a step that do not depend on its rows, and those of each row. */
typedef struct {
  double start, each;
} step_cost;

static const struct cpu_cost *cpu_cost_of(const bppsa_forward_shape *s, double *u, double *w) {
  *u = (s->dtype == BPPSA_F64 ? 2 : 1) * (double)(s->gates * s->hidden);
  *w = *u * (double)s->hidden;
  return &cpu_costs[*w > CACHE];
}

static step_cost step_of_lanes(const bppsa_forward_shape *s) {
  double u, w;
  const struct cpu_cost *c = cpu_cost_of(s, &u, &w);
  return (step_cost){c->step + c->read * w, c->row + c->unit * u + c->product * w};
}

static step_cost step_of_bp(const bppsa_forward_shape *s) {
  double u, w;
  const struct cpu_cost *c = cpu_cost_of(s, &u, &w);
  const double reads = w <= CACHE && s->batch == 2 ? 1.5 : 1;
  return (step_cost){c->step + reads * c->panel * w, c->row + c->unit * u + c->panel_row * w};
}

bppsa_backward_expected bppsa_backward_expect(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan) {
  const double steps = (double)shape->seq_len, chunks = (double)plan->chunks, early = (double)plan->warm_up;
  const double longest = ceil(steps / chunks) + early;
  return plan->speculative ? (bppsa_backward_expected){fmin(longest, steps) / steps, 1 + early * (chunks - 1) / steps}
                           : (bppsa_backward_expected){1, 1};
}

static bppsa_backward_cost model_of_cpu(const bppsa_forward_shape *s, const bppsa_backward_plan *p) {
  double u, w;
  const struct cpu_cost *c = cpu_cost_of(s, &u, &w);
  const step_cost step = step_of_lanes(s), of_bp = step_of_bp(s);
  const double batch = (double)s->batch, bp = of_bp.start + batch * of_bp.each;
  const double lane = step.each + c->lane + c->gathered * u, groups = ceil((double)p->chunks * batch / GROUP);
  return (bppsa_backward_cost){.fixed = (groups - 1) * bppsa_backward_expect(s, p).path * step.start / bp,
                               .path = step.start / bp,
                               .work = batch * lane / bp};
}

static const struct gpu_cost *gpu_cost_of(const bppsa_forward_shape *s) {
  int width = 0;
  while (width + 1 < GPU_WIDTHS && s->hidden > gpu_costs[width][0].most_hidden) {
    ++width;
  }
  return &gpu_costs[width][s->gates > 1];
}

/* Cycles that a step of BP's walk takes of a scheduler that has enough to do (scan/cost.c). */
static double slots_of_bp(const bppsa_scan_config *config) {
  const double warps = 1000, schedulers = SCHEDULERS * (double)BPPSA_FORWARD_MULTIPROCESSORS, steps = 1000;
  return gpu_clock / (warps * steps) *
         (bppsa_scan_walk_seconds(config, warps * schedulers, steps) - bppsa_scan_walk_seconds(config, warps * schedulers, 0));
}

/* Cycles of a pass's step, over all turns: a multiprocessor has room for a block, that is for a team on each scheduler. Several
 * turns are enough to do, so that they take no less than BP's walk of as many chunks was measured to take. */
static double cycles_of_step(const bppsa_forward_shape *s, const bppsa_backward_plan *p, const bppsa_scan_config *walk,
                             double processors, double turns) {
  const struct gpu_cost *c = gpu_cost_of(s);
  const double chunks = (double)p->chunks, batch = (double)s->batch, size = s->dtype == BPPSA_F64 ? 2 : 1;
  const bool shares = chunks > APART * fmin(CLUSTER, processors / batch); /* do two warps of teams have one scheduler? */
  const double one = size * (shares ? fmax(c->step, c->slots) : c->step), teams = chunks * batch / (SCHEDULERS * processors);
  return turns > 1 ? fmax(turns * one, teams * slots_of_bp(walk)) : one;
}

static bppsa_backward_cost model_of_gpu(const bppsa_forward_shape *s, const bppsa_backward_plan *p) {
  const bppsa_scan_config config = bppsa_backward_walk_of(s);
  const double steps = (double)s->seq_len, bp = bppsa_scan_walk_seconds(&config, (double)s->batch, steps);
  if (isinf(bp)) {
    return (bppsa_backward_cost){.path = 1};
  }
  const double items = (double)(p->chunks * s->batch);
  if (s->hidden > BPPSA_SCAN_FUSED_DIM) {
    const double none = bppsa_scan_walk_seconds(&config, items, 0);
    return (bppsa_backward_cost){.fixed = (none + wide_fixed_s) / bp,
                                 .path = wide_step * (bppsa_scan_walk_seconds(&config, items, steps) - none) / bp};
  }
  const struct gpu_cost *c = gpu_cost_of(s);
  const double processors = (double)(s->multiprocessors > 0 ? s->multiprocessors : BPPSA_FORWARD_MULTIPROCESSORS);
  const double turns = fmax(1, ceil(items / (SCHEDULERS * processors))), cycle = 1 / (gpu_clock * bp);
  const double step = cycles_of_step(s, p, &config, processors, turns);
  const double rounds = turns * c->round * (double)p->chunks / steps; /* of a step of a mend */
  const double planned = bppsa_backward_expect(s, p).path * steps;    /* steps without a round */
  const double fixed = c->fixed_us * 1e-6 + (p->scan_chunks > 1 ? SCAN_LAUNCHES * idle_launch_s : 0);
  return (bppsa_backward_cost){.fixed = fmax(0, fixed / bp - planned * rounds * cycle), .path = steps * (step + rounds) * cycle};
}

bppsa_backward_cost bppsa_backward_model(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan) {
  return !plan->speculative           ? (bppsa_backward_cost){.work = 1}
         : shape->device == BPPSA_CPU ? model_of_cpu(shape, plan)
                                      : model_of_gpu(shape, plan);
}

bppsa_backward_scanned bppsa_backward_scan_of(int64_t seq_len, int64_t scan_chunks, int64_t state) {
  const int64_t length = (seq_len + scan_chunks - 1) / scan_chunks, in_products = seq_len - seq_len / scan_chunks;
  return (bppsa_backward_scanned){2 * length + scan_chunks - 2, seq_len + in_products * (state + 1)};
}

double bppsa_backward_time(const bppsa_backward_cost *cost, double path, double work) {
  return cost->fixed + cost->path * path + cost->work * work;
}

/* In thousandths, so that texts have all digits. */
static double share(double cost, double longest) {
  return round(1000 * cost / longest) / 1000;
}

bppsa_backward_cost bppsa_backward_limit(const bppsa_backward_cost *cost, const bppsa_backward_expected *expected, double other) {
  const double time = bppsa_backward_time(cost, expected->path, expected->work);
  const double longest =
      BPPSA_BACKWARD_WORTH * time < other ? other : fmax(other, patience * time); /* auto takes what is worth it */
  return (bppsa_backward_cost){share(cost->fixed, longest), share(cost->path, longest), share(cost->work, longest)};
}
