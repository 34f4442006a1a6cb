/* Gradients of one step of an RNN, a GRU and an LSTM whose gates are far open or closed, number by number against long double:
 * biases of each gate from -80 to 80. Wherever a gradient is a normal number of its type it must have its digits; the RNN's passes
 * compute 1 - h² from a rounded h and may err by its roundings. The tests run the kernels of every instruction set, or those of
 * the device that BPPSA_TEST_DEVICE names. The factors of the one-step Jacobian (bppsa_step) are compared with the same numbers,
 * so the three statements of a cell's factors agree.
 *
 * Sample j has a seed for unit j alone, and W_hh is diagonal, so that every number of the biases' and weights' gradients is one
 * product. In one test all numbers but biases are multiples of 1/16, so that pre-activations are not rounded, except r m next to a
 * bias of n: in half of the points m is 0. In the other the numbers have digits to the type's end, and each gate's two biases are
 * made large in turn. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "core/compute/simd.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"

enum { MOST_GATES = 4, MOST_HIDDEN = 40 };

/* One unit and sample: its inputs, and the gradients of x W_ihᵀ + b_ih, of h W_hhᵀ + b_hh and of the state, of which the last
 * leaves out the part that goes through W_hh. rounded: by how many roundings of the type each gate's gradients may err, because a
 * sum may cancel. */
typedef struct {
  double bias[MOST_GATES], bias_hh[MOST_GATES], w_ih, w_hh[MOST_GATES], x, h, c, seed;
  long double to_x[MOST_GATES], to_h[MOST_GATES], own, own_c, rounded[MOST_GATES];
  long double apart, to_c; /* apart: h - n of a GRU; to_c: the gradient of an LSTM's c */
} point;

