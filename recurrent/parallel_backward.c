/* The plan of a parallel backward pass, and its texts (recurrent/parallel_backward.h). */
#include "recurrent/parallel_backward.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "core/files/json.h"
#include "recurrent/backward_walk.h"
#include "recurrent/silent.h"

/* The differences that are dropped at boundaries are together less than a hundredth of BP's own rounding, and a walk ends at one
 * rounding. Networks with default weights forget within the warm-up. */
static const struct {
  double accept, stop;
  int64_t warm_up;
} defaults[] = {{2.4e-7, 0x1p-24, 40}, {8.9e-16, 0x1p-52, 96}};

bppsa_backward_method bppsa_backward_method_default(void) {
  return (bppsa_backward_method){.warm_up = -1, .tolerance = -1};
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

enum { SHORTEST = 64 /* steps of a chunk */ };

/* On a GPU a team of two warps has a chunk of a sample: a team on each scheduler, if there are enough chunks. A cluster of up to 8
 * blocks, each of 4 teams on a multiprocessor of its own, takes all chunks of a sample in one launch. More chunks take another
 * launch: at least twice as many. Of a wide layer a block or a cluster has a chunk: as many as run side by side. */
static int64_t chunks_on_gpu(const bppsa_forward_shape *s) {
  enum { TEAMS = 4, CLUSTER = 8 };
  if (s->hidden > BPPSA_SCAN_FUSED_DIM) {
    const bppsa_scan_config walk = bppsa_backward_walk_of(s);
    return most(least(s->seq_len / SHORTEST, bppsa_scan_walks_at_once(&walk, s->multiprocessors) / s->batch), 1);
  }
  int64_t together = TEAMS;
  while (together < TEAMS * CLUSTER && 2 * together * s->batch <= (int64_t)TEAMS * s->multiprocessors) {
    together *= 2;
  }
  const int64_t fitting = s->seq_len / SHORTEST, all = TEAMS * (int64_t)s->multiprocessors / s->batch;
  return most(all >= 2 * together ? least(fitting, all) : least(fitting, together), 1);
}

/* Chunks of samples that run at once fill the vectors of a core; more where their warm-ups are no more than a sixteenth of the
 * work. */
static int64_t chunks_for(const bppsa_forward_shape *s, int64_t warm_up) {
  enum { LANES = 16, SHARE = 16 };
  if (s->device != BPPSA_CPU) {
    return chunks_on_gpu(s);
  }
  const int64_t fitting = s->seq_len / most(SHORTEST, 2 * warm_up), cheap = s->seq_len / (SHARE * most(warm_up, 1));
  return most(least(fitting, most(LANES / s->batch, cheap)), 1);
}

static bool is_open(const bppsa_backward_cost *c) {
  return c->fixed == 0 && c->path == 0 && c->work == 0;
}

/* time: of what computes passes in their place, over BP's. */
static bppsa_backward_cost limit_of_model(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan, double time) {
  const bppsa_backward_cost cost = bppsa_backward_model(shape, plan);
  const bppsa_backward_expected expected = bppsa_backward_expect(shape, plan);
  return bppsa_backward_limit(&cost, &expected, time);
}

/* Does a GPU, if the pass runs on one, have kernels that walk through the layer? */
static bool has_kernels(const bppsa_forward_shape *s) {
  const bppsa_scan_config walk = bppsa_backward_walk_of(s);
  return s->device == BPPSA_CPU || s->hidden <= BPPSA_SCAN_FUSED_DIM ||
         (s->hidden <= s->most_hidden && bppsa_scan_fusion_of(&walk) != BPPSA_FUSION_NONE);
}

bppsa_status bppsa_backward_plan_make(const bppsa_backward_method *method, const bppsa_forward_shape *shape,
                                      bppsa_backward_plan *plan) {
  BPPSA_REQUIRE(method != NULL && shape != NULL && plan != NULL);
  const bppsa_backward_cost *cost = &method->cost;
  if (method->chunks < 0 || method->warm_up < -1 || method->scan_chunks < 0 || !(method->scan_time >= 0) ||
      isnan(method->tolerance) || isinf(method->tolerance) || !(cost->fixed >= 0 && cost->path >= 0 && cost->work >= 0)) {
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT,
        "backward pass: %lld chunks, a warm-up of %lld steps, tolerance %g, a scan of %lld chunks in its place, of time %g, cost "
        "%g, %g and %g, expected numbers of 0 or more",
        (long long)method->chunks, (long long)method->warm_up, method->tolerance, (long long)method->scan_chunks,
        method->scan_time, cost->fixed, cost->path, cost->work);
  }
  if (!has_kernels(shape)) {
    const bool small = shape->most_hidden > 0 && shape->hidden > shape->most_hidden;
    return bppsa_fail(
        BPPSA_ERR_UNSUPPORTED,
        "a speculative backward pass of %lld units on a GPU, expected at most %d whose W_hh have at most %d bytes, or "
        "bp, scan or auto, or a CPU",
        (long long)shape->hidden, small ? (int)shape->most_hidden : BPPSA_SCAN_WALK_DIM, BPPSA_SCAN_WALK_BYTES);
  }
  const int type = shape->dtype == BPPSA_F64;
  bppsa_backward_plan p = {.speculative = true, .accept = defaults[type].accept, .stop = defaults[type].stop};
  if (method->tolerance >= 0) {
    p.accept = method->tolerance;
    p.stop = fmin(p.stop, p.accept / 4);
  }
  p.warm_up = least(method->warm_up >= 0 ? method->warm_up : defaults[type].warm_up, shape->seq_len);
  p.chunks = method->chunks > 0 ? least(method->chunks, shape->seq_len) : chunks_for(shape, p.warm_up);
  p.rounds = p.chunks / 2;
  p.adapts = method->adapts && method->warm_up < 0;
  const bool scans = shape->device != BPPSA_CPU && shape->hidden <= BPPSA_SCAN_FUSED_DIM;
  p.scan_chunks = scans && method->scan_chunks > 1 ? least(method->scan_chunks, shape->seq_len) : 1;
  p.cost = is_open(cost) ? limit_of_model(shape, &p, p.scan_chunks > 1 && method->scan_time > 0 ? method->scan_time : 1) : *cost;
  *plan = p.chunks < 2 || p.accept == 0 ? (bppsa_backward_plan){.chunks = 1} : p;
  return BPPSA_OK;
}

