#include "recurrent/chain.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "recurrent/recurrent_internal.h"

enum { NETWORKS = 3, PARAMETERS = MOST_PARAMETERS + HEAD_PARAMETERS /* of one layer and the head */ };

/* Networks of one layer compute the passes. For each pass they borrow the arrays of the chain's caller. */
typedef struct {
  bppsa_chain base;
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  int32_t threads;
  recurrent_network
      *networks[NETWORKS];     /* for the first layer, the layers between, the last layer; a single layer has the last alone */
  bppsa_chain_layer *layers;   /* size L + 1 */
  bppsa_parameter *parameters; /* of all layers and the head */
  char (*names)[NAME_SIZE];    /* of the parameters, then of the layers */
} recurrent_chain;

static int64_t size_of(const recurrent_chain *c) {
  return (int64_t)bppsa_dtype_size(c->config.dtype);
}

/* Returns the network that computes a layer; the last layer's network computes the head too. */
static recurrent_network *network_of(const recurrent_chain *c, int64_t layer) {
  const int64_t last = c->config.layers - 1;
  return c->networks[layer >= last ? 2 : layer > 0 ? 1 : 0];
}

/* ---- borrowed arrays ---- */

/* The arrays that a network owns, kept here while it borrows others for a pass. */
typedef struct {
  recurrent_network *n;
  recurrent_network own;
  recurrent_layer layer;
  bppsa_parameter parameters[PARAMETERS];
} loan;

static loan borrow(const recurrent_chain *c, int64_t layer, int64_t samples) {
  recurrent_network *n = network_of(c, layer);
  loan l = {.n = n, .own = *n, .layer = n->layers[0]};
  memcpy(l.parameters, n->base.parameters, (size_t)n->base.parameter_count * sizeof *l.parameters);
  n->batch = samples;
  return l;
}

/* The network's parameters of the layer; the head's stand behind those of a layer. */
static bppsa_parameter *parameters_of(const recurrent_chain *c, const recurrent_network *n, int64_t layer) {
  return n->base.parameters + (layer < c->config.layers ? 0 : bppsa_recurrent_layer_parameters(&c->config));
}

/* Copies a parameter, or its gradient, between arrays of a GPU: the network's own and the caller's. */
static bppsa_status copy_parameter(const recurrent_network *n, const bppsa_parameter *parameter, void *value, void *gradient) {
  const int64_t bytes = (int64_t)bppsa_view_bytes(&parameter->value),
                place = (const char *)parameter->value.data - (const char *)n->base.parameters[0].value.data;
  return value != NULL
             ? bppsa_memory_queue_copy(n->base.device, (char *)n->base.device_values + place, bytes, value, bytes, bytes, 1)
             : bppsa_memory_queue_copy(n->base.device, gradient, bytes, (char *)n->base.device_gradients + place, bytes, bytes,
                                       1);
}

/* Copies the weights of this pass to those that a network on a GPU has of its own. */
static bppsa_status see_weights(const recurrent_chain *c, recurrent_network *n, int64_t layer, void *const *weights) {
  bppsa_parameter *parameters = parameters_of(c, n, layer);
  for (int64_t i = 0; i < c->layers[layer].parameters; ++i) {
    if (c->base.device != NULL) {
      BPPSA_TRY(copy_parameter(n, &parameters[i], weights[i], NULL));
    } else {
      parameters[i].value.data = weights[i];
    }
  }
  return BPPSA_OK;
}

/* Before a pass on the host: the network writes its gradients to the caller's arrays. */
static void lend_gradients(const recurrent_chain *c, recurrent_network *n, int64_t layer, void *const *gradients) {
  bppsa_parameter *parameters = parameters_of(c, n, layer);
  for (int64_t i = 0; gradients != NULL && c->base.device == NULL && i < c->layers[layer].parameters; ++i) {
    parameters[i].gradient.data = gradients[i];
  }
}

/* After a pass on a GPU: copies the network's gradients to the caller's arrays. */
static bppsa_status fetch_gradients(const recurrent_chain *c, recurrent_network *n, int64_t layer, void *const *gradients) {
  const bppsa_parameter *parameters = parameters_of(c, n, layer);
  for (int64_t i = 0; gradients != NULL && c->base.device != NULL && i < c->layers[layer].parameters; ++i) {
    BPPSA_TRY(copy_parameter(n, &parameters[i], NULL, gradients[i]));
  }
  return BPPSA_OK;
}

