/* Recurrent networks as chains: logits and all gradients of the model, bit for bit, whether a layer's two gradients are computed
 * together or one after the other. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/chain.h"
#include "rnn/rnn.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { T = 6, B = 4, I = 3, H = 5, C = 4, LAYERS = 4, PER_LAYER = 4, MOST = LAYERS * PER_LAYER + 2 };

typedef struct {
  bppsa_model *model;
  bppsa_chain *chain;
  bppsa_recurrent_config config;
  bppsa_buffer x, seed, values[LAYERS + 2], gradients[LAYERS + 2], kept[LAYERS + 1], weights[MOST];
} problem;

/* An array with the room behind it that a chain's caller gives. */
static bppsa_buffer array_of(bppsa_dtype dtype, int64_t count) {
  bppsa_buffer made;
  const int64_t room = count + BPPSA_ALIGNMENT;
  assert_int_equal(bppsa_buffer_create(NULL, dtype, 1, &room, &made), BPPSA_OK);
  return made;
}

static void fill(const bppsa_buffer *b, uint64_t seed) {
  for (int64_t i = 0; i < bppsa_view_count(&b->view); ++i) {
    bppsa_view_set(&b->view, i, bppsa_random_double(seed, 7, (uint64_t)i) - 0.5);
  }
}

