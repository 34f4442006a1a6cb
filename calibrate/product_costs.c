#include "calibrate/product_costs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/measure/residual.h"
#include "core/measure/rounds.h"
#include "scan/transition.h"

/* ---- the fit ---- */

enum { PARTS = 3 }; /* of a cost */

static double *part_of(bppsa_oracle_product_cost *cost, int part) {
  return part == 0 ? &cost->sample_s : part == 1 ? &cost->entry_s : &cost->term_s;
}

/* Solves A x = b of n unknowns by elimination with the largest pivots. false: there is no single solution. */
static bool solve(int n, double a[PARTS][PARTS], double b[PARTS], double x[PARTS]) {
  for (int column = 0; column < n; ++column) {
    int pivot = column;
    for (int row = column + 1; row < n; ++row) {
      pivot = fabs(a[row][column]) > fabs(a[pivot][column]) ? row : pivot;
    }
    for (int k = 0; k < n; ++k) {
      const double moved = a[column][k];
      a[column][k] = a[pivot][k];
      a[pivot][k] = moved;
    }
    const double moved = b[column];
    b[column] = b[pivot];
    b[pivot] = moved;
    if (!(fabs(a[column][column]) > 1e-12)) { /* columns are scaled to 1 */
      return false;
    }
    for (int row = column + 1; row < n; ++row) {
      const double times = a[row][column] / a[column][column];
      for (int k = column; k < n; ++k) {
        a[row][k] -= times * a[column][k];
      }
      b[row] -= times * b[column];
    }
  }
  for (int row = n - 1; row >= 0; --row) {
    x[row] = b[row];
    for (int k = row + 1; k < n; ++k) {
      x[row] -= a[row][k] * x[k];
    }
    x[row] /= a[row][row];
  }
  return true;
}

/* The time of a point if this part of the cost were one second and the others 0, over its measured time. */
static double feature(const bppsa_product_fit *fit, int64_t i, int part) {
  bppsa_oracle_product_cost one = {0, 0, 0};
  *part_of(&one, part) = 1;
  return bppsa_oracle_product_s(fit->product, &one, fit->points[i].hidden, fit->points[i].samples) / fit->points[i].median_s;
}

/* The root of the mean square of fitted / measured - 1. */
static double residual_of(bppsa_product_fit *fit, const bppsa_oracle_product_cost *cost) {
  double sum = 0;
  for (int64_t i = 0; i < fit->count; ++i) {
    bppsa_product_point *point = &fit->points[i];
    point->fitted_s = bppsa_oracle_product_s(fit->product, cost, point->hidden, point->samples);
    sum += (point->fitted_s / point->median_s - 1) * (point->fitted_s / point->median_s - 1);
  }
  return sqrt(sum / (double)fit->count);
}

/* The best cost of the parts in `mask`, the others 0. false: there is none, or a part is below 0. */
static bool fit_parts(const bppsa_product_fit *fit, int mask, bppsa_oracle_product_cost *cost) {
  double a[PARTS][PARTS], b[PARTS], x[PARTS] = {0}, norm[PARTS];
  int parts[PARTS], n = 0;
  for (int part = 0; part < PARTS; ++part) {
    double square = 0;
    for (int64_t i = 0; i < fit->count; ++i) {
      square += feature(fit, i, part) * feature(fit, i, part);
    }
    norm[part] = sqrt(square);
    if ((mask & 1 << part) != 0) {
      parts[n++] = part;
    }
  }
  for (int row = 0; row < n; ++row) {
    b[row] = 0;
    for (int column = 0; column < n; ++column) {
      a[row][column] = 0;
    }
    for (int64_t i = 0; i < fit->count; ++i) {
      const double f = feature(fit, i, parts[row]) / norm[parts[row]];
      b[row] += f;
      for (int column = 0; column < n; ++column) {
        a[row][column] += f * feature(fit, i, parts[column]) / norm[parts[column]];
      }
    }
  }
  *cost = (bppsa_oracle_product_cost){0, 0, 0};
  bool good = solve(n, a, b, x);
  for (int k = 0; good && k < n; ++k) {
    good = x[k] >= 0;
    *part_of(cost, parts[k]) = x[k] / norm[parts[k]];
  }
  return good;
}

