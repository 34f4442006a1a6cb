/* python/native.c and python/passes.c on a device: passes of layers and scans between arrays in its memory, on a stream of the
 * caller's, against difference quotients and the processor's. BPPSA_TEST_DEVICE names the device. */
#include "python/native.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "networks/network_kinds.h"
#include "python/passes.h"
#include "recurrent/recurrent.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { T = 11, B = 3, I = 2, H = 5, MOST = T * B * H * H, MOVED = 7, GRADIENTS = 7, CHUNKS = 3 };

/* Arguments of a pass, then its results. Weights have room for four gates. */
enum {
  X,
  H0,
  C0,
  W_IH,
  W_HH,
  B_IH,
  B_HH,
  SEED,
  OF_CELL,
  INPUTS,
  OUTPUT = INPUTS,
  LAST_H,
  LAST_C,
  CELLS, /* all c */
  GRADIENT,
  ALL = GRADIENT + MOVED
};

static bppsa_device *device; /* its stream is the caller's */

static int32_t gpu_of(const bppsa_device *d) {
  return bppsa_device_get_kind(d) == BPPSA_CPU ? -1 : bppsa_device_get_index(d);
}

typedef struct {
  const char *cell, *method;
  int64_t gates;
  bppsa_dtype dtype;
  bool start, biases; /* h_0 and b_* are given */
  bool cells;         /* of an LSTM: all c are results, and OF_CELL is their gradient, not that of c_T in its first rows */
} pass;

static int64_t count_of(const pass *p, int which) {
  const int64_t counts[INPUTS] = {T * B * I,    B * H,        B * H,     p->gates * H * I, p->gates * H * H,
                                  p->gates * H, p->gates * H, T * B * H, T * B * H};
  return which < INPUTS                      ? counts[which]
         : which == OUTPUT || which == CELLS ? T * B * H
         : which < GRADIENT                  ? B * H
                                             : counts[which - GRADIENT];
}

static bool is_used(const pass *p, int which) {
  const bool pair = p->gates == 4;
  const int kind = which >= GRADIENT ? which - GRADIENT : which;
  return kind == H0                            ? p->start
         : kind == C0                          ? p->start && pair
         : kind == B_IH || kind == B_HH        ? p->biases
         : which == OF_CELL || which == LAST_C ? pair
         : which == CELLS                      ? pair && p->cells
                                               : true;
}

/* Two plans of the same options on a device, and the arrays of their passes there. */
typedef struct {
  const bppsa_device *where;
  const pass *p;
  bppsa_python_plan *plans[2];
  void *a[ALL];
  void *x;                                /* another place for x */
  void *h[3], *c[3], *saved[3], *scratch; /* tapes: of the pass, another place for it, of another pass */
  int64_t sizes[2];                       /* bytes of h or c, and of saved */
} passes;

static void *zeros_on(const bppsa_device *where, int64_t bytes) {
  void *host = bppsa_calloc(bytes, 1), *array = on_device(where, host, bytes);
  bppsa_free(host);
  return array;
}

static bppsa_status create_plan(const pass *p, const bppsa_device *where, bppsa_python_plan **plan) {
  const int64_t numbers[BPPSA_PYTHON_PLAN_NUMBERS] = {
      [BPPSA_PYTHON_STEPS] = T,   [BPPSA_PYTHON_BATCH] = B,           [BPPSA_PYTHON_INPUT] = I,
      [BPPSA_PYTHON_HIDDEN] = H,  [BPPSA_PYTHON_BIASES] = p->biases,  [BPPSA_PYTHON_F64] = p->dtype == BPPSA_F64,
      [BPPSA_PYTHON_THREADS] = 1, [BPPSA_PYTHON_INPUT_GRADIENTS] = 1, [BPPSA_PYTHON_CHUNKS] = CHUNKS,
      [BPPSA_PYTHON_WARM_UP] = 2};
  return bppsa_python_plan_create(p->cell, p->method, "sequential", numbers, -1, gpu_of(where), bppsa_device_get_stream(where),
                                  plan);
}

