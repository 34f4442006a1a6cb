/* Recurrent networks cut along time: agreement between the ranks, and what each of them holds. */
#include "distributed/time/split_time.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"
#include "distributed/time/split_time_internal.h"

/* ---- agreement ---- */

/* What must be equal on all ranks. */
enum {
  STEPS,
  BATCH,
  INPUT,
  HIDDEN,
  LAYERS,
  CLASSES,
  LOSS,
  DTYPE,
  NONLINEARITY,
  FORWARD,
  CHUNKS,
  WARM_UP,
  ROUNDS,
  TOLERANCE,
  MOST_WORK,
  MOST_PATH,
  BACKWARD,
  BACKWARD_CHUNKS,
  BACKWARD_WARM_UP,
  BACKWARD_TOLERANCE,
  EXACT_INPUTS,
  ALGORITHM,
  GRADIENTS,
  RESETS,
  RESET_STATE,
  GROUPS,
  DEVICE,
  TERMS
};

/* A number whose bits must be equal. */
static int64_t bits_of(double number) {
  int64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static bppsa_status agree(const bppsa_split_time *split, const bppsa_recurrent_config *c, const bppsa_device *device) {
  static const char *const names[TERMS] = {"seq_len",
                                           "batch",
                                           "input",
                                           "hidden",
                                           "layers",
                                           "classes",
                                           "loss_all",
                                           "dtype",
                                           "nonlinearity",
                                           "forward",
                                           "chunks of the forward pass",
                                           "its warm-up",
                                           "its rounds",
                                           "its tolerance (bits)",
                                           "its most work (bits)",
                                           "its longest path (bits)",
                                           "backward",
                                           "chunks of the backward pass",
                                           "its warm-up",
                                           "its tolerance (bits)",
                                           "its exact input gradients",
                                           "algorithm",
                                           "input_gradients",
                                           "resets",
                                           "reset_state",
                                           "micro_batches",
                                           "device"};
  int64_t mine[TERMS] = {c->seq_len,
                         c->batch,
                         c->input,
                         c->hidden,
                         c->layers,
                         c->classes,
                         c->loss_all,
                         c->dtype,
                         c->nonlinearity,
                         c->forward.kind,
                         c->forward.chunks,
                         c->forward.warm_up,
                         c->forward.rounds,
                         bits_of(c->forward.tolerance),
                         bits_of(c->forward.most_work),
                         bits_of(c->forward.most_path),
                         c->method.backward,
                         c->speculation.chunks,
                         c->speculation.warm_up,
                         bits_of(c->speculation.tolerance),
                         c->speculation.exact_inputs,
                         c->method.backward == BPPSA_BACKWARD_SCAN ? c->method.scan.algorithm : 0,
                         c->input_gradients,
                         c->resets,
                         c->reset_state,
                         split->micro_batches,
                         bppsa_device_get_kind(device)};
  int64_t *all = NULL;
  BPPSA_TRY(bppsa_ranks_agree(split->comm, "split time", TERMS, names, mine, &all));
  bppsa_free(all);
  return BPPSA_OK;
}

static bppsa_status check(const bppsa_split_time *split, const bppsa_recurrent_config *c, const bppsa_device *device) {
  if (bppsa_device_get_kind(device) == BPPSA_CUDA && bppsa_comm_get_device(split->comm) != device) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split time: device %s, expected a communicator for its arrays",
                      bppsa_device_get_name(device));
  }
  if (c->factory.create != NULL || c->ends.before != NULL || c->ends.after != NULL || c->part.seq_len != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split time: a configuration with a factory, ends or a part of its own, expected none");
  }
  if (c->seq_len < 1 || split->micro_batches < 1 || split->micro_batches > c->batch) {
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT,
        "split time: %lld steps, %lld micro-batches, expected at least 1 step, and 1 .. %lld micro-batches as samples",
        (long long)c->seq_len, (long long)split->micro_batches, (long long)c->batch);
  }
  if (split->tag < 0 || split->tag > BPPSA_COMM_MAX_TAG - BPPSA_SPLIT_TIME_TAGS + 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split time: tag %d, expected 0 .. %d", (int)split->tag,
                      BPPSA_COMM_MAX_TAG - BPPSA_SPLIT_TIME_TAGS + 1);
  }
  return BPPSA_OK;
}

