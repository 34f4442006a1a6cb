/* The passes of a recurrent network cut along time. Rank r has later steps than rank r + 1: states go from r + 1 to r, gradients
 * from r to r + 1. */
#include <string.h>

#include "core/base/cut.h"
#include "core/compute/accumulate.h"
#include "core/compute/memory.h"
#include "distributed/time/split_time_internal.h"

static int64_t size_of(const split_network *s) {
  return (int64_t)bppsa_dtype_size(s->config.dtype);
}

static bool is_last(const split_network *s) {
  return s->rank + 1 == s->ranks;
}

/* A view of the device's memory. */
static bppsa_view view_of(const split_network *s, void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(data, s->config.dtype, ndim, shape);
  view.device = s->gpu ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

static bppsa_view reals(const split_network *s, void *data, int64_t count) {
  return view_of(s, data, 1, &count);
}

/* Copies samples `first` .. of rows [steps][batch][width] from or to rows [steps][samples][width]. */
static bppsa_status take(const split_network *s, const split_group *g, int64_t steps, int64_t width, const char *batch,
                         char *part) {
  const int64_t row = width * size_of(s), bytes = g->samples * row;
  return bppsa_memory_queue_copy(s->device, part, bytes, batch + g->first * row, s->batch * row, bytes, steps);
}

static bppsa_status give(const split_network *s, const split_group *g, int64_t steps, int64_t width, const char *part,
                         char *batch) {
  const int64_t row = width * size_of(s), bytes = g->samples * row;
  return bppsa_memory_queue_copy(s->device, batch + g->first * row, s->batch * row, part, bytes, bytes, steps);
}

static bppsa_status copy(const split_network *s, void *to, const void *from, int64_t bytes) {
  return bppsa_memory_queue_copy(s->device, to, bytes, from, bytes, bytes, 1);
}

static bppsa_status add(const split_network *s, int64_t count, const void *from, void *to) {
  return bppsa_accumulate(s->device, s->config.dtype, count, from, to);
}

/* A message over NCCL sets out at the next wait or test, so this function tests it. */
bppsa_status split_time_send_off(const split_network *s, int32_t to, int32_t tag, const bppsa_view *view,
                                 bppsa_comm_request **sent) {
  bool done = false;
  BPPSA_TRY(bppsa_comm_isend(s->active, to, s->tag + tag, view, sent));
  return s->gpu ? bppsa_comm_test(sent, &done) : BPPSA_OK;
}

/* Waits one by one, because the numbers and the states of a speculative pass on GPUs travel over two transports. */
bppsa_status split_time_wait(const split_group *g) {
  for (int64_t i = 0; i < g->split->requests; ++i) {
    BPPSA_TRY(bppsa_comm_wait(&g->sent[i]));
  }
  return BPPSA_OK;
}

/* Waits for what the pass has sent. */
static bppsa_status wait_for_sent(split_network *s) {
  bppsa_status status = BPPSA_OK;
  for (int64_t g = 0; g < s->group_count; ++g) {
    const bppsa_status one = split_time_wait(&s->groups[g]);
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
    bppsa_comm_cancel(s->requests, s->groups[g].sent);
  }
  bppsa_comm_at(s->comm, NULL, -1);
  return status;
}

/* ---- forward ---- */

/* words: the shape in letters. */
static bppsa_status check_view(const split_network *s, const char *what, const bppsa_view *view, const char *words, int32_t ndim,
                               const int64_t *shape) {
  const bppsa_view expected = view_of(s, NULL, ndim, shape);
  char found[BPPSA_SHAPE_TEXT], text[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  if (view->dtype != expected.dtype || !bppsa_view_same_shape(view, &expected) || !bppsa_view_contiguous(view) ||
      view->device != expected.device) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "split time: %s is %s %s, expected %s %s without gaps in %s memory%s", what,
                      bppsa_dtype_name(view->dtype), bppsa_shape_text(view->ndim, view->shape, found, sizeof found),
                      bppsa_dtype_name(expected.dtype), bppsa_shape_text(ndim, shape, text, sizeof text), s->gpu ? "GPU" : "host",
                      bppsa_view_guess(words, view, ndim, shape, guess));
  }
  return bppsa_view_check_data(what, view);
}

