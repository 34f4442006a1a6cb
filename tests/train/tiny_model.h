/* A network for the tests of the training loop: softmax regression, on the mean of x over time or on every step.
 *
 *     logits[b,:] = W mean_t x[t,b,:] + bias      or      logits[t,b,:] = W x[t,b,:] + bias
 *
 * It can put a NaN into its forward or backward passes from the k-th on, at step 3, sample 1. If tiny_device is a GPU the model
 * is on it (tests/support/tiny_cuda.cu).
 */
#ifndef BPPSA_TESTS_TRAIN_TINY_MODEL_H
#define BPPSA_TESTS_TRAIN_TINY_MODEL_H

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "core/compute/model.h"
#include "tests/support/tiny_gpu.h"

enum { TINY_VALUES, TINY_GRADIENTS, TINY_FEATURES, TINY_LOGITS, TINY_BUFFERS, TINY_GAP = 3 };

static const bppsa_device *tiny_device; /* where models are made; NULL or a CPU: in host memory */

typedef struct {
  bppsa_model base;
  bppsa_parameter parameters[2];
  /* weight [C,I], a gap, bias [C]; their gradients; features [rows,I], logits [rows,C]; on the model's device */
  bppsa_buffer buffers[TINY_BUFFERS];
  bool per_step;
  int64_t steps, input, capacity;
  int64_t rows;  /* in the latest forward pass */
  int64_t batch; /* likewise */
  int forwards, backwards;
  int poison_forward, poison_backward; /* the first pass with NaNs; 0: none. Set it before the first pass */
  /* added to the gradient of every weight by every backward pass; set it before the first pass */
  double explode;
  bool poisoned;
  tiny_gpu gpu; /* .state NULL: not yet made */
} tiny_model;

/* ---- on a GPU ---- */

static bppsa_status tiny_state_push(tiny_model *m) {
  const tiny_state state = {0, 0, m->poison_forward, m->poison_backward, m->explode};
  void *there = NULL;
  if (m->gpu.state == NULL) {
    BPPSA_TRY(bppsa_memory_alloc(m->base.device, sizeof state, &there));
    m->gpu.state = there;
    BPPSA_TRY(bppsa_memory_put(m->base.device, there, &state, sizeof state));
  }
  return BPPSA_OK;
}

static bppsa_status tiny_forward_gpu(tiny_model *m, const bppsa_view *x) {
  BPPSA_TRY(tiny_state_push(m));
  m->gpu.steps = m->steps;
  m->gpu.batch = m->batch;
  m->gpu.input = m->input;
  m->gpu.classes = m->base.classes;
  m->gpu.bias_at = m->base.classes * m->input + TINY_GAP;
  m->gpu.per_step = m->per_step;
  m->gpu.x = x->data;
  m->gpu.values = m->base.device_values;
  m->gpu.gradients = m->base.device_gradients;
  m->gpu.features = m->buffers[TINY_FEATURES].view.data;
  m->gpu.logits = m->buffers[TINY_LOGITS].view.data;
  return tiny_gpu_forward(m->base.device, m->base.dtype, &m->gpu);
}

static bool tiny_find_nonfinite_gpu(const tiny_model *m, bool *gradient) {
  tiny_state s = {0};
  if (bppsa_memory_get(m->base.device, &s, m->gpu.state, sizeof s) != BPPSA_OK) {
    return false;
  }
  *gradient = s.poison_backward > 0 && s.backwards >= s.poison_backward;
  return *gradient || (s.poison_forward > 0 && s.forwards >= s.poison_forward);
}

/* ---- anywhere ---- */

static bppsa_status tiny_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  tiny_model *m = (tiny_model *)model;
  (void)h0;
  m->batch = x->shape[1];
  m->rows = m->per_step ? m->steps * m->batch : m->batch;
  if (x->ndim != 3 || x->shape[0] != m->steps || m->batch > m->capacity || x->shape[2] != m->input) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "tiny model: wrong input");
  }
  bppsa_view *features = &m->buffers[TINY_FEATURES].view, *out = &m->buffers[TINY_LOGITS].view;
  const int64_t shape[3] = {m->steps, m->batch, model->classes};
  *logits = bppsa_view_make(out->data, model->dtype, m->per_step ? 3 : 2, m->per_step ? shape : shape + 1);
  logits->device = out->device;
  if (model->device != NULL) {
    return tiny_forward_gpu(m, x);
  }
  memset(features->data, 0, bppsa_view_bytes(features));
  for (int64_t t = 0; t < m->steps; ++t) {
    for (int64_t i = 0; i < m->batch * m->input; ++i) {
      const double value = bppsa_view_get(x, t * m->batch * m->input + i);
      const int64_t at = m->per_step ? t * m->batch * m->input + i : i;
      const double share = m->per_step ? value : value / (double)m->steps;
      bppsa_view_set(features, at, bppsa_view_get(features, at) + share);
    }
  }
  m->forwards += 1;
  m->poisoned = m->poison_forward > 0 && m->forwards >= m->poison_forward;
  for (int64_t r = 0; r < m->rows; ++r) {
    for (int64_t c = 0; c < model->classes; ++c) {
      double sum = bppsa_view_get(&m->parameters[1].value, c);
      for (int64_t i = 0; i < m->input; ++i) {
        sum += bppsa_view_get(&m->parameters[0].value, c * m->input + i) * bppsa_view_get(features, r * m->input + i);
      }
      bppsa_view_set(out, r * model->classes + c, m->poisoned && r == 1 ? (double)NAN : sum);
    }
  }
  return BPPSA_OK;
}