/* Do the layers run a scan over ranks? On a GPU a layer's own kernels take a rank through BP, linear and, with H up to
 * BPPSA_SCAN_FUSED_DIM, chunked: then gradients alone travel. */
static bool scan_is_over_ranks(const bppsa_gradient_method *method, bool gpu, int64_t hidden) {
  const bool fused = gpu && (method->scan.algorithm == BPPSA_SCAN_LINEAR ||
                             (method->scan.algorithm == BPPSA_SCAN_CHUNKED && hidden <= BPPSA_SCAN_FUSED_DIM));
  return method->backward == BPPSA_BACKWARD_SCAN && !fused;
}

static bool scans_over_ranks(const split_network *s) {
  return scan_is_over_ranks(&s->config.method, s->gpu, s->config.hidden);
}

/* Resolves AUTO. In units of a rank's own BP, the last rank of a pipeline waits (p - 1) / m, and a product costs about S. */
static bppsa_gradient_method choose(const split_network *s, const bppsa_recurrent_config *c, int64_t groups) {
  bppsa_gradient_method method = c->method;
  if (method.backward == BPPSA_BACKWARD_AUTO) {
    method.backward = s->ranks - 1 > groups * split_state_size(s) ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP;
    method.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO);
  }
  if (method.backward == BPPSA_BACKWARD_SCAN && method.scan.algorithm == BPPSA_SCAN_AUTO) {
    method.scan = bppsa_scan_method_of(BPPSA_SCAN_CHUNKED);
  }
  return method;
}

void bppsa_split_time_numbers(int64_t ranks, bool gpu, int64_t hidden, bppsa_gradient_method *method) {
  const bppsa_scan_method all = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH);
  bppsa_scan_method *scan = &method->scan;
  if (!scan_is_over_ranks(method, gpu, hidden)) {
    return;
  }
  if (scan->algorithm == BPPSA_SCAN_CHUNKED && scan->chunks > 0) {
    scan->chunks = ranks;
  }
  if (scan->algorithm == BPPSA_SCAN_BLELLOCH && scan->up_levels >= 0) {
    scan->up_levels = bppsa_scan_method_clamp(&all, ranks).up_levels;
  }
}

bppsa_gradient_method bppsa_split_time_method(const bppsa_model *model) {
  return ((const split_network *)model)->config.method;
}

bppsa_status bppsa_split_time_init(bppsa_model *model, bppsa_init init, uint64_t seed) {
  BPPSA_REQUIRE(model != NULL);
  return bppsa_recurrent_init(((const split_network *)model)->groups[0].model, init, seed);
}

/* ---- what a rank holds ---- */

static bppsa_status allocate(char **array, const split_network *s, int64_t steps, int64_t rows, int64_t width) {
  int64_t count;
  size_t bytes;
  BPPSA_TRY(bppsa_shape_bytes(s->config.dtype, 3, (int64_t[]){steps, rows, width}, &count, &bytes));
  BPPSA_TRY(bppsa_memory_alloc(s->device, (int64_t)bytes + 1, (void **)array));
  return bppsa_memory_clear(s->device, *array, (int64_t)bytes);
}

