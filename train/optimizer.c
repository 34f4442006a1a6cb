#include "train/optimizer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/host_device.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "core/compute/pool.h"
#include "train/blocks.h"
#include "train/optimizer_internal.h"

enum { ELEMENTS_PER_BLOCK = 1024, SLOTS = 2, LINE = 256 /* bytes between parts of GPU memory */ };

#define EACH_REAL "train/optimizer.inc"
#include "core/base/each_real.inc"

static const bppsa_optimizer_row kinds[BPPSA_OPTIMIZER_COUNT] = {
    [BPPSA_ADAM] = {"adam", {"exp_avg", "exp_avg_sq"}, .moments = true},
    [BPPSA_SGD] = {"sgd", {"momentum_buffer"}, .momentum = true},
    [BPPSA_ADAMW] = {"adamw", {"exp_avg", "exp_avg_sq"}, .moments = true, .decoupled = true, .weight_decay = 0.01}};

const bppsa_optimizer_row *bppsa_optimizer_get(bppsa_optimizer_kind kind) {
  return (unsigned)kind < BPPSA_OPTIMIZER_COUNT ? &kinds[kind] : NULL;
}

int64_t bppsa_optimizer_slots(const bppsa_optimizer_config *config) {
  const bppsa_optimizer_row *row = bppsa_optimizer_get(config->kind);
  const bool none = row == NULL || (row->momentum && !(config->momentum > 0.0));
  return none ? 0 : row->slots[1] != NULL ? 2 : 1;
}

struct bppsa_optimizer {
  bppsa_optimizer_config config;
  bppsa_model *model;
  int64_t slots;         /* state tensors of each parameter: 2, 1 or 0 */
  bppsa_buffer *buffers; /* the state, size parameters * slots */
  char **names;          /* likewise */
  bppsa_optimizer_state state;
  /* For a GPU model: result, factors, sums, then the state, one slot after the other, laid out like the model's values; otherwise
   * NULL. */
  char *device_memory;
};

bppsa_status bppsa_optimizer_parse(const char *text, bppsa_optimizer_kind *kind) {
  for (int k = 0; k < BPPSA_OPTIMIZER_COUNT; ++k) {
    if (text != NULL && strcmp(text, kinds[k].name) == 0) {
      *kind = (bppsa_optimizer_kind)k;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "optimizer '%.100s': unknown, expected adam, sgd or adamw", text == NULL ? "" : text);
}

const char *bppsa_optimizer_name(bppsa_optimizer_kind kind) {
  return (unsigned)kind < BPPSA_OPTIMIZER_COUNT ? kinds[kind].name : "unknown";
}

bppsa_optimizer_config bppsa_optimizer_config_default(void) {
  return (bppsa_optimizer_config){.kind = BPPSA_ADAM, .lr = 1e-3, .momentum = 0.0, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
}

static bppsa_status check_below_one(const char *name, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s %g, expected 0 <= %s < 1", name, value, name);
  }
  return BPPSA_OK;
}

static bppsa_status check_config(const bppsa_optimizer_config *config) {
  if ((unsigned)config->kind >= BPPSA_OPTIMIZER_COUNT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "optimizer %d: unknown, expected adam, sgd or adamw", (int)config->kind);
  }
  if (!(config->lr > 0.0 && isfinite(config->lr))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning rate %g, expected a finite number above 0", config->lr);
  }
  if (!(config->weight_decay >= 0.0 && isfinite(config->weight_decay))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "weight decay %g, expected a finite number of at least 0", config->weight_decay);
  }
  if (!(config->epsilon >= 0.0 && isfinite(config->epsilon))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "epsilon %g, expected a finite number of at least 0", config->epsilon);
  }
  BPPSA_TRY(check_below_one("momentum", config->momentum));
  BPPSA_TRY(check_below_one("beta1", config->beta1));
  return check_below_one("beta2", config->beta2);
}

