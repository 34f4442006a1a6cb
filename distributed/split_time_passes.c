/* The passes of a recurrent network cut along time. Rank r has later steps than rank r + 1: states go from r + 1 to r, gradients
 * from r to r + 1. */
#include <string.h>

#include "core/cut.h"
#include "distributed/split_time_internal.h"

static int64_t size_of(const split_network *s) {
  return (int64_t)bppsa_dtype_size(s->config.dtype);
}

static bool is_last(const split_network *s) {
  return s->rank + 1 == s->ranks;
}

static bppsa_view reals(const split_network *s, void *data, int64_t count) {
  return bppsa_view_make(data, s->config.dtype, 1, &count);
}

/* Copies samples `first` .. of rows [steps][batch][width] from or to rows [steps][samples][width]. */
static void take(const split_network *s, const split_group *g, int64_t steps, int64_t width, const char *batch, char *part) {
  const int64_t row = width * size_of(s), bytes = g->samples * row;
  for (int64_t t = 0; t < steps; ++t) {
    memcpy(part + t * bytes, batch + (t * s->batch + g->first) * row, (size_t)bytes);
  }
}

static void give(const split_network *s, const split_group *g, int64_t steps, int64_t width, const char *part, char *batch) {
  const int64_t row = width * size_of(s), bytes = g->samples * row;
  for (int64_t t = 0; t < steps; ++t) {
    memcpy(batch + (t * s->batch + g->first) * row, part + t * bytes, (size_t)bytes);
  }
}

/* Waits for what the pass has sent. */
static bppsa_status wait_for_sent(split_network *s) {
  bppsa_status status = BPPSA_OK;
  for (int64_t g = 0; g < s->group_count; ++g) {
    const bppsa_status one = bppsa_comm_wait_all(s->config.layers, s->groups[g].sent);
    status = status == BPPSA_OK ? one : status;
  }
  return status;
}

/* Ends a pass: its messages are done, or cancelled after an error. */
static bppsa_status finish(split_network *s, bppsa_status status) {
  if (status == BPPSA_OK) {
    status = wait_for_sent(s);
  }
  for (int64_t g = 0; g < s->group_count; ++g) {
    bppsa_comm_cancel(s->config.layers, s->groups[g].sent);
  }
  bppsa_comm_at(s->comm, NULL, -1);
  return status;
}

/* ---- forward ---- */

static bppsa_status check_view(const split_network *s, const char *what, const bppsa_view *view, int32_t ndim,
                               const int64_t *shape) {
  const bppsa_view expected = bppsa_view_make(NULL, s->config.dtype, ndim, shape);
  char found[BPPSA_SHAPE_TEXT], text[BPPSA_SHAPE_TEXT];
  if (view->dtype != expected.dtype || !bppsa_view_same_shape(view, &expected) || !bppsa_view_contiguous(view) ||
      view->device != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "split time: %s is %s %s, expected %s %s without gaps in host memory", what,
                      bppsa_dtype_name(view->dtype), bppsa_shape_text(view->ndim, view->shape, found, sizeof found),
                      bppsa_dtype_name(expected.dtype), bppsa_shape_text(ndim, shape, text, sizeof text));
  }
  return BPPSA_OK;
}

static bppsa_status check_inputs(const split_network *s, const bppsa_view *x, const bppsa_view *h0) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t batch = x->ndim == 3 ? x->shape[1] : 0;
  if (x->ndim == 3 && (batch < 1 || batch > c->batch)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "split time: x has %lld samples, expected 1 .. %lld", (long long)batch,
                      (long long)c->batch);
  }
  BPPSA_TRY(check_view(s, "x", x, 3, (int64_t[]){s->steps, batch > 0 ? batch : c->batch, c->input}));
  const bool reads = h0 != NULL && s->steps > 0 && s->first == 0;
  return reads ? check_view(s, "h0", h0, 3, (int64_t[]){c->layers, batch, c->hidden}) : BPPSA_OK;
}

/* The first network has the parameters that the caller sets; the others compute with copies. */
static void copy_parameters(const split_network *s) {
  for (int64_t g = 1; g < s->group_count; ++g) {
    for (int64_t i = 0; i < s->base.parameter_count; ++i) {
      const bppsa_view *from = &s->base.parameters[i].value;
      memcpy(s->groups[g].model->parameters[i].value.data, from->data, bppsa_view_bytes(from));
    }
  }
}

/* The states in front of this rank's steps: *has is false where they are 0. */
static bppsa_status begin_states(split_network *s, split_group *g, const bppsa_view *h0, bool *has) {
  const bppsa_recurrent_config *c = &s->config;
  *has = true;
  if (!is_last(s)) {
    const bppsa_view view = reals(s, g->states, c->layers * g->samples * c->hidden);
    return bppsa_comm_recv(s->active, s->rank + 1, s->tag + TAG_STATES, &view);
  }
  *has = h0 != NULL;
  if (*has) {
    take(s, g, c->layers, c->hidden, h0->data, g->states);
  }
  return BPPSA_OK;
}

