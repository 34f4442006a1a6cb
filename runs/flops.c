/* Counts a sparse scan over one of three kinds of patterns:
 *
 *   by structure   every weight counts; no array of a Jacobian's size is made
 *   guaranteed     weights that are 0, or pruned, are left out; every entry that a ReLU or a pool may let through counts
 *   value          the patterns of a batch's samples leave out dead ReLUs, too, and inputs that are not the largest of a pool's
 *                  window; counts are means over the samples
 */
#include "runs/flops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cnn/blocks.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/files/npy.h"

/* ---- weights ---- */

static bppsa_status set_weights(const bppsa_flops_request *request, const bppsa_weights_request *from,
                                const bppsa_safetensors *file, bppsa_flops *f, bppsa_model *model) {
  return file != NULL ? bppsa_weights_set(from, &f->network, file, model, f->note)
                      : bppsa_network_init(&f->network, model, BPPSA_INIT_DEFAULT, request->seed);
}

/* Makes a model with the weights of a file, or with random ones. */
static bppsa_status make_model(const bppsa_flops_request *request, bppsa_flops *f, int64_t batch, bppsa_model **model) {
  const bppsa_weights_request from = {.path = request->weights, .dtype = request->convert_weights ? &request->dtype : NULL};
  bppsa_network_config config = bppsa_network_config_default(&f->network);
  bppsa_safetensors *file = NULL;
  bppsa_model *made = NULL;
  config.batch = batch;
  config.memory_limit = request->assumed_limit;
  config.method.backward = BPPSA_BACKWARD_BP;
  if (request->weights != NULL) {
    BPPSA_TRY(bppsa_weights_load(&from, &f->network, &config, &file));
  }
  bppsa_status status = bppsa_network_create(&f->network, &config, f->device, &made);
  status = status == BPPSA_OK ? set_weights(request, &from, file, f, made) : status;
  bppsa_safetensors_destroy(file);
  if (status != BPPSA_OK) {
    bppsa_model_destroy(made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}

/* Returns the position of layer l's weight in the list of masks, or -1. */
static int64_t weight_of(const bppsa_flops *f, int64_t l) {
  char name[BPPSA_CNN_PARAMETER];
  snprintf(name, sizeof name, "%s.weight", f->network.layers.layers[l].prefix);
  int64_t i = bppsa_cnn_has_weights(&f->network.layers.layers[l]) ? f->masks.count - 1 : -1;
  while (i >= 0 && strcmp(f->masks.weights[i].name, name) != 0) {
    --i;
  }
  return i;
}

/* Sets pruned and masked weights to 0, and masks all weights that are 0, so that the patterns leave them out. */
static void apply_masks(const bppsa_model *model, bppsa_flops *f) {
  for (int64_t l = 0; l < f->network.layers.count; ++l) {
    const int64_t i = weight_of(f, l);
    if (i < 0) {
      continue;
    }
    const bppsa_view *w = &f->masks.weights[i].view;
    const uint8_t *kept = bppsa_cnn_mask(model, l);
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      if (f->masks.bytes[i][k] == 0 || (kept != NULL && kept[k] == 0)) {
        bppsa_view_set(w, k, 0);
      }
      f->masks.bytes[i][k] = bppsa_view_get(w, k) != 0;
      f->pruned = f->pruned || f->masks.bytes[i][k] == 0;
    }
  }
}

static bppsa_status make_masks(const bppsa_flops_request *request, bppsa_model *model, bppsa_flops *f) {
  bppsa_named_view *tensors = bppsa_calloc(model->parameter_count, sizeof *tensors);
  if (tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t count = 0;
  for (int64_t l = 0, p = 0; l < f->network.layers.count; ++l) { /* a norm's weight may have two extents too, but stays */
    const bppsa_cnn_layer *layer = &f->network.layers.layers[l];
    if (bppsa_cnn_has_weights(layer)) {
      tensors[count++] = (bppsa_named_view){model->parameters[p].name, model->parameters[p].value};
    }
    p += bppsa_cnn_parameters(layer);
  }
  const bppsa_status status = bppsa_masks_make(request->method, request->structure, request->prune, count, tensors, &f->masks);
  bppsa_free(tensors);
  BPPSA_TRY(status);
  apply_masks(model, f);
  return BPPSA_OK;
}

/* ---- patterns ---- */

const uint8_t *bppsa_flops_mask(const bppsa_flops *f, int64_t i) {
  const int64_t weight = f->pruned ? weight_of(f, i) : -1;
  return weight >= 0 ? f->masks.bytes[weight] : NULL;
}

/* The entries of the transposed Jacobian of a layer that joins or splits tensors. */
static double own_entries(const bppsa_flops *f, int64_t i) {
  double entries = 0;
  const bool blocks = bppsa_cnn_has_blocks(&f->network.layers.layers[i]);
  for (int64_t k = 0; k < bppsa_cnn_input_count(&f->network.layers, i); ++k) {
    entries +=
        (double)(blocks ? bppsa_cnn_block_entries(&f->network.layers, i, k) : bppsa_cnn_part_of(&f->network.layers, i, k).count);
  }
  return entries;
}

/* Bytes of layer i's pattern where it stands beside ones; `entries` of its own are spelled out there. 0 where the live sets in
 * front of it and behind it are single tensors. */
static double element_bytes(const bppsa_flops *f, int64_t i, double entries) {
  const bppsa_cnn_live *live = &f->elements.live;
  bool own;
  if (bppsa_cnn_live_is_own(live, &f->network.layers, i + 1)) {
    return 0;
  }
  const double ones = (double)bppsa_cnn_live_ones(live, &f->network.layers, i + 1, &own);
  return 16 * ((double)live->sizes[i] + 1) + 4 * (ones + (own ? entries : 0));
}

/* Sets *bytes to the least that layer i's pattern takes: offsets of 8 bytes and columns of 4, for its positions and, unless it is
 * symbolic, for all its rows. Where a mask leaves out weights, fewer entries are possible. */
static bppsa_status pattern_bytes(const bppsa_flops *f, int64_t i, bool symbolic, double *bytes) {
  const bppsa_cnn_layer *layer = &f->network.layers.layers[i];
  const uint8_t *mask = bppsa_flops_mask(f, i);
  bppsa_op_size size;
  if (layer->node != BPPSA_CNN_OPERATOR) {
    *bytes = element_bytes(f, i, bppsa_cnn_has_blocks(layer) ? own_entries(f, i) : 0);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_op_count(&layer->op, &size));
  const int copies = layer->op.kind == BPPSA_OPERATOR_CONV2D ? 2 : 1; /* the generator of a convolution holds a pattern too */
  *bytes = copies * (8 * ((double)size.position_rows + 1) + 4 * (double)size.position_entries);
  if (symbolic) {
    *bytes += element_bytes(f, i, 0);
    return BPPSA_OK;
  }
  double kept = 0, entries = (double)size.entries;
  for (int64_t k = 0; mask != NULL && k < bppsa_op_weights(&layer->op); ++k) {
    kept += mask[k] != 0;
  }
  kept *= (double)(layer->out[1] * layer->out[2]);
  entries = mask != NULL && kept < entries ? kept : entries;
  *bytes += 8 * ((double)layer->op.in[0] * (double)layer->op.in[1] * (double)layer->op.in[2] + 1) + 4 * entries;
  *bytes += element_bytes(f, i, entries);
  return BPPSA_OK;
}

/* Refuses patterns that do not fit into memory before the first of them is made. *large: rows are to be counted instead. */
static bppsa_status check_memory(const bppsa_flops_request *request, const bppsa_flops *f, bool symbolic, bool *large) {
  const double limit = (double)(request->memory_limit > 0 ? request->memory_limit : request->assumed_limit);
  double all = 0, largest = -1;
  int64_t worst = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    double bytes;
    BPPSA_TRY(pattern_bytes(f, i, symbolic, &bytes));
    all += bytes;
    worst = bytes > largest ? i : worst;
    largest = bytes > largest ? bytes : largest;
  }
  *large = !f->request.values && all > (double)request->most_patterns;
  return all <= limit || *large
             ? BPPSA_OK
             : bppsa_fail(
                   BPPSA_ERR_ARGUMENT,
                   "%s: the Jacobians' patterns need at least %.0f bytes, %.0f of them for layer '%s', the memory limit is %.0f",
                   f->network.name, all, largest, f->names[worst], limit);
}

/* What the table says about layer i, whose pattern is made. */
static bppsa_flops_operator operator_of(const bppsa_flops *f, int64_t i) {
  const bppsa_csr *own = f->patterns[i];
  if (own != NULL) {
    return (bppsa_flops_operator){.rows = own->rows, .cols = own->cols, .nnz = (double)own->nnz};
  }
  bppsa_flops_operator made = {.cols = bppsa_cnn_size(&f->network.layers, i + 1), .nnz = own_entries(f, i)};
  for (int64_t k = 0; k < bppsa_cnn_input_count(&f->network.layers, i); ++k) {
    made.rows += bppsa_cnn_size(&f->network.layers, bppsa_cnn_input_of(&f->network.layers, i, k) + 1);
  }
  return made;
}

/* Makes the generator of layer i, and destroys the one it had. */
static bppsa_status make_pattern(bppsa_flops *f, int64_t i, const uint8_t *mask, bool symbolic) {
  bppsa_jacobian_destroy(f->jacobians[i]);
  f->jacobians[i] = NULL;
  if (f->network.layers.layers[i].node == BPPSA_CNN_OPERATOR) {
    BPPSA_TRY(bppsa_jacobian_create(&f->network.layers.layers[i].op, mask, symbolic, f->device, &f->jacobians[i]));
    f->patterns[i] = bppsa_jacobian_pattern(f->jacobians[i]);
  }
  f->operators[i] = operator_of(f, i);
  return BPPSA_OK;
}

/* Makes all patterns by structure, counts BP over them, then leaves out the masked weights. Large patterns are not made: their rows
 * will be counted. *besides: FLOPs of the weights' gradients. */
static bppsa_status make_patterns(const bppsa_flops_request *request, bppsa_flops *f, double *besides) {
  bool large;
  const bool symbolic = !f->pruned && !f->request.values;
  BPPSA_TRY(bppsa_cnn_elements_create(&f->network.layers, request->input_grad, &f->elements));
  BPPSA_TRY(check_memory(request, f, symbolic, &large));
  if (large) {
    return bppsa_flops_count_rows(f, besides);
  }
  for (int64_t i = 0; i < f->count; ++i) {
    BPPSA_TRY(make_pattern(f, i, NULL, symbolic || bppsa_flops_mask(f, i) != NULL));
  }
  BPPSA_TRY(bppsa_cnn_count_chain(&f->network.layers, f->patterns, request->input_grad, f->device, &f->unpruned));
  for (int64_t i = 0; i < f->count; ++i) {
    BPPSA_TRY(bppsa_flops_mask(f, i) != NULL ? make_pattern(f, i, bppsa_flops_mask(f, i), false) : BPPSA_OK);
    BPPSA_TRY(bppsa_cnn_elements_set(&f->network.layers, i + 1, f->patterns[i], &f->elements));
  }
  *besides = bppsa_cnn_flops_besides(&f->network.layers, f->patterns);
  return BPPSA_OK;
}

/* Makes the pattern of the values that layer i has for one sample. */
static bppsa_status compact_layer(const bppsa_model *model, bppsa_flops *f, int64_t i, int64_t sample) {
  const bppsa_csr *pattern = f->patterns[i];
  const int64_t size = (int64_t)bppsa_dtype_size(model->dtype);
  const int64_t weight = weight_of(f, i);
  bppsa_view x, y;
  BPPSA_TRY(bppsa_cnn_activation(model, bppsa_cnn_input_of(&f->network.layers, i, 0), &x));
  BPPSA_TRY(bppsa_cnn_activation(model, i, &y));
  bppsa_jacobian_operands operands = {.batch = 1,
                                      .weights = weight >= 0 ? f->masks.weights[weight].view.data : NULL,
                                      .input = (char *)x.data + sample * pattern->rows * size,
                                      .output = (char *)y.data + sample * pattern->cols * size};
  void *values = bppsa_calloc(pattern->nnz, (size_t)size), *kept = NULL, *left = NULL;
  if (values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_csr_free(&f->compact[i]);
  bppsa_status status = BPPSA_OK;
  if (f->network.layers.layers[i].op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
    operands.scale = kept = bppsa_calloc(f->network.layers.layers[i].op.in[0], (size_t)size);
    status = kept == NULL ? BPPSA_ERR_MEMORY : bppsa_cnn_scale(model, i, kept);
  }
  status = status != BPPSA_OK ? status : bppsa_jacobian_fill(f->jacobians[i], model->dtype, &operands, values);
  status = status == BPPSA_OK ? bppsa_csr_compact(pattern, model->dtype, values, &f->compact[i], &left) : status;
  bppsa_free(values);
  bppsa_free(kept);
  bppsa_free(left);
  return status;
}

/* ---- steps ---- */

static bppsa_status reserve_steps(const bppsa_scan_plan *plan, bppsa_flops *f) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    ++f->step_count;
  }
  f->steps = bppsa_calloc(f->step_count, sizeof *f->steps);
  return f->steps == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* Adds the counts of a plan to the steps, and BP's counts to the operators. All other fields of a step come from the first plan. */
static void add_steps(const bppsa_scan_plan *plan, bool first, bppsa_flops *f) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  for (int64_t i = 0; i < f->count; ++i) {
    f->operators[i].bp_flops += bppsa_scan_plan_bp_flops(plan, f->count - i);
  }
  for (int64_t i = 0; bppsa_scan_plan_next(plan, &it, &step); ++i) {
    const bppsa_scan_step before = f->steps[i];
    if (first) {
      f->steps[i] = step;
      continue;
    }
    f->steps[i].nnz = before.nnz + step.nnz;
    f->steps[i].flops = before.flops + step.flops;
    f->steps[i].bytes = before.bytes + step.bytes;
  }
}

