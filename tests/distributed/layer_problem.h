/* A convolutional network with weights, samples and a seed, its tensors as one device computes them, and ranks that share its
 * layers and compare what they hold with them. */
#ifndef BPPSA_TESTS_DISTRIBUTED_LAYER_PROBLEM_H
#define BPPSA_TESTS_DISTRIBUTED_LAYER_PROBLEM_H

#include <math.h>
#include <string.h>

#include "cnn/chain.h"
#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "distributed/layers/layer_split.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

enum { LAYER_PARAMETERS = 64, LAYER_TENSORS = 64 };

typedef struct {
  const bppsa_cnn_network *network;
  bppsa_dtype dtype;
  int64_t batch;
  void *x, *parameters[LAYER_PARAMETERS];
  double *y[LAYER_TENSORS], *g[LAYER_TENSORS]; /* of each layer's input, and of the logits: [batch][..] */
  void *seed;
  double *gradients[LAYER_PARAMETERS];
  int64_t parameter_count, sizes[LAYER_PARAMETERS];
} layer_problem;

static inline double *as_doubles(bppsa_dtype dtype, void *array, int64_t count) {
  const bppsa_view view = bppsa_view_make(array, dtype, 1, &count);
  double *made = bppsa_calloc(count + 1, sizeof *made);
  for (int64_t i = 0; i < count; ++i) {
    made[i] = bppsa_view_get(&view, i);
  }
  return made;
}

/* An array of random numbers with room for a cache line behind it. */
static inline void *random_array(bppsa_dtype dtype, uint64_t seed, int64_t count, double scale) {
  double *values = uniform(seed, count, scale);
  void *made = rounded(dtype, values, count), *array = bppsa_calloc(count * 8 + BPPSA_ALIGNMENT, 1);
  memcpy(array, made, (size_t)count * bppsa_dtype_size(dtype));
  bppsa_free(values);
  bppsa_free(made);
  return array;
}

/* Runs the chain of layers on one device (cnn/chain.h), with the problem's own weights. */
static inline void layer_reference(layer_problem *p) {
  const int64_t count = p->network->count, b = p->batch;
  bppsa_device *device = cpu_device(1);
  bppsa_chain *chain = NULL;
  void *y[LAYER_TENSORS], *g[LAYER_TENSORS], *kept[LAYER_TENSORS], *gradients[LAYER_PARAMETERS];
  assert_true(count < LAYER_TENSORS);
  assert_int_equal(bppsa_cnn_chain_create(p->network, b, p->dtype, device, &chain), BPPSA_OK);
  p->parameter_count = chain->parameter_count;
  for (int64_t i = 0; i < chain->parameter_count; ++i) {
    const bppsa_view *shape = &chain->parameters[i].value;
    p->sizes[i] = bppsa_view_count(shape);
    const double inputs = (double)p->sizes[i] / (double)shape->shape[0];
    p->parameters[i] = random_array(p->dtype, 100 + (uint64_t)i, p->sizes[i], sqrt(3 / inputs));
    gradients[i] = bppsa_calloc(p->sizes[i] * 8 + BPPSA_ALIGNMENT, 1);
  }
  p->x = random_array(p->dtype, 7, b * bppsa_cnn_size(p->network, 0), 1);
  p->seed = random_array(p->dtype, 8, b * bppsa_cnn_size(p->network, count), 1);
  for (int64_t i = 0; i <= count; ++i) {
    const int64_t bytes = b * bppsa_cnn_size(p->network, i) * 8 + BPPSA_ALIGNMENT;
    y[i] = i == 0 ? p->x : bppsa_calloc(bytes, 1);
    g[i] = i == count ? p->seed : bppsa_calloc(bytes, 1);
    kept[i] = i < count ? bppsa_calloc(b * chain->layer[i].kept + 1, 1) : NULL;
  }
  for (int64_t i = 0; i < count; ++i) {
    assert_int_equal(chain->ops->forward(chain, i, b, p->parameters + chain->layer[i].first_parameter, y[i], kept[i], y[i + 1]),
                     BPPSA_OK);
  }
  for (int64_t i = count - 1; i >= 0; --i) {
    const int64_t first = chain->layer[i].first_parameter;
    if (chain->layer[i].parameters > 0) {
      assert_int_equal(
          chain->ops->weight_gradient(chain, i, b, p->parameters + first, g[i + 1], y[i], y[i + 1], kept[i], gradients + first),
          BPPSA_OK);
    }
    assert_int_equal(chain->ops->input_gradient(chain, i, b, p->parameters + first, g[i + 1], y[i], y[i + 1], kept[i], g[i]),
                     BPPSA_OK);
  }
  for (int64_t i = 0; i <= count; ++i) {
    p->y[i] = as_doubles(p->dtype, y[i], b * bppsa_cnn_size(p->network, i));
    p->g[i] = as_doubles(p->dtype, g[i], b * bppsa_cnn_size(p->network, i));
    bppsa_free(i > 0 ? y[i] : NULL);
    bppsa_free(i < count ? g[i] : NULL);
    bppsa_free(kept[i]);
  }
  for (int64_t i = 0; i < p->parameter_count; ++i) {
    p->gradients[i] = as_doubles(p->dtype, gradients[i], p->sizes[i]);
    bppsa_free(gradients[i]);
  }
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
}

