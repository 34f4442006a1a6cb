/* Convolutional networks as chains, on the test's device: logits and all gradients of the model, bit for bit, from arrays of the
 * caller, also with other weights than the latest pass saw. */
#include <string.h>

#include "cnn/chain.h"
#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "tests/cnn/chains.h"

enum { BATCH = 3, MOST_LAYERS = 12, MOST_PARAMETERS = 2 * MOST_LAYERS };

typedef struct {
  bppsa_device *device;
  bppsa_cnn_network network;
  bppsa_dtype dtype;
  int64_t samples;
  bppsa_model *model;
  bppsa_chain *chain;
  /* in the device's memory: in front of each layer and behind the last, and their gradients; what layers keep; parameters */
  void *values[MOST_LAYERS + 1], *gradients[MOST_LAYERS + 1], *kept[MOST_LAYERS], *weights[MOST_PARAMETERS],
      *weight_gradients[MOST_PARAMETERS];
} problem;

static const bppsa_device *memory_of(const problem *p) {
  return p->chain->device;
}

static int64_t size_of(const problem *p) {
  return (int64_t)bppsa_dtype_size(p->dtype);
}

/* Values behind layer l - 1 of all samples, in bytes. */
static int64_t bytes_at(const problem *p, int64_t l) {
  return p->samples * bppsa_cnn_size(&p->network, l) * size_of(p);
}

static void *array_of(const problem *p, int64_t bytes) {
  void *made = NULL;
  assert_int_equal(bppsa_memory_alloc(memory_of(p), bytes + BPPSA_ALIGNMENT, &made), BPPSA_OK);
  assert_int_equal(bppsa_memory_clear(memory_of(p), made, bytes + BPPSA_ALIGNMENT), BPPSA_OK);
  return made;
}

static void fill(const problem *p, void *array, int64_t count, uint64_t seed) {
  double *numbers = uniform(seed, count, 1);
  void *values = rounded(p->dtype, numbers, count);
  assert_int_equal(bppsa_memory_put(memory_of(p), array, values, count * size_of(p)), BPPSA_OK);
  bppsa_free(values);
  bppsa_free(numbers);
}

static void make_arrays(problem *p) {
  const int64_t layers = p->chain->layers;
  for (int64_t l = 0; l <= layers; ++l) {
    p->values[l] = array_of(p, bytes_at(p, l));
    p->gradients[l] = array_of(p, bytes_at(p, l));
    if (l < layers) {
      p->kept[l] = array_of(p, p->samples * p->chain->layer[l].kept);
    }
  }
  fill(p, p->values[0], bytes_at(p, 0) / size_of(p), 5);
  fill(p, p->gradients[layers], bytes_at(p, layers) / size_of(p), 6);
  for (int64_t i = 0; i < p->chain->parameter_count; ++i) {
    const bppsa_view *value = &p->model->parameters[i].value;
    assert_true(bppsa_view_same_shape(&p->chain->parameters[i].value, value));
    assert_string_equal(p->chain->parameters[i].name, p->model->parameters[i].name);
    p->weights[i] = array_of(p, (int64_t)bppsa_view_bytes(value));
    p->weight_gradients[i] = array_of(p, (int64_t)bppsa_view_bytes(value));
    assert_int_equal(bppsa_memory_put(memory_of(p), p->weights[i], value->data, (int64_t)bppsa_view_bytes(value)), BPPSA_OK);
  }
}

static problem make(bppsa_cnn_network network, bppsa_device *device, bppsa_dtype dtype, int64_t samples) {
  problem p = {.device = device, .network = network, .dtype = dtype, .samples = samples};
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = BATCH;
  config.dtype = dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  config.input_gradients = true;
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &p.model), BPPSA_OK);
  assert_int_equal(bppsa_cnn_init(p.model, 3), BPPSA_OK);
  assert_int_equal(bppsa_cnn_chain_create(&network, BATCH, dtype, device, &p.chain), BPPSA_OK);
  assert_int_equal(p.chain->layers, network.count);
  assert_int_equal(p.chain->parameter_count, p.model->parameter_count);
  make_arrays(&p);
  return p;
}

static void release(problem *p) {
  void **const lists[] = {p->values, p->gradients, p->kept, p->weights, p->weight_gradients};
  const int64_t counts[] = {p->chain->layers + 1, p->chain->layers + 1, p->chain->layers, p->chain->parameter_count,
                            p->chain->parameter_count};
  for (int i = 0; i < 5; ++i) {
    for (int64_t k = 0; k < counts[i]; ++k) {
      bppsa_memory_free(memory_of(p), lists[i][k]);
    }
  }
  bppsa_chain_destroy(p->chain);
  bppsa_model_destroy(p->model);
  bppsa_cnn_network_free(&p->network);
}

static void assert_bits(const problem *p, const void *array, const void *expected, int64_t bytes) {
  void *a = bppsa_calloc(bytes + 1, 1), *b = bppsa_calloc(bytes + 1, 1);
  assert_int_equal(bppsa_memory_get(memory_of(p), a, array, bytes), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(memory_of(p), b, expected, bytes), BPPSA_OK);
  assert_memory_equal(a, b, (size_t)bytes);
  bppsa_free(a);
  bppsa_free(b);
}