/* Divides the sums over the samples by their number, for BP and for the scan. */
static void divide_steps(bppsa_flops *f) {
  for (int64_t i = 0; i < f->count; ++i) {
    f->operators[i].bp_flops = (f->operators[i].bp_flops + f->samples / 2) / f->samples;
  }
  for (int64_t i = 0; i < f->step_count; ++i) {
    bppsa_scan_step *s = &f->steps[i];
    s->nnz = (s->nnz + f->samples / 2) / f->samples;
    s->flops = (s->flops + f->samples / 2) / f->samples;
    s->bytes = (s->bytes + f->samples / 2) / f->samples;
  }
}

/* Marks the critical path, which has the most expensive step of every level and the whole middle, and adds up the totals. */
static void find_critical(bppsa_flops *f) {
  bppsa_scan_totals *t = &f->totals;
  t->mm_flops = t->mv_flops = t->critical_flops = t->critical_steps = t->bp_flops = t->bp_critical_flops = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    t->bp_flops += f->operators[i].bp_flops;
    t->bp_critical_flops += i > 0 ? f->operators[i].bp_flops : 0;
  }
  for (int64_t i = 0; i < f->step_count; ++i) {
    bppsa_scan_step *s = &f->steps[i];
    int64_t worst = -1;
    for (int64_t k = 0; k < f->step_count; ++k) {
      const bool rival = f->steps[k].level->level == s->level->level && !f->steps[k].level->dead;
      worst = rival && (worst < 0 || f->steps[k].flops > f->steps[worst].flops) ? k : worst;
    }
    const bool runs = !s->level->dead && s->level->phase != BPPSA_PHASE_INPUT;
    s->critical = runs && (s->level->phase == BPPSA_PHASE_MIDDLE || worst == i);
    t->critical_flops += s->critical ? s->flops : 0;
    t->critical_steps += s->critical && !s->copy;
    *(s->level->op == BPPSA_OP_MM ? &t->mm_flops : &t->mv_flops) += s->level->dead ? 0 : s->flops;
  }
}