static void make_tapes(passes *made) {
  int64_t facts[BPPSA_PYTHON_PLAN_FACTS];
  bppsa_python_plan_facts(made->plans[0], facts);
  assert_int_equal(facts[7], made->p->gates == 4 ? 2 : 1);
  assert_int_equal(facts[1] > 0, bppsa_python_cell_saved(made->p->cell) > 0);
  memcpy(made->sizes, facts, sizeof made->sizes);
  for (int i = 0; i < 3; ++i) {
    made->h[i] = zeros_on(made->where, facts[0]);
    made->c[i] = made->p->gates == 4 ? zeros_on(made->where, facts[0]) : NULL;
    made->saved[i] = facts[1] > 0 ? zeros_on(made->where, facts[1]) : NULL;
  }
  made->scratch = zeros_on(made->where, facts[2] > facts[3] ? facts[2] : facts[3]);
}

static void make_passes(const pass *p, const bppsa_device *where, double *values[ALL], passes *made) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->dtype);
  *made = (passes){.where = where, .p = p};
  for (int k = 0; k < ALL; ++k) {
    const int64_t count = count_of(p, k);
    void *host = k < INPUTS ? rounded(p->dtype, values[k], count) : bppsa_calloc(count, (size_t)size);
    made->a[k] = is_used(p, k) ? on_device(where, host, count * size) : NULL;
    bppsa_free(host);
  }
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(create_plan(p, where, &made->plans[i]), BPPSA_OK);
  }
  make_tapes(made);
  made->x = zeros_on(where, count_of(p, X) * size);
}

static void free_passes(const passes *m) {
  for (int i = 0; i < 2; ++i) {
    bppsa_python_plan_destroy(m->plans[i]);
  }
  for (int i = 0; i < 3; ++i) {
    bppsa_memory_free(m->where, m->h[i]);
    bppsa_memory_free(m->where, m->c[i]);
    bppsa_memory_free(m->where, m->saved[i]);
  }
  bppsa_memory_free(m->where, m->scratch);
  bppsa_memory_free(m->where, m->x);
  for (int k = 0; k < ALL; ++k) {
    bppsa_memory_free(m->where, m->a[k]);
  }
}

static void copy(const passes *m, void *to, const void *from, int64_t bytes) {
  assert_int_equal(to != NULL ? bppsa_memory_queue_copy(m->where, to, bytes, from, bytes, bytes, 1) : BPPSA_OK, BPPSA_OK);
}

/* What a forward and a backward pass have in common: weights, and the tape with that number. */
static void put_arrays(const passes *m, void *x, int tape, void *at[ARRAYS]) {
  void *const *a = m->a;
  void *const arrays[ARRAYS] = {
      [ARRAY_x] = x,          [ARRAY_w_ih] = a[W_IH], [ARRAY_w_hh] = a[W_HH], [ARRAY_b_ih] = a[B_IH],
      [ARRAY_b_hh] = a[B_HH], [ARRAY_h] = m->h[tape], [ARRAY_c] = m->c[tape], [ARRAY_saved] = m->saved[tape]};
  memcpy(at, arrays, sizeof arrays);
}

/* A forward pass, and before its backward pass another one of the same plan, with another input and no initial state. Then x and
 * the tape move, and the other plan goes back. records: of the forward and of the backward pass, or NULL. */
