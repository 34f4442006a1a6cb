/* The certificate of weight gradients (recurrent/certify.h): against textbook gradients in float64 over the same tape, in every
 * kind of network, of gradients that were changed; and refusals. */
#include "recurrent/certify.h"

#include <jansson.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/json_memory.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

/* ---- textbook gradients from a tape ---- */

enum { BATCH = 2, HIDDEN = 12, INPUT = 3, MOST_GATES = 4, KINDS = 4 };

/* Gradients of the parameters of a layer, weight_ih and so on. */
typedef struct {
  double weight_ih[MOST_GATES * HIDDEN][INPUT], weight_hh[MOST_GATES * HIDDEN][HIDDEN], bias_ih[MOST_GATES * HIDDEN],
      bias_hh[MOST_GATES * HIDDEN];
} sums;

/* What is known of a unit at a step, and what follows from it: deltas, and what its gradient sends to the step in front besides. */
typedef struct {
  const float *saved; /* numbers HIDDEN apart */
  double h, h_before, c_before, g_h, g_c;
  double delta_x[MOST_GATES], delta_h[MOST_GATES], carried;
} unit;

static double gate(double half) {
  return signbit(half) ? 1 + half : half;
}

static double gate_slope(double half) {
  return fabs(half) * (1 - fabs(half));
}

/* n = tanh(x) and 1 - n² from the code of n. */
static double tanh_of(float code, double *slope) {
  uint32_t bits;
  float w;
  if (fabsf(code) <= 1) {
    *slope = 1 - (double)code * (double)code;
    return (double)code;
  }
  memcpy(&bits, &code, sizeof bits);
  bits &= 0x3fffffffu; /* neither sign nor the exponent's highest bit */
  memcpy(&w, &bits, sizeof w);
  *slope = (double)w * (1 - (double)w / 4);
  return code < 0 ? 1 - (double)w / 2 : (double)w / 2 - 1;
}

static void rnn_unit(unit *u) {
  u->delta_x[0] = u->delta_h[0] = (1 - u->h * u->h) * u->g_h;
  u->carried = 0;
}

static void gru_unit(unit *u) {
  const double r = gate(u->saved[0]), z = gate(u->saved[HIDDEN]), m = u->saved[2 * HIDDEN];
  double slope;
  const double n = tanh_of(u->saved[3 * HIDDEN], &slope);
  const double of_n = (1 - z) * slope * u->g_h, of_z = (u->h_before - n) * gate_slope(u->saved[HIDDEN]) * u->g_h,
               of_r = of_n * m * gate_slope(u->saved[0]);
  memcpy(u->delta_x, (double[]){of_r, of_z, of_n}, 3 * sizeof(double));
  memcpy(u->delta_h, (double[]){of_r, of_z, of_n * r}, 3 * sizeof(double));
  u->carried = z * u->g_h;
}

static void lstm_unit(unit *u) {
  const double i = gate(u->saved[0]), f = gate(u->saved[HIDDEN]), g = u->saved[2 * HIDDEN], o = gate(u->saved[3 * HIDDEN]),
               out = u->saved[4 * HIDDEN], of_c = u->g_c + o * (1 - out * out) * u->g_h;
  const double deltas[] = {of_c * g * gate_slope(u->saved[0]), of_c * u->c_before * gate_slope(u->saved[HIDDEN]),
                           of_c * i * (1 - g * g), u->g_h * out * gate_slope(u->saved[3 * HIDDEN])};
  memcpy(u->delta_x, deltas, sizeof deltas);
  memcpy(u->delta_h, deltas, sizeof deltas);
  u->carried = f * of_c;
}

static void (*const unit_of[CELLS])(unit *u) = {rnn_unit, gru_unit, lstm_unit};