/* ---- plans ---- */

static bppsa_scan_config scan_config(const bppsa_flops_request *request, const bppsa_flops *f) {
  const int64_t most = (int64_t)2 << 30, assumed = request->assumed_limit < most ? request->assumed_limit : most;
  bppsa_scan_config config = bppsa_scan_config_default();
  config.method = request->scan;
  config.element = BPPSA_ELEMENT_CSR;
  config.jacobians = f->count;
  config.dim = bppsa_cnn_size(&f->network.layers, f->count);
  config.patterns = f->counter != NULL ? bppsa_cnn_counter_patterns(f->counter) : f->elements.patterns;
  config.counter = f->counter != NULL ? bppsa_cnn_counter_of(f->counter) : config.counter;
  config.planner = f->device;
  config.symbolic = true;
  config.input = request->input_grad;
  config.batch = request->batch;
  config.memory_limit = request->memory_limit;
  config.count_limit = request->memory_limit > 0 ? request->memory_limit : assumed;
  config.dtype = request->dtype;
  return config;
}

/* Makes the pattern of layer i for a sample, over live sets. The blocks of layers that are no operators keep
 * their zeros. */
static bppsa_status sample_layer(const bppsa_model *model, bppsa_flops *f, int64_t i, int64_t sample) {
  const bppsa_csr *own = f->patterns[i];
  double nnz = f->operators[i].nnz;
  if (own != NULL) {
    BPPSA_TRY(compact_layer(model, f, i, sample));
    own = own->identity ? own : &f->compact[i];
    nnz = (sample > 0 ? nnz : 0) + (double)own->nnz / (double)f->samples;
  }
  f->operators[i].nnz = nnz;
  return bppsa_cnn_elements_set(&f->network.layers, i + 1, own, &f->sampled);
}