static void go_through(const passes *m, bppsa_python_record *records) {
  void *const *a = m->a;
  void *at[ARRAYS];
  const int64_t size = (int64_t)bppsa_dtype_size(m->p->dtype), x = count_of(m->p, X) * size, row = B * H * size;
  put_arrays(m, a[X], 0, at);
  at[ARRAY_h0] = a[H0];
  at[ARRAY_c0] = a[C0];
  at[ARRAY_y] = a[OUTPUT];
  assert_int_equal(bppsa_python_plan_run(m->plans[0], BPPSA_PYTHON_FORWARD, at, m->scratch, records), BPPSA_OK);
  copy(m, a[LAST_H], (char *)m->h[0] + T * row, row);
  if (m->c[0] != NULL) {
    copy(m, a[LAST_C], (char *)m->c[0] + T * row, row);
    copy(m, a[CELLS], (char *)m->c[0] + row, T * row);
  }
  assert_int_equal(bppsa_memory_queue_clear(m->where, m->x, x), BPPSA_OK);
  put_arrays(m, m->x, 2, at);
  assert_int_equal(bppsa_python_plan_run(m->plans[0], BPPSA_PYTHON_FORWARD, at, m->scratch, NULL), BPPSA_OK);
  void *const tapes[3][2] = {{m->h[0], m->h[1]}, {m->c[0], m->c[1]}, {m->saved[0], m->saved[1]}};
  for (int i = 0; i < 3; ++i) {
    const int64_t bytes = m->sizes[i == 2];
    copy(m, tapes[i][1], tapes[i][0], bytes);
    assert_int_equal(tapes[i][0] != NULL ? bppsa_memory_queue_clear(m->where, tapes[i][0], bytes) : BPPSA_OK, BPPSA_OK);
  }
  copy(m, m->x, a[X], x);
  put_arrays(m, m->x, 1, at);
  at[ARRAY_of_y] = a[SEED];
  at[m->p->cells ? ARRAY_of_cells : ARRAY_of_c_last] = a[OF_CELL];
  static const int gradients[MOVED] = {ARRAY_of_x,    ARRAY_of_h0,   ARRAY_of_c0,  ARRAY_of_w_ih,
                                       ARRAY_of_w_hh, ARRAY_of_b_ih, ARRAY_of_b_hh};
  for (int k = 0; k < MOVED; ++k) {
    at[gradients[k]] = a[GRADIENT + k];
  }
  assert_int_equal(
      bppsa_python_plan_run(m->plans[1], BPPSA_PYTHON_BACKWARD, at, m->scratch, records != NULL ? &records[1] : NULL), BPPSA_OK);
}

/* Runs a forward and a backward pass on `where`, whose stream is the caller's, from the inputs of `values` to its results. */
static void run(const pass *p, const bppsa_device *where, double *values[ALL]) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->dtype);
  passes made;
  make_passes(p, where, values, &made);
  void *const *a = made.a;
  for (int repeat = 0; repeat < 2; ++repeat) { /* the second one does not depend on what the first one left */
    go_through(&made, NULL);
  }
  if (is_emulated(where)) { /* its streams are lazy: the passes have waited for nothing */
    for (int64_t i = 0; i < count_of(p, OUTPUT) * size; ++i) {
      assert_int_equal(((const char *)a[OUTPUT])[i], 0);
    }
  }
  for (int k = INPUTS; k < ALL; ++k) {
    const int64_t count = count_of(p, k);
    bppsa_view from = bppsa_view_make(bppsa_calloc(count, (size_t)size), p->dtype, 1, &count);
    assert_int_equal(a[k] != NULL ? bppsa_memory_get(where, from.data, a[k], count * size) : BPPSA_OK, BPPSA_OK);
    for (int64_t i = 0; i < count; ++i) { /* of what is not used, zeros */
      values[k][i] = bppsa_view_get(&from, i);
    }
    bppsa_free(from.data);
  }
  free_passes(&made);
}

static void make_values(const pass *p, double *values[ALL]) {
  for (int k = 0; k < ALL; ++k) {
    values[k] = uniform((uint64_t)k + 1, count_of(p, k), k >= W_IH && k <= B_HH ? 0.7 : 1);
  }
}

static void free_values(double *values[ALL]) {
  for (int k = 0; k < ALL; ++k) {
    bppsa_free(values[k]);
  }
}