bool bppsa_backward_silent(const bppsa_backward_plan *plan, double size, double reach, double deltas) {
  return bppsa_silent_accepts(plan->accept, size, reach, deltas);
}

int64_t bppsa_backward_next_warm_up(const bppsa_backward_plan *plan, int64_t seq_len, int64_t warm_up,
                                    const bppsa_backward_need *need) {
  enum { MORE = 8, SHARE = 8, LEAST = 8 };
  if (!plan->adapts || need->compared == 0) {
    return warm_up;
  }
  if (2 * need->mended >= need->compared) {
    return most(warm_up, least(warm_up + need->longest + MORE, seq_len / plan->chunks));
  }
  return need->mended > 0 ? warm_up : most(warm_up - warm_up / SHARE, least(warm_up, LEAST));
}

const char *bppsa_backward_stats_text(const bppsa_backward_stats *stats, char *text, size_t size) {
  const double passes = stats->passes > 0 ? (double)stats->passes : 1;
  (void)bppsa_print(text, size,
                    "%.0f dependent steps of %.0f a pass, %.2f times the work, %" PRId64 " chunks mended in up to %" PRId64
                    " round%s, largest gap %.2g%s; equals BP for dL/dh_t changed by %.2g of its size",
                    (double)stats->path / passes, (double)stats->possible / passes, stats->work, stats->mended, stats->rounds,
                    stats->rounds == 1 ? "" : "s", stats->gap,
                    !stats->given_up ? ""
                    : stats->scanned ? ", given up to the scan"
                                     : ", given up to BP",
                    stats->perturbation);
  return text;
}

json_t *bppsa_backward_stats_json(const bppsa_backward_stats *stats) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_bool(object, "speculated", stats->speculated);
  ok = ok && bppsa_json_put_bool(object, "given_up", stats->given_up);
  ok = ok && bppsa_json_put_bool(object, "scanned", stats->scanned);
  ok = ok && bppsa_json_put_integer(object, "passes", stats->passes);
  ok = ok && bppsa_json_put_integer(object, "path", stats->path);
  ok = ok && bppsa_json_put_integer(object, "possible", stats->possible);
  ok = ok && bppsa_json_put_real(object, "work", stats->work);
  ok = ok && bppsa_json_put_integer(object, "rounds", stats->rounds);
  ok = ok && bppsa_json_put_integer(object, "mended", stats->mended);
  ok = ok && bppsa_json_put_real(object, "gap", stats->gap);
  return bppsa_json_finish(object, ok && bppsa_json_put_real(object, "perturbation", stats->perturbation));
}

const char *bppsa_backward_numbers_text(const double *numbers, char *text, size_t size) {
  const bppsa_backward_stats b = bppsa_backward_stats_from(numbers);
  char work[BPPSA_NUMBER_TEXT], gap[BPPSA_NUMBER_TEXT], perturbation[BPPSA_NUMBER_TEXT];
  snprintf(text, size,
           "{\"speculated\":%s,\"given_up\":%s,\"scanned\":%s,\"passes\":%" PRId64 ",\"path\":%" PRId64 ",\"possible\":%" PRId64
           ",\"work\":%s,\"rounds\":%" PRId64 ",\"mended\":%" PRId64 ",\"gap\":%s,\"perturbation\":%s}",
           b.speculated ? "true" : "false", b.given_up ? "true" : "false", b.scanned ? "true" : "false", b.passes, b.path,
           b.possible, bppsa_print_number(b.work, work), b.rounds, b.mended, bppsa_print_number(b.gap, gap),
           bppsa_print_number(b.perturbation, perturbation));
  return b.passes > 0 ? text : NULL;
}

void bppsa_backward_stats_add(bppsa_backward_stats *sum, const bppsa_backward_stats *pass) {
  const double before = (double)sum->passes, added = (double)pass->passes;
  sum->speculated = sum->speculated || pass->speculated;
  sum->given_up = sum->given_up || pass->given_up;
  sum->scanned = sum->scanned || pass->scanned;
  sum->work = before + added > 0 ? (before * sum->work + added * pass->work) / (before + added) : 0;
  sum->passes += pass->passes;
  sum->path += pass->path;
  sum->possible += pass->possible;
  sum->rounds = most(sum->rounds, pass->rounds);
  sum->mended += pass->mended;
  sum->gap = fmax(sum->gap, pass->gap);
  sum->perturbation = fmax(sum->perturbation, pass->perturbation);
}
