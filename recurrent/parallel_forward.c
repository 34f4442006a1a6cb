/* The plan of a forward pass, its names, its pauses and its statistics (recurrent/parallel_forward.h). */
#include "recurrent/parallel_forward.h"

#include <math.h>
#include <string.h>

#include "core/compute/blas.h"
#include "scan/algorithm.h"

static const char *const names[] = {
    [BPPSA_FORWARD_SEQUENTIAL] = "sequential", [BPPSA_FORWARD_SPECULATIVE] = "speculative", [BPPSA_FORWARD_AUTO] = "auto"};

bppsa_forward_method bppsa_forward_method_default(void) {
  return (bppsa_forward_method){.kind = BPPSA_FORWARD_SEQUENTIAL, .warm_up = -1, .rounds = -1, .tolerance = -1};
}

const char *bppsa_forward_name(bppsa_forward_kind kind) {
  return names[kind];
}

bppsa_status bppsa_forward_parse(const char *name, bppsa_forward_kind *kind) {
  BPPSA_REQUIRE(name != NULL && kind != NULL);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (strcmp(name, names[i]) == 0) {
      *kind = (bppsa_forward_kind)i;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "forward pass '%s', expected sequential, speculative or auto", name);
}

/* ---- the plan ---- */

/* A chunk whose last state changes by more shows that its sequence went to another basin. */
static const double far_change = .05;

/* Tolerances and warm-ups of a type. The tolerances are so small that errors are those of the sequential pass's own rounding. The
 * warm-ups are so long that a network with default weights forgets its initial state to the type's precision. */
static const struct {
  double accept, stop, rounding;
  int64_t warm_up, short_warm_up, is_short; /* warm_up steps, or short_warm_up where T is is_short or less */
} defaults[] = {{2.4e-7, 2.4e-7, 0x1p-24, 64, 40, 2000}, {2e-14, 1e-15, 0x1p-53, 128, 128, 0}};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static bppsa_status check(const bppsa_forward_method *m) {
  if ((unsigned)m->kind > BPPSA_FORWARD_AUTO) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "forward pass: unknown kind %d", (int)m->kind);
  }
  if (m->chunks < 0 || m->warm_up < -1 || m->rounds < -1 || isnan(m->tolerance) || isinf(m->tolerance) || !(m->most_work >= 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "forward pass: %lld chunks, a warm-up of %lld steps, %lld rounds, tolerance %g, work up to %g, expected "
                      "numbers of 0 or more",
                      (long long)m->chunks, (long long)m->warm_up, (long long)m->rounds, m->tolerance, m->most_work);
  }
  return BPPSA_OK;
}

/* The number of walks that a GPU runs at once. A warp keeps a small W_hh in its registers. A wide layer's W_hh lies in the
 * registers of a block or a cluster, where a multiprocessor has 144 KiB for weights. Of a still wider layer every block reads W_hh
 * from the cache, which feeds about half of the multiprocessors. */
static int64_t walks_at_once(const bppsa_forward_shape *s) {
  enum { WARPS = 16, BYTES = 144 << 10, READERS = 2 };
  const double bytes = (double)(s->gates * s->hidden * s->hidden) * (double)bppsa_dtype_size(s->dtype);
  return s->hidden <= BPPSA_SCAN_FUSED_DIM ? WARPS * (int64_t)s->multiprocessors
         : s->hidden > s->most_hidden      ? s->multiprocessors / READERS
                                           : (int64_t)(fmin(WARPS, BYTES / bytes) * s->multiprocessors);
}

/* The number of chunks of samples to run at once: as many as hide a GPU's latency, or fill the vectors of some CPU cores; on a CPU
 * more, where their warm-ups are no more than a sixteenth of the work. */
static int64_t chunks_for(const bppsa_forward_shape *s, int64_t warm_up) {
  enum { LANES = 16, SHARE = 16 };
  const int64_t shortest = most(64, 2 * warm_up), fitting = (s->seq_len + shortest - 1) / shortest;
  const int64_t cheap = s->seq_len / (SHARE * most(warm_up, 1));
  const int64_t wanted = s->device == BPPSA_CPU ? most(LANES / s->batch, cheap) : walks_at_once(s) / s->batch;
  return most(least(fitting, wanted), 1);
}

/* How many steps of chunks a CPU computes in the time of one step of the batch. For each row, a step of many rows takes less than
 * half of the time of a step of one row; for a cell with gates, whose functions gain nothing from other rows, two thirds. A step
 * of two rows gains little (bench/results/forward_cpu.json). In hundredths, as texts have it. */