static long double sigmoid_of(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static long double tanh_slope_of(long double x) {
  const long double e = expl(-2 * fabsl(x));
  return 4 * e / ((1 + e) * (1 + e));
}

static long double in(const point *p, int k) {
  return (long double)p->bias[k] + (long double)p->w_ih * (long double)p->x;
}

static long double product(const point *p, int k) {
  return (long double)p->bias_hh[k] + (long double)p->w_hh[k] * (long double)p->h;
}

/* The sizes of what is added up, in units of the sum. */
static long double cancelled(long double a, long double b) {
  return (fabsl(a) + fabsl(b)) / fabsl(a + b);
}

/* The equations of rnn/rnn.h. */
static void tanh_reference(point *p) {
  const long double slope = tanh_slope_of(in(p, 0) + product(p, 0));
  p->to_x[0] = p->to_h[0] = (long double)p->seed * slope;
  p->rounded[0] = 4 / slope;
}

static void relu_reference(point *p) {
  p->to_x[0] = p->to_h[0] = in(p, 0) + product(p, 0) > 0 ? (long double)p->seed : 0;
}

/* The equations of gru/gru.h; h - n without cancellation where n is near 1 or -1. */
static void gru_reference(point *p) {
  const long double xr = in(p, 0) + product(p, 0), xz = in(p, 1) + product(p, 1), m = product(p, 2), g = (long double)p->seed;
  const long double r = sigmoid_of(xr), xn = in(p, 2) + r * m, e = expl(-2 * fabsl(xn)), h = (long double)p->h;
  const long double difference = xn > 1 ? h - 1 + 2 * e / (1 + e) : xn < -1 ? h + 1 - 2 * e / (1 + e) : h - tanhl(xn);
  p->apart = difference;
  p->to_x[2] = g * sigmoid_of(-xz) * tanh_slope_of(xn);
  p->to_x[0] = p->to_h[0] = p->to_x[2] * m * r * sigmoid_of(-xr);
  p->to_x[1] = p->to_h[1] = g * difference * sigmoid_of(xz) * sigmoid_of(-xz);
  p->to_h[2] = p->to_x[2] * r;
  p->own = g * sigmoid_of(xz);
  p->rounded[0] = p->rounded[2] = m == 0 ? 0 : 4 * fabsl(xn);
  p->rounded[1] = fabsl(xn) > 1 ? p->rounded[0] : 4 * (fabsl(h) + fabsl(h - difference)) / fabsl(difference);
}

/* The equations of lstm/lstm.h. */
static void lstm_reference(point *p) {
  const long double xi = in(p, 0) + product(p, 0), xf = in(p, 1) + product(p, 1), xg = in(p, 2) + product(p, 2);
  const long double xo = in(p, 3) + product(p, 3), before = (long double)p->c;
  const long double c = sigmoid_of(xf) * before + sigmoid_of(xi) * tanhl(xg), g = (long double)p->seed;
  const long double to_c = p->to_c = g * sigmoid_of(xo) * tanh_slope_of(c);
  p->to_x[0] = to_c * tanhl(xg) * sigmoid_of(xi) * sigmoid_of(-xi);
  p->to_x[1] = to_c * before * sigmoid_of(xf) * sigmoid_of(-xf);
  p->to_x[2] = to_c * sigmoid_of(xi) * tanh_slope_of(xg);
  p->to_x[3] = g * tanhl(c) * sigmoid_of(xo) * sigmoid_of(-xo);
  memcpy(p->to_h, p->to_x, sizeof p->to_h);
  p->own_c = to_c * sigmoid_of(xf);
  p->rounded[3] = 4 * (fabsl(before) + 1) * sigmoid_of(xf) / fabsl(c) + 4 * sigmoid_of(xi) / fabsl(c);
}

typedef struct {
  const bppsa_cell *cell;
  int wide[MOST_GATES]; /* the gates whose biases are far from 0 */
  void (*reference)(point *p);
  bool relu;
} kind;

/* Numbers of a test: multiples of 1/16, or any of a type. */
typedef enum { SIXTEENTHS, ANY_F32, ANY_F64 } numbers;

static const kind rnn_tanh = {&bppsa_rnn_cell, {1}, tanh_reference, false};
static const kind rnn_relu = {&bppsa_rnn_cell, {1}, relu_reference, true};
static const kind gru = {&bppsa_gru_cell, {1, 1, 1, 0}, gru_reference, false};
static const kind lstm = {&bppsa_lstm_cell, {1, 1, 0, 1}, lstm_reference, false};

/* The i-th point: first each gate's bias from -80 to 80 by itself, then any biases at once. */
enum { BY_ITSELF = 65, POINTS = 4 * BY_ITSELF + 140, ANY_POINTS = 8 * BY_ITSELF + 140 };

static double sixteenth(uint64_t *state, int most) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  const int v = (int)((*state >> 40) % (uint64_t)(2 * most)) - most;
  return (v < 0 ? v : v + 1) / 16.0;
}

static point make_point(const kind *k, int i) {
  uint64_t state = (uint64_t)i + 77;
  point p = {.w_ih = sixteenth(&state, 8), .x = sixteenth(&state, 16), .h = sixteenth(&state, 16), .c = sixteenth(&state, 16)};
  p.seed = sixteenth(&state, 32);
  for (int gate = 0; gate < k->cell->gates; ++gate) {
    p.w_hh[gate] = sixteenth(&state, 8);
    p.bias[gate] = sixteenth(&state, 16);
    if (k->wide[gate] && i >= 4 * BY_ITSELF) {
      p.bias[gate] = sixteenth(&state, 16 * 80);
    }
  }
  if (i < 4 * BY_ITSELF && k->wide[i / BY_ITSELF]) {
    p.bias[i / BY_ITSELF] = 2.5 * (i % BY_ITSELF - BY_ITSELF / 2);
  }
  if (!k->cell->pair && i % 2 == 0) {
    p.w_hh[2] = 0; /* m = 0 */
  }
  k->reference(&p);
  return p;
}

/* From -most to most, but not near 0. */
static double any(numbers of, uint64_t *state, double most) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  const double v = (2 * ((double)(*state >> 11) * 0x1p-53) - 1) * most, apart = v + (v < 0 ? -most : most) / 64;
  return of == ANY_F32 ? (double)(float)apart : apart;
}

/* Likewise, with both biases, and digits to the type's end. m magnifies the roundings in r's sum; float64 rounds r m next to a
 * bias, as above. */
