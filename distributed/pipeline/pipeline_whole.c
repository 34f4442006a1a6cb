/* The executor's weights and its optimisers' state as a whole: collected from the stages, and placed there. */
#include <inttypes.h>
#include <string.h>

#include "distributed/pipeline/pipeline_internal.h"

bppsa_status bppsa_pipeline_check_whole(const bppsa_pipeline *p, const bppsa_view *values, const bppsa_optimizer_state *state) {
  for (int64_t i = 0; i < p->chain->parameter_count; ++i) {
    if (!bppsa_view_same_shape(&values[i], &p->chain->parameters[i].value) || values[i].dtype != p->chain->dtype) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "pipeline: another shape or dtype for %s, expected the chain's",
                        p->chain->parameters[i].name);
    }
    BPPSA_TRY(bppsa_view_check_data(p->chain->parameters[i].name, &values[i]));
  }
  const int64_t expected = p->chain->parameter_count * bppsa_optimizer_slots(&p->config.optimizer);
  if (state != NULL && state->count != expected) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "pipeline: an optimiser's state of %" PRId64 " tensors, expected %" PRId64, state->count,
                      expected);
  }
  for (int64_t i = 0; state != NULL && i < expected; ++i) {
    BPPSA_TRY(bppsa_view_check_data(state->tensors[i].name, &state->tensors[i].view));
  }
  return BPPSA_OK;
}

/* Calls `move` for every parameter of a layer and for its state tensors, with the memory of `held` (NULL: another rank's) and the
 * tensor of the whole. */
typedef bppsa_status (*mover)(const bppsa_pipeline *p, int64_t layer, void *held, const bppsa_view *whole);

static bppsa_status move_layer(const bppsa_pipeline *p, int64_t layer, const pipeline_held *h, const bppsa_view *values,
                               const bppsa_optimizer_state *state, mover move) {
  const bppsa_chain_layer *about = &p->chain->layer[layer];
  const int64_t slots = state != NULL ? bppsa_optimizer_slots(&p->config.optimizer) : 0;
  for (int64_t i = 0; i < about->parameters; ++i) {
    const int64_t at = about->first_parameter + i;
    BPPSA_TRY(move(p, layer, h != NULL ? h->model.parameters[i].value.data : NULL, &values[at]));
    for (int64_t slot = 0; slot < slots; ++slot) {
      void *own = h != NULL ? bppsa_optimizer_get_state(h->optimizer)->tensors[i * slots + slot].view.data : NULL;
      BPPSA_TRY(move(p, layer, own, &state->tensors[at * slots + slot].view));
    }
  }
  return BPPSA_OK;
}

static bppsa_status tell(const bppsa_pipeline *p, int64_t layer, void *held, const bppsa_view *whole) {
  if (held != NULL) {
    memcpy(whole->data, held, bppsa_view_bytes(whole));
  }
  return bppsa_comm_broadcast(p->comm, (int32_t)pipeline_rank_of(p, p->holder[layer]), whole);
}

static bppsa_status take(const bppsa_pipeline *p, int64_t layer, void *held, const bppsa_view *whole) {
  (void)p;
  (void)layer;
  memcpy(held, whole->data, bppsa_view_bytes(whole));
  return BPPSA_OK;
}

/* Updates that the layers' optimisers have made, each as many as the others. */
static bppsa_status collect_step(const bppsa_pipeline *p, bppsa_optimizer_state *state) {
  int64_t step = 0, one = 1;
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    const pipeline_held *h = p->held[layer];
    step = h != NULL && h->optimizer != NULL ? bppsa_optimizer_get_state(h->optimizer)->step : step;
  }
  const bppsa_view view = bppsa_view_make(&step, BPPSA_I64, 1, &one);
  BPPSA_TRY(bppsa_comm_allreduce(p->comm, BPPSA_COMM_MAX, &view));
  state->step = step;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_collect(bppsa_pipeline *p, const bppsa_view *values, bppsa_optimizer_state *state) {
  BPPSA_REQUIRE(p != NULL && values != NULL);
  BPPSA_TRY(bppsa_pipeline_check_whole(p, values, state));
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    pipeline_held *h = p->held[layer];
    if (h != NULL && h->optimizer != NULL) {
      BPPSA_TRY(bppsa_model_pull(&h->model, false));
      BPPSA_TRY(bppsa_optimizer_pull(h->optimizer));
    }
    BPPSA_TRY(move_layer(p, layer, p->held[layer], values, state, tell));
  }
  return state != NULL ? collect_step(p, state) : BPPSA_OK;
}

bppsa_status bppsa_pipeline_place(bppsa_pipeline *p, const bppsa_view *values, const bppsa_optimizer_state *state) {
  BPPSA_REQUIRE(p != NULL && values != NULL);
  BPPSA_TRY(bppsa_pipeline_check_whole(p, values, state));
  for (int64_t cell = 0; cell < p->list->replicas * p->layers; ++cell) {
    pipeline_held *h = p->held[cell];
    if (h == NULL || h->optimizer == NULL) {
      continue;
    }
    BPPSA_TRY(move_layer(p, cell % p->layers, h, values, state, take));
    BPPSA_TRY(bppsa_model_push(&h->model));
    if (state != NULL) {
      bppsa_optimizer_get_state(h->optimizer)->step = state->step;
      BPPSA_TRY(bppsa_optimizer_push(h->optimizer));
    }
    h->predicted_from = -1;
  }
  return BPPSA_OK;
}