static void give_back(const loan *l) {
  bppsa_parameter *parameters = l->own.base.parameters;
  *l->n = l->own;
  l->n->layers[0] = l->layer;
  memcpy(parameters, l->parameters, (size_t)l->n->base.parameter_count * sizeof *parameters);
}

/* The layer's input without the state in front of the first step. */
static void *steps_of(const recurrent_chain *c, int64_t layer, int64_t samples, const void *x) {
  return (char *)(uintptr_t)x + (layer > 0 ? samples * c->config.hidden * size_of(c) : 0);
}

/* What a layer keeps: what its cell saved [T,b,saved·H], and c_0 .. c_T [T+1,b,H] of a pair behind it. */
static void see_kept(const recurrent_chain *c, recurrent_network *n, const void *kept) {
  n->layers[0].saved = (void *)(uintptr_t)kept;
  if (c->cell->pair) {
    n->layers[0].c = bppsa_recurrent_offset(n, kept, c->config.seq_len * n->batch * c->cell->saved * c->config.hidden);
  }
}

/* ---- passes ---- */

static bppsa_status forward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *x, void *kept,
                            void *y) {
  const recurrent_chain *c = (const recurrent_chain *)chain;
  const loan l = borrow(c, layer, samples);
  recurrent_network *n = l.n;
  bppsa_status status = see_weights(c, n, layer, weights);
  if (status == BPPSA_OK && layer == c->config.layers) {
    n->layers[0].h = (void *)(uintptr_t)x;
    n->logits = y;
    status = n->backend->logits(n);
  } else if (status == BPPSA_OK) {
    n->x = steps_of(c, layer, samples, x);
    n->layers[0].h = y;
    see_kept(c, n, kept);
    status = n->backend->forward(n, NULL);
  }
  give_back(&l);
  return status;
}

/* Computes the head's gradients, each of which may be left out. For a pair the network holds the gradients of both halves; those
 * of h go on to the caller. */
static bppsa_status head_backward(const recurrent_chain *c, recurrent_network *n, const void *dy, const void *x, bool weights,
                                  void *dx) {
  const int64_t half = c->config.hidden * size_of(c), state = bppsa_recurrent_state_size(n) * size_of(c);
  n->seed = dy;
  n->layers[0].h = (void *)(uintptr_t)x;
  BPPSA_TRY(weights ? n->backend->head_gradients(n) : BPPSA_OK);
  if (dx == NULL) {
    return BPPSA_OK;
  }
  n->g = c->cell->pair ? n->g : dx;
  BPPSA_TRY(n->backend->seed(n));
  return c->cell->pair ? bppsa_memory_queue_copy(c->base.device, dx, half, n->g, state, half, (c->config.seq_len + 1) * n->batch)
                       : BPPSA_OK;
}

/* Computes a recurrent layer's gradients. dx [T,b,I], or [T+1,b,H] with zeros in front. */
static bppsa_status layer_backward(const recurrent_chain *c, recurrent_network *n, int64_t layer, const void *dy, const void *x,
                                   const void *y, const void *kept, bool weights, void *dx) {
  const int64_t half = c->config.hidden * size_of(c), state = bppsa_recurrent_state_size(n) * size_of(c);
  const int64_t rows = (c->config.seq_len + 1) * n->batch;
  /* the pass adds to the gradients of the states; those of c are 0 */
  BPPSA_TRY(state > half ? bppsa_memory_queue_clear(c->base.device, n->g, rows * state) : BPPSA_OK);
  BPPSA_TRY(bppsa_memory_queue_copy(c->base.device, n->g, state, dy, half, half, rows));
  n->x = steps_of(c, layer, n->batch, x);
  n->layers[0].h = (void *)(uintptr_t)y;
  see_kept(c, n, kept);
  n->dx = dx != NULL ? steps_of(c, layer, n->batch, dx) : NULL;
  n->config.input_gradients = dx != NULL;
  if (dx != NULL && layer > 0) {
    BPPSA_TRY(bppsa_memory_queue_clear(c->base.device, dx, n->batch * half));
  }
  if (weights || c->base.device != NULL) { /* on a GPU one pass computes both gradients */
    return n->backend->backward(n, 0);
  }
  BPPSA_TRY(n->backend->layer_backward(n, 0));
  const bppsa_linear project = {.dtype = c->config.dtype,
                                .threads = c->threads,
                                .rows = c->config.seq_len * n->batch,
                                .in = n->layers[0].input,
                                .out = c->cell->gates * c->config.hidden,
                                .unit = n->batch};
  bppsa_linear_input_gradient(&project, n->pre, n->base.parameters[W_IH].value.data, n->dx);
  return BPPSA_OK;
}