static double loss_of(const pass *p, double *values[ALL]) {
  double sum = 0;
  run(p, device, values);
  for (int64_t i = 0; i < count_of(p, OUTPUT); ++i) {
    sum += values[SEED][i] * values[OUTPUT][i];
  }
  const int results = p->cells ? CELLS : LAST_C;
  for (int64_t i = 0; p->gates == 4 && i < count_of(p, results); ++i) {
    sum += values[OF_CELL][i] * values[results][i];
  }
  return sum;
}

static const struct {
  const char *name;
  int64_t gates;
} cells[] = {{"rnn", 1}, {"gru", 3}, {"lstm", 4}};
enum { METHODS = 5 };
static const char *const methods[METHODS] = {"bp", "chunked 3", "blelloch", "auto", "speculative"};

/* Can the device compute backward passes in chunks of time? If it cannot, a sentence says so. */
static bool can_speculate(void) {
  const pass p = {"lstm", "speculative", 4, BPPSA_F32, false, true, false};
  bppsa_python_plan *plan = NULL;
  const bppsa_status status = create_plan(&p, device, &plan);
  if (status != BPPSA_OK) {
    assert_error(status, BPPSA_ERR_UNSUPPORTED, "a speculative backward pass on a GPU, expected bp, scan or auto, or a CPU");
    assert_null(plan);
  }
  bppsa_python_plan_destroy(plan);
  return status == BPPSA_OK;
}

/* The gradients are the difference quotients of Σ seed · h + Σ of_cell · c_T (or of all c), each moved in a direction of
 * its own. */
static void test_gradients(void **state) {
  (void)state;
  for (int n = 0; n < 4; ++n) {
    const int k = n < 3 ? n : 2;
    const pass p = {cells[k].name, "bp", cells[k].gates, BPPSA_F64, true, true, n == 3};
    double *values[ALL];
    make_values(&p, values);
    for (int w = 0; w < MOVED; ++w) {
      const int64_t count = is_used(&p, w) ? count_of(&p, w) : 0;
      double *direction = uniform(50 + (uint64_t)w, count + 1, 1e-5), *found = values[GRADIENT + w], expected = 0, losses[2];
      (void)loss_of(&p, values);
      for (int64_t i = 0; i < count; ++i) {
        expected += 2 * direction[i] * found[i];
      }
      for (int side = 0; side < 2; ++side) {
        for (int64_t i = 0; i < count; ++i) {
          values[w][i] += (side == 0 ? 1 : -2) * direction[i];
        }
        losses[side] = loss_of(&p, values);
      }
      for (int64_t i = 0; i < count; ++i) {
        values[w][i] += direction[i];
      }
      assert_true(count == 0 || fabs(expected) > 1e-7);
      assert_true(fabs(losses[0] - losses[1] - expected) < 1e-6 * fabs(expected) + 1e-14);
      bppsa_free(direction);
    }
    free_values(values);
  }
}

/* Every method, dtype and choice of arguments gives the processor's states and gradients by BP in float64. */
static void test_as_the_processor(void **state) {
  (void)state;
  bppsa_device *host = cpu_device(1);
  const int count_methods = can_speculate() ? METHODS : METHODS - 1, all = 3 * 2 * count_methods;
  for (int n = 0; n < all * 4; ++n) {
    const int k = n % 3, more = n / all;
    const pass p = {cells[k].name,       methods[n / 6 % count_methods],
                    cells[k].gates,      n / 3 % 2 == 0 ? BPPSA_F32 : BPPSA_F64,
                    more % 2 == 0,       more / 2 == 0,
                    more % 2 != more / 2};
    pass reference = p;
    double *values[ALL], *expected[ALL];
    make_values(&p, values);
    make_values(&p, expected);
    run(&p, device, values);
    reference.dtype = BPPSA_F64;
    reference.method = "bp";
    for (int w = 0; w < INPUTS; ++w) { /* rounded as those of the pass */
      memcpy(expected[w], values[w], (size_t)count_of(&p, w) * sizeof(double));
    }
    run(&reference, host, expected);
    for (int w = INPUTS; w < ALL; ++w) {
      const int64_t count = is_used(&p, w) ? count_of(&p, w) : 0;
      void *found = rounded(p.dtype, values[w], count);
      assert_true(residual(p.dtype, found, expected[w], count, sqrt((double)T)) < 30);
      bppsa_free(found);
    }
    free_values(values);
    free_values(expected);
  }
  bppsa_device_destroy(host);
}