/* Makes state tensor `slot` of parameter i, zero, named "PARAMETER.SLOT". */
static bppsa_status add_tensor(bppsa_optimizer *o, int64_t i, int64_t slot) {
  const bppsa_parameter *parameter = &o->model->parameters[i];
  const int64_t at = i * o->slots + slot;
  const char *suffix = kinds[o->config.kind].slots[slot];
  const size_t size = strlen(parameter->name) + strlen(suffix) + 2;
  BPPSA_TRY(bppsa_buffer_create(NULL, parameter->value.dtype, parameter->value.ndim, parameter->value.shape, &o->buffers[at]));
  o->names[at] = bppsa_alloc(size);
  if (o->names[at] == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  (void)snprintf(o->names[at], size, "%s.%s", parameter->name, suffix);
  o->state.tensors[at] = (bppsa_named_view){o->names[at], o->buffers[at].view};
  return BPPSA_OK;
}

static bppsa_status add_state(bppsa_optimizer *o) {
  o->slots = bppsa_optimizer_slots(&o->config);
  const int64_t count = o->slots * o->model->parameter_count;
  o->buffers = bppsa_calloc(count, sizeof *o->buffers);
  o->names = bppsa_calloc(count, sizeof *o->names);
  o->state.tensors = bppsa_calloc(count, sizeof *o->state.tensors);
  if (o->buffers == NULL || o->names == NULL || o->state.tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  o->state.count = count;
  for (int64_t at = 0; at < count; ++at) {
    BPPSA_TRY(add_tensor(o, at / o->slots, at % o->slots));
  }
  return BPPSA_OK;
}

static int64_t slot_bytes(const bppsa_optimizer *o) {
  return o->model->reals * (int64_t)bppsa_dtype_size(o->model->dtype);
}

static char *device_slot(const bppsa_optimizer *o, int64_t slot) {
  return slot < o->slots ? o->device_memory + 2 * LINE + bppsa_update_scratch() + slot * slot_bytes(o) : NULL;
}

const void *bppsa_optimizer_device_slot(const bppsa_optimizer *optimizer, int64_t slot) {
  return device_slot(optimizer, slot);
}

/* Has the model parameters that no update touches? */
static bool has_statistics(const bppsa_optimizer *o) {
  for (int64_t i = 0; i < o->model->parameter_count; ++i) {
    if (o->model->parameters[i].statistic) {
      return true;
    }
  }
  return false;
}

/* A byte for each real on a GPU, 1 where it is a statistic; NULL: none is. */
static uint8_t *device_fixed(const bppsa_optimizer *o) {
  return has_statistics(o) ? (uint8_t *)o->device_memory + 2 * LINE + bppsa_update_scratch() + o->slots * slot_bytes(o) : NULL;
}

static bppsa_status put_fixed(const bppsa_optimizer *o) {
  const bppsa_model *model = o->model;
  uint8_t *fixed = bppsa_calloc(model->reals, 1);
  if (fixed == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *value = &model->parameters[i].value;
    const int64_t at =
        ((const char *)value->data - (const char *)model->parameters[0].value.data) / (int64_t)bppsa_dtype_size(model->dtype);
    memset(fixed + at, model->parameters[i].statistic, (size_t)bppsa_view_count(value));
  }
  const bppsa_status status = bppsa_memory_put(model->device, device_fixed(o), fixed, model->reals);
  bppsa_free(fixed);
  return status;
}

/* Allocates zeroed GPU memory if the model is on a GPU. */
static bppsa_status add_device_state(bppsa_optimizer *o) {
  const bppsa_device *device = o->model->device;
  void *memory = NULL;
  int64_t bytes;
  if (device == NULL) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(slot_bytes(o), SLOTS, &bytes) || bytes > INT64_MAX / 2) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "optimizer: the state of %lld parameters does not fit in 64 bits",
                      (long long)o->model->reals);
  }
  bytes = 2 * LINE + bppsa_update_scratch() + o->slots * slot_bytes(o) + (has_statistics(o) ? o->model->reals : 0);
  BPPSA_TRY(bppsa_memory_alloc(device, bytes, &memory));
  o->device_memory = memory;
  BPPSA_TRY(bppsa_memory_clear(device, memory, bytes));
  return has_statistics(o) ? put_fixed(o) : BPPSA_OK;
}

bppsa_status bppsa_optimizer_create(const bppsa_optimizer_config *config, bppsa_model *model, bppsa_optimizer **optimizer) {
  BPPSA_REQUIRE(config != NULL && model != NULL && optimizer != NULL);
  BPPSA_TRY(check_config(config));
  bppsa_optimizer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->config = *config;
  made->model = model;
  bppsa_status status = add_state(made);
  status = status == BPPSA_OK ? add_device_state(made) : status;
  if (status != BPPSA_OK) {
    bppsa_optimizer_destroy(made);
    return status;
  }
  *optimizer = made;
  return BPPSA_OK;
}

void bppsa_optimizer_destroy(bppsa_optimizer *optimizer) {
  if (optimizer == NULL) {
    return;
  }
  for (int64_t i = 0; i < optimizer->state.count; ++i) {
    bppsa_buffer_free(&optimizer->buffers[i]);
    bppsa_free(optimizer->names[i]);
  }
  bppsa_memory_free(optimizer->model->device, optimizer->device_memory);
  bppsa_free(optimizer->buffers);
  bppsa_free(optimizer->names);
  bppsa_free(optimizer->state.tensors);
  bppsa_free(optimizer);
}

