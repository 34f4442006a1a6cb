/* The plan of a forward pass, its names, its pauses and its statistics (recurrent/parallel_forward.h). */
#include "recurrent/parallel_forward.h"

#include <math.h>
#include <string.h>

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
  if (m->chunks < 0 || m->warm_up < -1 || m->rounds < -1 || isnan(m->tolerance) || isinf(m->tolerance) || !(m->most_work >= 0) ||
      !(m->most_path >= 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "forward pass: %lld chunks, a warm-up of %lld steps, %lld rounds, tolerance %g, work up to %g, path up to "
                      "%g, expected numbers of 0 or more",
                      (long long)m->chunks, (long long)m->warm_up, (long long)m->rounds, m->tolerance, m->most_work,
                      m->most_path);
  }
  return BPPSA_OK;
}

static bool is_fused(const bppsa_forward_shape *s) {
  return s->device != BPPSA_CPU && s->hidden <= BPPSA_SCAN_FUSED_DIM;
}

/* The number of walks that a GPU runs at once. A warp keeps a small W_hh in its registers. A wide layer's W_hh lies in the
 * registers of a block or a cluster, where a multiprocessor has 144 KiB for weights. Of a still wider layer every block reads W_hh
 * from the cache, which feeds about half of the multiprocessors. */
static int64_t walks_at_once(const bppsa_forward_shape *s) {
  enum { WARPS = 16, BYTES = 144 << 10, READERS = 2 };
  const double bytes = (double)(s->gates * s->hidden * s->hidden) * (double)bppsa_dtype_size(s->dtype);
  return is_fused(s)                  ? WARPS * (int64_t)s->multiprocessors
         : s->hidden > s->most_hidden ? s->multiprocessors / READERS
                                      : (int64_t)(fmin(WARPS, BYTES / bytes) * s->multiprocessors);
}

/* The number of chunks of samples to run at once: as many as hide a GPU's latency, or fill the vectors of some CPU cores; on a CPU
 * more, where their warm-ups are no more than a sixteenth of the work; on a GPU more and shorter ones, where schedulers would have
 * no warp: the work of warm-ups costs nothing there, but no chunk is shorter than three quarters of its warm-up, because a mend
 * that goes through many chunks pays for a round in each. */
static int64_t chunks_for(const bppsa_forward_shape *s, int64_t warm_up) {
  enum { LANES = 16, SHARE = 16, SCHEDULERS = 4, LEAST = 16 };
  const int64_t shortest = most(64, 2 * warm_up), fitting = (s->seq_len + shortest - 1) / shortest;
  const int64_t cheap = s->seq_len / (SHARE * most(warm_up, 1)), idle = s->seq_len / most(LEAST, 3 * warm_up / 4);
  const int64_t wanted = s->device == BPPSA_CPU ? most(LANES / s->batch, cheap) : walks_at_once(s) / s->batch;
  const int64_t waiting = is_fused(s) ? least(idle, SCHEDULERS * (int64_t)s->multiprocessors / s->batch) : 0;
  return most(most(least(fitting, wanted), waiting), 1);
}

/* How many steps of chunks a CPU computes in the time of one step of the batch. For each row, a step of many rows takes less than
 * half of the time of a step of one row. A cell with gates gains less, because its functions gain nothing from other rows: below 64
 * units nothing with vectors of 8 numbers (AVX2), where copies take what products gain, above a quarter. With vectors of 16 it
 * gains more (bench/results/forward_cpu.json), but plans are the same on all processors, so that ranks agree. A step of two rows
 * gains little. In hundredths, as texts have it. */
static double gain_of_rows(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  enum { NARROW = 63 };
  const double row_gain = s->gates == 1 ? 2.2 : s->hidden <= NARROW ? 1.05 : 1.35;
  return round(100 * fmin(row_gain, (double)p->chunks / 2) / (double)s->batch) / 100;
}

/* The work of a pass that mends nothing. */
static double planned_work(int64_t seq_len, const bppsa_forward_plan *p) {
  return 1 + (double)p->warm_up * (double)(p->chunks - 1) / (double)seq_len;
}

/* A step of a mend costs a CPU so many steps of speculation: fewer lanes walk side by side, in windows that grow, and states are
 * compared (bench/results/forward_cpu.json: the median is 3.5 of RNNs and 2 of GRUs). */
static double mended_step(int64_t gates) {
  return gates == 1 ? 3 : 2;
}

double bppsa_forward_most_work(int64_t gates, const bppsa_forward_plan *plan, int64_t seq_len, double gain) {
  const double planned = planned_work(seq_len, plan);
  return floor(100 * (planned + (gain - planned) / mended_step(gates)) + 1e-9) / 100;
}

/* What the cost model knows of a GPU: cycles of a step of the sequential pass and of one in a mend, of a round beside its steps,
 * and of all that a speculative pass does besides, three launches or eight. They are replayed from the machine code for sm_90
 * (docs/gpu-parallel.md), in f32. slots: issue slots of a step, which count where a scheduler has several warps. */
static const struct gpu_cycles {
  double step, mend, round, fixed, slots;
} gpu_cycles[3][2] = {{{175, 200, 2600, 14500, 57}, {410, 450, 2600, 16000, 170}}, /* H <= 32: RNN, cells with gates */
                      {{500, 620, 0, 32000, 0}, {780, 1000, 0, 32000, 0}},         /* wide layers: means over their widths */
                      {{2000, 2200, 0, 32000, 0}, {5000, 5400, 0, 32000, 0}}};     /* others: estimates */

static const struct gpu_cycles *cycles_of(const bppsa_forward_shape *s) {
  const int kind = is_fused(s) ? 0 : s->hidden <= s->most_hidden ? 1 : 2;
  return &gpu_cycles[kind][s->gates > 1];
}

