/* Initial parameters, and the architecture found in a file of weights. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "recurrent/recurrent_internal.h"

/* Returns the stream of a parameter's random numbers: that of a network with biases and no reset state, so that weights are the
 * same without the ones, or with the other. */
static uint64_t stream_of(const recurrent_network *n, int64_t parameter, bool normal) {
  const int64_t own = bppsa_recurrent_first_parameter(&n->config), head = bppsa_recurrent_parameters(&n->config, false) - own,
                of_layer = bppsa_recurrent_layer_parameters(&n->config);
  parameter -= own;
  parameter += (MOST_PARAMETERS - of_layer) * (parameter < head ? parameter / of_layer : bppsa_recurrent_layers(&n->config));
  return (uint64_t)BPPSA_STREAM_WEIGHTS + ((uint64_t)parameter << 8) + ((uint64_t)normal << 48);
}

/* Standard normal numbers by the Box-Muller method. */
static double normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double two_pi = 6.283185307179586476925286766559;
  const double u = 1 - bppsa_random_double(seed, stream, index & ~(uint64_t)1); /* in (0, 1] */
  const double angle = two_pi * bppsa_random_double(seed, stream, index | 1);
  return sqrt(-2 * log(u)) * ((index & 1) == 0 ? cos(angle) : sin(angle));
}

/* Makes the rows of q [h][h] orthonormal by Gram-Schmidt; each row is projected twice, which keeps the loss of orthogonality at
 * the level of rounding. */
static void orthogonalise(int64_t h, double *q) {
  for (int64_t i = 0; i < h; ++i) {
    double *row = q + i * h, norm = 0;
    for (int64_t j = 0; j < 2 * i; ++j) {
      const double *other = q + j % i * h;
      double dot = 0;
      for (int64_t k = 0; k < h; ++k) {
        dot += row[k] * other[k];
      }
      for (int64_t k = 0; k < h; ++k) {
        row[k] -= dot * other[k];
      }
    }
    for (int64_t k = 0; k < h; ++k) {
      norm += row[k] * row[k];
    }
    norm = sqrt(norm);
    for (int64_t k = 0; k < h; ++k) {
      row[k] /= norm;
    }
  }
}

static bppsa_status init_orthogonal(const bppsa_view *w, int64_t h, uint64_t seed, uint64_t stream) {
  double *q = bppsa_calloc(h * h, sizeof *q);
  if (q == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int64_t numbers = (h * h + 1) / 2 * 2; /* in each block; Box-Muller makes pairs */
  for (int64_t block = 0; block < bppsa_view_count(w) / (h * h); ++block) {
    const int64_t first = block * h * h;
    for (int64_t i = 0; i < h * h; ++i) {
      q[i] = normal(seed, stream, (uint64_t)(block * numbers + i));
    }
    orthogonalise(h, q);
    for (int64_t i = 0; i < h * h; ++i) {
      bppsa_view_set(w, first + i, q[i]);
    }
  }
  bppsa_free(q);
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_init(bppsa_model *model, bppsa_init init, uint64_t seed) {
  BPPSA_REQUIRE(model != NULL && (unsigned)init <= BPPSA_INIT_ORTHOGONAL);
  const recurrent_network *n = (const recurrent_network *)model;
  const int64_t hidden = n->config.hidden, head = bppsa_recurrent_parameters(&n->config, false),
                own = bppsa_recurrent_first_parameter(&n->config);
  const double bound = 1 / sqrt((double)hidden);
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value;
    if (p < own) {
      memset(value->data, 0, bppsa_view_bytes(value));
      continue;
    }
    if (init == BPPSA_INIT_ORTHOGONAL && p < head && (p - own) % bppsa_recurrent_layer_parameters(&n->config) == W_HH) {
      BPPSA_TRY(init_orthogonal(value, hidden, seed, stream_of(n, p, true)));
      continue;
    }
    for (int64_t i = 0; i < bppsa_view_count(value); ++i) {
      bppsa_view_set(value, i, bound * (2 * bppsa_random_double(seed, stream_of(n, p, false), (uint64_t)i) - 1));
    }
  }
  return bppsa_model_push(model);
}

/* ---- the architecture in a file ---- */

typedef struct {
  const char *where;
  int64_t count;
  const bppsa_named_view *tensors; /* size count */
  bppsa_dtype dtype;
} weights;

static const bppsa_view *find(const weights *w, const char *name) {
  for (int64_t i = 0; i < w->count; ++i) {
    if (strcmp(w->tensors[i].name, name) == 0) {
      return &w->tensors[i].view;
    }
  }
  return NULL;
}

/* Finds the tensor of that name and checks its shape; an extent of -1 is free and is set; `symbols` names it in messages. */
static bppsa_status expect(const weights *w, const char *name, int32_t ndim, int64_t *shape, const char *const *symbols) {
  const bppsa_view *view = find(w, name);
  char found[BPPSA_SHAPE_TEXT];
  if (view == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: tensor '%s' is missing%s", w->where, name,
                      strcmp(name, "linear.weight") == 0 ? ", expected a head: a linear layer [C, H] from the last hidden state"
                      : strstr(name, ".bias_") != NULL   ? ", expected a network with biases"
                                                         : "");
  }
  if (view->dtype != w->dtype) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: tensor '%s' is %s, expected %s", w->where, name, bppsa_view_dtype_name(view),
                      bppsa_dtype_name(w->dtype));
  }
  bool fits = view->ndim == ndim;
  for (int32_t d = 0; fits && d < ndim; ++d) {
    fits = view->shape[d] >= 1 && (shape[d] < 0 || view->shape[d] == shape[d]);
  }
  if (!fits) {
    char expected[BPPSA_SHAPE_TEXT] = "[";
    for (int32_t d = 0; d < ndim; ++d) {
      const size_t used = strlen(expected);
      if (shape[d] < 0) {
        snprintf(expected + used, sizeof expected - used, "%s%s", d > 0 ? ", " : "", symbols[d]);
      } else {
        snprintf(expected + used, sizeof expected - used, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
      }
    }
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: tensor '%s' has shape %s, expected %s]", w->where, name,
                      bppsa_shape_text(view->ndim, view->shape, found, sizeof found), expected);
  }
  memcpy(shape, view->shape, (size_t)ndim * sizeof *shape);
  return BPPSA_OK;
}

