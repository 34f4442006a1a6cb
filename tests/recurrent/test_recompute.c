/* Networks that keep the states of every K-th step (recurrent/recompute_cpu.c), beside networks that keep all: every result has the
 * same bits, after any sequence of passes, on any number of threads. */
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"
#include "tests/support/length.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

static int64_t bytes_of(const bppsa_recurrent_config *c, const bppsa_cell *cell, const bppsa_device *device) {
  int64_t bytes;
  assert_int_equal(bppsa_recurrent_count(c, cell, device, &bytes), BPPSA_OK);
  return bytes;
}

static bppsa_recurrent_config draw_config(dice *d, const bppsa_cell *cell) {
  static const int64_t sizes[] = {1, 4, 20, 20, 129}, every[] = {1, 3, 40, 300};
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.hidden = sizes[roll(d, 0, 4)];
  c.seq_len = roll(d, 1, c.hidden > 100 ? 40 : 500);
  c.batch = roll(d, 1, c.hidden > 100 ? 70 : 6);
  c.input = roll(d, 1, 3);
  c.layers = roll(d, 1, 3);
  c.classes = roll(d, 1, 4);
  c.dtype = roll(d, 0, 1) ? BPPSA_F64 : BPPSA_F32;
  c.loss_all = roll(d, 0, 1) != 0;
  c.no_head = roll(d, 0, 3) == 0;
  c.no_bias = roll(d, 0, 3) == 0;
  c.resets = roll(d, 0, 1) != 0;
  c.reset_state = c.resets && roll(d, 0, 1) != 0;
  c.dropout = roll(d, 0, 2) == 0 ? 0.4 : 0;
  c.input_gradients = roll(d, 0, 2) != 0;
  c.nonlinearity = cell->relu && roll(d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method.backward = BPPSA_BACKWARD_BP;
  c.recompute = every[roll(d, 0, 3)];
  return c;
}

/* Two networks with the same weights and inputs; the first computes states again. */
typedef struct {
  run again, all;
  int64_t samples[8];
} both;

static both open_both(dice *d, const bppsa_cell *cell, const bppsa_recurrent_config *c) {
  bppsa_recurrent_config plain = *c;
  plain.recompute = 0;
  both b = {.again = open_run(cell, c, c->batch, roll(d, 1, 3)), .all = open_run(cell, &plain, c->batch, 1)};
  for (int i = 0; i < 8; ++i) {
    b.samples[i] = roll(d, 0, 100);
  }
  return b;
}

static void close_both(both *b) {
  close_run(&b->again);
  close_run(&b->all);
}

static uint8_t *draw_resets(dice *d, int64_t count) {
  uint8_t *mask = bppsa_calloc(count, 1);
  const int64_t rate = roll(d, 1, 40);
  assert_non_null(mask);
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = roll(d, 0, rate) == 0;
  }
  return mask;
}

/* A view of the first samples of another one, [T][b][..] or [b][..], copied. */
static bppsa_view first_samples(const bppsa_view *whole, int64_t batch) {
  bppsa_view part = *whole;
  const int axis = whole->ndim - 2;
  const int64_t rows = whole->ndim == 3 ? whole->shape[0] : 1, width = whole->shape[axis + 1], all = whole->shape[axis];
  const size_t row = (size_t)width * bppsa_dtype_size(whole->dtype);
  part.shape[axis] = batch;
  part = bppsa_view_make(NULL, whole->dtype, whole->ndim, part.shape);
  part.data = bppsa_alloc(bppsa_view_bytes(&part));
  assert_non_null(part.data);
  for (int64_t r = 0; r < rows; ++r) {
    memcpy((char *)part.data + (size_t)(r * batch) * row, (const char *)whole->data + (size_t)(r * all) * row,
           (size_t)batch * row);
  }
  return part;
}