static bppsa_status backward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                             const void *x, const void *y, const void *kept, void *const *gradients, void *dx) {
  const recurrent_chain *c = (const recurrent_chain *)chain;
  const loan l = borrow(c, layer, samples);
  bppsa_status status = see_weights(c, l.n, layer, weights);
  lend_gradients(c, l.n, layer, gradients);
  if (status == BPPSA_OK) {
    status = layer == c->config.layers ? head_backward(c, l.n, dy, x, gradients != NULL, dx)
                                       : layer_backward(c, l.n, layer, dy, x, y, kept, gradients != NULL, dx);
  }
  status = status == BPPSA_OK ? fetch_gradients(c, l.n, layer, gradients) : status;
  give_back(&l);
  return status;
}

static bppsa_status input_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                   const void *x, const void *y, const void *kept, void *dx) {
  return backward(chain, layer, samples, weights, dy, x, y, kept, NULL, dx);
}

static bppsa_status weight_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                    const void *x, const void *y, const void *kept, void *const *gradients) {
  return backward(chain, layer, samples, weights, dy, x, y, kept, gradients, NULL);
}

static bppsa_status twin(const bppsa_chain *chain, const bppsa_device *device, bppsa_chain **made) {
  const recurrent_chain *c = (const recurrent_chain *)chain;
  return bppsa_recurrent_chain_create(&c->config, c->cell, device, made);
}

static void destroy(bppsa_chain *chain) {
  recurrent_chain *c = (recurrent_chain *)chain;
  for (int i = 0; i < NETWORKS; ++i) {
    if (c->networks[i] != NULL) {
      bppsa_model_destroy(&c->networks[i]->base);
    }
  }
  bppsa_free(c->layers);
  bppsa_free(c->parameters);
  bppsa_free(c->names);
  bppsa_free(c);
}

static const bppsa_chain_ops chain_ops = {.forward = forward,
                                          .input_gradient = input_gradient,
                                          .weight_gradient = weight_gradient,
                                          .backward = backward,
                                          .twin = twin,
                                          .destroy = destroy};

/* ---- creation ---- */

/* Makes a network of one layer. injected: gradients come in at every step, not at the last alone. */
static bppsa_status make_network(const recurrent_chain *c, int64_t input, bool injected, const bppsa_device *device,
                                 recurrent_network **made) {
  bppsa_recurrent_config one = c->config;
  bppsa_model *model = NULL;
  one.layers = 1;
  one.input = input;
  one.loss_all = injected;
  one.input_gradients = true;
  BPPSA_TRY(bppsa_recurrent_create(&one, c->cell, device, &model));
  *made = (recurrent_network *)model;
  return BPPSA_OK;
}

static bppsa_status make_networks(recurrent_chain *c, const bppsa_device *device) {
  const bppsa_recurrent_config *config = &c->config;
  const int64_t layers = config->layers, below = layers > 1 ? config->hidden : config->input;
  if (layers > 1) {
    BPPSA_TRY(make_network(c, config->input, true, device, &c->networks[0]));
  }
  if (layers > 2) {
    BPPSA_TRY(make_network(c, config->hidden, true, device, &c->networks[1]));
  }
  return make_network(c, below, config->loss_all, device, &c->networks[2]);
}