/* Takes a step of a sample: g [2][HIDDEN], of h and of c. */
static void step_back(int cell, const run *r, const float *const tape[3], int64_t t, int64_t b, double g[2][HIDDEN], sums *s) {
  const int64_t gates = cells[cell]->gates, before = ((t - 1) * BATCH + b) * HIDDEN;
  double next[2][HIDDEN] = {0};
  for (int64_t j = 0; j < HIDDEN; ++j) {
    unit u = {.h = (double)tape[0][before + BATCH * HIDDEN + j],
              .h_before = (double)tape[0][before + j],
              .c_before = cells[cell]->pair ? (double)tape[1][before + j] : 0,
              .saved = tape[2] + ((t - 1) * BATCH + b) * cells[cell]->saved * HIDDEN + j,
              .g_h = g[0][j],
              .g_c = g[1][j]};
    unit_of[cell](&u);
    next[cells[cell]->pair ? 1 : 0][j] += u.carried;
    for (int64_t k = 0; k < gates; ++k) {
      const int64_t row = k * HIDDEN + j;
      s->bias_ih[row] += u.delta_x[k];
      s->bias_hh[row] += u.delta_h[k];
      for (int64_t i = 0; i < INPUT; ++i) {
        s->weight_ih[row][i] += u.delta_x[k] * bppsa_view_get(&r->x, ((t - 1) * BATCH + b) * INPUT + i);
      }
      for (int64_t i = 0; i < HIDDEN; ++i) {
        s->weight_hh[row][i] += u.delta_h[k] * (double)tape[0][before + i];
        next[0][i] += u.delta_h[k] * bppsa_view_get(&r->model->parameters[1].value, row * HIDDEN + i);
      }
    }
  }
  memcpy(g, next, sizeof next);
}

static void textbook(int cell, const run *r, const float *tape, sums *s) {
  const int64_t steps = r->config.seq_len, lines = 16; /* arrays of a tape begin at multiples of so many floats */
  const int64_t states = ((steps + 1) * BATCH * HIDDEN + lines - 1) / lines * lines;
  const float *const arrays[] = {tape, tape + states, tape + (cells[cell]->pair ? 2 : 1) * states};
  memset(s, 0, sizeof *s);
  for (int64_t b = 0; b < BATCH; ++b) {
    double g[2][HIDDEN] = {0};
    for (int64_t t = steps; t >= 1; --t) {
      for (int64_t j = 0; j < HIDDEN && (t == steps || r->config.loss_all); ++j) {
        g[0][j] += bppsa_view_get(&r->seed, (r->config.loss_all ? t - 1 : 0) * BATCH * HIDDEN + b * HIDDEN + j);
      }
      step_back(cell, r, arrays, t, b, g, s);
    }
  }
}

/* The largest error over the largest number, of any parameter. */
static double true_error(const run *r, const sums *s) {
  const double *const exact[] = {&s->weight_ih[0][0], &s->weight_hh[0][0], s->bias_ih, s->bias_hh};
  double worst = 0;
  for (int64_t p = 0; p < 4; ++p) {
    const bppsa_view *found = &r->model->parameters[p].gradient;
    double error = 0, largest = 0;
    for (int64_t i = 0; i < bppsa_view_count(found); ++i) {
      error = fmax(error, fabs(bppsa_view_get(found, i) - exact[p][i]));
      largest = fmax(largest, fabs(exact[p][i]));
    }
    worst = fmax(worst, error / largest);
  }
  return worst;
}