/* The path of a pass that mends nothing. */
static double planned_path(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  return (double)p->warm_up + ceil((double)s->seq_len / (double)p->chunks) + 1;
}

/* The time of a pass on a GPU that mends nothing, in steps of the sequential pass. */
static double planned_steps(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  const struct gpu_cycles *c = cycles_of(s);
  const double warps = (double)(p->chunks * s->batch) / (4 * fmax(1, s->multiprocessors)); /* of a scheduler */
  return c->fixed / c->step + planned_path(s, p) * fmax(1, warps * c->slots / c->step);
}

double bppsa_forward_gpu_seconds(const bppsa_forward_shape *shape, const bppsa_forward_plan *plan, double path) {
  const double clock = 1.98e9; /* H200 */
  const struct gpu_cycles *c = cycles_of(shape);
  if (plan == NULL) {
    return c->step * (double)shape->seq_len / clock;
  }
  const double length = (double)shape->seq_len / (double)plan->chunks; /* a mend that goes on has a round in each chunk */
  return (planned_steps(shape, plan) * c->step + fmax(0, path - planned_path(shape, plan)) * (c->mend + c->round / length)) /
         clock;
}

/* Is a speculative pass that mends nothing expected to be faster? */
static bool pays(const bppsa_forward_shape *s, const bppsa_forward_plan *p) {
  const double worth = 1.2;
  return (s->device == BPPSA_CPU ? gain_of_rows(s, p) / planned_work(s->seq_len, p) : (double)s->seq_len / planned_steps(s, p)) >
         worth;
}

/* The most work of a pass on a CPU, in hundredths: as much as the cost model says that chunks pay for. A speculative pass that was
 * asked for is also allowed its warm-ups and a quarter more, even if they do not pay. */
static double most_work_for(const bppsa_forward_shape *s, const bppsa_forward_plan *p, bool asked) {
  const double allowed = ceil(125 * planned_work(s->seq_len, p)) / 100,
               paid = bppsa_forward_most_work(s->gates, p, s->seq_len, gain_of_rows(s, p));
  return asked ? fmax(paid, allowed) : paid;
}

/* The same for the path on a GPU. */
static double most_path_for(const bppsa_forward_shape *s, const bppsa_forward_plan *p, bool asked) {
  const struct gpu_cycles *c = cycles_of(s);
  const double all = (double)s->seq_len, length = all / (double)p->chunks; /* a mend that goes on has a round in each chunk */
  const double mends = (all - planned_steps(s, p)) * c->step / (c->mend + c->round / length);
  const double paid = floor(100 * (planned_path(s, p) + mends) / all) / 100, allowed = ceil(125 * planned_path(s, p) / all) / 100;
  return fmin(BPPSA_FORWARD_MOST_PATH, asked ? fmax(paid, allowed) : paid);
}

/* How many rounds a plan has, at most; asked: -1 or a number. */
static int64_t rounds_for(const bppsa_forward_shape *s, int64_t chunks, int64_t asked) {
  const int64_t own = is_fused(s) ? most(BPPSA_FORWARD_ROUNDS, chunks / 2) : (int64_t)BPPSA_FORWARD_ROUNDS;
  const int64_t rounds = asked >= 0 ? asked : own;
  return s->device == BPPSA_CPU
             ? rounds
             : least(rounds, is_fused(s) ? (int64_t)BPPSA_FORWARD_FUSED_ROUNDS : (int64_t)BPPSA_FORWARD_WIDE_ROUNDS);
}

bppsa_status bppsa_forward_plan_make(const bppsa_forward_method *method, const bppsa_forward_shape *shape,
                                     bppsa_forward_plan *plan) {
  BPPSA_REQUIRE(method != NULL && shape != NULL && plan != NULL);
  BPPSA_TRY(check(method));
  const int type = shape->dtype == BPPSA_F64;
  const double tolerance = method->tolerance;
  bppsa_forward_plan p = {.speculative = true,
                          .accept = tolerance >= 0 ? tolerance : defaults[type].accept,
                          .stop = tolerance >= 0 ? fmin(tolerance, defaults[type].stop) : defaults[type].stop,
                          .far = far_change,
                          .most_work = method->most_work > 0 ? method->most_work : INFINITY,
                          .most_path = method->most_path > 0 ? method->most_path : BPPSA_FORWARD_MOST_PATH};
  p.settled = fmin(p.stop, defaults[type].rounding);
  const int64_t own = shape->seq_len <= defaults[type].is_short ? defaults[type].short_warm_up : defaults[type].warm_up;
  p.warm_up = method->warm_up >= 0 ? least(method->warm_up, shape->seq_len) : own;
  p.chunks = method->chunks > 0 ? least(method->chunks, shape->seq_len) : chunks_for(shape, p.warm_up);
  p.rounds = rounds_for(shape, p.chunks, method->rounds);
  if (method->most_work == 0 && shape->device == BPPSA_CPU) {
    p.most_work = most_work_for(shape, &p, method->kind == BPPSA_FORWARD_SPECULATIVE);
  }
  if (method->most_path == 0 && shape->device != BPPSA_CPU) {
    p.most_path = most_path_for(shape, &p, method->kind == BPPSA_FORWARD_SPECULATIVE);
  }
  p.bounded = shape->device == BPPSA_CPU && pays(shape, &p);
  if (method->kind == BPPSA_FORWARD_SEQUENTIAL || p.chunks < 2 || (method->kind == BPPSA_FORWARD_AUTO && !pays(shape, &p))) {
    p.speculative = p.bounded = false;
    p.chunks = 1;
    p.warm_up = p.rounds = 0;
    p.most_work = INFINITY;
    p.most_path = BPPSA_FORWARD_MOST_PATH;
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