static bppsa_status check_inputs(const split_network *s, const bppsa_view *x, const bppsa_view *h0) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t batch = bppsa_view_batch(x, s->steps, c->input);
  if (x->ndim == 3 && (batch < 1 || batch > c->batch)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "split time: x has %lld samples, expected 1 .. %lld", (long long)batch,
                      (long long)c->batch);
  }
  BPPSA_TRY(check_view(s, "x", x, "[T, B, I]", 3, (int64_t[]){s->steps, batch > 0 ? batch : c->batch, c->input}));
  const bool reads = h0 != NULL && s->steps > 0 && s->first == 0;
  return reads ? check_view(s, "h0", h0, "[L, B, H]", 3, (int64_t[]){c->layers, batch, split_state_size(s)}) : BPPSA_OK;
}

/* Every rank finds the same, because all are given the resets of all steps. */
static bppsa_status check_spans(const split_network *s, const bppsa_spans *spans, int64_t batch) {
  return spans->lengths != NULL
             ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "split time: lengths of samples, expected samples of all steps")
             : bppsa_recurrent_check_resets(s->groups[0].model, batch, spans->resets);
}

/* The resets of a group's samples; NULL: the batch has none. */
static const bppsa_view *resets_of(const split_network *s, const split_group *g, const bppsa_view *all, bppsa_view *own) {
  if (all == NULL || s->group_count == 1) {
    return all;
  }
  for (int64_t t = 0; t < s->config.seq_len; ++t) {
    memcpy(g->resets + t * g->samples, (const uint8_t *)all->data + t * s->batch + g->first, (size_t)g->samples);
  }
  *own = bppsa_view_make(g->resets, all->dtype, 2, (int64_t[]){s->config.seq_len, g->samples});
  return own;
}

/* The first network has the parameters that the caller sets; the others compute with copies. */
static bppsa_status copy_parameters(const split_network *s) {
  for (int64_t g = 1; g < s->group_count; ++g) {
    const bppsa_model *to = s->groups[g].model;
    if (s->gpu) {
      BPPSA_TRY(copy(s, to->device_values, s->base.device_values, s->base.reals * size_of(s)));
    }
    for (int64_t i = 0; !s->gpu && i < s->base.parameter_count; ++i) {
      const bppsa_view *from = &s->base.parameters[i].value;
      memcpy(to->parameters[i].value.data, from->data, bppsa_view_bytes(from));
    }
  }
  return BPPSA_OK;
}

/* The states in front of this rank's steps: *has is false where they are 0, or where a speculative pass sends them itself. */
static bppsa_status begin_states(split_network *s, split_group *g, const bppsa_view *h0, bool speculates, bool *has) {
  const bppsa_recurrent_config *c = &s->config;
  if (speculates && !is_last(s)) {
    *has = false;
    return BPPSA_OK;
  }
  *has = true;
  if (!is_last(s)) {
    const bppsa_view view = reals(s, g->states, c->layers * g->samples * split_state_size(s));
    return bppsa_comm_recv(s->active, s->rank + 1, s->tag + TAG_STATES, &view);
  }
  *has = h0 != NULL;
  return *has ? take(s, g, c->layers, split_state_size(s), h0->data, g->states) : BPPSA_OK;
}

/* Sends the states behind this rank's steps on. */
static bppsa_status end_states(split_network *s, split_group *g) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t half = c->hidden * size_of(s), state = split_state_size(s) * size_of(s);
  const int64_t last = (s->steps - 1) * g->samples * half;
  for (int64_t l = 0; l < c->layers; ++l) {
    char *to = g->states + l * g->samples * state;
    bppsa_view h, cells;
    BPPSA_TRY(bppsa_recurrent_states(g->model, l, &h));
    BPPSA_TRY(bppsa_memory_queue_copy(s->device, to, state, (const char *)h.data + last, half, half, g->samples));
    if (s->cell->pair) {
      BPPSA_TRY(bppsa_recurrent_cell_states(g->model, l, &cells));
      BPPSA_TRY(bppsa_memory_queue_copy(s->device, to + half, state, (const char *)cells.data + last, half, half, g->samples));
    }
  }
  const bppsa_view view = reals(s, g->states, c->layers * g->samples * split_state_size(s));
  return split_time_send_off(s, s->rank - 1, TAG_STATES, &view, &g->sent[0]);
}