static bppsa_status refuse_projections(const weights *w, const char *prefix) {
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "%s.weight_hr_l0", prefix);
  return find(w, name) == NULL
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                          "%s: tensor '%s': projections are not supported, expected a network without them", w->where, name);
}

/* ending: "", or "_reverse" for the reverse direction. */
static bppsa_status expect_layer(const weights *w, const char *prefix, int64_t gates, int64_t layer, const char *ending,
                                 bool no_bias, int64_t *input, int64_t *hidden) {
  char name[NAME_SIZE], stacked[24] = "H";
  if (gates > 1) {
    snprintf(stacked, sizeof stacked, "%lldH", (long long)gates);
  }
  const char *const hh_symbols[] = {stacked, "H"}, *const ih_symbols[] = {hh_symbols[0], "I"};
  int64_t hh[2] = {*hidden < 0 ? -1 : gates * *hidden, *hidden};
  snprintf(name, sizeof name, "%s.weight_hh_l%lld%s", prefix, (long long)layer, ending);
  BPPSA_TRY(expect(w, name, 2, hh, hh_symbols));
  if (hh[0] != gates * hh[1]) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: tensor '%s' has shape [%lld, %lld], expected [%s, %s]", w->where, name,
                      (long long)hh[0], (long long)hh[1], hh_symbols[0], hh_symbols[1]);
  }
  *hidden = hh[1];
  int64_t ih[2] = {hh[0], *input};
  snprintf(name, sizeof name, "%s.weight_ih_l%lld%s", prefix, (long long)layer, ending);
  BPPSA_TRY(expect(w, name, 2, ih, ih_symbols));
  *input = ih[1];
  static const char *const biases[] = {"bias_ih", "bias_hh"};
  for (size_t i = 0; !no_bias && i < 2; ++i) {
    snprintf(name, sizeof name, "%s.%s_l%lld%s", prefix, biases[i], (long long)layer, ending);
    BPPSA_TRY(expect(w, name, 1, hh, hh_symbols));
  }
  return BPPSA_OK;
}

/* Does the file describe layers without biases? Its first layer then has none of both. */
static bool lacks_biases(const weights *w, const char *prefix) {
  static const char *const tensors[] = {"weight_ih_l0", "bias_ih_l0", "bias_hh_l0"};
  bool found[3];
  for (int i = 0; i < 3; ++i) {
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s.%s", prefix, tensors[i]);
    found[i] = find(w, name) != NULL;
  }
  return found[0] && !found[1] && !found[2];
}

static const char *const endings[] = {"", "_reverse"};

/* Finds out whether there is a reset state, one row for each layer and direction. The cell says later whether its states are single
 * vectors or pairs. */
