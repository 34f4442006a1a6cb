/* The cost model of a speculative backward pass (recurrent/parallel_backward.h).
 *
 * On a CPU, by one thread, a step of r rows at once takes
 *
 *     start + r · each        start = step + reads · (near · w + far · max(0, w - cache))
 *                             each  = row + unit · u + product · w          u = G·H, w = G·H² numbers; twice as many in f64
 *
 * where rows are the samples of BP, or the lanes of a group of up to 16. Two rows share less of reading the weights than more do:
 * reads is 1.5 for BP of two samples, otherwise 1. A lane's row costs `lane` + `gathered` · u besides: what
 * the cell reads is copied, and the gradients are searched for the largest. A pass of C chunks of B samples takes (L + W) steps of
 * ceil(C·B / 16) groups, and mends take a step of their path each, and their rows. Gradients of weights are in `product`.
 *
 * On a GPU a pass is a walk of C·B items through L + W steps by the kernels whose cycles scan/cost.c has, and a launch that
 * verifies; mended steps count like others. */
#include <math.h>

#include "recurrent/backward_walk.h"
#include "recurrent/parallel_backward.h"

/* Nanoseconds, fitted by least squares of relative errors to backward passes on one thread of a Xeon with AVX-512 beside other load
 * (minima of 12): RNN, GRU and LSTM, H 8 .. 256, B 1, 2 and 4, f32, C 8, 16 and T / 100. tests/recurrent/backward_costs.c measures
 * them, prints what is predicted, and fits this table anew. Only ratios matter. */
static const struct {
  double step, near, far, cache, row, unit, product, lane, gathered;
} ns = {18.1, .0094, .0345, 8192, 7.97, 2, .0358, 21.4, .081};

enum { GROUP = 16 /* lanes, as in recurrent/walk_back.h */ };

static const double verifying_s = 3.4e-6; /* on a GPU: a launch that follows another one, and compares */
static const double patience = 1.25;      /* a pass may take so many times as long as one that mends nothing */

/* Seconds of a step that do not depend on its rows, and those of each row. */
typedef struct {
  double start, each;
} step_cost;

static step_cost step_of(const bppsa_forward_shape *s, double reads) {
  const double size = s->dtype == BPPSA_F64 ? 2 : 1, u = size * (double)(s->gates * s->hidden), w = u * (double)s->hidden;
  return (step_cost){ns.step + reads * (ns.near * w + ns.far * fmax(0, w - ns.cache)), ns.row + ns.unit * u + ns.product * w};
}

bppsa_backward_expected bppsa_backward_expect(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan) {
  const double steps = (double)shape->seq_len, chunks = (double)plan->chunks, early = (double)plan->warm_up;
  const double longest = ceil(steps / chunks) + early;
  return plan->speculative ? (bppsa_backward_expected){fmin(longest, steps) / steps, 1 + early * (chunks - 1) / steps}
                           : (bppsa_backward_expected){1, 1};
}

static bppsa_backward_cost model_of_cpu(const bppsa_forward_shape *s, const bppsa_backward_plan *p) {
  const step_cost step = step_of(s, 1), of_bp = step_of(s, s->batch == 2 ? 1.5 : 1);
  const double size = s->dtype == BPPSA_F64 ? 2 : 1, batch = (double)s->batch, bp = of_bp.start + batch * of_bp.each;
  const double lane = step.each + ns.lane + ns.gathered * size * (double)(s->gates * s->hidden),
               groups = ceil((double)p->chunks * batch / GROUP);
  return (bppsa_backward_cost){.fixed = (groups - 1) * bppsa_backward_expect(s, p).path * step.start / bp,
                               .path = step.start / bp,
                               .work = batch * lane / bp};
}

static bppsa_backward_cost model_of_gpu(const bppsa_forward_shape *s, const bppsa_backward_plan *p) {
  const bppsa_scan_config config = bppsa_backward_walk_of(s);
  const double steps = (double)s->seq_len, items = (double)(p->chunks * s->batch),
               bp = bppsa_scan_walk_seconds(&config, (double)s->batch, steps), none = bppsa_scan_walk_seconds(&config, items, 0);
  return isinf(bp) ? (bppsa_backward_cost){.path = 1}
                   : (bppsa_backward_cost){.fixed = (none + verifying_s) / bp,
                                           .path = (bppsa_scan_walk_seconds(&config, items, steps) - none) / bp};
}

bppsa_backward_cost bppsa_backward_model(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan) {
  return !plan->speculative           ? (bppsa_backward_cost){.work = 1}
         : shape->device == BPPSA_CPU ? model_of_cpu(shape, plan)
                                      : model_of_gpu(shape, plan);
}

double bppsa_backward_time(const bppsa_backward_cost *cost, double path, double work) {
  return cost->fixed + cost->path * path + cost->work * work;
}

/* In thousandths, so that texts have all digits. */
static double share(double cost, double longest) {
  return round(1000 * cost / longest) / 1000;
}

bppsa_backward_cost bppsa_backward_limit(const bppsa_backward_cost *cost, const bppsa_backward_expected *expected) {
  const double longest = fmax(1, patience * bppsa_backward_time(cost, expected->path, expected->work));
  return (bppsa_backward_cost){share(cost->fixed, longest), share(cost->path, longest), share(cost->work, longest)};
}