static bppsa_status forward_group(split_network *s, split_group *g, const bppsa_view *x, const bppsa_view *h0,
                                  const bppsa_view *resets, bool speculates, bppsa_view *logits) {
  const bppsa_recurrent_config *c = &s->config;
  bool has;
  BPPSA_TRY(begin_states(s, g, h0, speculates, &has));
  if (s->group_count > 1) {
    BPPSA_TRY(take(s, g, s->steps, c->input, x->data, g->x));
  }
  const bppsa_view own_x = view_of(s, s->group_count > 1 ? g->x : x->data, 3, (int64_t[]){s->steps, g->samples, c->input});
  const bppsa_view own_h0 = view_of(s, g->states, 3, (int64_t[]){c->layers, g->samples, split_state_size(s)});
  bppsa_view own_resets;
  const bppsa_spans spans = {.resets = resets_of(s, g, resets, &own_resets)};
  if (split_has_head(s)) {
    bppsa_view part;
    BPPSA_TRY(bppsa_model_forward(g->model, &own_x, has ? &own_h0 : NULL, &spans, &part));
    if (s->group_count > 1) {
      BPPSA_TRY(give(s, g, split_logit_steps(s), c->classes, part.data, s->logits));
    } else {
      logits->data = part.data;
    }
  } else {
    BPPSA_TRY(bppsa_recurrent_forward_spans(g->model, &own_x, has ? &own_h0 : NULL, &spans));
  }
  return s->rank > 0 && !speculates ? end_states(s, g) : BPPSA_OK;
}

static bppsa_view logits_view(const split_network *s) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t all[] = {s->steps, s->batch, c->classes}, last[] = {split_logit_steps(s) * s->batch, c->classes};
  return view_of(s, s->logits, c->loss_all ? 3 : 2, c->loss_all ? all : last);
}

bppsa_status split_time_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  return split_time_forward_spans(model, x, h0, &(bppsa_spans){0}, logits);
}

bppsa_status split_time_forward_spans(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                      bppsa_view *logits) {
  BPPSA_REQUIRE(x != NULL && spans != NULL);
  split_network *s = (split_network *)model;
  BPPSA_TRY(check_inputs(s, x, h0));
  BPPSA_TRY(check_spans(s, spans, x->shape[1]));
  bppsa_status status = BPPSA_OK;
  s->batch = x->shape[1];
  s->backward_done = false;
  bppsa_view view = logits_view(s);
  bool speculates;
  bppsa_forward_pause pause;
  BPPSA_TRY(split_time_begin(s, &speculates, &pause));
  status = copy_parameters(s);
  for (int64_t i = 0; status == BPPSA_OK && i < s->group_count && s->steps > 0; ++i) {
    split_group *g = &s->groups[i];
    g->first = bppsa_cut(s->batch, s->group_count, i);
    g->samples = bppsa_cut(s->batch, s->group_count, i + 1) - g->first;
    bppsa_comm_at(s->comm, "the forward pass along time, group", i);
    s->samples[i] = g->samples;
    status = g->samples > 0 ? forward_group(s, g, x, h0, spans->resets, speculates, &view) : BPPSA_OK;
  }
  BPPSA_TRY(finish(s, status));
  BPPSA_TRY(s->steps > 0 ? split_time_end(s, &pause) : BPPSA_OK);
  *logits = view;
  return BPPSA_OK;
}

/* Rank 0 has the last steps. All ranks get the states behind them: a pass that goes on begins on the rank with the first steps, and
 * any rank may write a checkpoint. */