/* Counts every sample over its own patterns, all with the same number of up-levels. */
static bppsa_status count_samples(const bppsa_model *model, bppsa_scan_config config, bppsa_flops *f) {
  bppsa_cnn_elements_free(&f->sampled);
  bppsa_status status = bppsa_cnn_elements_create(&f->network.layers, config.input, &f->sampled);
  config.patterns = f->sampled.patterns;
  for (int64_t sample = 0; status == BPPSA_OK && sample < f->samples; ++sample) {
    bppsa_scan_plan_destroy(f->plan); /* it borrows the patterns of the sample before */
    f->plan = NULL;
    for (int64_t i = 0; status == BPPSA_OK && i < f->count; ++i) {
      status = sample_layer(model, f, i, sample);
    }
    status = status == BPPSA_OK ? bppsa_scan_plan_create(&config, &f->plan) : status;
    status = status == BPPSA_OK && sample == 0 ? reserve_steps(f->plan, f) : status;
    if (status == BPPSA_OK) {
      add_steps(f->plan, sample == 0, f);
    }
  }
  BPPSA_TRY(status);
  divide_steps(f);
  f->totals = *bppsa_scan_plan_totals(f->plan);
  /* only the last plan is left, but the plans of all samples have the same records */
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  for (int64_t i = 0; bppsa_scan_plan_next(f->plan, &it, &step); ++i) {
    f->steps[i].level = step.level;
    f->steps[i].product = NULL;
  }
  find_critical(f);
  return BPPSA_OK;
}