/* The group's network, of this rank's steps; a rank without steps has a network of one, for its parameters. */
static bppsa_status create_group(split_network *s, int64_t g, const bppsa_device *device) {
  split_group *group = &s->groups[g];
  bppsa_recurrent_config c = s->config;
  const int64_t samples = bppsa_cut(c.batch, s->group_count, g + 1) - bppsa_cut(c.batch, s->group_count, g);
  const bool scans = scans_over_ranks(s);
  group->split = s;
  c.seq_len = s->steps > 0 ? s->steps : 1;
  c.batch = samples;
  if (s->active == NULL) {
    c.method.backward = BPPSA_BACKWARD_BP;
  } else if (s->ranks > 1 && !split_speculates_back(s)) {
    c.factory = scans ? bppsa_ranks_scan_factory(&s->scan) : c.factory;
    c.ends = (bppsa_recurrent_ends){.context = group,
                                    .before = scans ? split_time_join_injected : split_time_receive_carry,
                                    .after = scans || s->rank + 1 == s->ranks ? NULL : split_time_send_carry};
  }
  if (s->ranks > 1 || (s->gpu && s->group_count > 1) || split_speculates_back(s)) {
    c.part = split_time_part(group);
  }
  c.memory_limit = c.memory_limit > 0 ? (c.memory_limit - 1) / s->group_count + 1 : 0; /* 0: none */
  BPPSA_TRY(bppsa_recurrent_create(&c, s->cell, device, &group->model));
  s->models[g] = group->model;
  group->sent = bppsa_calloc(s->requests, sizeof(bppsa_comm_request *));
  if (group->sent == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(allocate(&group->states, s, c.layers, samples, split_state_size(s)));
  if (s->group_count > 1) {
    BPPSA_TRY(allocate(&group->x, s, s->steps, samples, c.input));
    BPPSA_TRY(allocate(&group->seed, s, split_logit_steps(s), samples, c.classes));
  }
  if (s->group_count > 1 && (c.resets || c.reset_state)) {
    group->resets = bppsa_calloc(s->config.seq_len, (size_t)samples);
    return group->resets != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  }
  return BPPSA_OK;
}

static bppsa_status create_sum(split_network *s) {
  const int64_t ranks = bppsa_comm_size(s->comm);
  s->reals = s->base.reals;
  for (int64_t i = 0; !s->gpu && i < s->base.parameter_count; ++i) {
    s->reals += bppsa_view_count(&s->base.parameters[i].gradient);
  }
  if (split_speculates_back(s)) {
    BPPSA_TRY(allocate(&s->flat, s, 1, 1, s->reals));
    return split_time_create_sums(s);
  }
  if (ranks == 1) {
    return BPPSA_OK;
  }
  BPPSA_TRY(s->gpu ? BPPSA_OK : allocate(&s->flat, s, 1, 1, s->reals));
  return bppsa_ordered_sum_create(s->comm, ranks, NULL, s->config.dtype, s->reals, s->tag + TAG_SUM, &s->sum);
}

static bppsa_status build(split_network *s, const bppsa_device *device) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t samples = bppsa_cut(c->batch, s->group_count, 1);
  s->active = s->comm;
  if (s->ranks < bppsa_comm_size(s->comm)) {
    s->active = NULL;
    BPPSA_TRY(bppsa_comm_split(s->comm, s->rank < s->ranks ? 0 : -1, s->rank, &s->active));
  }
  s->scan = (bppsa_ranks_scan_context){.comm = s->active, .tag = s->tag + TAG_SCAN};
  s->requests = c->layers > 2 ? c->layers : 2;
  s->groups = bppsa_calloc(s->group_count, sizeof *s->groups);
  s->models = bppsa_calloc(s->group_count, sizeof(bppsa_model *));
  s->samples = bppsa_calloc(s->group_count, sizeof *s->samples);
  if (s->groups == NULL || s->models == NULL || s->samples == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t g = 0; g < s->group_count; ++g) {
    BPPSA_TRY(create_group(s, g, device));
  }
  const bppsa_model *first = s->groups[0].model;
  s->base.parameter_count = first->parameter_count;
  s->base.parameters = first->parameters;
  s->base.device = first->device;
  s->base.device_values = first->device_values;
  s->base.device_gradients = first->device_gradients;
  s->base.reals = first->reals;
  BPPSA_TRY(allocate(&s->carry, s, 1, samples, split_state_size(s)));
  BPPSA_TRY(allocate(&s->zeros, s, 1, samples, c->hidden));
  if (s->group_count > 1) {
    BPPSA_TRY(allocate(&s->logits, s, split_logit_steps(s), c->batch, c->classes));
  }
  if (s->group_count > 1 && c->input_gradients) {
    BPPSA_TRY(allocate(&s->dx, s, s->steps, c->batch, c->input));
    BPPSA_TRY(allocate(&s->dh0, s, c->layers, c->batch, split_state_size(s)));
  }
  return create_sum(s);
}