/* A scan of dense or diagonal Jacobians on `where`: g_0 .. g_{T-1}. */
static void run_scan(const bppsa_device *where, const char *method, bool diagonal, const double *jt, const double *u, double *g) {
  const int64_t sizes[] = {T, B, H}, jacobians = T * B * H * (diagonal ? 1 : H) * 8, rows = T * B * H * 8;
  bppsa_python_scan *scan = NULL;
  void *on_jt = on_device(where, jt, jacobians), *on_u = on_device(where, u, rows), *on_g = on_device(where, g, rows + B * H * 8);
  assert_int_equal(
      bppsa_python_scan_create(method, diagonal, 1, sizes, 1, 1, gpu_of(where), bppsa_device_get_stream(where), &scan), BPPSA_OK);
  assert_int_equal(bppsa_python_scan_run(scan, on_jt, on_u, on_g), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(where, g, on_g, rows), BPPSA_OK);
  bppsa_python_scan_destroy(scan);
  bppsa_memory_free(where, on_jt);
  bppsa_memory_free(where, on_u);
  bppsa_memory_free(where, on_g);
}

static void test_scans(void **state) {
  (void)state;
  double *jt = uniform(1, MOST, 0.6), *u = uniform(2, T * B * H, 1), *found, *expected;
  bppsa_device *host = cpu_device(1);
  for (int n = 0; n < 2 * (METHODS - 1); ++n) { /* "speculative" is no scan */
    found = uniform(3, (T + 1) * B * H, 1);
    expected = uniform(3, (T + 1) * B * H, 1);
    run_scan(device, n / 2 == 0 ? "linear" : methods[n / 2], n % 2 == 1, jt, u, found);
    run_scan(host, "linear", n % 2 == 1, jt, u, expected);
    assert_true(residual(BPPSA_F64, found, expected, T * B * H, sqrt((double)T)) < 30);
    bppsa_free(found);
    bppsa_free(expected);
  }
  bppsa_free(jt);
  bppsa_free(u);
  bppsa_device_destroy(host);
}

static bppsa_view view_on(const void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make((void *)data, BPPSA_F64, ndim, shape);
  view.device = bppsa_device_get_kind(device);
  return view;
}