static inline void layer_problem_free(layer_problem *p) {
  for (int64_t i = 0; i <= p->network->count; ++i) {
    bppsa_free(p->y[i]);
    bppsa_free(p->g[i]);
  }
  for (int64_t i = 0; i < p->parameter_count; ++i) {
    bppsa_free(p->gradients[i]);
    bppsa_free(p->parameters[i]);
  }
  bppsa_free(p->x);
  bppsa_free(p->seed);
}

/* ---- ranks ---- */

typedef struct {
  const layer_problem *problem;
  bppsa_layer_split_config config; /* strategy, reduction; the body sets the others */
  int64_t groups;
  double worst;                 /* of rank 0: the largest residual */
  bppsa_comm_counters counters; /* of rank 0: of one forward and backward pass */
  int64_t bytes[8];             /* of each rank: sent by messages, in that pass */
} layer_ranks;

static inline void keep_worst(layer_ranks *r, const bppsa_comm *world, double residual) {
  if (bppsa_comm_rank(world) == 0 && !(residual <= r->worst)) {
    r->worst = residual;
  }
}

/* Compares every tensor and every weight's gradient with those of one device. `first`, `count`: this group's samples. */
static inline bppsa_status compare_layers(bppsa_comm *world, layer_ranks *r, bppsa_model *model, int64_t first, int64_t count,
                                          void *buffer) {
  const layer_problem *p = r->problem;
  for (int64_t i = 0; i <= p->network->count; ++i) {
    const int64_t size = bppsa_cnn_size(p->network, i);
    for (int gradient = 0; gradient < 2 && count > 0; ++gradient) {
      const double *expected = (gradient ? p->g : p->y)[i] + first * size;
      CHECK(bppsa_layer_split_tensor(model, i, gradient == 1, buffer) == BPPSA_OK);
      const double found = residual(p->dtype, buffer, expected, count * size, 1);
      keep_worst(r, world, found);
      if (!(found < 30)) {
        return bppsa_fail(BPPSA_ERR_NUMERIC, "%s of the input of layer %d: residual %g", gradient ? "gradient" : "value", (int)i,
                          found);
      }
    }
  }
  double squares = 0, norm = 0;
  for (int64_t i = 0; i < p->parameter_count; ++i) {
    CHECK(bppsa_layer_split_collect(model, i, model->parameters[i].gradient.data, buffer) == BPPSA_OK);
    const double found = residual(p->dtype, buffer, p->gradients[i], p->sizes[i], 1);
    keep_worst(r, world, found);
    if (!(found < 30)) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "gradient of %s: residual %g", model->parameters[i].name, found);
    }
    for (int64_t k = 0; k < p->sizes[i]; ++k) {
      squares += p->gradients[i][k] * p->gradients[i][k];
    }
  }
  CHECK(bppsa_layer_split_norm(model, &norm) == BPPSA_OK);
  CHECK(fabs(norm - sqrt(squares)) <= 1e-5 * sqrt(squares));
  return BPPSA_OK;
}

