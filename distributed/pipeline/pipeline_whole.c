/* The executor's weights and its optimisers' state as a whole: collected from the stages, and placed there. */
#include <inttypes.h>
#include <string.h>

#include "distributed/agree.h"
#include "distributed/pipeline/pipeline_executor.h"

bppsa_status bppsa_pipeline_check_whole(const pipeline_plan *plan, const bppsa_view *values, const bppsa_optimizer_state *state) {
  for (int64_t i = 0; i < plan->chain->parameter_count; ++i) {
    if (!bppsa_view_same_shape(&values[i], &plan->chain->parameters[i].value) || values[i].dtype != plan->chain->dtype) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "pipeline: another shape or dtype for %s, expected the chain's",
                        plan->chain->parameters[i].name);
    }
    BPPSA_TRY(bppsa_view_check_data(plan->chain->parameters[i].name, &values[i]));
  }
  const int64_t expected = plan->chain->parameter_count * bppsa_optimizer_slots(&plan->config.optimizer);
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
typedef bppsa_status (*mover)(const pipeline_plan *plan, int64_t layer, void *held, const bppsa_view *whole);

static bppsa_status move_layer(const pipeline_plan *plan, int64_t layer, const pipeline_held *h, const bppsa_view *values,
                               const bppsa_optimizer_state *state, mover move) {
  const bppsa_chain_layer *about = &plan->chain->layer[layer];
  const int64_t slots = state != NULL ? bppsa_optimizer_slots(&plan->config.optimizer) : 0;
  for (int64_t i = 0; i < about->parameters; ++i) {
    const int64_t at = about->first_parameter + i;
    BPPSA_TRY(move(plan, layer, h != NULL ? h->model.parameters[i].value.data : NULL, &values[at]));
    for (int64_t slot = 0; slot < slots; ++slot) {
      void *own = h != NULL ? bppsa_optimizer_get_state(h->optimizer)->tensors[i * slots + slot].view.data : NULL;
      BPPSA_TRY(move(plan, layer, own, &state->tensors[at * slots + slot].view));
    }
  }
  return BPPSA_OK;
}

static bppsa_status tell(const pipeline_plan *plan, int64_t layer, void *held, const bppsa_view *whole) {
  if (held != NULL) {
    memcpy(whole->data, held, bppsa_view_bytes(whole));
  }
  return bppsa_comm_broadcast(plan->comm, (int32_t)pipeline_rank_of(plan, plan->holder[layer]), whole);
}

static bppsa_status take(const pipeline_plan *plan, int64_t layer, void *held, const bppsa_view *whole) {
  (void)plan;
  (void)layer;
  memcpy(held, whole->data, bppsa_view_bytes(whole));
  return BPPSA_OK;
}

/* Updates that the layers' optimisers have made, each as many as the others. */
static bppsa_status collect_step(const pipeline_weights *w, bppsa_optimizer_state *state) {
  int64_t step = 0;
  for (int64_t layer = 0; layer < w->plan->layers; ++layer) {
    const pipeline_held *h = w->held[layer];
    step = h != NULL && h->optimizer != NULL ? bppsa_optimizer_get_state(h->optimizer)->step : step;
  }
  BPPSA_TRY(bppsa_ranks_reduce(w->plan->comm, BPPSA_COMM_MAX, BPPSA_I64, 1, &step));
  state->step = step;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_collect(bppsa_pipeline *p, const bppsa_view *values, bppsa_optimizer_state *state) {
  BPPSA_REQUIRE(p != NULL && values != NULL);
  BPPSA_TRY(bppsa_pipeline_check_whole(&p->plan, values, state));
  for (int64_t layer = 0; layer < p->plan.layers; ++layer) {
    pipeline_held *h = p->weights.held[layer];
    if (h != NULL && h->optimizer != NULL) {
      BPPSA_TRY(bppsa_model_pull(&h->model, false));
      BPPSA_TRY(bppsa_optimizer_pull(h->optimizer));
    }
    BPPSA_TRY(move_layer(&p->plan, layer, p->weights.held[layer], values, state, tell));
  }
  return state != NULL ? collect_step(&p->weights, state) : BPPSA_OK;
}

bppsa_status bppsa_pipeline_place(bppsa_pipeline *p, const bppsa_view *values, const bppsa_optimizer_state *state) {
  BPPSA_REQUIRE(p != NULL && values != NULL);
  BPPSA_TRY(bppsa_pipeline_check_whole(&p->plan, values, state));
  for (int64_t cell = 0; cell < p->plan.list->replicas * p->plan.layers; ++cell) {
    pipeline_held *h = p->weights.held[cell];
    if (h == NULL || h->optimizer == NULL) {
      continue;
    }
    BPPSA_TRY(move_layer(&p->plan, cell % p->plan.layers, h, values, state, take));
    BPPSA_TRY(bppsa_model_push(&h->model));
    if (state != NULL) {
      bppsa_optimizer_get_state(h->optimizer)->step = state->step;
      BPPSA_TRY(bppsa_optimizer_push(h->optimizer));
    }
    h->predicted_from = -1;
  }
  return BPPSA_OK;
}