/* Lengths and resets of passes with tapes, and gradients of c, where they do not fit. */
static void test_wrong_spans(void **state) {
  (void)state;
  const bool gpu = bppsa_device_get_kind(device) != BPPSA_CPU;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_model *gru = NULL, *lstm = NULL;
  int64_t size, lengths[B] = {T, 1, T + 1};
  config.seq_len = T;
  config.batch = B;
  config.input = I;
  config.hidden = H;
  config.dtype = BPPSA_F64;
  config.tape = config.loss_all = true;
  config.lengths = !gpu;
  assert_int_equal(bppsa_recurrent_create(&config, bppsa_network_kind_find("gru")->cell, device, &gru), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_create(&config, bppsa_network_kind_find("lstm")->cell, device, &lstm), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_tape_size(gru, &size), BPPSA_OK);
  void *memory = zeros_on(device, size * 8), *input = zeros_on(device, T * B * I * 8);
  const bppsa_view x = view_on(input, 3, (int64_t[]){T, B, I}), tape = view_on(memory, 1, &size),
                   narrow = view_on(input, 3, (int64_t[]){T, B, 1}), mask = view_on(input, 2, (int64_t[]){T, B});
  assert_error(bppsa_recurrent_use_spans(gru, &(bppsa_spans){.lengths = lengths}), BPPSA_ERR_ARGUMENT,
               "gru: lengths or resets without a tape, expected bppsa_recurrent_use_tape before them");
  assert_error(bppsa_recurrent_seed_cells(lstm, &x), BPPSA_ERR_ARGUMENT, "gradients of c: no forward pass precedes them");
  assert_int_equal(bppsa_recurrent_use_tape(gru, &x, &tape, NULL), BPPSA_OK);
  assert_error(bppsa_recurrent_use_spans(gru, &(bppsa_spans){.resets = &mask}), BPPSA_ERR_ARGUMENT,
               "gru: resets of samples for a model that was created without them");
  assert_error(bppsa_recurrent_use_spans(gru, &(bppsa_spans){.lengths = lengths}), BPPSA_ERR_ARGUMENT,
               gpu ? "gru: lengths of samples for a model that was created without them"
                   : "length 12 of sample 2 of the batch, expected 1 .. 11");
  lengths[2] = 2;
  assert_int_equal(bppsa_recurrent_use_spans(gru, &(bppsa_spans){.lengths = gpu ? NULL : lengths}), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_forward_layers(gru, &x, NULL), BPPSA_OK);
  assert_error(bppsa_recurrent_seed_cells(gru, &x), BPPSA_ERR_UNSUPPORTED, "gradients of c of gru, expected a cell");
  bppsa_model_destroy(gru);
  bppsa_memory_free(device, memory);
  assert_int_equal(bppsa_recurrent_tape_size(lstm, &size), BPPSA_OK);
  memory = zeros_on(device, size * 8);
  const bppsa_view larger = view_on(memory, 1, &size);
  assert_int_equal(bppsa_recurrent_use_tape(lstm, &x, &larger, NULL), BPPSA_OK);
  assert_error(bppsa_recurrent_seed_cells(lstm, &narrow), BPPSA_ERR_SHAPE,
               "gradients of c: f64 [11, 3, 1], expected f64 [11, 3, 5]");
  assert_error(bppsa_recurrent_seed_cells(lstm, &mask), BPPSA_ERR_SHAPE, "gradients of c: f64 [11, 3], expected f64 [3, 5]");
  assert_int_equal(bppsa_recurrent_seed_cells(lstm, NULL), BPPSA_OK);
  bppsa_model_destroy(lstm);
  bppsa_memory_free(device, memory);
  bppsa_memory_free(device, input);
  config.lengths = true;
  lstm = NULL;
  if (gpu) {
    assert_error(bppsa_recurrent_create(&config, bppsa_network_kind_find("lstm")->cell, device, &lstm), BPPSA_ERR_UNSUPPORTED,
                 "tapes of samples that have lengths on a GPU, expected a CPU");
    assert_null(lstm);
  }
}