/* Of all choices of parts, the one whose best cost has no negative part and the smallest residual: with three parts there are
 * seven, and each part alone is positive. */
void bppsa_product_solve(bppsa_product_fit *fit) {
  double best = INFINITY;
  for (int mask = 1; mask < 1 << PARTS; ++mask) {
    bppsa_oracle_product_cost cost;
    if (fit_parts(fit, mask, &cost) && residual_of(fit, &cost) < best) {
      best = residual_of(fit, &cost);
      fit->cost = cost;
    }
  }
  fit->residual = residual_of(fit, &fit->cost);
  fit->spread = (bppsa_oracle_spread){0};
  for (int64_t i = 0; i < fit->count; ++i) {
    const bppsa_product_point *point = &fit->points[i];
    fit->spread.low += point->low_s / point->median_s / (double)fit->count;
    fit->spread.high += point->high_s / point->median_s / (double)fit->count;
  }
}

/* ---- products ---- */

enum { MATRICES = 244, VECTORS = 245 }; /* streams of core/base/philox.h */

/* Two transitions of one step each, their join, and gradients, of b samples and size H. */
typedef struct {
  const bppsa_device *device;
  int64_t hidden, samples;
  float *jt[2], *gradients; /* [b][H][H] each; [2][b][H], which nobody writes */
  float *x, *y;             /* [b][H] */
  bool *useless;
  bppsa_transition_maker *maker;
  bppsa_transition *part[2], *joined;
} problem;

static void release(problem *p) {
  bppsa_transition_destroy(p->joined);
  for (int i = 0; i < 2; ++i) {
    bppsa_transition_destroy(p->part[i]);
    bppsa_free(p->jt[i]);
  }
  bppsa_transition_maker_destroy(p->maker);
  bppsa_free(p->gradients);
  bppsa_free(p->x);
  bppsa_free(p->y);
  bppsa_free(p->useless);
}

/* Draws numbers of variance `variance`. */
static float *draw(int64_t count, double variance, uint64_t seed, uint64_t stream) {
  float *numbers = bppsa_calloc(count, sizeof *numbers);
  for (int64_t i = 0; numbers != NULL && i < count; ++i) {
    numbers[i] = (float)(sqrt(12 * variance) * (bppsa_random_double(seed, stream, (uint64_t)i) - 0.5));
  }
  return numbers;
}

static bppsa_status make_arrays(problem *p, uint64_t seed) {
  const int64_t vector = p->samples * p->hidden, matrix = vector * p->hidden;
  for (uint64_t i = 0; i < 2; ++i) {
    p->jt[i] = draw(matrix, 1 / (double)p->hidden, seed + i, MATRICES);
  }
  p->x = draw(vector, 1, seed, VECTORS);
  p->y = bppsa_calloc(vector, sizeof *p->y);
  p->gradients = bppsa_calloc(2 * vector, sizeof *p->gradients);
  p->useless = bppsa_calloc(p->samples, sizeof *p->useless);
  return p->jt[0] != NULL && p->jt[1] != NULL && p->x != NULL && p->y != NULL && p->gradients != NULL && p->useless != NULL
             ? BPPSA_OK
             : BPPSA_ERR_MEMORY;
}

static bppsa_status make_problem(problem *p, uint64_t seed) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_DENSE;
  config.dtype = BPPSA_F32;
  config.jacobians = 1;
  config.batch = p->samples;
  config.dim = p->hidden;
  BPPSA_TRY(make_arrays(p, seed));
  BPPSA_TRY(bppsa_transition_maker_create(&config, p->device, &p->maker));
  const bppsa_transition_shape shape = bppsa_transition_maker_shape(p->maker);
  for (int i = 0; i < 2; ++i) {
    const bppsa_scan_operands operands = {.batch = p->samples, .jt = p->jt[i], .gradients = p->gradients};
    BPPSA_TRY(bppsa_transition_create(&shape, p->device, &p->part[i]));
    BPPSA_TRY(bppsa_transition_make(p->maker, &operands, p->part[i]));
  }
  return bppsa_transition_create_joined(p->part[0], p->part[1], p->device, &p->joined);
}