/* Sends the states behind this rank's steps on. */
static bppsa_status end_states(split_network *s, split_group *g) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t state = g->samples * c->hidden * size_of(s);
  for (int64_t l = 0; l < c->layers; ++l) {
    bppsa_view h;
    BPPSA_TRY(bppsa_recurrent_states(g->model, l, &h));
    memcpy(g->states + l * state, (const char *)h.data + (s->steps - 1) * state, (size_t)state);
  }
  const bppsa_view view = reals(s, g->states, c->layers * g->samples * c->hidden);
  return bppsa_comm_isend(s->active, s->rank - 1, s->tag + TAG_STATES, &view, &g->sent[0]);
}

static bppsa_status forward_group(split_network *s, split_group *g, const bppsa_view *x, const bppsa_view *h0,
                                  bppsa_view *logits) {
  const bppsa_recurrent_config *c = &s->config;
  bool has;
  BPPSA_TRY(begin_states(s, g, h0, &has));
  if (s->group_count > 1) {
    take(s, g, s->steps, c->input, x->data, g->x);
  }
  const bppsa_view own_x =
      bppsa_view_make(s->group_count > 1 ? g->x : x->data, c->dtype, 3, (int64_t[]){s->steps, g->samples, c->input});
  const bppsa_view own_h0 = bppsa_view_make(g->states, c->dtype, 3, (int64_t[]){c->layers, g->samples, c->hidden});
  if (split_has_head(s)) {
    bppsa_view part;
    BPPSA_TRY(g->model->ops->forward(g->model, &own_x, has ? &own_h0 : NULL, &part));
    if (s->group_count > 1) {
      give(s, g, split_logit_steps(s), c->classes, part.data, s->logits);
    } else {
      logits->data = part.data;
    }
  } else {
    BPPSA_TRY(bppsa_recurrent_forward_layers(g->model, &own_x, has ? &own_h0 : NULL));
  }
  return s->rank > 0 ? end_states(s, g) : BPPSA_OK;
}

static bppsa_view logits_view(const split_network *s) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t all[] = {s->steps, s->batch, c->classes}, last[] = {split_logit_steps(s) * s->batch, c->classes};
  return bppsa_view_make(s->logits, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? all : last);
}

bppsa_status split_time_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  split_network *s = (split_network *)model;
  BPPSA_TRY(check_inputs(s, x, h0));
  bppsa_status status = BPPSA_OK;
  s->batch = x->shape[1];
  s->backward_done = false;
  bppsa_view view = logits_view(s);
  copy_parameters(s);
  for (int64_t i = 0; status == BPPSA_OK && i < s->group_count && s->steps > 0; ++i) {
    split_group *g = &s->groups[i];
    g->first = bppsa_cut(s->batch, s->group_count, i);
    g->samples = bppsa_cut(s->batch, s->group_count, i + 1) - g->first;
    bppsa_comm_at(s->comm, "the forward pass along time, group", i);
    status = g->samples > 0 ? forward_group(s, g, x, h0, &view) : BPPSA_OK;
  }
  BPPSA_TRY(finish(s, status));
  *logits = view;
  return BPPSA_OK;
}

/* ---- backward ---- */

/* Is something injected into a layer? As in recurrent networks: the head's gradients of every step, or those of the layer above. */
static bool is_injected(const split_network *s, int64_t layer) {
  return s->config.loss_all || layer + 1 < s->config.layers;
}

static char *row_of(const split_network *s, const split_group *g, void *all, int64_t row) {
  return (char *)all + row * g->samples * s->config.hidden * size_of(s);
}

/* u at the state between two ranks: the rank with the earlier step computes it, in g_T, and the scan of the later one adds it, as
 * its u_0. */
bppsa_status split_time_join_injected(void *context, int64_t layer, void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * s->config.hidden;
  bppsa_comm_request *arrives = NULL;
  if (!is_injected(s, layer)) {
    return BPPSA_OK;
  }
  bppsa_comm_at(s->comm, "the gradients injected between ranks, layer", layer);
  if (!is_last(s)) {
    const bppsa_view from = reals(s, row_of(s, g, all, 0), count);
    BPPSA_TRY(bppsa_comm_irecv(s->active, s->rank + 1, s->tag + TAG_ENDS, &from, &arrives));
  }
  bppsa_status status = BPPSA_OK;
  if (s->rank > 0) {
    const bppsa_view to = reals(s, row_of(s, g, all, s->steps), count);
    status = bppsa_comm_send(s->active, s->rank - 1, s->tag + TAG_ENDS, &to);
  }
  if (status != BPPSA_OK) {
    bppsa_comm_cancel(1, &arrives);
    return status;
  }
  return bppsa_comm_wait(&arrives);
}

static void add(const split_network *s, int64_t count, const char *from, char *to) {
  if (s->config.dtype == BPPSA_F32) {
    for (int64_t i = 0; i < count; ++i) {
      ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
    }
  }
}

bppsa_status split_time_receive_carry(void *context, int64_t layer, void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * s->config.hidden;
  if (s->rank == 0) {
    return BPPSA_OK;
  }
  bppsa_comm_at(s->comm, "BP along time, layer", layer);
  const bppsa_view view = reals(s, s->carry, count);
  BPPSA_TRY(bppsa_comm_recv(s->active, s->rank - 1, s->tag + TAG_ENDS, &view));
  add(s, count, s->carry, row_of(s, g, all, s->steps));
  return BPPSA_OK;
}