static bppsa_status expect_reset_state(const weights *w, const char *prefix, int64_t rows, int64_t hidden, bool *found) {
  static const char *const symbols[] = {"L", "S"};
  char name[NAME_SIZE];
  int64_t shape[2] = {rows, -1};
  snprintf(name, sizeof name, "%s.reset_state", prefix);
  *found = find(w, name) != NULL;
  if (!*found) {
    return BPPSA_OK;
  }
  BPPSA_TRY(expect(w, name, 2, shape, symbols));
  return shape[1] == hidden || shape[1] == 2 * hidden
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: tensor '%s' has shape [%lld, %lld], expected rows of H = %lld, or of a pair 2H",
                          w->where, name, (long long)shape[0], (long long)shape[1], (long long)hidden);
}

/* Refuses a tensor that belongs to no layer of the network, so that a gap in the numbering is noticed. */
static bppsa_status refuse_unknown(const weights *w, const char *prefix, int64_t layers, int64_t directions, bool no_bias) {
  static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
  const size_t length = strlen(prefix);
  for (int64_t i = 0; i < w->count; ++i) {
    const char *name = w->tensors[i].name;
    bool known = strncmp(name, prefix, length) != 0 || name[length] != '.' || strcmp(name + length, ".reset_state") == 0;
    for (int64_t l = 0; !known && l < layers * directions; ++l) {
      char expected[NAME_SIZE];
      for (size_t k = 0; !known && k < (no_bias ? B_IH : MOST_PARAMETERS); ++k) {
        snprintf(expected, sizeof expected, "%s.%s_l%lld%s", prefix, kinds[k], (long long)(l / directions),
                 endings[l % directions]);
        known = strcmp(name, expected) == 0;
      }
    }
    if (!known && no_bias && strstr(name, ".bias_") != NULL) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: tensor '%s', but layer 0 has no biases, expected biases in all layers or in none",
                        w->where, name);
    }
    if (!known) {
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "%s: tensor '%s' belongs to none of the %lld layers found, expected layers numbered from 0", w->where,
                        name, (long long)layers);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_infer(const char *where, const char *prefix, int64_t gates, int64_t count,
                                   const bppsa_named_view *tensors, bppsa_recurrent_config *config) {
  BPPSA_REQUIRE(where != NULL && prefix != NULL && config != NULL);
  BPPSA_REQUIRE(count >= 0 && (tensors != NULL || count == 0));
  weights w = {where, count, tensors, BPPSA_F32};
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "%s.weight_hh_l0", prefix);
  const bppsa_view *first = find(&w, name);
  if (first != NULL) {
    w.dtype = first->dtype;
    if (w.dtype != BPPSA_F32 && w.dtype != BPPSA_F64) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: tensor '%s' is %s, expected f32 or f64", where, name,
                        bppsa_view_dtype_name(first));
    }
  }
  BPPSA_TRY(refuse_projections(&w, prefix));
  snprintf(name, sizeof name, "%s.weight_ih_l0_reverse", prefix);
  const int64_t directions = find(&w, name) != NULL ? 2 : 1;
  const bool no_bias = lacks_biases(&w, prefix);
  int64_t hidden = -1, input = -1, above = -1, layers = 0;
  do {
    for (int64_t d = 0; d < directions; ++d) {
      BPPSA_TRY(expect_layer(&w, prefix, gates, layers, endings[d], no_bias, layers == 0 ? &input : &above, &hidden));
    }
    above = directions * hidden;
    ++layers;
    snprintf(name, sizeof name, "%s.weight_ih_l%lld", prefix, (long long)layers);
  } while (find(&w, name) != NULL);
  bool reset_state;
  BPPSA_TRY(refuse_unknown(&w, prefix, layers, directions, no_bias));
  BPPSA_TRY(expect_reset_state(&w, prefix, layers * directions, hidden, &reset_state));
  const char *const head_symbols[] = {"C", directions == 2 ? "2H" : "H"};
  int64_t head[2] = {-1, directions * hidden};
  if (!config->no_head) {
    BPPSA_TRY(expect(&w, "linear.weight", 2, head, head_symbols));
    BPPSA_TRY(expect(&w, "linear.bias", 1, head, head_symbols));
    config->classes = head[0];
  }
  config->input = input;
  config->hidden = hidden;
  config->layers = layers;
  config->no_bias = no_bias;
  config->bidirectional = directions == 2;
  config->reset_state = reset_state;
  config->dtype = w.dtype;
  return BPPSA_OK;
}