/* Of BP, scans and speculative BP, where the network forgets and where it does not: the error, with four digits. */
static void test_predicts(void **state) {
  (void)state;
  static const struct {
    double scale; /* of W_hh */
    int64_t steps;
    bool all;
  } kinds[KINDS] = {{.8, 1000, false}, {.8, 1000, true}, {1, 400, true}, {1.4, 300, true}};
  for (int k = 0; k < CELLS * KINDS; ++k) {
    const int cell = k / KINDS, kind = k % KINDS;
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.seq_len = kinds[kind].steps;
    c.batch = BATCH;
    c.hidden = HIDDEN;
    c.input = INPUT;
    c.tape = c.no_head = true;
    c.loss_all = kinds[kind].all;
    c.method = methods[0];
    c.method.backward = kind == 2 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SPECULATIVE;
    c.speculation.chunks = 9;
    run r = open_run(cells[cell], &c, BATCH, 2);
    int64_t size;
    assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
    bppsa_view tape = bppsa_view_make(bppsa_calloc(size, sizeof(float)), BPPSA_F32, 1, &size);
    bppsa_view_scale(&r.model->parameters[1].value, kinds[kind].scale);
    assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tape, NULL), BPPSA_OK);
    assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    sums *s = bppsa_calloc(1, sizeof *s);
    bppsa_certificate found;
    assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
    textbook(cell, &r, tape.data, s);
    const double expected = true_error(&r, s);
    if (!(found.rounding && expected > 1e-8 && fabs(found.error / expected - 1) <= 1e-4)) {
      fail_msg("%s, kind %d: error %.6g, expected %.6g", cells[cell]->name, kind, found.error, expected);
    }
    bppsa_free(s);
    bppsa_free(tape.data);
    close_run(&r);
  }
}

/* ---- gradients that come back ---- */

/* The certificate of an RNN with W_hh = 2 Q, Q orthogonal, and states for which 1 - h² is .25, and .55 in the steps 441 .. 940.
 * The loss injects 1 at the last step and 1e-20 at all others: what is left of the last step's gradient after 60 steps is as small,
 * and grows by a tenth with each of 500 steps. A difference that looks small beside the later gradients is not. */
static double error_of_return(bppsa_backward backward, int64_t chunks) {
  enum { STEPS = 1000 };
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = 1;
  c.hidden = HIDDEN;
  c.tape = c.no_head = c.loss_all = true;
  c.method.backward = backward;
  c.speculation.chunks = chunks;
  run r = open_run(&bppsa_rnn_cell, &c, 1, 1);
  double *w_hh = orthogonal(7, HIDDEN, 2);
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    bppsa_view_set(&r.model->parameters[1].value, i, w_hh[i]);
  }
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
  bppsa_view tape = bppsa_view_make(bppsa_calloc(size, sizeof(float)), BPPSA_F32, 1, &size);
  for (int64_t i = 0; i < (STEPS + 1) * HIDDEN; ++i) {
    const int64_t t = i / HIDDEN;
    bppsa_view_set(&tape, i, sqrt(1 - (t > 440 && t <= 940 ? .55 : .25)) * (i % 2 == 0 ? 1 : -1));
  }
  for (int64_t i = 0; i < (STEPS - 1) * HIDDEN; ++i) {
    bppsa_view_set(&r.seed, i, 1e-20 * bppsa_view_get(&r.seed, i));
  }
  bppsa_certificate found;
  assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tape, NULL), BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
  bppsa_free(tape.data);
  bppsa_free(w_hh);
  close_run(&r);
  return found.error;
}

static void test_comes_back(void **state) {
  (void)state;
  const double own = error_of_return(BPPSA_BACKWARD_BP, 0);
  for (int64_t chunks = 2; chunks <= 16; ++chunks) {
    const double error = error_of_return(BPPSA_BACKWARD_SPECULATIVE, chunks);
    if (!(error <= 2 * own)) {
      fail_msg("%lld chunks: error %.3g, BP's %.3g", (long long)chunks, error, own);
    }
  }
}

/* ---- every kind of network ---- */

static const int64_t lengths[] = {40, 3, 17}, samples[] = {7, 2, 9};

/* Network number i of a cell: layers, directions, lengths, dropout, without a head or biases. */
enum { NETWORKS = 12 };
static bppsa_recurrent_config network(int i, bppsa_dtype dtype) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = 40;
  c.batch = 4; /* one more than the batches have */
  c.hidden = 7;
  c.input = 2;
  c.classes = 3;
  c.layers = 1 + i % 3;
  c.bidirectional = i % 4 == 1;
  c.lengths = i % 3 == 2;
  c.loss_all = i % 2 == 0;
  c.no_head = i >= 9;
  c.no_bias = i == 4;
  c.dropout = i == 5 || i == 7 ? .3 : 0;
  c.dtype = dtype;
  c.method = methods[0];
  return c;
}