static bppsa_status join(problem *p) {
  return bppsa_transition_join(p->part[0], p->part[1], p->joined);
}

static bppsa_status apply(problem *p) {
  int64_t count = 0;
  BPPSA_TRY(bppsa_transition_apply(p->joined, p->x, p->y, p->useless, &count));
  return count == 0 ? BPPSA_OK
                    : bppsa_fail(BPPSA_ERR_NUMERIC, "products of %" PRId64 " x %" PRId64 ": %" PRId64 " useless, expected none",
                                 p->hidden, p->hidden, count);
}

/* y = J_b x: one sample, float64. */
static void multiply(int64_t hidden, const float *jt, const double *x, double *y) {
  for (int64_t i = 0; i < hidden; ++i) {
    y[i] = 0;
    for (int64_t k = 0; k < hidden; ++k) {
      y[i] += (double)jt[i * hidden + k] * x[k];
    }
  }
}

/* Joins, applies, and holds the gradients against two products with vectors in float64. */
static bppsa_status verify(problem *p) {
  const int64_t h = p->hidden, count = p->samples * h;
  double *right = bppsa_calloc(count + 2 * h, sizeof *right), *x = right == NULL ? NULL : right + count;
  BPPSA_TRY(right == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  for (int64_t b = 0; b < p->samples; ++b) {
    for (int64_t i = 0; i < h; ++i) {
      x[i] = (double)p->x[b * h + i];
    }
    multiply(h, p->jt[0] + b * h * h, x, x + h);
    multiply(h, p->jt[1] + b * h * h, x + h, right + b * h);
  }
  bppsa_status status = join(p);
  status = status == BPPSA_OK ? apply(p) : status;
  const bppsa_view found = bppsa_view_make(p->y, BPPSA_F32, 1, &count);
  const double residual = status == BPPSA_OK ? bppsa_residual(&found, right, 2) : 0;
  bppsa_free(right);
  BPPSA_TRY(status);
  return residual < BPPSA_RESIDUAL_BOUND
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_NUMERIC, "products of %" PRId64 " x %" PRId64 ": residual %g, expected less than %g", h, h,
                          residual, BPPSA_RESIDUAL_BOUND);
}

/* ---- times ---- */

enum { LEAST_ROUNDS = 3, ROUNDS = 31 };
static const double LEAST_S = 2e-5; /* of a round: the clock's own time is far below */

static bppsa_status time_calls(problem *p, bppsa_status (*call)(problem *), int64_t calls, double *seconds) {
  const double start = bppsa_now();
  for (int64_t i = 0; i < calls; ++i) {
    BPPSA_TRY(call(p));
  }
  *seconds = (bppsa_now() - start) / (double)calls;
  return BPPSA_OK;
}

/* The median over rounds of so many calls that a round is long enough; as many rounds as fit into the budget. */
static bppsa_status time_product(problem *p, bppsa_status (*call)(problem *), double budget_s, bppsa_spread *found) {
  double seconds[ROUNDS], once = 0;
  int64_t calls = 1;
  for (;; calls *= 2) {
    BPPSA_TRY(time_calls(p, call, calls, &once));
    if (once * (double)calls >= LEAST_S) {
      break;
    }
  }
  const int64_t rounds = (int64_t)fmax(LEAST_ROUNDS, fmin(ROUNDS, budget_s / (once * (double)calls)));
  for (int64_t i = 0; i < rounds; ++i) {
    BPPSA_TRY(time_calls(p, call, calls, &seconds[i]));
  }
  *found = bppsa_spread_of(rounds, seconds);
  return BPPSA_OK;
}