static point make_any_point(const kind *k, numbers of, int i) {
  uint64_t state = (uint64_t)i + 770;
  point p = {.w_ih = any(of, &state, 0.5), .x = any(of, &state, 1), .h = any(of, &state, 1), .c = any(of, &state, 1)};
  p.seed = any(of, &state, 2);
  for (int gate = 0; gate < k->cell->gates; ++gate) {
    const bool both = k->wide[gate] && i >= 8 * BY_ITSELF;
    p.w_hh[gate] = any(of, &state, 0.5);
    p.bias[gate] = any(of, &state, both ? 40 : 1);
    p.bias_hh[gate] = any(of, &state, both ? 40 : 0.5);
  }
  if (i < 8 * BY_ITSELF && k->wide[i / BY_ITSELF % 4]) {
    double *bias = i < 4 * BY_ITSELF ? p.bias : p.bias_hh;
    const double to = 2.5 * (i % BY_ITSELF - BY_ITSELF / 2) + any(of, &state, 0.03);
    bias[i / BY_ITSELF % 4] = of == ANY_F32 ? (double)(float)to : to;
  }
  k->reference(&p);
  if (k->cell->pair) { /* g, and 1 - g² of a rounded g */
    const long double xg = in(&p, 2) + product(&p, 2);
    p.rounded[0] = 4 * (fabsl(in(&p, 2)) + fabsl(product(&p, 2)) + 2) / fabsl(xg);
    p.rounded[2] = 4 / tanh_slope_of(xg);
    return p;
  }
  const long double m = product(&p, 2), xr = in(&p, 0) + product(&p, 0);
  p.rounded[2] = (of == ANY_F64 ? p.rounded[0] : 0) + 4 * fabsl(m) * sigmoid_of(xr) * sigmoid_of(-xr);
  p.rounded[0] = p.rounded[2];
  p.rounded[0] += 2 * cancelled((long double)p.bias_hh[2], m - (long double)p.bias_hh[2]);
  p.rounded[1] = p.rounded[2] + 4 * cancelled((long double)p.h, p.apart - (long double)p.h);
  return p;
}

static const struct {
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
} methods[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED}};
enum { METHODS = sizeof methods / sizeof *methods };

/* What all checks of a run have in common. */
typedef struct {
  const kind *kind;
  const bppsa_device *device;
  bppsa_dtype dtype;
  int64_t hidden;
  size_t method;
  numbers of;
} setting;

/* got against `expected`, a sum of terms with the absolute sum `size`. */
static void check(const setting *s, const point *p, const char *what, int gate, double got, long double expected,
                  long double size) {
  const bool single = s->dtype == BPPSA_F32;
  const long double least = single ? (long double)FLT_MIN : (long double)DBL_MIN, ulp = single ? 0x1p-24L : 0x1p-53L;
  const long double allowed =
      ((single ? 1e-6L : 1e-14L) + (gate < 0 ? 0 : p->rounded[gate]) * ulp) * size + (size == fabsl(expected) ? 0 : 4 * least);
  if (fabsl(expected) < least * (1 + 1e-6L) ? !(fabs(got) < 2 * least) : !(fabsl((long double)got - expected) <= allowed)) {
    fail_msg("%s %s, method %d, vectors %s, %s of gate %d, biases %g %g %g %g and %g %g %g %g, m %s: %.9g, expected %.9Lg: "
             "relative error %.2Lg",
             s->kind->cell->name, bppsa_dtype_name(s->dtype), (int)s->method, bppsa_simd_get()->name, what, gate, p->bias[0],
             p->bias[1], p->bias[2], p->bias[3], p->bias_hh[0], p->bias_hh[1], p->bias_hh[2], p->bias_hh[3],
             p->w_hh[2] == 0 ? "0" : "not 0", got, expected, fabsl((long double)got - expected) / fabsl(expected));
  }
}

static double *zeros(int64_t count) {
  double *values = bppsa_calloc(count, sizeof *values);
  assert_non_null(values);
  return values;
}