bppsa_optimizer_state *bppsa_optimizer_get_state(bppsa_optimizer *optimizer) {
  return &optimizer->state;
}

/* ---- the update ---- */

bppsa_step_factors bppsa_optimizer_begin(bppsa_optimizer *optimizer) {
  const bppsa_optimizer_config *c = &optimizer->config;
  const double step = (double)++optimizer->state.step;
  return (bppsa_step_factors){.rate = c->lr,
                              .keep = kinds[c->kind].decoupled ? 1.0 - c->lr * c->weight_decay : 1.0,
                              .size = c->lr / (1.0 - pow(c->beta1, step)),
                              .correction = sqrt(1.0 - pow(c->beta2, step))};
}

void bppsa_optimizer_set_lr(bppsa_optimizer *optimizer, double lr) {
  optimizer->config.lr = lr;
}

void bppsa_optimizer_cancel(bppsa_optimizer *optimizer) {
  optimizer->state.step -= 1;
}

void bppsa_optimizer_step(bppsa_optimizer *optimizer, const bppsa_device *device) {
  typedef void elements_step(const bppsa_optimizer_config *config, int32_t threads, const bppsa_step_factors *factors, int64_t n,
                             const void *g, void *const *state, void *p);
  static elements_step *const steps[2][2] = {{sgd_f32, sgd_f64}, {adam_f32, adam_f64}};
  const bool moments = kinds[optimizer->config.kind].moments;
  const int32_t threads = bppsa_threads(device);
  const bppsa_step_factors factors = bppsa_optimizer_begin(optimizer);
  for (int64_t i = 0; i < optimizer->model->parameter_count; ++i) {
    const bppsa_parameter *parameter = &optimizer->model->parameters[i];
    if (parameter->statistic) {
      continue;
    }
    const bppsa_view *value = &parameter->value;
    void *state[SLOTS] = {NULL, NULL};
    for (int64_t slot = 0; slot < optimizer->slots; ++slot) {
      state[slot] = optimizer->buffers[i * optimizer->slots + slot].view.data;
    }
    steps[moments][value->dtype == BPPSA_F64](&optimizer->config, threads, &factors, bppsa_view_count(value),
                                              parameter->gradient.data, state, value->data);
  }
}

bppsa_status bppsa_optimizer_queue(bppsa_optimizer *o, double clip_norm, const bppsa_step_factors *factors,
                                   bppsa_gpu_result *result) {
  const bppsa_update_arena arena = {.config = &o->config,
                                    .dtype = o->model->dtype,
                                    .reals = o->model->reals,
                                    .values = o->model->device_values,
                                    .slots = {device_slot(o, 0), device_slot(o, 1)},
                                    .gradients = o->model->device_gradients,
                                    .scratch = o->device_memory + 2 * LINE,
                                    .fixed = device_fixed(o)};
  return bppsa_update_queue(o->model->device, &arena, clip_norm, factors, result);
}

static bppsa_status update_on_gpu(bppsa_optimizer *o, double clip_norm, double *norm) {
  const bppsa_device *device = o->model->device;
  bppsa_gpu_result found = {0};
  const bppsa_step_factors factors = bppsa_optimizer_begin(o);
  void *result = o->device_memory, *device_factors = o->device_memory + LINE;
  bppsa_status status = bppsa_memory_put(device, device_factors, &factors, sizeof factors);
  status = status == BPPSA_OK ? bppsa_memory_clear(device, result, sizeof found) : status;
  status = status == BPPSA_OK ? bppsa_optimizer_queue(o, clip_norm, device_factors, result) : status;
  status = status == BPPSA_OK ? bppsa_memory_get(device, &found, result, sizeof found) : status;
  if (status != BPPSA_OK || !isfinite(found.norm)) {
    bppsa_optimizer_cancel(o);
  }
  BPPSA_TRY(status);
  *norm = found.norm;
  return BPPSA_OK;
}

bppsa_status bppsa_optimizer_update(bppsa_optimizer *optimizer, const bppsa_device *device, double clip_norm, double *norm) {
  BPPSA_REQUIRE(optimizer != NULL && norm != NULL);
  if (optimizer->model->device != NULL) {
    return update_on_gpu(optimizer, clip_norm, norm);
  }
  *norm = bppsa_gradient_norm(optimizer->model, device);
  if (isfinite(*norm)) {
    if (clip_norm > 0.0) {
      bppsa_gradient_clip(optimizer->model, device, *norm, clip_norm);
    }
    bppsa_optimizer_step(optimizer, device);
  }
  return BPPSA_OK;
}