static bppsa_status pass_forward(run *r, const both *b, int64_t batch, const uint8_t *mask, bool h0, bool drops) {
  const bppsa_view x = first_samples(&r->x, batch), first = first_samples(&r->h0, batch),
                   resets = bppsa_view_make((void *)(uintptr_t)mask, BPPSA_U8, 2, (int64_t[]){r->config.seq_len, batch});
  bppsa_model_drop(r->model, 3, drops ? b->samples : NULL);
  bppsa_free(r->x.data); /* the model borrows x */
  r->x = x;
  const bppsa_status status =
      bppsa_model_forward(r->model, &x, h0 ? &first : NULL, &(bppsa_spans){.resets = mask != NULL ? &resets : NULL}, &r->logits);
  bppsa_free(first.data);
  return status;
}

static void assert_same_states(both *b) {
  int64_t shape[2], other[2], batch = b->all.x.shape[1];
  run *const runs[] = {&b->again, &b->all};
  bppsa_view states[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t size = (runs[i]->cell->pair ? 2 : 1) * runs[i]->config.hidden;
    states[i] = bppsa_view_make(NULL, runs[i]->config.dtype, 3, (int64_t[]){runs[i]->config.layers, batch, size});
    states[i].data = bppsa_alloc(bppsa_view_bytes(&states[i]));
    assert_non_null(states[i].data);
    assert_int_equal(runs[i]->model->ops->last_states(runs[i]->model, i == 0 ? shape : other, batch, states[i].data), BPPSA_OK);
  }
  assert_memory_equal(shape, other, sizeof shape);
  assert_same_bits(&states[0], &states[1]);
  bppsa_free(states[0].data);
  bppsa_free(states[1].data);
}

static void assert_same_gradients(both *b) {
  for (int64_t i = 0; i < b->all.model->parameter_count; ++i) {
    assert_same_bits(&b->again.model->parameters[i].gradient, &b->all.model->parameters[i].gradient);
  }
  if (b->all.config.input_gradients) {
    run *const runs[] = {&b->again, &b->all};
    for (int i = 0; i < 2; ++i) {
      assert_int_equal(runs[i]->model->ops->input_gradients(runs[i]->model, &runs[i]->dx, &runs[i]->dh0), BPPSA_OK);
    }
    assert_same_bits(&b->again.dx, &b->all.dx);
    assert_same_bits(&b->again.dh0, &b->all.dh0);
  }
}

static void assert_same_backward(both *b, uint64_t seed) {
  run *const runs[] = {&b->again, &b->all};
  for (int i = 0; i < 2; ++i) {
    bppsa_free(runs[i]->seed.data);
    runs[i]->seed = random_view(runs[i]->config.dtype, seed, runs[i]->logits.ndim, runs[i]->logits.shape);
    assert_int_equal(runs[i]->model->ops->backward(runs[i]->model, &runs[i]->seed), BPPSA_OK);
  }
  assert_same_gradients(b);
}

/* Forward passes of any batch, none, one or two backward passes behind each. Returns whether the pass had several segments. */
static bool check_case(uint64_t seed) {
  dice d = {.seed = seed};
  const bppsa_cell *cell = cells[seed % CELLS];
  const bppsa_recurrent_config c = draw_config(&d, cell);
  both b = open_both(&d, cell, &c);
  int64_t batch = c.batch;
  for (int pass = 0; pass < 3; ++pass) {
    batch = pass == 2 ? roll(&d, 1, batch) : batch; /* smaller batches have longer runs */
    uint8_t *mask = c.resets && roll(&d, 0, 3) > 0 ? draw_resets(&d, c.seq_len * batch) : NULL;
    const bool h0 = roll(&d, 0, 1) != 0, drops = c.batch <= 8 && roll(&d, 0, 1) != 0;
    assert_int_equal(pass_forward(&b.all, &b, batch, mask, h0, drops), BPPSA_OK);
    assert_int_equal(pass_forward(&b.again, &b, batch, mask, h0, drops), BPPSA_OK);
    bppsa_free(mask);
    assert_same_bits(&b.again.logits, &b.all.logits);
    assert_same_states(&b);
    for (int64_t backward = roll(&d, 0, 2); backward > 0; --backward) {
      bppsa_nonfinite where;
      assert_same_backward(&b, seed + (uint64_t)backward);
      assert_same_states(&b);
      assert_same_bits(&b.again.logits, &b.all.logits);
      assert_false(roll(&d, 0, 2) == 0 && b.again.model->ops->find_nonfinite(b.again.model, &where));
    }
  }
  bppsa_recurrent_config whole = c;
  whole.recompute = INT64_MAX;
  const bool cuts = bytes_of(&c, cell, b.all.device) < bytes_of(&whole, cell, b.all.device);
  close_both(&b);
  return cuts;
}