bppsa_status split_time_last_states(bppsa_model *model, int64_t shape[2], int64_t apart, void *states) {
  const split_network *s = (const split_network *)model;
  const int64_t size = split_state_size(s), row = size * size_of(s);
  if (states != NULL && s->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split time: last states, expected a forward pass before");
  }
  shape[0] = s->config.layers;
  shape[1] = size;
  for (int64_t i = 0; states != NULL && s->rank == 0 && i < s->group_count; ++i) {
    const split_group *g = &s->groups[i];
    int64_t own[2];
    if (g->samples > 0) {
      BPPSA_TRY(g->model->ops->last_states(g->model, own, apart, (char *)states + g->first * row));
    }
  }
  bppsa_comm_at(s->comm, "the states behind the last step", -1);
  for (int64_t l = 0; states != NULL && l < s->config.layers; ++l) {
    const bppsa_view rows = reals(s, (char *)states + l * apart * row, s->batch * size);
    BPPSA_TRY(bppsa_comm_broadcast(s->comm, 0, &rows));
  }
  bppsa_comm_at(s->comm, NULL, -1);
  return BPPSA_OK;
}

/* ---- backward ---- */

/* Is something injected into a layer? As in recurrent networks: the head's gradients of every step, or those of the layer above. */
static bool is_injected(const split_network *s, int64_t layer) {
  return s->config.loss_all || layer + 1 < s->config.layers;
}

static char *row_of(const split_network *s, const split_group *g, void *all, int64_t row) {
  return (char *)all + row * g->samples * split_state_size(s) * size_of(s);
}

/* Moves u at the state between two ranks: the rank with the earlier step has computed it, in g_T, and the scan of the rank with the
 * later step adds it, as its u_0. */