/* Copies names and shapes from a small network of all layers. */
static bppsa_status describe_parameters(recurrent_chain *c, const bppsa_device *device) {
  bppsa_recurrent_config small = c->config;
  bppsa_model *model = NULL;
  small.batch = small.seq_len = 1;
  BPPSA_TRY(bppsa_recurrent_create(&small, c->cell, device, &model));
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    c->parameters[i] = model->parameters[i];
    c->parameters[i].value.data = c->parameters[i].gradient.data = NULL;
    memcpy(c->names[i], model->parameters[i].name, strlen(model->parameters[i].name) + 1);
    c->parameters[i].name = c->names[i];
  }
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

static void describe_layers(recurrent_chain *c) {
  const bppsa_recurrent_config *config = &c->config;
  const int64_t layers = config->layers, states = (config->seq_len + 1) * config->hidden, out = c->cell->gates * config->hidden;
  const int64_t of_layer = bppsa_recurrent_layer_parameters(config);
  const int64_t kept = config->seq_len * c->cell->saved * config->hidden + (c->cell->pair ? states : 0);
  const double steps = (double)config->seq_len, rows = config->loss_all ? steps : 1;
  for (int64_t l = 0; l <= layers; ++l) {
    char *name = c->names[c->base.parameter_count + l];
    const bool head = l == layers;
    const int64_t input = l == 0 ? config->input : config->hidden;
    (void)snprintf(name, NAME_SIZE, "l%lld", (long long)l);
    c->layers[l] = (bppsa_chain_layer){.name = head ? "linear" : name,
                                       .in = l == 0 ? config->seq_len * config->input : states,
                                       .out = head ? config->classes * (config->loss_all ? config->seq_len : 1) : states,
                                       .kept = head ? 0 : kept * size_of(c),
                                       .first_parameter = l * of_layer,
                                       .parameters = head ? HEAD_PARAMETERS : of_layer,
                                       .flops = head ? 2 * rows * (double)(config->classes * config->hidden)
                                                     : 2 * steps * (double)(out * (input + config->hidden))};
  }
}

static bppsa_status build(recurrent_chain *c, const bppsa_device *device) {
  const int64_t layers = c->config.layers;
  c->base.layers = layers + 1;
  c->base.parameter_count = bppsa_recurrent_parameters(&c->config, true);
  c->layers = bppsa_calloc(layers + 1, sizeof *c->layers);
  c->parameters = bppsa_calloc(c->base.parameter_count, sizeof *c->parameters);
  c->names = bppsa_calloc(c->base.parameter_count + layers + 1, sizeof *c->names);
  if (c->layers == NULL || c->parameters == NULL || c->names == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(describe_parameters(c, device));
  describe_layers(c);
  return make_networks(c, device);
}

bppsa_status bppsa_recurrent_chain_create(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                          const bppsa_device *device, bppsa_chain **chain) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && device != NULL && chain != NULL);
  if (config->resets || config->reset_state) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: resets of samples, expected samples that do not begin anew");
  }
  if (config->lengths) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: lengths of samples, expected samples of one length");
  }
  if (config->bidirectional) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: two directions, expected layers of one direction");
  }
  if (config->dropout > 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: dropout, expected a network without it");
  }
  if (config->no_head) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: a network without a head, expected one with a head");
  }
  if (config->recompute > 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: states that are computed again, expected a network that keeps all");
  }
  if (config->forward.kind == BPPSA_FORWARD_SPECULATIVE) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: speculative forward passes on %s, expected sequential ones",
                      bppsa_device_get_name(device));
  }
  recurrent_chain *c = bppsa_calloc(1, sizeof *c);
  if (c == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  c->config = *config;
  c->config.method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP, .scan = config->method.scan};
  c->config.forward = bppsa_forward_method_default();
  c->config.factory = (bppsa_scan_factory){.create = NULL};
  c->config.ends = (bppsa_recurrent_ends){.context = NULL};
  c->cell = cell;
  c->threads = bppsa_device_get_threads(device);
  c->base = (bppsa_chain){.ops = &chain_ops,
                          .dtype = config->dtype,
                          .device = bppsa_device_get_kind(device) == BPPSA_CUDA ? device : NULL,
                          .batch = config->batch};
  const bppsa_status status = build(c, device);
  if (status != BPPSA_OK) {
    destroy(&c->base);
    return status;
  }
  c->base.layer = c->layers;
  c->base.parameters = c->parameters;
  *chain = &c->base;
  return BPPSA_OK;
}