/* Networks with tapes refuse passes without one, tapes of another size and outputs of another shape; others refuse tapes. */
static void test_wrong_tapes(void **state) {
  (void)state;
  const bppsa_cell *cell = bppsa_network_kind_find("gru")->cell;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_model *model = NULL, *other = NULL;
  config.seq_len = T;
  config.batch = B;
  config.input = I;
  config.hidden = H;
  config.dtype = BPPSA_F64;
  assert_int_equal(bppsa_recurrent_create(&config, cell, device, &other), BPPSA_OK);
  config.tape = true;
  assert_int_equal(bppsa_recurrent_create(&config, cell, device, &model), BPPSA_OK);
  int64_t size = -1, more;
  assert_error(bppsa_recurrent_tape_size(other, &size), BPPSA_ERR_ARGUMENT, "gru: the network has no tapes");
  assert_int_equal(size, -1);
  assert_int_equal(bppsa_recurrent_tape_size(model, &size), BPPSA_OK);
  more = size + 1;
  void *memory = zeros_on(device, more * 8), *input = zeros_on(device, T * B * I * 8), *output = zeros_on(device, T * B * H * 8);
  const bppsa_view x = view_on(input, 3, (int64_t[]){T, B, I}), tape = view_on(memory, 1, &size),
                   longer = view_on(memory, 1, &more), to = view_on(output, 3, (int64_t[]){T, B, H}),
                   wrong = view_on(output, 2, (int64_t[]){T * B, H});
  assert_error(bppsa_recurrent_forward_layers(model, &x, NULL), BPPSA_ERR_ARGUMENT, "gru: a forward pass without a tape");
  assert_error(bppsa_recurrent_use_tape(other, &x, &tape, NULL), BPPSA_ERR_ARGUMENT, "gru: the network has no tapes");
  assert_error(bppsa_recurrent_use_tape(model, &x, &longer, NULL), BPPSA_ERR_SHAPE, "tape: f64 [");
  assert_error(bppsa_recurrent_use_tape(model, &to, &tape, NULL), BPPSA_ERR_SHAPE, "x: f64 [");
  assert_error(bppsa_recurrent_use_tape(model, &x, &tape, &wrong), BPPSA_ERR_SHAPE, "output: f64 [");
  assert_int_equal(bppsa_recurrent_use_tape(model, &x, &tape, &to), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_forward_layers(model, &x, NULL), BPPSA_OK);
  bppsa_model_destroy(model);
  bppsa_model_destroy(other);
  config.layers = 2;
  model = NULL;
  assert_error(bppsa_recurrent_create(&config, cell, device, &model), BPPSA_ERR_UNSUPPORTED, "tapes of 2 layers, expected one");
  assert_null(model);
  config.layers = 1;
  config.bidirectional = true;
  assert_error(bppsa_recurrent_create(&config, cell, device, &model), BPPSA_ERR_UNSUPPORTED,
               "tapes of 1 layers in two directions");
  bppsa_memory_free(device, memory);
  bppsa_memory_free(device, input);
  bppsa_memory_free(device, output);
}

static bppsa_status create_on(int32_t gpu, bool a_scan, int64_t threads) {
  const int64_t sizes[] = {T, B, H};
  const int64_t numbers[BPPSA_PYTHON_PLAN_NUMBERS] = {
      [BPPSA_PYTHON_STEPS] = T,  [BPPSA_PYTHON_BATCH] = B,         [BPPSA_PYTHON_INPUT] = I,
      [BPPSA_PYTHON_HIDDEN] = H, [BPPSA_PYTHON_THREADS] = threads, [BPPSA_PYTHON_WARM_UP] = -1};
  bppsa_python_plan *plan = NULL;
  bppsa_python_scan *scan = NULL;
  void *stream = bppsa_device_get_stream(device);
  const bppsa_status status = a_scan ? bppsa_python_scan_create("auto", 0, 1, sizes, 1, threads, gpu, stream, &scan)
                                     : bppsa_python_plan_create("lstm", "auto", "auto", numbers, -1, gpu, stream, &plan);
  assert_true(status == BPPSA_OK || (plan == NULL && scan == NULL));
  bppsa_python_plan_destroy(plan);
  bppsa_python_scan_destroy(scan);
  return status;
}

static void test_wrong_devices(void **state) {
  (void)state;
  const bool built = bppsa_device_get_kind(device) == BPPSA_CUDA;
  for (int a_scan = 0; a_scan < 2; ++a_scan) {
    assert_error(create_on(-2, a_scan, 1), BPPSA_ERR_ARGUMENT, "device \"cuda:-2\": K in cuda:K must be a number");
    assert_error(create_on(10000, a_scan, 1), BPPSA_ERR_ARGUMENT, "device \"cuda:10000\"");
    assert_error(create_on(999, a_scan, 1), BPPSA_ERR_UNSUPPORTED,
                 built ? "device cuda:999: CUDA devices here: " : "device cuda:999: ");
    assert_error(create_on(gpu_of(device), a_scan, -1), BPPSA_ERR_ARGUMENT, "threads -1: expected 1");
    assert_int_equal(create_on(gpu_of(device), a_scan, 1), BPPSA_OK);
  }
}