bppsa_status split_time_join_injected(void *context, int64_t layer, void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * split_state_size(s);
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

bppsa_status split_time_receive_carry(void *context, int64_t layer, void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * split_state_size(s);
  if (s->rank == 0) {
    return BPPSA_OK;
  }
  bppsa_comm_at(s->comm, "BP along time, layer", layer);
  const bppsa_view view = reals(s, s->carry, count);
  BPPSA_TRY(bppsa_comm_recv(s->active, s->rank - 1, s->tag + TAG_ENDS, &view));
  return add(s, count, s->carry, row_of(s, g, all, s->steps));
}

bppsa_status split_time_send_carry(void *context, int64_t layer, const void *all) {
  split_group *g = context;
  split_network *s = g->split;
  const int64_t count = g->samples * split_state_size(s);
  char *kept = row_of(s, g, g->states, layer); /* the network goes on in its own memory */
  BPPSA_TRY(copy(s, kept, all, count * size_of(s)));
  const bppsa_view view = reals(s, kept, count);
  return split_time_send_off(s, s->rank + 1, TAG_ENDS, &view, &g->sent[layer]);
}

/* Sets the gradients of a network's head to 0: they are the last parameters. */
static bppsa_status clear_head(const split_network *s, const bppsa_model *m) {
  const bppsa_parameter *head = &m->parameters[m->parameter_count - 2];
  if (s->gpu) {
    const int64_t before = (char *)head->value.data - (char *)m->parameters[0].value.data;
    return bppsa_memory_clear(s->device, (char *)m->device_gradients + before, m->reals * size_of(s) - before);
  }
  for (int i = 0; i < 2; ++i) {
    memset(head[i].gradient.data, 0, bppsa_view_bytes(&head[i].gradient));
  }
  return BPPSA_OK;
}

static bppsa_status backward_group(split_network *s, split_group *g, const bppsa_view *seed) {
  const bppsa_recurrent_config *c = &s->config;
  bppsa_model *m = g->model;
  if (!split_has_head(s)) { /* the head takes no part: its gradients are 0, and nothing comes from it */
    const bppsa_view zeros = view_of(s, s->zeros, 2, (int64_t[]){g->samples, c->hidden});
    BPPSA_TRY(clear_head(s, m));
    return bppsa_recurrent_backward_layers(m, &zeros);
  }
  bppsa_view own = *seed;
  if (s->group_count > 1) {
    BPPSA_TRY(take(s, g, split_logit_steps(s), c->classes, seed->data, g->seed));
    own = view_of(s, g->seed, 3, (int64_t[]){split_logit_steps(s), g->samples, c->classes});
    own = c->loss_all ? own : view_of(s, g->seed, 2, &own.shape[1]);
  }
  return m->ops->backward(m, &own);
}

/* Copies the gradients of x and h0 of a group into those of the batch. */
static bppsa_status collect_inputs(split_network *s, split_group *g) {
  bppsa_view dx, dh0;
  if (!s->config.input_gradients || s->group_count == 1) {
    return BPPSA_OK;
  }
  BPPSA_TRY(g->model->ops->input_gradients(g->model, &dx, &dh0));
  BPPSA_TRY(give(s, g, s->steps, s->config.input, dx.data, s->dx));
  return s->first == 0 ? give(s, g, s->config.layers, split_state_size(s), dh0.data, s->dh0) : BPPSA_OK;
}

/* Adds the weight gradients of this rank's groups to those of the first network, which are 0 on a rank without steps. */
static bppsa_status add_groups(const split_network *s) {
  const int64_t tensors = s->gpu ? 1 : s->base.parameter_count;
  for (int64_t i = 0; i < tensors; ++i) {
    const bppsa_view *gradient = &s->base.parameters[i].gradient;
    const int64_t count = s->gpu ? s->base.reals : bppsa_view_count(gradient);
    void *to = s->gpu ? s->base.device_gradients : gradient->data;
    BPPSA_TRY(s->steps == 0 ? bppsa_memory_clear(s->device, to, count * size_of(s)) : BPPSA_OK);
    for (int64_t g = 1; s->steps > 0 && g < s->group_count; ++g) {
      const bppsa_model *from = s->groups[g].model;
      if (s->groups[g].samples > 0) {
        BPPSA_TRY(add(s, count, s->gpu ? from->device_gradients : from->parameters[i].gradient.data, to));
      }
    }
  }
  return BPPSA_OK;
}

/* Adds up the gradients over the ranks, as one array in which they lie one behind the other. */
static bppsa_status add_ranks(split_network *s) {
  if (s->sum == NULL) {
    return BPPSA_OK;
  }
  bppsa_comm_at(s->comm, "the sum of weight gradients", -1);
  const bppsa_view flat = reals(s, s->gpu ? s->base.device_gradients : s->flat, s->reals);
  for (int out = 0; out < 2; ++out) {
    char *at = s->flat;
    for (int64_t i = 0; !s->gpu && i < s->base.parameter_count; ++i) {
      const bppsa_view *gradient = &s->base.parameters[i].gradient;
      const size_t bytes = bppsa_view_bytes(gradient);
      memcpy(out ? gradient->data : at, out ? at : gradient->data, bytes);
      at += bytes;
    }
    if (!out) {
      BPPSA_TRY(split_speculates_back(s) ? split_time_add_sums(s) : bppsa_ordered_sum_add(s->sum, s->rank, &flat));
      BPPSA_TRY(bppsa_ordered_sum_finish(s->sum, &flat));
    }
  }
  return BPPSA_OK;
}

bppsa_status split_time_backward(bppsa_model *model, const bppsa_view *seed) {
  BPPSA_REQUIRE(seed != NULL);
  split_network *s = (split_network *)model;
  bppsa_status status = BPPSA_OK;
  if (s->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  }
  const bppsa_view expected = logits_view(s);
  BPPSA_TRY(check_view(s, "seed", seed, expected.ndim == 3 ? "[T, B, C]" : "[B, C]", expected.ndim, expected.shape));
  bppsa_backward_state before;
  BPPSA_TRY(split_time_back_begin(s, &before));
  for (int64_t i = 0; status == BPPSA_OK && i < s->group_count && s->steps > 0; ++i) {
    split_group *g = &s->groups[i];
    if (g->samples > 0) {
      status = backward_group(s, g, seed);
      status = status == BPPSA_OK ? collect_inputs(s, g) : status;
    }
  }
  BPPSA_TRY(finish(s, status));
  BPPSA_TRY(split_time_back_end(s, &before));
  BPPSA_TRY(split_speculates_back(s) ? BPPSA_OK : add_groups(s));
  BPPSA_TRY(add_ranks(s));
  s->backward_done = true;
  if (s->gpu) {
    return BPPSA_OK;
  }
  bppsa_model_ready(model, 0, model->parameter_count);
  return bppsa_model_update_redone(model);
}