static void destroy(bppsa_model *model) {
  split_network *s = (split_network *)model;
  for (int64_t g = 0; s->groups != NULL && g < s->group_count; ++g) {
    split_group *group = &s->groups[g];
    if (group->sent != NULL) {
      bppsa_comm_cancel(s->requests, group->sent);
    }
    bppsa_model_destroy(group->model);
    bppsa_free(group->sent);
    bppsa_free(group->resets);
    bppsa_memory_free(s->device, group->states);
    bppsa_memory_free(s->device, group->x);
    bppsa_memory_free(s->device, group->seed);
  }
  if (s->active != s->comm) {
    bppsa_comm_destroy(s->active);
  }
  bppsa_ordered_sum_destroy(s->sum);
  void *const own[] = {s->logits, s->dx, s->dh0, s->carry, s->zeros, s->flat, s->taken};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_memory_free(s->device, own[i]);
  }
  bppsa_free(s->groups);
  bppsa_free(s->models);
  bppsa_free(s->samples);
  bppsa_free(s);
}

/* ---- the model ---- */

/* Gives views of the gradients of x and h0, which have the samples of all groups. */
static bppsa_status input_gradients(bppsa_model *model, bppsa_view *x, bppsa_view *h0) {
  const split_network *s = (const split_network *)model;
  const bppsa_recurrent_config *c = &s->config;
  if (!c->input_gradients) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  }
  if (!s->backward_done) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  }
  const bool begins = s->steps > 0 && s->first == 0;
  bppsa_view dx = bppsa_view_make(s->dx, c->dtype, 3, (int64_t[]){s->steps, s->batch, c->input});
  bppsa_view dh0 = bppsa_view_make(s->dh0, c->dtype, 3, (int64_t[]){c->layers, begins ? s->batch : 0, split_state_size(s)});
  if (s->group_count == 1 && s->steps > 0) {
    bppsa_view own_x, own_h0;
    bppsa_model *only = s->groups[0].model;
    BPPSA_TRY(only->ops->input_gradients(only, &own_x, &own_h0));
    dx.data = own_x.data;
    dh0.data = own_h0.data;
  }
  dx.device = dh0.device = bppsa_device_get_kind(s->device);
  if (x != NULL) {
    *x = dx;
  }
  if (h0 != NULL) {
    *h0 = dh0;
  }
  return BPPSA_OK;
}

/* Looks at what this rank holds. It sends nothing, because the other ranks may have found nothing and then do not answer; so it
 * cannot repeat a backward pass. */
static bool find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  const split_network *s = (const split_network *)model;
  for (int64_t g = 0; s->steps > 0 && s->batch > 0 && g < s->group_count; ++g) {
    const split_group *group = &s->groups[g];
    if (group->samples > 0 && bppsa_recurrent_forward_nonfinite(group->model, where)) {
      where->step += s->first;
      where->sample += group->first;
      return true;
    }
  }
  *where = (bppsa_nonfinite){.layer = -1, .step = -1, .sample = -1};
  return bppsa_model_parameter_nonfinite(model, s->backward_done, where);
}

static void forget(bppsa_model *model) {
  split_network *s = (split_network *)model;
  s->batch = 0;
  s->backward_done = false;
  for (int64_t g = 0; g < s->group_count; ++g) {
    s->groups[g].samples = 0;
    bppsa_model_forget(s->groups[g].model);
  }
}

/* All groups have the plan, statistics and pauses of the first one. */
static const bppsa_model *inner(const bppsa_model *model) {
  return ((const split_network *)model)->groups[0].model;
}

static bppsa_status count_redone(bppsa_model *model) {
  split_network *s = (split_network *)model;
  int64_t redone = 0;
  for (int64_t g = 0; g < s->group_count; ++g) {
    BPPSA_TRY(bppsa_model_update_redone(s->groups[g].model));
    redone += s->groups[g].model->redone;
  }
  model->redone = redone;
  return BPPSA_OK;
}