static bppsa_status run_chain(const problem *p, void *const *weights) {
  bppsa_chain *c = p->chain;
  const int64_t b = p->samples;
  for (int64_t l = 0; l < c->layers; ++l) {
    BPPSA_TRY(c->ops->forward(c, l, b, weights + c->layer[l].first_parameter, p->values[l], p->kept[l], p->values[l + 1]));
  }
  for (int64_t l = c->layers - 1; l >= 0; --l) {
    const int64_t first = c->layer[l].first_parameter;
    const void *dy = p->gradients[l + 1], *x = p->values[l], *y = p->values[l + 1];
    BPPSA_TRY(c->ops->input_gradient(c, l, b, weights + first, dy, x, y, p->kept[l], p->gradients[l]));
    if (c->layer[l].parameters > 0) {
      BPPSA_TRY(c->ops->weight_gradient(c, l, b, weights + first, dy, x, y, p->kept[l], p->weight_gradients + first));
    }
  }
  return BPPSA_OK;
}

static void has_the_bits_of_the_model(problem *p) {
  const int64_t *in = p->network.in, out[] = {p->samples, p->model->classes};
  bppsa_view x = bppsa_view_make(p->values[0], p->dtype, 4, (int64_t[]){p->samples, in[0], in[1], in[2]}), logits, dx;
  bppsa_view seed = bppsa_view_make(p->gradients[p->chain->layers], p->dtype, 2, out);
  void *others[MOST_PARAMETERS];
  x.device = seed.device = bppsa_device_get_kind(p->device);
  for (int64_t i = 0; i < p->chain->parameter_count; ++i) { /* of which nothing may be left */
    const int64_t count = bppsa_view_count(&p->chain->parameters[i].value);
    others[i] = array_of(p, count * size_of(p));
    fill(p, others[i], count, 9 + (uint64_t)i);
  }
  assert_int_equal(run_chain(p, others), BPPSA_OK);
  assert_int_equal(run_chain(p, p->weights), BPPSA_OK);
  assert_int_equal(p->model->ops->forward(p->model, &x, NULL, &logits), BPPSA_OK);
  assert_int_equal(p->model->ops->backward(p->model, &seed), BPPSA_OK);
  assert_int_equal(p->model->ops->input_gradients(p->model, &dx, NULL), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(p->model, true), BPPSA_OK);
  assert_bits(p, p->values[p->chain->layers], logits.data, bytes_at(p, p->chain->layers));
  assert_bits(p, p->gradients[0], dx.data, bytes_at(p, 0));
  for (int64_t i = 0; i < p->chain->parameter_count; ++i) {
    const bppsa_view *expected = &p->model->parameters[i].gradient;
    void *found = bppsa_calloc((int64_t)bppsa_view_bytes(expected) + 1, 1);
    assert_int_equal(bppsa_memory_get(memory_of(p), found, p->weight_gradients[i], (int64_t)bppsa_view_bytes(expected)),
                     BPPSA_OK);
    assert_memory_equal(found, expected->data, bppsa_view_bytes(expected));
    bppsa_free(found);
    bppsa_memory_free(memory_of(p), others[i]);
  }
}

static void test_bits(void **state) {
  (void)state;
  uint64_t counter = 3;
  chain_plain = true;
  bppsa_device *device = test_device(2);
  const int networks = is_emulated(device) ? 8 : 40;
  for (int i = 0; i < networks; ++i) {
    problem p = make(chain_network(&counter), device, i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, BATCH - i % 3);
    has_the_bits_of_the_model(&p);
    release(&p);
  }
  bppsa_device_destroy(device);
}

/* Every allocation fails once: a clear error, and nothing is left. */
static void test_memory(void **state) {
  (void)state;
  uint64_t counter = 3;
  chain_plain = true;
  bppsa_device *device = test_device(1);
  bppsa_cnn_network network = chain_network(&counter);
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t at = 1; status != BPPSA_OK; ++at) {
    const int64_t live = bppsa_alloc_live();
    bppsa_chain *chain = NULL;
    bppsa_alloc_fail_at(at);
    status = bppsa_cnn_chain_create(&network, BATCH, BPPSA_F32, device, &chain);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    bppsa_chain_destroy(chain);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

static void test_refused(void **state) {
  (void)state;
  uint64_t counter = 3;
  chain_plain = true;
  bppsa_device *device = test_device(1);
  bppsa_cnn_network network = chain_network(&counter);
  bppsa_chain *chain = NULL;
  assert_int_equal(bppsa_cnn_chain_create(&network, 0, BPPSA_F32, device, &chain), BPPSA_ERR_ARGUMENT);
  assert_message("batch is 0, expected 1 .. 2147483647");
  const bppsa_cnn_network empty = {0};
  assert_int_equal(bppsa_cnn_chain_create(&empty, 1, BPPSA_F32, device, &chain), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "network: no linear operator at its end, expected one");
  assert_int_equal(bppsa_cnn_chain_create(&network, 1, BPPSA_I64, device, &chain), BPPSA_ERR_UNSUPPORTED);
  assert_message("chain: dtype i64, expected f32 or f64");
  assert_null(chain);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_memory), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