static bppsa_status measure_size(const bppsa_device *device, int64_t hidden, int64_t samples, bool quick, uint64_t seed,
                                 bppsa_product_fit fits[BPPSA_PRODUCTS]) {
  problem p = {.device = device, .hidden = hidden, .samples = samples};
  bppsa_spread found[BPPSA_PRODUCTS] = {{0}};
  const double budget_s = quick ? 2e-3 : 0.1;
  bppsa_status status = make_problem(&p, seed);
  status = status == BPPSA_OK ? verify(&p) : status;
  status = status == BPPSA_OK ? time_product(&p, join, budget_s, &found[BPPSA_PRODUCT_MATRICES]) : status;
  status = status == BPPSA_OK ? time_product(&p, apply, budget_s, &found[BPPSA_PRODUCT_VECTOR]) : status;
  release(&p);
  BPPSA_TRY(status);
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    fits[i].points[fits[i].count++] = (bppsa_product_point){.hidden = (double)hidden,
                                                            .samples = (double)samples,
                                                            .median_s = found[i].median,
                                                            .low_s = found[i].low,
                                                            .high_s = found[i].high};
  }
  return BPPSA_OK;
}

bppsa_status bppsa_products_measure(const bppsa_device *device, int64_t samples, int64_t hidden, bool quick, uint64_t seed,
                                    bppsa_product_fit fits[BPPSA_PRODUCTS]) {
  BPPSA_REQUIRE(device != NULL && samples >= 1 && fits != NULL);
  static const int64_t all[] = {5, 10, 20, 50, 100, 200, 0}, few[] = {8, 32, 160, 0};
  const int64_t more[] = {1, samples < BPPSA_PRODUCT_SAMPLES ? samples : BPPSA_PRODUCT_SAMPLES};
  const bool own = hidden >= 1 && hidden <= BPPSA_PRODUCT_HIDDEN;
  bppsa_product_fit made[BPPSA_PRODUCTS];
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    made[i] = (bppsa_product_fit){.product = (bppsa_oracle_product)i};
  }
  for (int k = 0; k < (more[1] > 1 ? 2 : 1); ++k) {
    bool met = !own;
    for (const int64_t *size = quick ? few : all; *size > 0; ++size) {
      BPPSA_TRY(measure_size(device, *size, more[k], quick, seed, made));
      met = met || *size == hidden;
    }
    BPPSA_TRY(met ? BPPSA_OK : measure_size(device, hidden, more[k], quick, seed, made));
  }
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    bppsa_product_solve(&made[i]);
    fits[i] = made[i];
  }
  return BPPSA_OK;
}

/* ---- the document ---- */

static json_t *points_json(const bppsa_product_fit *fit) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < fit->count; ++i) {
    const bppsa_product_point *point = &fit->points[i];
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_integer(object, "hidden", (int64_t)point->hidden);
    ok = ok && bppsa_json_put_integer(object, "samples", (int64_t)point->samples);
    ok = ok && bppsa_json_put_real(object, "median_s", point->median_s);
    ok = ok && bppsa_json_put_real(object, "low_s", point->low_s) && bppsa_json_put_real(object, "high_s", point->high_s);
    object = bppsa_json_finish(object, ok && bppsa_json_put_real(object, "fitted_s", point->fitted_s));
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}

json_t *bppsa_product_fits_json(const bppsa_product_fit fits[BPPSA_PRODUCTS]) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int i = 0; ok && i < BPPSA_PRODUCTS; ++i) {
    const bppsa_product_fit *fit = &fits[i];
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_text(object, "product", bppsa_oracle_product_name(i));
    ok = ok && bppsa_json_put_real(object, "sample_s", fit->cost.sample_s);
    ok = ok && bppsa_json_put_real(object, "entry_s", fit->cost.entry_s);
    ok = ok && bppsa_json_put_real(object, "term_s", fit->cost.term_s);
    ok = ok && bppsa_json_put_real(object, "residual", fit->residual);
    ok = ok && bppsa_json_put(object, "spread", bppsa_oracle_spread_json(fit->spread));
    object = bppsa_json_finish(object, ok && bppsa_json_put(object, "points", points_json(fit)));
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}
