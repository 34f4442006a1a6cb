/* Networks whose samples begin anew, on a device: shapes, masks, and what both passes make. A program that includes this sets
 * `device`, which is tested, and `host`. */
#ifndef BPPSA_TESTS_RECURRENT_RESETS_DEVICE_H
#define BPPSA_TESTS_RECURRENT_RESETS_DEVICE_H

#include "tests/recurrent/device_problem.h"
#include "tests/support/length.h"

static const way ways[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 6},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0}};
static const double rates[] = {.02, .1, .5, 1};
enum { CELLS = 3, WAYS = sizeof ways / sizeof *ways, RATES = sizeof rates / sizeof *rates };

/* One step and one unit; inputs of size 1, sums within the walks, and layers wider than a warp; more steps than a word of resets
 * has bits. */
static const device_shape shapes[] = {{1, 1, 1, 1, 1, 1, INPUTS | H0},
                                      {40, 3, 2, 1, 20, 1, INPUTS | H0},
                                      {21, 5, 5, 1, 20, 2, LOSS_ALL | INPUTS | H0},
                                      {70, 4, 4, 5, 8, 1, INPUTS | H0},
                                      {13, 3, 3, 1, 7, 3, H0 | BOTH_WAYS},
                                      {34, 4, 3, 2, 32, 2, LOSS_ALL | BOTH_WAYS},
                                      {9, 3, 3, 3, 40, 2, INPUTS | H0},
                                      {31, 4, 4, 3, 9, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS | LENGTHS},
                                      {10, 3, 3, 1, 37, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS | LENGTHS},
                                      {67, 1, 1, 1, 5, 1, LOSS_ALL | INPUTS | LENGTHS},
                                      {36, 2, 2, 1, 33, 1, LOSS_ALL | INPUTS | H0},
                                      {17, 2, 2, 2, 70, 1, LOSS_ALL | INPUTS | H0}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WIDEST = SHAPES - 1, MOST = 5 };

static inline problem problem_of(int cell, int s, bppsa_dtype dtype) {
  problem p = shaped_problem(cells[cell], &shapes[s], dtype);
  p.config.resets = true;
  p.config.forward = bppsa_forward_method_default();
  return p;
}

static inline void use_way(problem *p, const way *w) {
  p->config.method.backward = w->backward;
  p->config.method.scan.algorithm = w->algorithm;
  p->config.method.scan.chunks = w->chunks;
}

/* A mask [T][b] with at least one reset. */
static inline uint8_t *draw_mask(const problem *p, double rate, uint64_t seed) {
  const int64_t count = p->config.seq_len * p->batch;
  uint8_t *mask = bppsa_calloc(count, 1);
  double *numbers = uniform(seed, count + 1, .5);
  assert_non_null(mask);
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = numbers[i] + .5 < rate;
  }
  mask[(int64_t)((numbers[count] + .5) * (double)count) % count] = 1;
  bppsa_free(numbers);
  return mask;
}

static inline void make_lengths(int64_t steps, int64_t lengths[MOST]) {
  const int64_t made[MOST] = {steps > 2 ? steps / 2 : 1, steps, 1, steps > 3 ? steps - 1 : 1, steps};
  memcpy(lengths, made, sizeof made);
}

static inline void check_drawn(int cell, int s, bppsa_dtype dtype, const way *w, bool learned, double rate, uint64_t seed) {
  int64_t lengths[MOST];
  problem p = problem_of(cell, s, dtype);
  p.config.reset_state = learned;
  make_lengths(p.config.seq_len, lengths);
  p.lengths = p.config.lengths ? lengths : NULL;
  make_numbers(&p, seed);
  uint8_t *mask = draw_mask(&p, rate, seed);
  p.resets = mask;
  check_way(&p, w);
  bppsa_free(mask);
  free_numbers(&p);
}

static inline void check_shape(int cell, int s, bppsa_dtype dtype, const way *w, double rate, uint64_t seed) {
  check_drawn(cell, s, dtype, w, false, rate, seed);
}

static inline void check_learned(int cell, int s, bppsa_dtype dtype, const way *w, double rate, uint64_t seed) {
  check_drawn(cell, s, dtype, w, true, rate, seed);
}

static inline bppsa_model *open_model(const problem *p) {
  bppsa_model *model = NULL;
  assert_int_equal(create(p, &p->config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
  draw_reset_state(model);
  return model;
}

static inline int64_t fetch(const bppsa_view *view, double *to) {
  const int64_t count = bppsa_view_count(view);
  void *copy = bppsa_alloc(bppsa_view_bytes(view));
  bppsa_view from = bppsa_view_make(copy, view->dtype, 1, &count), wide = bppsa_view_make(to, BPPSA_F64, 1, &count);
  assert_int_equal(
      bppsa_memory_get(view->device == BPPSA_CUDA ? device : NULL, copy, view->data, (int64_t)bppsa_view_bytes(view)), BPPSA_OK);
  assert_int_equal(bppsa_view_convert(&from, &wide), BPPSA_OK);
  bppsa_free(copy);
  return count;
}

/* What a forward and a backward pass make: the outputs, the gradients of x and of h0, and those of the parameters, one behind the
 * other; where[i]: the first number of each of these four. */
typedef struct {
  double *numbers;
  int64_t where[5];
} outcome;

static inline outcome compute(const problem *p, bppsa_model *model) {
  bppsa_view views[3], held[3];
  outcome o = {0};
  pass(p, model, device, &views[0], held);
  assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
  assert_int_equal(model->ops->input_gradients(model, &views[1], &views[2]), BPPSA_OK);
  int64_t count = 0;
  for (int i = 0; i < 3; ++i) {
    count += bppsa_view_count(&views[i]);
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    count += bppsa_view_count(&model->parameters[i].gradient);
  }
  o.numbers = bppsa_calloc(count, sizeof *o.numbers);
  for (int i = 0; i < 3; ++i) {
    o.where[i + 1] = o.where[i] + fetch(&views[i], o.numbers + o.where[i]);
  }
  o.where[4] = o.where[3];
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    o.where[4] += fetch(&model->parameters[i].gradient, o.numbers + o.where[4]);
  }
  assert_int_equal(o.where[4], count);
  drop(device, held);
  assert_int_equal(bppsa_model_update_redone(model), BPPSA_OK);
  return o;
}

static inline void assert_same(const outcome *a, const outcome *b) {
  assert_int_equal(a->where[4], b->where[4]);
  assert_memory_equal(a->numbers, b->numbers, (size_t)a->where[4] * sizeof *a->numbers);
}

/* For a group of tests: the device that BPPSA_TEST_DEVICE names, with the shared memory of an H200, and the processor. */
static inline int open_devices(void **state) {
  (void)state;
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  return 0;
}

static inline int close_devices(void **state) {
  (void)state;
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return 0;
}

#endif