/* Copies every state tensor to the GPU or from it. A state tensor has the offset that its parameter has among the values. */
static bppsa_status move_state(bppsa_optimizer *o, bool push) {
  const bppsa_model *model = o->model;
  for (int64_t at = 0; model->device != NULL && at < o->state.count; ++at) {
    const bppsa_view *host = &o->state.tensors[at].view;
    const char *value = model->parameters[at / o->slots].value.data;
    char *device_value = device_slot(o, at % o->slots) + (value - (const char *)model->parameters[0].value.data);
    const int64_t bytes = (int64_t)bppsa_view_bytes(host);
    BPPSA_TRY(push ? bppsa_memory_put(model->device, device_value, host->data, bytes)
                   : bppsa_memory_get(model->device, host->data, device_value, bytes));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_optimizer_push(bppsa_optimizer *optimizer) {
  BPPSA_REQUIRE(optimizer != NULL);
  return move_state(optimizer, true);
}

bppsa_status bppsa_optimizer_pull(bppsa_optimizer *optimizer) {
  BPPSA_REQUIRE(optimizer != NULL);
  return move_state(optimizer, false);
}

/* ---- the norm ---- */

/* Sums the squares of one tensor, block by block. */
typedef struct {
  const bppsa_view *gradient;
  int64_t n, size; /* size: elements in a block */
  double unit;
  double *sums;
} tensor_sums;

static void square_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const tensor_sums *t = context;
  (void)worker;
  for (int64_t k = first; k < end; ++k) {
    const int64_t from = k * t->size, to = bppsa_min(from + t->size, t->n);
    t->sums[k] = t->gradient->dtype == BPPSA_F32 ? sum_squares_f32(t->gradient->data, from, to, t->unit)
                                                 : sum_squares_f64(t->gradient->data, from, to, t->unit);
  }
}

/* Σ (g / unit)² of one tensor, in blocks fixed by the tensor's size. */
static double tensor_squares(const bppsa_view *gradient, int32_t threads, double unit) {
  /* a division, and an addition that waits for the one before it, take as long as this many FLOP of a kernel */
  enum { ELEMENT_FLOPS = 32 };
  const int64_t n = bppsa_view_count(gradient);
  if (n == 0) {
    return 0.0;
  }
  const int64_t size = bppsa_block_terms(n, ELEMENTS_PER_BLOCK), blocks = (n - 1) / size + 1;
  double sums[BPPSA_BLOCKS];
  const tensor_sums all = {gradient, n, size, unit, sums};
  bppsa_parallel_for(threads, blocks, bppsa_loop_work(ELEMENT_FLOPS * (double)n, 0), square_blocks, &all);
  double total = 0.0;
  for (int64_t k = 0; k < blocks; ++k) {
    total += sums[k];
  }
  return total;
}

static double model_squares(const bppsa_model *model, int32_t threads, double unit) {
  double total = 0.0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    total += tensor_squares(&model->parameters[i].gradient, threads, unit);
  }
  return total;
}

double bppsa_gradient_norm(const bppsa_model *model, const bppsa_device *device) {
  const int32_t threads = bppsa_threads(device);
  const double plain = model_squares(model, threads, 1.0);
  if ((plain > DBL_MIN / DBL_EPSILON && isfinite(plain)) || isnan(plain)) {
    return sqrt(plain);
  }
  double unit = 0.0; /* the largest magnitude; needed because the squares over- or underflow */
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *gradient = &model->parameters[i].gradient;
    const int64_t n = bppsa_view_count(gradient);
    const double own = gradient->dtype == BPPSA_F32 ? largest_f32(gradient->data, n) : largest_f64(gradient->data, n);
    unit = own > unit ? own : unit;
  }
  return unit == 0.0 || isinf(unit) ? unit : unit * sqrt(model_squares(model, threads, unit));
}

void bppsa_gradient_clip(bppsa_model *model, const bppsa_device *device, double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor < 1.0)) {
    return;
  }
  const int32_t threads = bppsa_threads(device);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *gradient = &model->parameters[i].gradient;
    const int64_t n = bppsa_view_count(gradient);
    if (gradient->dtype == BPPSA_F32) {
      scale_f32(gradient->data, threads, n, factor);
    } else {
      scale_f64(gradient->data, threads, n, factor);
    }
  }
}
