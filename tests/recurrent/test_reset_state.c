/* A learned state from which samples begin anew: where it is 0, or nothing begins anew; NaN in it; how weights name it; what is
 * refused. Its gradient is compared with the textbook's in test_resets.c. */
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/chain.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/invented_cell.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells, STEPS = 24, BATCH = 5 };

static bppsa_recurrent_config config_of(bppsa_dtype dtype, const bppsa_gradient_method *method, bool all) {
  bppsa_recurrent_config c = two_layers(STEPS, BATCH, dtype, method, all);
  c.reset_state = true;
  return c;
}

/* Some samples begin anew in front of step 0 and others later, one of them never. */
static void fill_mask(uint8_t mask[STEPS * BATCH]) {
  for (int64_t i = 0; i < STEPS * BATCH; ++i) {
    mask[i] = i % BATCH != 2 && (i / BATCH * 5 + i % BATCH) % 7 == 0;
  }
}

static void pass(run *r, const uint8_t *mask) {
  const bppsa_view resets = bppsa_view_make((void *)(uintptr_t)mask, BPPSA_U8, 2, (int64_t[]){STEPS, BATCH});
  const bppsa_spans spans = {.resets = mask != NULL ? &resets : NULL};
  assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &spans, &r->logits), BPPSA_OK);
  assert_int_equal(r->model->ops->backward(r->model, &r->seed), BPPSA_OK);
  assert_int_equal(r->model->ops->input_gradients(r->model, &r->dx, &r->dh0), BPPSA_OK);
}

static void speculate(bppsa_recurrent_config *c) {
  c->method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c->speculation.chunks = c->forward.chunks = 4;
  c->speculation.warm_up = c->forward.warm_up = 2;
  c->forward.kind = BPPSA_FORWARD_SPECULATIVE;
}

static double largest_of(const bppsa_view *view) {
  double largest = 0;
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    largest = fmax(largest, fabs(bppsa_view_get(view, i)));
  }
  return largest;
}

/* A state of zeros, with which training begins, leaves the bits of a network without one: the same initial weights, outputs and
 * gradients of everything else. Without resets its own gradient is 0, also behind a pass that had some. */
static void test_zeros(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * (METHODS + 1) * 2; ++k) {
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[k / 2 / CELLS % METHODS], k % 2 == 0);
    c.bidirectional = k % 5 == 0;
    if (k / 2 / CELLS == METHODS) {
      speculate(&c);
    }
    bppsa_recurrent_config without = c;
    without.reset_state = false;
    without.resets = true;
    run r = open_run(cells[k / 2 % CELLS], &c, BATCH, 1), plain = open_run(cells[k / 2 % CELLS], &without, BATCH, 1);
    uint8_t mask[STEPS * BATCH];
    fill_mask(mask);
    const bppsa_parameter *own = &r.model->parameters[0];
    assert_int_equal(bppsa_recurrent_init(r.model, BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
    assert_int_equal(r.model->parameter_count, plain.model->parameter_count + 1);
    assert_true(strstr(own->name, ".reset_state") != NULL && largest_of(&own->value) == 0);
    assert_int_equal(own->value.shape[0], c.layers * (c.bidirectional ? 2 : 1));
    assert_int_equal(own->value.shape[1], (cells[k / 2 % CELLS]->pair ? 2 : 1) * c.hidden);
    for (int p = 0; p < 3; ++p) {
      pass(&r, p == 1 ? mask : NULL);
      pass(&plain, p == 1 ? mask : NULL);
      assert_same_bits(&r.logits, &plain.logits);
      assert_same_bits(&r.dx, &plain.dx);
      assert_same_bits(&r.dh0, &plain.dh0);
      for (int64_t i = 0; i < plain.model->parameter_count; ++i) {
        assert_string_equal(r.model->parameters[i + 1].name, plain.model->parameters[i].name);
        assert_same_bits(&r.model->parameters[i + 1].value, &plain.model->parameters[i].value);
        assert_same_bits(&r.model->parameters[i + 1].gradient, &plain.model->parameters[i].gradient);
      }
      assert_true((largest_of(&own->gradient) > 0) == (p == 1));
    }
    close_run(&r);
    close_run(&plain);
  }
}