bppsa_status bppsa_split_time_create(const bppsa_split_time *split, const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                     const bppsa_device *device, bppsa_model **model) {
  BPPSA_REQUIRE(split != NULL && split->comm != NULL && config != NULL && cell != NULL && device != NULL && model != NULL);
  BPPSA_TRY(agree(split, config, device));
  BPPSA_TRY(check(split, config, device));
  split_network *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int32_t size = bppsa_comm_size(split->comm);
  s->ops = (bppsa_model_ops){.name = cell->name,
                             .forward = split_time_forward,
                             .forward_spans = split_time_forward_spans,
                             .backward = split_time_backward,
                             .input_gradients = input_gradients,
                             .last_states = split_time_last_states,
                             .find_nonfinite = find_nonfinite,
                             .destroy = destroy,
                             .forget = forget,
                             .count = count_redone,
                             .inner = inner};
  s->base = (bppsa_model){.ops = &s->ops, .dtype = config->dtype, .classes = config->classes};
  s->comm = split->comm;
  s->tag = split->tag;
  s->rank = bppsa_comm_rank(split->comm);
  s->ranks = size < config->seq_len ? size : (int32_t)config->seq_len;
  s->config = *config;
  s->device = device;
  s->gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  s->cell = cell;
  s->config.method = choose(s, config, split->micro_batches);
  bppsa_split_time_numbers(s->ranks, s->gpu, config->hidden, &s->config.method);
  s->group_count = split->micro_batches;
  bppsa_ranks_share(config->seq_len, size, s->rank, &s->first, &s->steps);
  bppsa_status status = split_time_forward_method(s, device, &s->config.forward);
  status = status == BPPSA_OK ? split_time_backward_method(s, device) : status;
  status = status == BPPSA_OK ? build(s, device) : status;
  if (status != BPPSA_OK) {
    destroy(&s->base);
    return status;
  }
  *model = &s->base;
  return BPPSA_OK;
}

/* ---- the loss ---- */

bppsa_status bppsa_ranks_loss(bppsa_comm *comm, const bppsa_view *seed, bppsa_loss_result *result) {
  BPPSA_REQUIRE(comm != NULL && seed != NULL && result != NULL);
  if ((seed->dtype != BPPSA_F32 && seed->dtype != BPPSA_F64) || !bppsa_view_contiguous(seed) || seed->device != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks loss: a seed of %s, expected f32 or f64 without gaps in host memory",
                      bppsa_dtype_name(seed->dtype));
  }
  enum { LOSS_SUM, CORRECT, ROWS, WEIGHT, NUMBERS };
  const int64_t ranks = bppsa_comm_size(comm), numbers = NUMBERS, shape[2] = {ranks, NUMBERS};
  if (ranks == 1) {
    return BPPSA_OK;
  }
  double mine[NUMBERS] = {[LOSS_SUM] = result->rows > 0 ? result->loss * result->weight : 0,
                          [CORRECT] = (double)result->correct,
                          [ROWS] = (double)result->rows,
                          [WEIGHT] = result->weight};
  double(*all)[NUMBERS] = bppsa_calloc(ranks, sizeof *all);
  if (all == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view view = bppsa_view_make(mine, BPPSA_F64, 1, &numbers), to = bppsa_view_make(all, BPPSA_F64, 2, shape);
  const bppsa_status status = bppsa_comm_allgather(comm, &view, NULL, &to);
  if (status == BPPSA_OK) {
    double sum = 0, correct = 0, rows = 0, weight = 0;
    bool labels = true;
    for (int64_t r = 0; r < ranks; ++r) {
      sum += all[r][LOSS_SUM];
      correct += all[r][CORRECT];
      rows += all[r][ROWS];
      weight += all[r][WEIGHT];
      labels = labels && all[r][CORRECT] >= 0;
    }
    if (weight > result->weight) {
      bppsa_view_scale(seed, result->weight / weight);
    }
    *result = (bppsa_loss_result){.loss = weight > 0 ? sum / weight : 0,
                                  .correct = labels ? (int64_t)correct : -1,
                                  .rows = (int64_t)rows,
                                  .weight = weight};
  }
  bppsa_free(all);
  return status;
}