static bppsa_status tiny_backward(bppsa_model *model, const bppsa_view *seed) {
  tiny_model *m = (tiny_model *)model;
  const bppsa_view *features = &m->buffers[TINY_FEATURES].view;
  if (model->device != NULL) {
    m->gpu.seed = seed->data;
    return tiny_gpu_backward(model->device, model->dtype, &m->gpu);
  }
  for (int64_t c = 0; c < model->classes; ++c) {
    double bias = 0.0;
    for (int64_t r = 0; r < m->rows; ++r) {
      bias += bppsa_view_get(seed, r * model->classes + c);
    }
    bppsa_view_set(&m->parameters[1].gradient, c, bias);
    for (int64_t i = 0; i < m->input; ++i) {
      double sum = m->explode;
      for (int64_t r = 0; r < m->rows; ++r) {
        sum += bppsa_view_get(seed, r * model->classes + c) * bppsa_view_get(features, r * m->input + i);
      }
      bppsa_view_set(&m->parameters[0].gradient, c * m->input + i, sum);
    }
  }
  m->backwards += 1;
  m->poisoned = m->poison_backward > 0 && m->backwards >= m->poison_backward;
  if (m->poisoned) {
    bppsa_view_set(&m->parameters[0].gradient, 0, (double)NAN);
  }
  return BPPSA_OK;
}

static bool tiny_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  const tiny_model *m = (const tiny_model *)model;
  bool gradient = m->backwards > 0 && m->poison_backward > 0 && m->backwards >= m->poison_backward, found = m->poisoned;
  if (model->device != NULL) {
    found = tiny_find_nonfinite_gpu(m, &gradient);
  }
  if (found) {
    *where = (bppsa_nonfinite){gradient ? "gradient of the hidden state" : "hidden state", NULL, 0, 3, 1};
  }
  return found;
}

static void tiny_destroy(bppsa_model *model) {
  tiny_model *m = (tiny_model *)model;
  bppsa_memory_free(model->device, model->device_values);
  bppsa_memory_free(model->device, model->device_gradients);
  bppsa_memory_free(model->device, m->gpu.state);
  for (int i = 0; i < TINY_BUFFERS; ++i) {
    bppsa_buffer_free(&m->buffers[i]);
  }
  bppsa_free(m);
}

static const bppsa_model_ops tiny_ops = {.name = "tiny",
                                         .forward = tiny_forward,
                                         .backward = tiny_backward,
                                         .find_nonfinite = tiny_find_nonfinite,
                                         .destroy = tiny_destroy};

static bppsa_status tiny_allocate(tiny_model *m) {
  const bool gpu = tiny_device != NULL && bppsa_device_get_kind(tiny_device) == BPPSA_CUDA;
  const bppsa_device *device = gpu ? tiny_device : NULL;
  const int64_t classes = m->base.classes, rows = m->per_step ? m->steps * m->capacity : m->capacity,
                reals = classes * m->input + TINY_GAP + classes,
                sizes[TINY_BUFFERS] = {reals, reals, rows * m->input, rows * classes};
  for (int i = 0; i < TINY_BUFFERS; ++i) {
    BPPSA_TRY(bppsa_buffer_create(i >= TINY_FEATURES ? device : NULL, m->base.dtype, 1, &sizes[i], &m->buffers[i]));
  }
  if (gpu) {
    const int64_t bytes = reals * (int64_t)bppsa_dtype_size(m->base.dtype);
    m->base.device = device;
    m->base.reals = reals;
    BPPSA_TRY(bppsa_memory_alloc(device, bytes, &m->base.device_values));
    BPPSA_TRY(bppsa_memory_alloc(device, bytes, &m->base.device_gradients));
    return bppsa_memory_clear(device, m->base.device_gradients, bytes);
  }
  return BPPSA_OK;
}

/* Weights are small and fixed. NULL when out of memory. */
static tiny_model *tiny_create(bppsa_dtype dtype, int64_t steps, int64_t input, int64_t classes, int64_t capacity,
                               bool per_step) {
  tiny_model *m = bppsa_calloc(1, sizeof *m);
  if (m == NULL) {
    return NULL;
  }
  const int64_t shape[2] = {classes, input}, bias = (classes * input + TINY_GAP) * (int64_t)bppsa_dtype_size(dtype);
  m->base =
      (bppsa_model){.ops = &tiny_ops, .dtype = dtype, .parameter_count = 2, .parameters = m->parameters, .classes = classes};
  m->per_step = per_step;
  m->steps = steps;
  m->input = input;
  m->capacity = capacity;
  if (tiny_allocate(m) != BPPSA_OK) {
    tiny_destroy(&m->base);
    return NULL;
  }
  char *values = m->buffers[TINY_VALUES].view.data, *gradients = m->buffers[TINY_GRADIENTS].view.data;
  m->parameters[0] = (bppsa_parameter){"linear.weight", bppsa_view_make(values, dtype, 2, shape),
                                       bppsa_view_make(gradients, dtype, 2, shape), false};
  m->parameters[1] = (bppsa_parameter){"linear.bias", bppsa_view_make(values + bias, dtype, 1, &classes),
                                       bppsa_view_make(gradients + bias, dtype, 1, &classes), false};
  for (int64_t i = 0; i < classes * input; ++i) {
    bppsa_view_set(&m->parameters[0].value, i, 0.125 * (double)(i % 5) - 0.25);
  }
  if (bppsa_model_push(&m->base) != BPPSA_OK) {
    tiny_destroy(&m->base);
    return NULL;
  }
  return m;
}

#endif