static problem make(const bppsa_cell *cell, int64_t layers, bool all, bppsa_nonlinearity nonlinearity, bppsa_dtype dtype,
                    int64_t samples) {
  bppsa_device *device = cpu_device(1);
  problem p = {.config = bppsa_recurrent_config_default()};
  bppsa_recurrent_config *c = &p.config;
  c->seq_len = T;
  c->batch = B;
  c->input = I;
  c->hidden = H;
  c->classes = C;
  c->layers = layers;
  c->loss_all = all;
  c->dtype = dtype;
  c->nonlinearity = nonlinearity;
  c->method.backward = BPPSA_BACKWARD_BP;
  c->input_gradients = true;
  assert_int_equal(bppsa_recurrent_create(c, cell, device, &p.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(p.model, BPPSA_INIT_DEFAULT, 3), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_chain_create(c, cell, device, &p.chain), BPPSA_OK);
  assert_int_equal(p.chain->layers, layers + 1);
  assert_int_equal(p.chain->parameter_count, p.model->parameter_count);
  for (int64_t i = 0; i < p.model->parameter_count; ++i) {
    assert_string_equal(p.chain->parameters[i].name, p.model->parameters[i].name);
    assert_true(bppsa_view_same_shape(&p.chain->parameters[i].value, &p.model->parameters[i].value));
    p.weights[i] = array_of(dtype, bppsa_view_count(&p.model->parameters[i].value));
    memcpy(p.weights[i].view.data, p.model->parameters[i].value.data, bppsa_view_bytes(&p.model->parameters[i].value));
  }
  for (int64_t l = 0; l <= layers; ++l) {
    char name[32];
    (void)snprintf(name, sizeof name, "l%lld", (long long)l);
    assert_string_equal(p.chain->layer[l].name, l == layers ? "linear" : name);
  }
  for (int64_t l = 0; l <= layers + 1; ++l) {
    const int64_t count = samples * (l <= layers ? p.chain->layer[l].in : p.chain->layer[l - 1].out);
    p.values[l] = array_of(dtype, count);
    p.gradients[l] = array_of(dtype, count);
    if (l <= layers) {
      assert_true(l == 0 || p.chain->layer[l - 1].out == p.chain->layer[l].in);
      p.kept[l] = array_of(BPPSA_U8, samples * p.chain->layer[l].kept);
    }
  }
  fill(&p.values[0], 5);
  fill(&p.gradients[layers + 1], 6);
  bppsa_device_destroy(device);
  return p;
}

static void release(problem *p) {
  for (size_t i = 0; i < sizeof p->values / sizeof p->values[0]; ++i) {
    bppsa_buffer_free(&p->values[i]);
    bppsa_buffer_free(&p->gradients[i]);
  }
  for (size_t i = 0; i < sizeof p->kept / sizeof p->kept[0]; ++i) {
    bppsa_buffer_free(&p->kept[i]);
  }
  for (size_t i = 0; i < MOST; ++i) {
    bppsa_buffer_free(&p->weights[i]);
  }
  bppsa_chain_destroy(p->chain);
  bppsa_model_destroy(p->model);
}

static void weights_of(const problem *p, int64_t layer, void *arrays[PER_LAYER]) {
  for (int64_t i = 0; i < p->chain->layer[layer].parameters; ++i) {
    arrays[i] = p->weights[p->chain->layer[layer].first_parameter + i].view.data;
  }
}

/* Compares with the model's gradient of a parameter. */
static void assert_gradients(const problem *p, int64_t layer, const bppsa_buffer gradients[PER_LAYER]) {
  for (int64_t i = 0; i < p->chain->layer[layer].parameters; ++i) {
    const bppsa_view *expected = &p->model->parameters[p->chain->layer[layer].first_parameter + i].gradient;
    assert_memory_equal(gradients[i].view.data, expected->data, bppsa_view_bytes(expected));
  }
}

static void backward_layer(problem *p, int64_t layer, int64_t samples, bool together) {
  void *weights[PER_LAYER], *arrays[PER_LAYER];
  bppsa_buffer gradients[PER_LAYER] = {{.view = {0}}};
  const bppsa_chain_ops *ops = p->chain->ops;
  const void *dy = p->gradients[layer + 1].view.data, *x = p->values[layer].view.data, *y = p->values[layer + 1].view.data,
             *kept = p->kept[layer].view.data;
  void *dx = p->gradients[layer].view.data;
  weights_of(p, layer, weights);
  for (int64_t i = 0; i < p->chain->layer[layer].parameters; ++i) {
    gradients[i] =
        array_of(p->config.dtype, bppsa_view_count(&p->chain->parameters[p->chain->layer[layer].first_parameter + i].value));
    arrays[i] = gradients[i].view.data;
  }
  if (together) {
    assert_int_equal(ops->backward(p->chain, layer, samples, weights, dy, x, y, kept, arrays, dx), BPPSA_OK);
  } else {
    assert_int_equal(ops->input_gradient(p->chain, layer, samples, weights, dy, x, y, kept, dx), BPPSA_OK);
    assert_int_equal(ops->weight_gradient(p->chain, layer, samples, weights, dy, x, y, kept, arrays), BPPSA_OK);
  }
  assert_gradients(p, layer, gradients);
  for (int64_t i = 0; i < PER_LAYER; ++i) {
    bppsa_buffer_free(&gradients[i]);
  }
}

static void has_the_bits_of_the_model(const bppsa_cell *cell, int64_t layers, bool all, bppsa_nonlinearity nonlinearity,
                                      bppsa_dtype dtype, int64_t samples) {
  problem p = make(cell, layers, all, nonlinearity, dtype, samples);
  const int64_t shape[] = {T, samples, I}, out[] = {T, samples, C};
  bppsa_view logits, dx;
  const bppsa_view x = bppsa_view_make(p.values[0].view.data, dtype, 3, shape);
  const bppsa_view seed = bppsa_view_make(p.gradients[layers + 1].view.data, dtype, all ? 3 : 2, all ? out : out + 1);
  assert_int_equal(p.model->ops->forward(p.model, &x, NULL, &logits), BPPSA_OK);
  for (int64_t l = 0; l <= layers; ++l) {
    void *weights[PER_LAYER];
    weights_of(&p, l, weights);
    assert_int_equal(p.chain->ops->forward(p.chain, l, samples, weights, p.values[l].view.data, p.kept[l].view.data,
                                           p.values[l + 1].view.data),
                     BPPSA_OK);
  }
  assert_memory_equal(p.values[layers + 1].view.data, logits.data, bppsa_view_bytes(&logits));
  assert_int_equal(p.model->ops->backward(p.model, &seed), BPPSA_OK);
  assert_int_equal(p.model->ops->input_gradients(p.model, &dx, NULL), BPPSA_OK);
  for (int together = 0; together < 2; ++together) {
    for (int64_t l = layers; l >= 0; --l) {
      backward_layer(&p, l, samples, together == 1);
    }
    assert_memory_equal(p.gradients[0].view.data, dx.data, bppsa_view_bytes(&dx));
    fill(&p.gradients[0], 8);
  }
  release(&p);
}

static void chains_have_the_bits_of_models(void **state) {
  (void)state;
  for (int64_t layers = 1; layers <= LAYERS; ++layers) {
    for (int all = 0; all < 2; ++all) {
      for (int64_t samples = B - 1; samples <= B; ++samples) {
        has_the_bits_of_the_model(&bppsa_rnn_cell, layers, all == 1, BPPSA_NONLINEARITY_TANH, BPPSA_F32, samples);
        has_the_bits_of_the_model(&bppsa_rnn_cell, layers, all == 1, BPPSA_NONLINEARITY_RELU, BPPSA_F64, samples);
        has_the_bits_of_the_model(&bppsa_gru_cell, layers, all == 1, BPPSA_NONLINEARITY_TANH, BPPSA_F32, samples);
        has_the_bits_of_the_model(&bppsa_gru_cell, layers, all == 1, BPPSA_NONLINEARITY_TANH, BPPSA_F64, samples);
        has_the_bits_of_the_model(&bppsa_lstm_cell, layers, all == 1, BPPSA_NONLINEARITY_TANH, BPPSA_F32, samples);
        has_the_bits_of_the_model(&bppsa_lstm_cell, layers, all == 1, BPPSA_NONLINEARITY_TANH, BPPSA_F64, samples);
      }
    }
  }
}

static void wrong_requests_are_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_chain *chain = NULL;
  config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  assert_int_equal(bppsa_recurrent_chain_create(&config, &bppsa_gru_cell, device, &chain), BPPSA_ERR_UNSUPPORTED);
  assert_non_null(strstr(bppsa_last_error(), "chain: speculative forward passes on cpu, expected sequential"));
  config = bppsa_recurrent_config_default();
  config.layers = 0;
  assert_int_equal(bppsa_recurrent_chain_create(&config, &bppsa_gru_cell, device, &chain), BPPSA_ERR_ARGUMENT);
  assert_null(chain);
  bppsa_device_destroy(device);
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 0;
  config.seq_len = T;
  config.layers = 3;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_chain *chain = NULL;
    bppsa_alloc_fail_at(++call);
    status = bppsa_recurrent_chain_create(&config, &bppsa_gru_cell, device, &chain);
    bppsa_alloc_fail_at(0);
    bppsa_chain_destroy(chain);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(status, BPPSA_OK);
  assert_true(call > 50);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(chains_have_the_bits_of_models),
                                     cmocka_unit_test(wrong_requests_are_refused), cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
