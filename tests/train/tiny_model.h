/* A network for the tests of the training loop: softmax regression, on the mean of x over time or on every step.
 *
 *     logits[b,:] = W mean_t x[t,b,:] + bias      or      logits[t,b,:] = W x[t,b,:] + bias
 *
 * It can put a NaN into its k-th forward or backward pass, at step 3, sample 1.
 */
#ifndef BPPSA_TESTS_TRAIN_TINY_MODEL_H
#define BPPSA_TESTS_TRAIN_TINY_MODEL_H

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/model.h"

typedef struct {
  bppsa_model base;
  bppsa_parameter parameters[2];
  bppsa_buffer buffers[6]; /* weight [C,I], its gradient, bias [C], its gradient, features [rows,I], logits [rows,C] */
  bool per_step;
  int64_t steps, input, capacity;
  int64_t rows;  /* of the latest forward pass */
  int64_t batch; /* likewise */
  int forwards, backwards;
  int poison_forward, poison_backward; /* the pass that gets a NaN; 0: none */
  double explode;                      /* added to every weight's gradient by every backward pass */
  bool poisoned;
} tiny_model;

static bppsa_status tiny_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  tiny_model *m = (tiny_model *)model;
  (void)h0;
  m->batch = x->shape[1];
  m->rows = m->per_step ? m->steps * m->batch : m->batch;
  if (x->ndim != 3 || x->shape[0] != m->steps || m->batch > m->capacity || x->shape[2] != m->input) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "tiny model: wrong input");
  }
  bppsa_view *features = &m->buffers[4].view, *out = &m->buffers[5].view;
  memset(features->data, 0, bppsa_view_bytes(features));
  for (int64_t t = 0; t < m->steps; ++t) {
    for (int64_t i = 0; i < m->batch * m->input; ++i) {
      const double value = bppsa_view_get(x, t * m->batch * m->input + i);
      const int64_t at = m->per_step ? t * m->batch * m->input + i : i;
      const double share = m->per_step ? value : value / (double)m->steps;
      bppsa_view_set(features, at, bppsa_view_get(features, at) + share);
    }
  }
  m->poisoned = ++m->forwards == m->poison_forward;
  for (int64_t r = 0; r < m->rows; ++r) {
    for (int64_t c = 0; c < model->classes; ++c) {
      double sum = bppsa_view_get(&m->parameters[1].value, c);
      for (int64_t i = 0; i < m->input; ++i) {
        sum += bppsa_view_get(&m->parameters[0].value, c * m->input + i) * bppsa_view_get(features, r * m->input + i);
      }
      bppsa_view_set(out, r * model->classes + c, m->poisoned && r == 1 ? (double)NAN : sum);
    }
  }
  const int64_t shape[3] = {m->steps, m->batch, model->classes};
  *logits = bppsa_view_make(out->data, model->dtype, m->per_step ? 3 : 2, m->per_step ? shape : shape + 1);
  return BPPSA_OK;
}

static bppsa_status tiny_backward(bppsa_model *model, const bppsa_view *seed) {
  tiny_model *m = (tiny_model *)model;
  const bppsa_view *features = &m->buffers[4].view;
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
  m->poisoned = ++m->backwards == m->poison_backward;
  if (m->poisoned) {
    bppsa_view_set(&m->parameters[0].gradient, 0, (double)NAN);
  }
  return BPPSA_OK;
}

static bool tiny_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  const tiny_model *m = (const tiny_model *)model;
  if (m->poisoned) {
    const bool gradient = m->backwards > 0 && m->backwards == m->poison_backward;
    *where = (bppsa_nonfinite){gradient ? "gradient of the hidden state" : "hidden state", NULL, 0, 3, 1};
  }
  return m->poisoned;
}

static void tiny_destroy(bppsa_model *model) {
  tiny_model *m = (tiny_model *)model;
  for (int i = 0; i < 6; ++i) {
    bppsa_buffer_free(&m->buffers[i]);
  }
  bppsa_free(m);
}

static const bppsa_model_ops tiny_ops = {.name = "tiny",
                                         .forward = tiny_forward,
                                         .backward = tiny_backward,
                                         .find_nonfinite = tiny_find_nonfinite,
                                         .destroy = tiny_destroy};

/* Weights are small and fixed. NULL when out of memory. */
static tiny_model *tiny_create(bppsa_dtype dtype, int64_t steps, int64_t input, int64_t classes, int64_t capacity,
                               bool per_step) {
  tiny_model *m = bppsa_calloc(1, sizeof *m);
  if (m == NULL) {
    return NULL;
  }
  const int64_t rows = per_step ? steps * capacity : capacity;
  const int64_t shapes[6][2] = {{classes, input}, {classes, input}, {classes, 1}, {classes, 1}, {rows, input}, {rows, classes}};
  m->base =
      (bppsa_model){.ops = &tiny_ops, .dtype = dtype, .parameter_count = 2, .parameters = m->parameters, .classes = classes};
  m->per_step = per_step;
  m->steps = steps;
  m->input = input;
  m->capacity = capacity;
  for (int i = 0; i < 6; ++i) {
    if (bppsa_buffer_create(NULL, dtype, i == 2 || i == 3 ? 1 : 2, shapes[i], &m->buffers[i]) != BPPSA_OK) {
      tiny_destroy(&m->base);
      return NULL;
    }
  }
  m->parameters[0] = (bppsa_parameter){"linear.weight", m->buffers[0].view, m->buffers[1].view};
  m->parameters[1] = (bppsa_parameter){"linear.bias", m->buffers[2].view, m->buffers[3].view};
  for (int64_t i = 0; i < classes * input; ++i) {
    bppsa_view_set(&m->parameters[0].value, i, 0.125 * (double)(i % 5) - 0.25);
  }
  return m;
}

#endif