static double gain_of_rows(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  const double row_gain = s->gates == 1 ? 2.2 : 1.6;
  return round(100 * fmin(row_gain, (double)p->chunks / 2) / (double)s->batch) / 100;
}

/* The work of a pass that mends nothing. */
static double planned_work(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  return 1 + (double)p->warm_up * (double)(p->chunks - 1) / (double)s->seq_len;
}

/* Is a speculative pass that mends nothing expected to be faster? On a GPU the time follows the path. */
static bool pays(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  const double worth = 1.2;
  const double path = (double)p->warm_up + (double)s->seq_len / (double)p->chunks;
  return (s->device == BPPSA_CPU ? gain_of_rows(s, p) / planned_work(s, p) : (double)s->seq_len / path) > worth;
}

/* The most work of a pass on a CPU, in hundredths: as much as the cost model says that chunks pay for. A speculative pass that was
 * asked for is also allowed its warm-ups and a quarter more, even if they do not pay. */
static double most_work_for(const bppsa_forward_shape *s, const bppsa_forward_plan *p, bool asked) {
  const double allowed = ceil(125 * planned_work(s, p)) / 100;
  return asked ? fmax(gain_of_rows(s, p), allowed) : gain_of_rows(s, p);
}

bppsa_status bppsa_forward_plan_make(const bppsa_forward_method *method, const bppsa_forward_shape *shape,
                                     bppsa_forward_plan *plan) {
  BPPSA_REQUIRE(method != NULL && shape != NULL && plan != NULL);
  BPPSA_TRY(check(method));
  const int type = shape->dtype == BPPSA_F64;
  const double tolerance = method->tolerance;
  bppsa_forward_plan p = {.speculative = true,
                          .rounds = method->rounds >= 0 ? method->rounds : BPPSA_FORWARD_ROUNDS,
                          .accept = tolerance >= 0 ? tolerance : defaults[type].accept,
                          .stop = tolerance >= 0 ? fmin(tolerance, defaults[type].stop) : defaults[type].stop,
                          .far = far_change,
                          .most_work = method->most_work > 0 ? method->most_work : INFINITY};
  p.settled = fmin(p.stop, defaults[type].rounding);
  const int64_t own = shape->seq_len <= defaults[type].is_short ? defaults[type].short_warm_up : defaults[type].warm_up;
  p.warm_up = method->warm_up >= 0 ? least(method->warm_up, shape->seq_len) : own;
  p.chunks = method->chunks > 0 ? least(method->chunks, shape->seq_len) : chunks_for(shape, p.warm_up);
  if (method->most_work == 0 && shape->device == BPPSA_CPU) {
    p.most_work = most_work_for(shape, &p, method->kind == BPPSA_FORWARD_SPECULATIVE);
  }
  if (shape->device != BPPSA_CPU) {
    p.rounds = least(p.rounds, shape->hidden <= BPPSA_SCAN_FUSED_DIM ? BPPSA_FORWARD_ROUNDS : BPPSA_FORWARD_WIDE_ROUNDS);
  }
  if (method->kind == BPPSA_FORWARD_SEQUENTIAL || p.chunks < 2 || (method->kind == BPPSA_FORWARD_AUTO && !pays(shape, &p))) {
    p.speculative = false;
    p.chunks = 1;
    p.warm_up = p.rounds = 0;
    p.most_work = INFINITY;
  }
  *plan = p;
  return BPPSA_OK;
}

/* ---- pauses and statistics ---- */

bool bppsa_forward_pause_begin(const bppsa_forward_plan *plan, bppsa_forward_pause *pause) {
  if (plan->speculative && pause->left > 0) {
    --pause->left;
    return false;
  }
  return plan->speculative;
}

void bppsa_forward_stats_add(bppsa_forward_stats *sum, const bppsa_forward_stats *pass) {
  const double before = (double)sum->passes, added = (double)pass->passes;
  sum->speculated = sum->speculated || pass->speculated;
  sum->work = before + added > 0 ? (before * sum->work + added * pass->work) / (before + added) : 0;
  sum->passes += pass->passes;
  sum->path += pass->path;
  sum->possible += pass->possible;
  sum->rounds = most(sum->rounds, pass->rounds);
  sum->mended += pass->mended;
  sum->reseeded += pass->reseeded;
  sum->tails += pass->tails;
  sum->gap = fmax(sum->gap, pass->gap);
}