/* The device's numbers of a view, as float64. */
static double *fetch(const bppsa_device *device, const bppsa_view *view) {
  bppsa_view typed = *view, wide = bppsa_view_make(zeros(bppsa_view_count(view)), BPPSA_F64, view->ndim, view->shape);
  typed.data = bppsa_alloc(bppsa_view_bytes(view));
  typed.device = BPPSA_CPU;
  assert_non_null(typed.data);
  const bppsa_device *from = view->device == BPPSA_CUDA ? device : NULL;
  assert_int_equal(bppsa_memory_get(from, typed.data, view->data, (int64_t)bppsa_view_bytes(view)), BPPSA_OK);
  assert_int_equal(bppsa_view_convert(&typed, &wide), BPPSA_OK);
  bppsa_free(typed.data);
  return wide.data;
}

static bppsa_view put(const setting *s, double *values, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, s->dtype, ndim, shape);
  void *typed = rounded(s->dtype, values, bppsa_view_count(&view));
  view.data = on_device(s->device, typed, (int64_t)bppsa_view_bytes(&view));
  view.device = bppsa_device_get_kind(s->device);
  bppsa_free(typed);
  bppsa_free(values);
  return view;
}

static void set_parameters(const setting *s, bppsa_model *model, const point *points) {
  const int64_t H = s->hidden;
  for (int64_t j = 0; j < H; ++j) {
    for (int64_t k = 0; k < s->kind->cell->gates; ++k) {
      bppsa_view_set(&model->parameters[0].value, k * H + j, points[j].w_ih);
      bppsa_view_set(&model->parameters[1].value, (k * H + j) * H + j, points[j].w_hh[k]);
      bppsa_view_set(&model->parameters[2].value, k * H + j, points[j].bias[k]);
      bppsa_view_set(&model->parameters[3].value, k * H + j, points[j].bias_hh[k]);
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
}

static void pass(const setting *s, bppsa_model *model, const point *points) {
  const int64_t H = s->hidden, S = (s->kind->cell->pair ? 2 : 1) * H;
  double *x = zeros(H), *h0 = zeros(H * S), *seed = zeros(H * H);
  for (int64_t j = 0; j < H; ++j) {
    x[j] = points[j].x;
    h0[j * S + j] = points[j].h;
    if (s->kind->cell->pair) {
      h0[j * S + H + j] = points[j].c;
    }
    seed[j * H + j] = points[j].seed;
  }
  bppsa_view logits,
      held[] = {put(s, x, 3, (int64_t[]){1, H, 1}), put(s, h0, 3, (int64_t[]){1, H, S}), put(s, seed, 2, (int64_t[]){H, H})};
  assert_int_equal(bppsa_model_forward(model, &held[0], &held[1], NULL, &logits), BPPSA_OK);
  assert_int_equal(model->ops->backward(model, &held[2]), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
  for (int i = 0; i < 3; ++i) {
    bppsa_memory_free(s->device, held[i].data);
  }
}

static void check_gradients(const setting *s, bppsa_model *model, const point *points) {
  const int64_t H = s->hidden, S = (s->kind->cell->pair ? 2 : 1) * H;
  bppsa_view views[2];
  assert_int_equal(model->ops->input_gradients(model, &views[0], &views[1]), BPPSA_OK);
  double *dx = fetch(s->device, &views[0]), *dh0 = fetch(s->device, &views[1]);
  for (int64_t j = 0; j < H; ++j) {
    const point *p = &points[j];
    long double to_x = 0, sizes_x = 0, to_h = p->own, sizes_h = fabsl(p->own);
    for (int k = 0; k < s->kind->cell->gates; ++k) {
      const int64_t row = k * H + j;
      const long double of_x = p->to_x[k] * (long double)p->w_ih, of_h = p->to_h[k] * (long double)p->w_hh[k];
      const long double dw_ih = p->to_x[k] * (long double)p->x, dw_hh = p->to_h[k] * (long double)p->h;
      check(s, p, "bias_ih", k, bppsa_view_get(&model->parameters[2].gradient, row), p->to_x[k], fabsl(p->to_x[k]));
      check(s, p, "bias_hh", k, bppsa_view_get(&model->parameters[3].gradient, row), p->to_h[k], fabsl(p->to_h[k]));
      check(s, p, "weight_ih", k, bppsa_view_get(&model->parameters[0].gradient, row), dw_ih, fabsl(dw_ih));
      check(s, p, "weight_hh", k, bppsa_view_get(&model->parameters[1].gradient, row * H + j), dw_hh, fabsl(dw_hh));
      to_x += of_x;
      to_h += of_h;
      sizes_x += fabsl(of_x) * (1 + p->rounded[k] / 10);
      sizes_h += fabsl(of_h) * (1 + p->rounded[k] / 10);
    }
    check(s, p, "x", -1, dx[j], to_x, sizes_x);
    check(s, p, "h0", -1, dh0[j * S + j], to_h, sizes_h);
    if (s->kind->cell->pair) {
      check(s, p, "c0", -1, dh0[j * S + H + j], p->own_c, fabsl(p->own_c));
    }
  }
  bppsa_free(dx);
  bppsa_free(dh0);
}

static bppsa_model *make_model(const setting *s) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  c.seq_len = 1;
  c.batch = c.hidden = s->hidden;
  c.no_head = c.input_gradients = true;
  c.dtype = s->dtype;
  c.nonlinearity = s->kind->relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method.backward = methods[s->method].backward;
  c.method.scan.algorithm = methods[s->method].algorithm;
  assert_int_equal(bppsa_recurrent_create(&c, s->kind->cell, s->device, &model), BPPSA_OK);
  return model;
}

static void check_points(const setting *s) {
  point points[MOST_HIDDEN];
  bppsa_model *model = make_model(s);
  const int every =
      bppsa_device_get_kind(s->device) == BPPSA_CUDA ? s->of == SIXTEENTHS ? 5 : 11 : 1; /* an emulated device takes its time */
  const int count = s->of == SIXTEENTHS ? POINTS : ANY_POINTS;
  for (int from = 0; from < count; from += (int)s->hidden * every) {
    for (int j = 0; j < s->hidden; ++j) {
      const int i = (from + j * every) % count;
      points[j] = s->of == SIXTEENTHS ? make_point(s->kind, i) : make_any_point(s->kind, s->of, i);
    }
    set_parameters(s, model, points);
    pass(s, model, points);
    check_gradients(s, model, points);
  }
  bppsa_model_destroy(model);
}

static void check_cell(const kind *k, bool sixteenths) {
  static const char *const names[] = {"portable", "avx2", "avx512"};
  bppsa_device *device = test_device(1);
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  for (size_t m = 0; m < METHODS; ++m) {
    for (int d = 0; d < 2; ++d) { /* H: whole vectors and their ends; on a GPU the fused kernels, and those of larger layers */
      setting s = {.kind = k, .device = device, .dtype = d == 0 ? BPPSA_F32 : BPPSA_F64, .hidden = 37, .method = m};
      s.of = sixteenths ? SIXTEENTHS : d == 0 ? ANY_F32 : ANY_F64;
      if (gpu) {
        s.hidden = (m + (size_t)d) % 2 == 0 ? 32 : MOST_HIDDEN;
        check_points(&s);
        continue;
      }
      for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        if (bppsa_simd_select(names[i]) == BPPSA_OK) {
          check_points(&s);
        }
      }
      assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
    }
  }
  bppsa_device_destroy(device);
}

/* The factors of the one-step Jacobian: quotients of the gradients above. They are computed in float64 and from pre-activations,
 * so that a rounded h plays no part. */
static void check_step(const kind *k) {
  const bppsa_step *step = k->cell->step;
  setting s = {.kind = k};
  for (int i = 0; i < 2 * POINTS; ++i) {
    point p = make_point(k, i / 2);
    const bool pair = k->cell->pair;
    const double before = pair ? p.c : p.h;
    double x[MOST_GATES], h[MOST_GATES], found[MOST_GATES + 2];
    float narrow[MOST_GATES + 2];
    long double expected[MOST_GATES + 2];
    const int gates = (int)step->gates, factors = gates + step->diagonal + step->pair;
    s.dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    for (int gate = 0; gate < gates; ++gate) {
      x[gate] = (double)in(&p, gate);
      h[gate] = (double)product(&p, gate);
      expected[gate] = p.to_h[gate] / (pair && gate < 3 ? p.to_c : (long double)p.seed);
      p.rounded[gate] *= gates == 1 ? 0 : s.dtype == BPPSA_F32 ? 0x1p-29L : 1;
    }
    expected[gates] = pair ? p.own_c / p.to_c : p.own / (long double)p.seed;
    expected[gates + 1] = p.to_c / (long double)p.seed;
    step->factors_f64(k->relu, x, h, before, found);
    step->factors_f32(k->relu, x, h, (float)before, narrow);
    for (int f = 0; f < factors; ++f) {
      check(&s, &p, "step's factor", f < gates ? f : -1, s.dtype == BPPSA_F32 ? (double)narrow[f] : found[f], expected[f],
            fabsl(expected[f]));
    }
  }
}

static void test_steps(void **state) {
  (void)state;
  check_step(&rnn_tanh);
  check_step(&rnn_relu);
  check_step(&gru);
  check_step(&lstm);
}

static void test_rnn(void **state) {
  (void)state;
  check_cell(&rnn_tanh, true);
  check_cell(&rnn_relu, true);
}

static void test_gru(void **state) {
  (void)state;
  check_cell(&gru, true);
}

static void test_gru_rounded(void **state) {
  (void)state;
  check_cell(&gru, false);
}

static void test_lstm(void **state) {
  (void)state;
  check_cell(&lstm, true);
}

static void test_lstm_rounded(void **state) {
  (void)state;
  check_cell(&lstm, false);
}

/* Biases that grew in training and shrank again leave nothing behind: the gradients have the bits of a fresh model. */
static void test_back_to_near(void **state) {
  (void)state;
  const kind *const kinds[] = {&gru, &lstm};
  bppsa_device *device = test_device(1);
  for (int i = 0; i < 4; ++i) {
    const setting s = {.kind = kinds[i / 2], .device = device, .dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, .hidden = 37};
    point near[MOST_HIDDEN], far[MOST_HIDDEN];
    for (int j = 0; j < s.hidden; ++j) {
      near[j] = make_any_point(s.kind, ANY_F32, j % 8 * BY_ITSELF + BY_ITSELF / 2);
      far[j] = make_any_point(s.kind, ANY_F32, 8 * BY_ITSELF + j);
    }
    bppsa_model *models[] = {make_model(&s), make_model(&s)};
    set_parameters(&s, models[0], far);
    pass(&s, models[0], far);
    for (int m = 0; m < 2; ++m) {
      set_parameters(&s, models[m], near);
      pass(&s, models[m], near);
    }
    for (int p = 0; p < 4; ++p) {
      const bppsa_view *got = &models[0]->parameters[p].gradient, *expected = &models[1]->parameters[p].gradient;
      assert_memory_equal(got->data, expected->data, (size_t)bppsa_view_bytes(expected));
    }
    bppsa_model_destroy(models[0]);
    bppsa_model_destroy(models[1]);
  }
  bppsa_device_destroy(device);
}

/* A bias that is no number, or infinite, makes the states that it reaches what they are without far parts. */
static void test_no_numbers(void **state) {
  (void)state;
  const kind *const kinds[] = {&gru, &lstm};
  bppsa_device *device = test_device(1);
  for (int i = 0; i < 4; ++i) {
    setting s = {.kind = kinds[i / 2], .device = device, .dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, .hidden = 3};
    point points[MOST_HIDDEN];
    for (int j = 0; j < s.hidden; ++j) {
      points[j] = make_any_point(s.kind, ANY_F32, 8 * BY_ITSELF + j);
      points[j].bias[1] = j == 0 ? (double)INFINITY : j == 1 ? -(double)INFINITY : (double)NAN;
      points[j].bias_hh[1] = 7.25;
    }
    bppsa_model *model = make_model(&s);
    set_parameters(&s, model, points);
    pass(&s, model, points);
    for (int j = 0; j < s.hidden; ++j) {
      const double gradient = bppsa_view_get(&model->parameters[2].gradient, s.hidden + j);
      assert_true(j == 2 ? isnan(gradient) : gradient == 0); /* of a gate that is open, or closed, for good */
    }
    bppsa_model_destroy(model);
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),        cmocka_unit_test(test_rnn),
                                     cmocka_unit_test(test_gru),          cmocka_unit_test(test_lstm),
                                     cmocka_unit_test(test_gru_rounded),  cmocka_unit_test(test_lstm_rounded),
                                     cmocka_unit_test(test_back_to_near), cmocka_unit_test(test_no_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
