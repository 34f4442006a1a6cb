/* Finds the first non-finite value of a pass, in the order in which values appeared: forward layer by layer and step by step, then
 * the logits, then backward from the top layer and the last step. Gradients of the hidden states share one buffer, so the backward
 * pass is repeated layer by layer; this happens once, when training has failed. */
#include <math.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "recurrent/recurrent_internal.h"

/* The first value of a step [b][width] that is not finite; a GPU's step is copied to `copy`. -1: none, or it cannot be copied. */
static int64_t find_in_step(const recurrent_network *n, const void *step, int64_t count, void *copy) {
  const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype);
  if (copy != NULL && bppsa_memory_get(n->base.device, copy, step, count * size) != BPPSA_OK) {
    return -1;
  }
  const void *values = copy != NULL ? copy : step;
  for (int64_t i = 0; i < count; ++i) {
    if (!(n->config.dtype == BPPSA_F32 ? isfinite(((const float *)values)[i]) : isfinite(((const double *)values)[i]))) {
      return i;
    }
  }
  return -1;
}

/* Finds the first non-finite value among steps from, from + by, .. to of an array [step][b][width]. */
static bool find_in(const recurrent_network *n, const void *base, int64_t width, int64_t from, int64_t to, int64_t by,
                    bppsa_nonfinite *where) {
  const int64_t count = n->batch * width, size = (int64_t)bppsa_dtype_size(n->config.dtype);
  void *copy = n->gpu != NULL ? bppsa_calloc(count, (size_t)size) : NULL;
  int64_t found = -1;
  for (int64_t t = from; found < 0 && t != to + by && (copy != NULL || n->gpu == NULL); t += by) {
    found = find_in_step(n, (const char *)base + t * count * size, count, copy);
    if (found >= 0) {
      where->step = t;
      where->sample = found / width;
    }
  }
  bppsa_free(copy);
  return found >= 0;
}

/* Finds the first packed state that is not finite, in the steps up to `last`. */
static bool find_packed(const recurrent_network *n, const void *states, int64_t last, bppsa_nonfinite *where) {
  const int64_t rows = n->batch + n->ragged.rows, width = n->config.hidden, found = find_in_step(n, states, rows * width, NULL);
  if (found < 0) {
    return false;
  }
  const int64_t row = found / width - n->batch;
  int64_t step = 0, sample = 0;
  if (row < 0) {
    sample = bppsa_ragged_sample(n, found / width);
  } else {
    bppsa_ragged_find(n, row, &step, &sample);
  }
  if (step > last) {
    return false;
  }
  where->step = step;
  where->sample = sample;
  return true;
}

/* Says that a state of layer l, or its gradient, is not finite, by its step in the order of time. */
static void name_layer(const recurrent_network *n, int64_t l, const char *what, const char *of_reverse, bppsa_nonfinite *where) {
  const bool reverse = n->config.bidirectional && l % 2 == 1;
  where->what = reverse ? of_reverse : what;
  where->layer = bppsa_recurrent_level(n, l);
  if (reverse && where->step > 0) {
    where->step = bppsa_ragged_length(n, where->sample) + 1 - where->step;
  }
}

/* c may be infinite where h is not. */
bool bppsa_recurrent_find_state(const recurrent_network *n, int64_t l, bppsa_nonfinite *where) {
  const recurrent_layer *layer = &n->layers[l];
  const struct {
    const void *states;
    const char *what, *of_reverse;
  } arrays[] = {{layer->h, "hidden state", "reverse hidden state"}, {layer->c, "cell state", "reverse cell state"}};
  int64_t last = n->config.seq_len, found = -1;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].states != NULL &&
        (bppsa_ragged_packed(n) ? find_packed(n, arrays[i].states, last, where)
                                : find_in(n, arrays[i].states, n->config.hidden, 0, last, 1, where))) {
      last = where->step - 1;
      found = (int64_t)i;
    }
  }
  if (found >= 0) {
    name_layer(n, l, arrays[found].what, arrays[found].of_reverse, where);
  }
  return found >= 0;
}

bool bppsa_recurrent_forward_nonfinite(const bppsa_model *model, bppsa_nonfinite *where) {
  const recurrent_network *n = (const recurrent_network *)model;
  const bppsa_recurrent_config *c = &n->config;
  *where = (bppsa_nonfinite){.layer = -1, .step = -1, .sample = -1};
  if (n->batch == 0) {
    return false;
  }
  if (c->recompute > 0 && bppsa_recompute_find_nonfinite((recurrent_network *)(uintptr_t)n, where)) {
    return true;
  }
  for (int64_t l = 0; c->recompute == 0 && l < bppsa_recurrent_layers(c); ++l) {
    if (bppsa_recurrent_find_state(n, l, where)) {
      return true;
    }
  }
  if (n->has_logits && find_in(n, n->logits, c->classes, 0, c->loss_all ? c->seq_len - 1 : 0, 1, where)) {
    where->what = "logits";
    where->step = c->loss_all ? where->step + 1 : bppsa_ragged_length(n, where->sample);
    return true;
  }
  return false;
}

static bool find_backward(recurrent_network *n, bppsa_nonfinite *where) {
  const bppsa_recurrent_config *c = &n->config;
  if (bppsa_recurrent_seed(n) != BPPSA_OK) {
    return false;
  }
  for (int64_t l = bppsa_recurrent_layers(c) - 1; l >= 0; --l) {
    if (n->backend->layer_backward(n, l) != BPPSA_OK) {
      return false;
    }
    if (bppsa_ragged_packed(n) && n->layers[l].scan == NULL) {
      bppsa_ragged_spread(n, bppsa_recurrent_state_size(n), n->g);
    }
    if (find_in(n, n->g, bppsa_recurrent_state_size(n), c->seq_len, c->input_gradients ? 0 : 1, -1, where)) {
      where->sample = bppsa_ragged_sample(n, where->sample);
      name_layer(n, l, "gradient of the hidden state", "gradient of the reverse hidden state", where);
      return true;
    }
    if (l > 0 && n->backend->pass_down(n, l) != BPPSA_OK) {
      return false;
    }
  }
  return false;
}

bool bppsa_recurrent_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  recurrent_network *n = (recurrent_network *)model;
  if (bppsa_recurrent_forward_nonfinite(model, where)) {
    return true;
  }
  if (n->batch == 0) {
    return false;
  }
  return (n->seed != NULL && n->config.recompute == 0 && find_backward(n, where)) ||
         (bppsa_model_pull(model, n->seed != NULL) == BPPSA_OK && bppsa_model_parameter_nonfinite(model, n->seed != NULL, where));
}