static void test_random(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 3000 : 90;
  uint64_t cut = 0;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    cut += check_case(seed);
  }
  assert_true(3 * cut > cases);
}

/* ---- scans ---- */

static void assert_near(const char *name, const bppsa_view *got, const bppsa_view *view, int64_t steps) {
  const int64_t count = bppsa_view_count(view);
  double *expected = bppsa_alloc((size_t)count * sizeof *expected);
  assert_non_null(expected);
  for (int64_t i = 0; i < count; ++i) {
    expected[i] = bppsa_view_get(view, i);
  }
  const double r = residual_of_sum(got->dtype, got->data, expected, expected, count, sqrt((double)steps));
  if (!(r < 30)) {
    fail_msg("%s: residual %g", name, r);
  }
  bppsa_free(expected);
}

static void assert_near_gradients(both *b) {
  const int64_t steps = b->all.config.seq_len;
  for (int64_t i = 0; i < b->all.model->parameter_count; ++i) {
    const bppsa_parameter *p = &b->again.model->parameters[i];
    assert_near(p->name, &p->gradient, &b->all.model->parameters[i].gradient, steps);
  }
  if (b->all.config.input_gradients) {
    run *const runs[] = {&b->again, &b->all};
    for (int i = 0; i < 2; ++i) {
      assert_int_equal(runs[i]->model->ops->input_gradients(runs[i]->model, &runs[i]->dx, &runs[i]->dh0), BPPSA_OK);
    }
    assert_near("dx", &b->again.dx, &b->all.dx, steps);
    assert_near("dh0", &b->again.dh0, &b->all.dh0, steps);
  }
}

static void seed_both(both *b, uint64_t seed) {
  run *const runs[] = {&b->again, &b->all};
  for (int i = 0; i < 2; ++i) {
    bppsa_free(runs[i]->seed.data);
    runs[i]->seed = random_view(runs[i]->config.dtype, seed, runs[i]->logits.ndim, runs[i]->logits.shape);
    assert_int_equal(runs[i]->model->ops->backward(runs[i]->model, &runs[i]->seed), BPPSA_OK);
  }
}

/* A scan through segments has the same bits on every number of threads. With one segment it has the bits of a scan of all steps.
 * Otherwise it agrees with that scan within rounding. Batches become smaller. Returns whether there were several segments. */
static bool check_scan(uint64_t seed) {
  dice d = {.seed = 1000 + seed};
  const bppsa_cell *cell = cells[seed % CELLS];
  bppsa_recurrent_config c = draw_config(&d, cell);
  c.hidden = c.hidden > 20 ? 7 : c.hidden;
  c.layers = c.hidden > 4 ? 1 + c.layers % 2 : c.layers;
  c.seq_len = c.hidden > 4 ? 1 + c.seq_len % 160 : c.seq_len;
  c.method = methods[roll(&d, 2, METHODS - 1)];
  both b = open_both(&d, cell, &c), same = {.again = open_run(cell, &c, c.batch, 1)};
  int64_t batch = c.batch;
  for (int pass = 0; pass < 3; ++pass) {
    batch = pass == 2 ? roll(&d, 1, batch) : batch;
    uint8_t *mask = c.resets && roll(&d, 0, 3) > 0 ? draw_resets(&d, c.seq_len * batch) : NULL;
    const bool h0 = roll(&d, 0, 1) != 0, drops = c.batch <= 8 && roll(&d, 0, 1) != 0;
    assert_int_equal(pass_forward(&b.all, &b, batch, mask, h0, drops), BPPSA_OK);
    assert_int_equal(pass_forward(&b.again, &b, batch, mask, h0, drops), BPPSA_OK);
    assert_int_equal(pass_forward(&same.again, &b, batch, mask, h0, drops), BPPSA_OK);
    bppsa_free(mask);
    assert_same_states(&b);
    for (int64_t backward = roll(&d, 0, 2); backward > 0; --backward) {
      both threads = {.again = b.again, .all = same.again};
      seed_both(&b, seed + (uint64_t)backward);
      threads.again = b.again;
      bppsa_free(threads.all.seed.data);
      threads.all.seed = random_view(c.dtype, seed + (uint64_t)backward, b.all.logits.ndim, b.all.logits.shape);
      assert_int_equal(threads.all.model->ops->backward(threads.all.model, &threads.all.seed), BPPSA_OK);
      assert_same_gradients(&threads);
      same.again = threads.all;
      if (c.recompute >= c.seq_len) {
        assert_same_gradients(&b);
      } else {
        assert_near_gradients(&b);
      }
    }
  }
  close_run(&same.again);
  close_both(&b);
  return c.recompute < c.seq_len;
}