static run pass_of(const bppsa_cell *cell, const bppsa_recurrent_config *c) {
  run r = open_run(cell, c, 3, 2);
  bppsa_model_drop(r.model, 4, c->dropout > 0 ? samples : NULL);
  assert_int_equal(bppsa_model_forward(r.model, &r.x, &r.h0, &(bppsa_spans){.lengths = c->lengths ? lengths : NULL}, &r.logits),
                   BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  return r;
}

/* The certificate of BP in float64 is 0: it computes the same bits from the same arrays. In float32 it is small. A gradient that
 * is changed is found, and named. Nothing else changes. */
static void test_networks(void **state) {
  (void)state;
  for (int i = 0; i < CELLS * NETWORKS; ++i) {
    for (int dtype = 0; dtype < 2; ++dtype) {
      const bppsa_recurrent_config c = network(i % NETWORKS, dtype == 0 ? BPPSA_F32 : BPPSA_F64);
      run r = pass_of(cells[i / NETWORKS], &c);
      bppsa_certificate found, again;
      assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
      assert_int_equal(found.rounding, dtype == 0);
      assert_true(dtype == 0 ? found.error > 1e-9 && found.error < 1e-5 : found.error == 0);
      assert_int_equal(bppsa_certify(r.model, &again), BPPSA_OK);
      assert_true(again.error == found.error && again.parameter == found.parameter);
      const bppsa_parameter *changed = &r.model->parameters[i % r.model->parameter_count];
      double largest = 0;
      for (int64_t k = 0; k < bppsa_view_count(&changed->gradient); ++k) {
        largest = fmax(largest, fabs(bppsa_view_get(&changed->gradient, k)));
      }
      bppsa_view_set(&changed->gradient, 0, bppsa_view_get(&changed->gradient, 0) + .01 * largest);
      assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
      assert_true(fabs(found.error - .01) < 1e-5);
      assert_string_equal(found.parameter, changed->name);
      bppsa_view_set(&changed->gradient, 0, (double)NAN);
      assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
      assert_true(isinf(found.error));
      close_run(&r);
    }
  }
}

/* A pass without the head, in a network that has one. */
static void test_layers(void **state) {
  (void)state;
  for (int i = 0; i < CELLS; ++i) {
    bppsa_recurrent_config c = network(0, BPPSA_F64);
    c.layers = 2;
    run r = open_run(cells[i], &c, 3, 1);
    bppsa_view seed = random_view(BPPSA_F64, 8, 3, (int64_t[]){c.seq_len, 3, c.hidden});
    bppsa_certificate found;
    assert_int_equal(bppsa_recurrent_forward_layers(r.model, &r.x, &r.h0), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_backward_layers(r.model, &seed), BPPSA_OK);
    assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK);
    assert_true(found.error == 0);
    bppsa_free(seed.data);
    close_run(&r);
  }
}

/* ---- refusals, memory, texts ---- */