/* Counts the plan that auto would choose over the samples' patterns, and keeps only its critical path. */
static bppsa_status count_automatic(const bppsa_model *model, const bppsa_scan_config *asked, int64_t levels, bppsa_flops *f) {
  bppsa_scan_config config = *asked;
  config.method = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = levels};
  BPPSA_TRY(count_samples(model, config, f));
  f->automatic_flops = f->totals.critical_flops;
  bppsa_scan_plan_destroy(f->plan);
  bppsa_free(f->steps);
  f->plan = NULL;
  f->steps = NULL;
  f->step_count = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    f->operators[i].bp_flops = 0;
  }
  return BPPSA_OK;
}

static bppsa_status count_patterns(const bppsa_flops_request *request, const bppsa_model *model, bppsa_flops *f) {
  bppsa_scan_config config = scan_config(request, f), automatic = config;
  automatic.method = bppsa_scan_method_of(BPPSA_SCAN_AUTO);
  BPPSA_TRY(bppsa_scan_plan_create(&automatic, &f->automatic));
  const int64_t levels = bppsa_scan_plan_config(f->automatic)->method.up_levels;
  f->automatic_flops = bppsa_scan_plan_totals(f->automatic)->critical_flops;
  if (config.method.algorithm == BPPSA_SCAN_AUTO) { /* a run knows only these patterns, so auto chooses by them */
    config.method.algorithm = BPPSA_SCAN_BLELLOCH;
    config.method.up_levels = levels;
  }
  if (f->request.values) {
    BPPSA_TRY(config.method.up_levels != levels ? count_automatic(model, &config, levels, f) : BPPSA_OK);
    BPPSA_TRY(count_samples(model, config, f));
    f->automatic_flops = config.method.up_levels != levels ? f->automatic_flops : f->totals.critical_flops;
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_scan_plan_create(&config, &f->plan));
  BPPSA_TRY(reserve_steps(f->plan, f));
  add_steps(f->plan, true, f);
  f->totals = *bppsa_scan_plan_totals(f->plan);
  return BPPSA_OK;
}