static void test_scans(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 3000 : 60;
  uint64_t cut = 0;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    cut += check_scan(seed);
  }
  assert_true(3 * cut > cases);
}

/* ---- errors and memory ---- */

/* The first state that is not finite, wherever its segment is. */
static void test_nonfinite(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    for (int64_t step = 0; step < 400; step += 133) {
      dice d = {.seed = 7};
      bppsa_recurrent_config c = two_layers(400, 2, BPPSA_F32, &methods[0], true);
      bppsa_nonfinite found[2];
      c.recompute = 9;
      both b = open_both(&d, cells[k], &c);
      run *const runs[] = {&b.again, &b.all};
      for (int i = 0; i < 2; ++i) {
        bppsa_view_set(&runs[i]->x, (step * 2 + 1) * 3, (double)NAN);
        assert_int_equal(pass_forward(runs[i], &b, 2, NULL, true, false), BPPSA_OK);
        assert_true(runs[i]->model->ops->find_nonfinite(runs[i]->model, &found[i]));
      }
      assert_string_equal(found[0].what, found[1].what);
      assert_int_equal(found[0].layer, found[1].layer);
      assert_int_equal(found[0].step, step + 1);
      assert_int_equal(found[1].step, step + 1);
      assert_int_equal(found[0].sample, 1);
      for (int i = 0; i < 2; ++i) { /* the search has computed states, too */
        bppsa_view_set(&runs[i]->x, (step * 2 + 1) * 3, 0.5);
        assert_int_equal(pass_forward(runs[i], &b, 2, NULL, true, false), BPPSA_OK);
      }
      assert_same_backward(&b, 5);
      close_both(&b);
    }
  }
}

/* Issue 47's example: GRU, T 48 000, B 50, H 40. Arrays of all steps are the outputs of a loss on every step alone. */
static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  for (int k = 0; k < CELLS; ++k) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.seq_len = 48000;
    c.batch = 50;
    c.hidden = 40;
    c.method.backward = BPPSA_BACKWARD_BP;
    const int64_t states = c.seq_len * c.batch * c.hidden * 4, all = bytes_of(&c, cells[k], device);
    c.recompute = 220; /* about the root of T */
    assert_true(all > 3 * states);
    assert_true(bytes_of(&c, cells[k], device) < states / 10);
    c.layers = 3;
    assert_true(bytes_of(&c, cells[k], device) < states / 6);
    c.no_head = c.loss_all = true;
    assert_in_range(bytes_of(&c, cells[k], device), states, states + states / 6);
    c.recompute = INT64_MAX; /* one segment, which is everything */
    assert_true(bytes_of(&c, cells[k], device) > all);
  }
  bppsa_device_destroy(device);
}

/* What a network holds is what it counts, and every allocation may fail. */
/* Bytes that a network holds besides those that it counts: names, plans and the network itself. */
static int64_t uncounted(const bppsa_recurrent_config *c, bppsa_device *device) {
  const int64_t bytes = bppsa_alloc_live_bytes();
  bppsa_model *model;
  assert_int_equal(bppsa_recurrent_create(c, &bppsa_lstm_cell, device, &model), BPPSA_OK);
  const int64_t held = bppsa_alloc_live_bytes() - bytes;
  bppsa_model_destroy(model);
  return held - bytes_of(c, &bppsa_lstm_cell, device);
}