static void destroy_nothing(bppsa_model *model) {
  (void)model;
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_certificate found = {.error = 7};
  const bppsa_model_ops other = {.name = "other", .destroy = destroy_nothing};
  bppsa_model model = {.ops = &other};
  assert_int_equal(bppsa_certify(&model, &found), BPPSA_ERR_ARGUMENT);
  assert_message("not a recurrent network");
  assert_int_equal(bppsa_certify_check(&model), BPPSA_ERR_ARGUMENT);
  assert_message("not a recurrent network");
  bppsa_recurrent_config c = network(0, BPPSA_F32);
  run r = open_run(&bppsa_gru_cell, &c, 3, 1);
  assert_int_equal(bppsa_certify_check(r.model), BPPSA_OK); /* before the first pass */
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_ERR_ARGUMENT);
  assert_message("no backward pass since the latest forward pass");
  assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_ERR_ARGUMENT);
  close_run(&r);
  bppsa_device *device = cpu_device(1);
  assert_int_equal(bppsa_recurrent_count(&c, &bppsa_gru_cell, device, &c.memory_limit), BPPSA_OK);
  bppsa_device_destroy(device);
  r = open_run(&bppsa_gru_cell, &c, 3, 1); /* there is room for the network alone */
  assert_int_equal(bppsa_certify_check(r.model), BPPSA_ERR_ARGUMENT);
  assert_message("certificate: gru: BP needs at least ");
  close_run(&r);
  r = pass_of(&bppsa_gru_cell, &c);
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_ERR_ARGUMENT);
  assert_message("certificate: gru: BP needs at least ");
  close_run(&r);
  c.memory_limit *= 4;
  r = pass_of(&bppsa_gru_cell, &c);
  assert_true(found.error == 7);
  assert_int_equal(bppsa_certify_check(r.model), BPPSA_OK);
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_OK); /* the check takes nothing away */
  close_run(&r);
  c.memory_limit = 0;
  c.part = (bppsa_forward_part){.seq_len = 80};
  r = pass_of(&bppsa_gru_cell, &c);
  assert_int_equal(bppsa_certify(r.model, &found), BPPSA_ERR_UNSUPPORTED);
  assert_message("a part of a sequence");
  assert_int_equal(bppsa_certify_check(r.model), BPPSA_ERR_UNSUPPORTED);
  assert_message("a part of a sequence");
  close_run(&r);
}

static bppsa_status certify(void *model) {
  bppsa_certificate found;
  return bppsa_certify(model, &found);
}

static bppsa_status check(void *model) {
  return bppsa_certify_check(model);
}

static void test_memory(void **state) {
  (void)state;
  const bppsa_recurrent_config c = network(5, BPPSA_F32);
  run r = pass_of(&bppsa_lstm_cell, &c);
  assert_true(walk_allocations(certify, r.model) > 10);
  assert_true(walk_allocations(check, r.model) > 10);
  close_run(&r);
}

static bppsa_status make_json(void *certificate) {
  json_t *object = bppsa_certificate_json(certificate);
  const bppsa_status status = object != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_MEMORY, "out of memory");
  json_decref(object);
  return status;
}

static void test_texts(void **state) {
  (void)state;
  char text[BPPSA_CERTIFICATE_TEXT];
  bppsa_certificate c = {.error = 3.125e-7, .parameter = "gru.weight_hh_l0", .rounding = true};
  assert_string_equal(bppsa_certificate_text(&c, text, sizeof text),
                      "weight gradient error 3.1e-07 of its largest entry (gru.weight_hh_l0), rounding included, against float64 "
                      "BP over the same states");
  json_t *object = bppsa_certificate_json(&c);
  assert_true(json_real_value(json_object_get(object, "error")) == c.error);
  assert_string_equal(json_string_value(json_object_get(object, "parameter")), c.parameter);
  assert_string_equal(json_string_value(json_object_get(object, "method")), "bp");
  assert_true(json_is_true(json_object_get(object, "rounding")));
  char members[BPPSA_CERTIFICATE_TEXT], braced[BPPSA_CERTIFICATE_TEXT + 2];
  snprintf(braced, sizeof braced, "{%s}", bppsa_certificate_members(&c, members, sizeof members));
  json_t *read = json_loads(braced, JSON_REJECT_DUPLICATES, NULL);
  assert_true(json_equal(read, object));
  json_decref(read);
  json_decref(object);
  assert_true(walk_allocations(make_json, &c) > 3);
  c.rounding = false;
  assert_string_equal(
      bppsa_certificate_text(&c, text, sizeof text),
      "weight gradients differ from BP's by 3.1e-07 of their largest entry (gru.weight_hh_l0), over the same states");
  c.error = (double)INFINITY;
  assert_non_null(strstr(bppsa_certificate_members(&c, members, sizeof members), "\"error\":null,"));
  assert_non_null(strstr(members, "\"rounding\":false"));
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_predicts), cmocka_unit_test(test_networks),
                                     cmocka_unit_test(test_layers),   cmocka_unit_test(test_comes_back),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