bppsa_status split_time_send_carry(void *context, int64_t layer, const void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * s->config.hidden;
  char *copy = row_of(s, g, g->states, layer); /* the network goes on in its own memory */
  memcpy(copy, all, (size_t)(count * size_of(s)));
  const bppsa_view view = reals(s, copy, count);
  return bppsa_comm_isend(s->active, s->rank + 1, s->tag + TAG_ENDS, &view, &g->sent[layer]);
}

static bppsa_status backward_group(split_network *s, split_group *g, const bppsa_view *seed) {
  const bppsa_recurrent_config *c = &s->config;
  bppsa_model *m = g->model;
  if (!split_has_head(s)) { /* the head takes no part: its gradients are 0, and nothing comes from it */
    const bppsa_view zeros = bppsa_view_make(s->zeros, c->dtype, 2, (int64_t[]){g->samples, c->hidden});
    for (int64_t i = m->parameter_count - 2; i < m->parameter_count; ++i) {
      memset(m->parameters[i].gradient.data, 0, bppsa_view_bytes(&m->parameters[i].gradient));
    }
    return bppsa_recurrent_backward_layers(m, &zeros);
  }
  bppsa_view own = *seed;
  if (s->group_count > 1) {
    take(s, g, split_logit_steps(s), c->classes, seed->data, g->seed);
    own = bppsa_view_make(g->seed, c->dtype, 3, (int64_t[]){split_logit_steps(s), g->samples, c->classes});
    own = c->loss_all ? own : bppsa_view_make(g->seed, c->dtype, 2, &own.shape[1]);
  }
  return m->ops->backward(m, &own);
}

/* Brings the gradients of x and h0 of a group to those of the batch. */
static bppsa_status collect_inputs(split_network *s, split_group *g) {
  bppsa_view dx, dh0;
  if (!s->config.input_gradients || s->group_count == 1) {
    return BPPSA_OK;
  }
  BPPSA_TRY(g->model->ops->input_gradients(g->model, &dx, &dh0));
  give(s, g, s->steps, s->config.input, dx.data, s->dx);
  if (s->first == 0) {
    give(s, g, s->config.layers, s->config.hidden, dh0.data, s->dh0);
  }
  return BPPSA_OK;
}

/* This rank's parts of the weight gradients, group by group, to those of the first network; 0 for a rank without steps. */
static void add_groups(const split_network *s) {
  for (int64_t i = 0; i < s->base.parameter_count; ++i) {
    const bppsa_view *to = &s->base.parameters[i].gradient;
    if (s->steps == 0) {
      memset(to->data, 0, bppsa_view_bytes(to));
    }
    for (int64_t g = 1; s->steps > 0 && g < s->group_count; ++g) {
      if (s->groups[g].samples > 0) {
        add(s, bppsa_view_count(to), s->groups[g].model->parameters[i].gradient.data, to->data);
      }
    }
  }
}

/* The sum over ranks, for which the gradients lie one behind the other. */
static bppsa_status add_ranks(split_network *s) {
  if (s->sum == NULL) {
    return BPPSA_OK;
  }
  bppsa_comm_at(s->comm, "the sum of weight gradients", -1);
  const bppsa_view flat = reals(s, s->flat, s->reals);
  for (int out = 0; out < 2; ++out) {
    char *at = s->flat;
    for (int64_t i = 0; i < s->base.parameter_count; ++i) {
      const bppsa_view *gradient = &s->base.parameters[i].gradient;
      const size_t bytes = bppsa_view_bytes(gradient);
      memcpy(out ? gradient->data : at, out ? at : gradient->data, bytes);
      at += bytes;
    }
    if (!out) {
      BPPSA_TRY(bppsa_ordered_sum_add(s->sum, s->rank, &flat));
      BPPSA_TRY(bppsa_ordered_sum_finish(s->sum, &flat));
    }
  }
  return BPPSA_OK;
}

bppsa_status split_time_backward(bppsa_model *model, const bppsa_view *seed) {
  split_network *s = (split_network *)model;
  bppsa_status status = BPPSA_OK;
  if (s->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  }
  const bppsa_view expected = logits_view(s);
  BPPSA_TRY(check_view(s, "seed", seed, expected.ndim, expected.shape));
  for (int64_t i = 0; status == BPPSA_OK && i < s->group_count && s->steps > 0; ++i) {
    split_group *g = &s->groups[i];
    if (g->samples > 0) {
      status = backward_group(s, g, seed);
      status = status == BPPSA_OK ? collect_inputs(s, g) : status;
    }
  }
  BPPSA_TRY(finish(s, status));
  add_groups(s);
  BPPSA_TRY(add_ranks(s));
  s->backward_done = true;
  model->redone = 0;
  for (int64_t i = 0; i < s->group_count; ++i) {
    model->redone += s->groups[i].model->redone;
  }
  bppsa_model_ready(model, 0, model->parameter_count);
  return BPPSA_OK;
}