static inline bppsa_status pass_layers(bppsa_comm *world, layer_ranks *r, bppsa_model *model, int64_t first, int64_t count) {
  const layer_problem *p = r->problem;
  const int64_t *in = p->network->in, x_shape[] = {count, in[0], in[1], in[2]}, seed_shape[] = {count, model->classes};
  const int64_t size = (int64_t)bppsa_dtype_size(p->dtype);
  const bppsa_view x = bppsa_view_make((char *)p->x + first * bppsa_cnn_size(p->network, 0) * size, p->dtype, 4, x_shape);
  const bppsa_view seed = bppsa_view_make((char *)p->seed + first * model->classes * size, p->dtype, 2, seed_shape);
  bppsa_view logits, dx;
  if (count == 0) {
    return bppsa_layer_split_skip(model);
  }
  bppsa_comm_reset_counters(world);
  BPPSA_TRY(model->ops->forward(model, &x, NULL, &logits));
  BPPSA_TRY(model->ops->backward(model, &seed));
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(world, &counters);
  r->bytes[bppsa_comm_rank(world)] = counters.bytes_sent;
  if (bppsa_comm_rank(world) == 0) {
    r->counters = counters;
  }
  CHECK(bppsa_view_same_shape(&logits, &seed));
  CHECK(model->ops->input_gradients(model, &dx, NULL) == BPPSA_OK && bppsa_view_same_shape(&dx, &x));
  bppsa_nonfinite where;
  CHECK(!model->ops->find_nonfinite(model, &where));
  return BPPSA_OK;
}

static inline bppsa_status layer_body(bppsa_comm *world, void *context) {
  layer_ranks *r = context;
  const layer_problem *p = r->problem;
  const int32_t rank = bppsa_comm_rank(world), size = bppsa_comm_size(world) / (int32_t)r->groups;
  const int64_t group = rank / size, first = bppsa_cut(p->batch, r->groups, group),
                count = bppsa_cut(p->batch, r->groups, group + 1) - first;
  bppsa_layer_split_config config = r->config;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  int64_t most = 1;
  for (int64_t i = 0; i <= p->network->count; ++i) {
    const int64_t values = p->batch * bppsa_cnn_size(p->network, i);
    most = values > most ? values : most;
  }
  for (int64_t i = 0; i < p->parameter_count; ++i) {
    most = p->sizes[i] > most ? p->sizes[i] : most;
  }
  BPPSA_TRY(bppsa_comm_split(world, (int32_t)group, rank, &config.group));
  bppsa_status status = bppsa_comm_split(world, rank % size, rank, &config.among);
  if (status != BPPSA_OK) {
    bppsa_comm_destroy(config.group);
    return status;
  }
  config.batch = (p->batch - 1) / r->groups + 1 + 1; /* one more than there is */
  config.dtype = p->dtype;
  config.input_gradients = true;
  config.tag = 100;
  void *buffer = bppsa_calloc(most, 8);
  status = buffer != NULL ? bppsa_device_create("cpu", 1, &device) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? bppsa_layer_split_create(p->network, &config, device, &model) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < p->parameter_count; ++i) {
    bppsa_layer_split_take(model, i, p->parameters[i], model->parameters[i].value.data);
  }
  for (int pass = 0; status == BPPSA_OK && pass < 2; ++pass) { /* the second one finds the arrays of the first */
    status = pass_layers(world, r, model, first, count);
  }
  status = status == BPPSA_OK ? compare_layers(world, r, model, first, count, buffer) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  bppsa_free(buffer);
  bppsa_comm_destroy(config.among);
  bppsa_comm_destroy(config.group);
  return status;
}

/* Computes the problem on so many ranks, in groups. */
static inline bppsa_status run_layers(int64_t ranks, int64_t groups, layer_ranks *r) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = ranks;
  r->groups = groups;
  r->worst = 0;
  return bppsa_comm_run(&config, layer_body, r, NULL);
}

#endif
