/* Finds the first non-finite value of a pass, in the order in which it appeared: forward layer by layer and step by step, the logits,
 * then backward from the top layer and the last step down. Gradients of the hidden states share one buffer, so the
 * backward pass is run again, a layer at a time: this happens once, when training has failed. */
#include <math.h>

#include "recurrent/network_internal.h"

static bool finite_at(const recurrent_network *n, const void *base, int64_t i) {
  return n->config.dtype == BPPSA_F32 ? isfinite(((const float *)base)[i]) : isfinite(((const double *)base)[i]);
}

/* First non-finite value among steps from, from + by, .. to of an array [step][b][width]. */
static bool find_in(const recurrent_network *n, const void *base, int64_t width, int64_t from, int64_t to, int64_t by,
                    bppsa_nonfinite *where) {
  for (int64_t t = from; t != to + by; t += by) {
    for (int64_t i = 0; i < n->batch * width; ++i) {
      if (!finite_at(n, base, t * n->batch * width + i)) {
        where->step = t;
        where->sample = i / width;
        return true;
      }
    }
  }
  return false;
}

static bool find_forward(const recurrent_network *n, bppsa_nonfinite *where) {
  const bppsa_recurrent_config *c = &n->config;
  for (int64_t l = 0; l < c->layers; ++l) {
    if (find_in(n, n->layers[l].h, c->hidden, 0, c->seq_len, 1, where)) {
      where->what = "hidden state";
      where->layer = l;
      return true;
    }
  }
  if (find_in(n, n->logits, c->classes, 0, c->loss_all ? c->seq_len - 1 : 0, 1, where)) {
    where->what = "logits";
    where->step = c->loss_all ? where->step + 1 : c->seq_len;
    return true;
  }
  return false;
}

static bool find_backward(recurrent_network *n, bppsa_nonfinite *where) {
  const bppsa_recurrent_config *c = &n->config;
  bppsa_recurrent_seed(n);
  for (int64_t l = c->layers - 1; l >= 0; --l) {
    if (bppsa_recurrent_layer_backward(n, l) != BPPSA_OK) {
      return false;
    }
    if (find_in(n, n->g, c->hidden, c->seq_len, c->input_gradients ? 0 : 1, -1, where)) {
      where->what = "gradient of the hidden state";
      where->layer = l;
      return true;
    }
    if (l > 0) {
      bppsa_recurrent_pass_down(n, l);
    }
  }
  return false;
}

bool bppsa_recurrent_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  recurrent_network *n = (recurrent_network *)model;
  *where = (bppsa_nonfinite){.layer = -1, .step = -1, .sample = -1};
  if (n->batch == 0) {
    return false;
  }
  return find_forward(n, where) || (n->seed != NULL && find_backward(n, where)) ||
         bppsa_model_parameter_nonfinite(model, n->seed != NULL, where);
}