/* ---- the batch ---- */

/* Loads the images that were given, or makes one from random numbers by the seed. */
static bppsa_status load_batch(const bppsa_flops_request *request, const bppsa_flops *f, bppsa_dtype dtype, bppsa_buffer *x) {
  const int64_t *in = f->network.layers.in, shape[] = {1, in[0], in[1], in[2]};
  if (request->input != NULL) {
    BPPSA_TRY(bppsa_input_status(bppsa_npy_load_reals(request->input, dtype, x)));
    const int64_t wanted[] = {x->view.ndim > 0 && x->view.shape[0] > 0 ? x->view.shape[0] : 1, in[0], in[1], in[2]};
    return bppsa_view_check_shape(request->input, &x->view, "[B, C, H, W]", 4, wanted);
  }
  BPPSA_TRY(bppsa_buffer_create(NULL, dtype, 4, shape, x));
  for (int64_t i = 0; i < bppsa_view_count(&x->view); ++i) {
    bppsa_view_set(&x->view, i, 4 * bppsa_random_double(request->seed, BPPSA_STREAM_IMAGES, (uint64_t)i) - 2);
  }
  return BPPSA_OK;
}

/* Copies the pruned weights of one model into another of the same network. */
static bppsa_status copy_weights(const bppsa_model *from, bppsa_model *to) {
  for (int64_t p = 0; p < from->parameter_count; ++p) {
    BPPSA_TRY(bppsa_view_convert(&from->parameters[p].value, &to->parameters[p].value));
  }
  return BPPSA_OK;
}

/* Checks the labels. They change only the values of the seed, which is dense, so no count depends on them. */
static bppsa_status check_labels(const bppsa_flops_request *request, int64_t samples) {
  const char *path = request->labels;
  bppsa_buffer labels = {0};
  if (path == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_whole(path, &labels)));
  const bppsa_status status = bppsa_view_check_shape(path, &labels.view, "[B]", 1, &samples);
  bppsa_buffer_free(&labels);
  return status;
}

static bppsa_status count_values(const bppsa_flops_request *request, const bppsa_model *weights, bppsa_flops *f) {
  bppsa_buffer x = {0};
  bppsa_model *model = NULL;
  bppsa_view logits;
  bppsa_status status = load_batch(request, f, weights->dtype, &x);
  f->samples = status == BPPSA_OK ? x.view.shape[0] : 1;
  status = status == BPPSA_OK ? check_labels(request, f->samples) : status;
  status = status == BPPSA_OK ? make_model(request, f, f->samples, &model) : status;
  status = status == BPPSA_OK ? copy_weights(weights, model) : status;
  status = status == BPPSA_OK ? model->ops->forward(model, &x.view, NULL, &logits) : status;
  status = status == BPPSA_OK ? count_patterns(request, model, f) : status;
  bppsa_model_destroy(model);
  bppsa_buffer_free(&x);
  return status;
}

/* ---- opening and counting ---- */