static void read_account(const bppsa_python_account *account, double numbers[BPPSA_PYTHON_NUMBERS]) {
  const char *plan = bppsa_python_account_read(account, 1, numbers);
  assert_non_null(plan);
  assert_non_null(strstr(plan, "speculative, 3 chunks, warm-up 2, "));
}

/* An account counts passes in chunks alone; a state's pause makes the next pass BP, and then one less is to come. */
static void test_accounts(void **state) {
  (void)state;
  const pass planned[] = {{"gru", "speculative", 3, BPPSA_F64, true, true, false},
                          {"gru", "bp", 3, BPPSA_F64, true, true, false}};
  bppsa_python_account *account = bppsa_calloc(1, (size_t)bppsa_python_account_bytes());
  double numbers[BPPSA_PYTHON_NUMBERS] = {-1}, *values[ALL];
  bppsa_device *host = cpu_device(1);
  make_values(&planned[0], values);
  for (int i = 1; i >= 0; --i) {
    passes made;
    int64_t facts[BPPSA_PYTHON_PLAN_FACTS];
    make_passes(&planned[i], host, values, &made);
    bppsa_python_plan_facts(made.plans[1], facts);
    assert_int_equal(facts[8], 0); /* forward passes go step by step */
    assert_int_equal(facts[9], i == 0);
    for (int64_t left = 0; left < 3; ++left) {
      bppsa_python_record records[2] = {{.state = {0}}, {.state = {0, left, 0}}};
      go_through(&made, records);
      for (int backward = 0; backward < 2; ++backward) {
        bppsa_python_account_note(account, made.plans[backward], backward, &records[backward]);
      }
      assert_int_equal(records[1].state[1], i == 1 || left == 0 ? left : left - 1);
      assert_null(bppsa_python_account_read(account, 0, numbers));
      if (i == 1) {
        assert_null(bppsa_python_account_read(account, 1, numbers));
        assert_true(numbers[0] == -1);
        continue;
      }
      const double path = numbers[2];
      read_account(account, numbers);
      assert_true(numbers[0] == 1 && numbers[1] == (double)(left + 1) && numbers[3] == (double)(T * (left + 1)));
      assert_true(left == 0 || numbers[2] == path + T);
      numbers[0] = -1;
    }
    free_passes(&made);
  }
  free_values(values);
  bppsa_device_destroy(host);
  bppsa_free(account);
}

static void test_reaches(void **state) {
  (void)state;
  const double rows[] = {0, 1, 0, -0.0, 2, 0}, nan[] = {NAN, 0};
  const float shorter[] = {0, 1e-45F, 0, -0.0F};
  assert_int_equal(bppsa_python_reaches(rows, 1, 1, 6), 1);
  assert_int_equal(bppsa_python_reaches(rows, 1, 3, 2), 0);
  assert_int_equal(bppsa_python_reaches(rows, 1, 2, 3), 1);
  assert_int_equal(bppsa_python_reaches(nan, 1, 1, 2), 1);
  assert_int_equal(bppsa_python_reaches(shorter, 0, 1, 2), 1);
  assert_int_equal(bppsa_python_reaches(shorter, 0, 2, 2), 0);
}

static bppsa_status create_layer(void *context) {
  (void)context;
  return create_on(gpu_of(device), false, 1);
}

static bppsa_status create_scan(void *context) {
  (void)context;
  return create_on(gpu_of(device), true, 1);
}

static void test_memory(void **state) {
  (void)state;
  const int64_t before = bppsa_python_allocated();
  assert_true(walk_allocations(create_layer, NULL) > 3);
  assert_true(walk_allocations(create_scan, NULL) > 3);
  assert_int_equal(bppsa_python_allocated(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),   cmocka_unit_test(test_as_the_processor), cmocka_unit_test(test_scans),
      cmocka_unit_test(test_wrong_tapes), cmocka_unit_test(test_wrong_devices),    cmocka_unit_test(test_memory),
      cmocka_unit_test(test_accounts),    cmocka_unit_test(test_reaches),          cmocka_unit_test(test_wrong_spans)};
  device = test_device(1);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}