static void check_allocations(const bppsa_gradient_method *method) {
  bppsa_device *device = cpu_device(2);
  bppsa_recurrent_config c = two_layers(300, 3, BPPSA_F64, method, true);
  c.recompute = 10;
  c.reset_state = true;
  bppsa_recurrent_config whole = c;
  whole.recompute = 0;
  const int64_t plans = method->backward == BPPSA_BACKWARD_SCAN ? uncounted(&whole, device) : 0; /* of more steps */
  const int64_t blocks = bppsa_alloc_live(), bytes = bppsa_alloc_live_bytes();
  bppsa_model *model = NULL;
  for (int64_t at = 1; model == NULL; ++at) {
    bppsa_alloc_fail_at(at);
    const bppsa_status status = bppsa_recurrent_create(&c, &bppsa_lstm_cell, device, &model);
    bppsa_alloc_fail_at(0);
    assert_int_equal(status, model == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
    assert_true(model != NULL || bppsa_alloc_live() == blocks);
  }
  const int64_t held = bppsa_alloc_live_bytes() - bytes, counted = bytes_of(&c, &bppsa_lstm_cell, device);
  assert_in_range(held, counted, counted + 20000 + plans); /* names, plans and the network itself are not counted */
  bppsa_model_destroy(model);
  assert_int_equal(bppsa_alloc_live(), blocks);
  bppsa_device_destroy(device);
}

static void test_allocations(void **state) {
  (void)state;
  for (int k = 0; k < METHODS; ++k) {
    check_allocations(&methods[k]);
  }
}

static void assert_refused(const bppsa_recurrent_config *c, const char *text) {
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_recurrent_create(c, &bppsa_gru_cell, device, &model),
                   c->recompute < 0 ? BPPSA_ERR_ARGUMENT : BPPSA_ERR_UNSUPPORTED);
  if (strstr(bppsa_last_error(), text) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), text);
  }
  bppsa_device_destroy(device);
}

static void test_refusals(void **state) {
  (void)state;
  const bppsa_recurrent_config base = two_layers(10, 2, BPPSA_F32, &methods[0], true);
  bppsa_recurrent_config c = base;
  c.recompute = -1;
  assert_refused(&c, "recompute is -1, expected 0, or every how many steps states are kept");
  c = base;
  c.recompute = 2;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  assert_refused(&c, "recompute beside a speculative backward pass, expected BP or a scan, of whole samples in one direction");
  c.method = methods[0];
  c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  assert_refused(&c, "recompute beside a speculative forward pass");
  c.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  c.lengths = true;
  assert_refused(&c, "recompute beside samples that have lengths");
  c.lengths = false;
  c.bidirectional = true;
  assert_refused(&c, "recompute beside two directions");
  c.bidirectional = false;
  c.method.backward = BPPSA_BACKWARD_AUTO;
  c.forward.kind = BPPSA_FORWARD_AUTO;
  run r = open_run(&bppsa_lstm_cell, &c, 2, 1);
  assert_null(bppsa_recurrent_plan(r.model, 0)); /* BP */
  compute(&r, NULL);
  bppsa_view states;
  assert_int_equal(bppsa_recurrent_states(r.model, 0, &states), BPPSA_ERR_UNSUPPORTED);
  assert_non_null(strstr(bppsa_last_error(), "the states of a network that computes states again"));
  assert_int_equal(bppsa_recurrent_hidden_gradients(r.model, &r.seed, &states), BPPSA_ERR_UNSUPPORTED);
  assert_int_equal(bppsa_recurrent_seed_cells(r.model, &r.seed), BPPSA_ERR_UNSUPPORTED);
  close_run(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),      cmocka_unit_test(test_scans),
                                     cmocka_unit_test(test_nonfinite),   cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_allocations), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