static bppsa_status count_network(const bppsa_flops_request *request, bppsa_flops *f, bppsa_model **weights) {
  const bool masked = f->network.mask_count > 0 && !request->layers_only; /* layers alone need no weights for a mask */
  const bool weighted = f->request.values || request->prune > 0 || masked || request->weights != NULL;
  if (weighted) {
    BPPSA_TRY(make_model(request, f, 1, weights));
    BPPSA_TRY(make_masks(request, *weights, f));
  }
  BPPSA_TRY(bppsa_layer_table_count(f));
  if (request->layers_only) {
    return BPPSA_OK;
  }
  double besides;
  BPPSA_TRY(make_patterns(request, f, &besides));
  BPPSA_TRY(f->request.values ? count_values(request, *weights, f) : count_patterns(request, NULL, f));
  f->work = bppsa_work_of_scan(&f->totals, besides);
  f->bp = bppsa_work_of_bp(&f->totals, besides);
  return BPPSA_OK;
}

bppsa_flops_request bppsa_flops_request_default(void) {
  return (bppsa_flops_request){.method = BPPSA_PRUNE_CLASS_UNIFORM,
                               .batch = 1,
                               .scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO),
                               .dtype = BPPSA_F32,
                               .most_patterns = BPPSA_FLOPS_MOST_PATTERNS,
                               .count_work = BPPSA_CNN_COUNT_WORK};
}

static bppsa_status open_and_count(const bppsa_flops_request *request, bppsa_flops *f) {
  BPPSA_TRY(bppsa_network_open(request->network, request->mask, &f->network));
  f->count = f->network.layers.count - 1;
  if (f->network.kind->family != &bppsa_network_convolutional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a %s network, expected a %s one", request->network, f->network.kind->family->name,
                      bppsa_network_convolutional.name);
  }
  BPPSA_TRY(request->in[0] != 0 ? bppsa_network_reshape(&f->network, request->in) : BPPSA_OK);
  if (request->layers_only && request->values) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--pattern: value beside --up-levels none, which counts no values, expected --pattern "
                                          "guaranteed, or up-levels");
  }
  if (!request->values && (request->input != NULL || request->labels != NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--input: given beside --pattern guaranteed, expected --pattern value");
  }
  BPPSA_TRY(bppsa_device_create("cpu", 0, &f->device));
  f->names = bppsa_calloc(f->count, sizeof *f->names);
  f->jacobians = bppsa_calloc(f->count, sizeof(bppsa_jacobian *));
  f->patterns = bppsa_calloc(f->count, sizeof *f->patterns);
  f->operators = bppsa_calloc(f->count, sizeof *f->operators);
  f->compact = bppsa_calloc(f->count, sizeof *f->compact);
  if (f->names == NULL || f->jacobians == NULL || f->patterns == NULL || f->operators == NULL || f->compact == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < f->count; ++i) {
    f->names[i] = f->network.layers.layers[i].name;
  }
  bppsa_model *weights = NULL;
  const bppsa_status status = count_network(request, f, &weights);
  bppsa_model_destroy(weights);
  return status;
}

bppsa_status bppsa_flops_count(const bppsa_flops_request *request, bppsa_flops *flops) {
  bppsa_flops counted = {.request = *request, .samples = 1};
  const bppsa_status status = open_and_count(request, &counted);
  if (status != BPPSA_OK) {
    bppsa_flops_free(&counted);
    return status;
  }
  *flops = counted;
  return BPPSA_OK;
}

void bppsa_flops_free(bppsa_flops *f) {
  bppsa_scan_plan_destroy(f->plan);
  bppsa_scan_plan_destroy(f->automatic);
  for (int64_t i = 0; f->jacobians != NULL && i < f->count; ++i) {
    bppsa_jacobian_destroy(f->jacobians[i]);
  }
  for (int64_t i = 0; f->compact != NULL && i < f->count; ++i) {
    bppsa_csr_free(&f->compact[i]);
  }
  bppsa_cnn_elements_free(&f->elements);
  bppsa_cnn_elements_free(&f->sampled);
  bppsa_cnn_counter_destroy(f->counter);
  bppsa_free(f->compact);
  bppsa_free((void *)f->names);
  bppsa_free((void *)f->jacobians);
  bppsa_free((void *)f->patterns);
  bppsa_free(f->operators);
  bppsa_free(f->layers);
  bppsa_free(f->shrunk);
  bppsa_free(f->steps);
  bppsa_masks_free(&f->masks);
  bppsa_device_destroy(f->device);
  bppsa_network_close(&f->network);
  *f = (bppsa_flops){0};
}