/* NaN in the state of a layer reaches samples that begin anew, from there on, and no others. */
static void test_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[0], true);
    if (k / CELLS == 1) {
      speculate(&c);
    }
    run r = open_run(cells[k % CELLS], &c, BATCH, 1);
    uint8_t mask[STEPS * BATCH];
    fill_mask(mask);
    bppsa_view_set(&r.model->parameters[0].value, 0, (double)NAN);
    const bppsa_view resets = bppsa_view_make(mask, BPPSA_U8, 2, (int64_t[]){STEPS, BATCH});
    assert_int_equal(bppsa_model_forward(r.model, &r.x, &r.h0, &(bppsa_spans){.resets = &resets}, &r.logits), BPPSA_OK);
    bool begun[BATCH] = {false};
    for (int64_t i = 0; i < STEPS * BATCH; ++i) {
      begun[i % BATCH] |= mask[i] != 0;
      assert_int_equal(isnan(bppsa_view_get(&r.logits, i * c.classes)), begun[i % BATCH]);
    }
    assert_false(begun[2]);
    close_run(&r);
  }
}

/* ---- weights ---- */

static bppsa_status infer(const run *r, const char *prefix, int64_t gates, int64_t skip, bppsa_recurrent_config *found) {
  bppsa_named_view tensors[16];
  const int64_t count = r->model->parameter_count;
  assert_true(count <= 16);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = (bppsa_named_view){r->model->parameters[i].name, r->model->parameters[i].value};
  }
  *found = bppsa_recurrent_config_default();
  return bppsa_recurrent_infer("W", prefix, gates, count - skip, tensors + skip, found);
}

static void test_weights(void **state) {
  (void)state;
  const bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[0], true);
  bppsa_recurrent_config found;
  run r = open_run(&bppsa_lstm_cell, &c, BATCH, 1);
  bppsa_view *value = &r.model->parameters[0].value;
  assert_string_equal(r.model->parameters[0].name, "lstm.reset_state");
  assert_int_equal(infer(&r, "lstm", 4, 0, &found), BPPSA_OK);
  assert_true(found.reset_state && found.layers == 2 && found.hidden == 4);
  assert_int_equal(infer(&r, "lstm", 4, 1, &found), BPPSA_OK);
  assert_false(found.reset_state);
  value->shape[0] = 3;
  assert_error(infer(&r, "lstm", 4, 0, &found), BPPSA_ERR_SHAPE,
               "W: tensor 'lstm.reset_state' has shape [3, 8], expected [2, S]");
  value->shape[0] = 2;
  value->shape[1] = 5;
  assert_error(infer(&r, "lstm", 4, 0, &found), BPPSA_ERR_SHAPE,
               "W: tensor 'lstm.reset_state' has shape [2, 5], expected rows of H = 4, or of a pair 2H");
  value->shape[1] = 8;
  value->dtype = BPPSA_F64;
  assert_error(infer(&r, "lstm", 4, 0, &found), BPPSA_ERR_UNSUPPORTED, "tensor 'lstm.reset_state' is f64, expected f32");
  value->dtype = BPPSA_F32;
  close_run(&r);
}

/* ---- what is refused ---- */

static bppsa_status create(const bppsa_recurrent_config *c, const bppsa_cell *cell) {
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  const bppsa_status status = bppsa_recurrent_create(c, cell, device, &model);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void test_refused(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[METHODS - 1], true);
  bppsa_cell cell = two_tanh;
  assert_int_equal(create(&c, &cell), BPPSA_OK);
  cell.backward[1] = NULL; /* scans do without, but not these gradients */
  assert_error(create(&c, &cell), BPPSA_ERR_UNSUPPORTED,
               "the cell has no gradients of the states in front of resets in f64, expected an entry 'backward'");
  c.reset_state = false;
  assert_int_equal(create(&c, &cell), BPPSA_OK);
  c.reset_state = true;
  bppsa_device *device = cpu_device(1);
  bppsa_chain *chain = NULL;
  assert_error(bppsa_recurrent_chain_create(&c, &bppsa_gru_cell, device, &chain), BPPSA_ERR_UNSUPPORTED, "resets of samples");
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_zeros), cmocka_unit_test(test_nan), cmocka_unit_test(test_weights),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
