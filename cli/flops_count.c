/* Counting a sparse scan. Three kinds of patterns:
 *
 *   by structure   every weight counts: nothing of a Jacobian's size is made
 *   guaranteed     weights that are 0, or pruned, are left out; what a ReLU or a pool may let through counts
 *   value          of a batch's samples: dead ReLUs and taps that are no window's largest are left out too; means over the samples
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/flops.h"
#include "cli/machine.h"
#include "core/alloc.h"
#include "core/npy.h"
#include "core/philox.h"

/* ---- weights ---- */

/* A model with the weights of --weights or --seed. */
static bppsa_status make_model(const bppsa_cli *cli, const bppsa_flops *f, int64_t batch, bppsa_model **model) {
  bppsa_recurrent_config config = bppsa_network_config_default(&f->network);
  bppsa_safetensors *file = NULL;
  bppsa_model *made = NULL;
  config.batch = batch;
  config.memory_limit = (int64_t)(0.75 * (double)bppsa_machine_memory());
  config.method.backward = BPPSA_BACKWARD_BP;
  if (bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given) {
    BPPSA_TRY(bppsa_setup_weights(cli, &f->network, &config, &file));
  }
  bppsa_status status = bppsa_network_create(&f->network, &config, f->device, &made);
  if (status == BPPSA_OK && file != NULL) {
    status = bppsa_setup_model(cli, file, made);
  } else if (status == BPPSA_OK) {
    status =
        bppsa_network_init(&f->network, made, BPPSA_INIT_DEFAULT, (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer);
  }
  bppsa_safetensors_destroy(file);
  if (status != BPPSA_OK) {
    bppsa_model_destroy(made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}

/* The number of layer l's weight among those that masks are of, or -1. */
static int64_t weight_of(const bppsa_flops *f, int64_t l) {
  char name[BPPSA_CNN_PARAMETER];
  snprintf(name, sizeof name, "%s.weight", f->network.layers.layers[l].prefix);
  int64_t i = bppsa_cnn_has_weights(&f->network.layers.layers[l]) ? f->masks.count - 1 : -1;
  while (i >= 0 && strcmp(f->masks.weights[i].name, name) != 0) {
    --i;
  }
  return i;
}

/* Pruned and masked weights become 0; weights that are 0 are left out of the patterns. */
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

static bppsa_status make_masks(const bppsa_cli *cli, bppsa_model *model, bppsa_flops *f) {
  bppsa_named_view *tensors = bppsa_calloc(model->parameter_count, sizeof *tensors);
  if (tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    tensors[p] = (bppsa_named_view){model->parameters[p].name, model->parameters[p].value};
  }
  const bppsa_status status =
      bppsa_masks_make((bppsa_prune_method)bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->choice,
                       bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real, model->parameter_count, tensors, &f->masks);
  bppsa_free(tensors);
  BPPSA_TRY(status);
  apply_masks(model, f);
  return BPPSA_OK;
}

/* ---- patterns ---- */

/* The mask of layer i, NULL where all its weights are there. */
static const uint8_t *mask_of(const bppsa_flops *f, int64_t i) {
  const int64_t weight = f->pruned ? weight_of(f, i) : -1;
  return weight >= 0 ? f->masks.bytes[weight] : NULL;
}

/* Bytes of what patterns may take: --memory-limit, or 3/4 of what is available. */
static double memory_limit(const bppsa_cli *cli) {
  const bppsa_option_value *limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT);
  return limit->given ? (double)limit->integer : 0.75 * (double)bppsa_machine_memory();
}

/* Bytes that layer i's pattern takes at least: offsets of 8 bytes and columns of 4, of its positions and, unless it is symbolic,
 * of all its rows; the weights that a mask leaves bound its entries. */
static bppsa_status pattern_bytes(const bppsa_flops *f, int64_t i, bool symbolic, double *bytes) {
  const bppsa_cnn_layer *layer = &f->network.layers.layers[i];
  const uint8_t *mask = mask_of(f, i);
  bppsa_op_size size;
  BPPSA_TRY(bppsa_op_count(&layer->op, &size));
  const int copies = layer->op.kind == BPPSA_OPERATOR_CONV2D ? 2 : 1; /* a convolution's generator holds one of its own */
  *bytes = copies * (8 * ((double)size.position_rows + 1) + 4 * (double)size.position_entries);
  if (symbolic) {
    return BPPSA_OK;
  }
  double kept = 0, entries = (double)size.entries;
  for (int64_t k = 0; mask != NULL && k < bppsa_op_weights(&layer->op); ++k) {
    kept += mask[k] != 0;
  }
  kept *= (double)(layer->out[1] * layer->out[2]);
  entries = mask != NULL && kept < entries ? kept : entries;
  *bytes += 8 * ((double)bppsa_cnn_size(&f->network.layers, i) + 1) + 4 * entries;
  return BPPSA_OK;
}

/* All patterns fit, before one of them is made. */
static bppsa_status check_memory(const bppsa_cli *cli, const bppsa_flops *f, bool symbolic) {
  const double limit = memory_limit(cli);
  double all = 0, largest = -1;
  int64_t worst = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    double bytes;
    BPPSA_TRY(pattern_bytes(f, i, symbolic, &bytes));
    all += bytes;
    worst = bytes > largest ? i : worst;
    largest = bytes > largest ? bytes : largest;
  }
  return all <= limit
             ? BPPSA_OK
             : bppsa_fail(
                   BPPSA_ERR_ARGUMENT,
                   "%s: the Jacobians' patterns need at least %.0f bytes, %.0f of them for layer '%s', the memory limit is %.0f",
                   f->network.name, all, largest, f->names[worst], limit);
}

static bppsa_status make_patterns(const bppsa_cli *cli, bppsa_flops *f) {
  const bool symbolic = !f->pruned && !f->values;
  BPPSA_TRY(check_memory(cli, f, symbolic));
  for (int64_t i = 0; i < f->count; ++i) {
    BPPSA_TRY(bppsa_jacobian_create(&f->network.layers.layers[i].op, mask_of(f, i), symbolic, f->device, &f->jacobians[i]));
    f->patterns[i] = bppsa_jacobian_pattern(f->jacobians[i]);
    f->operators[i] =
        (bppsa_flops_operator){.rows = f->patterns[i]->rows, .cols = f->patterns[i]->cols, .nnz = (double)f->patterns[i]->nnz};
  }
  return BPPSA_OK;
}

/* The pattern of layer i's values at one sample. */
static bppsa_status compact_layer(const bppsa_model *model, bppsa_flops *f, int64_t i, int64_t sample) {
  const bppsa_csr *pattern = f->patterns[i];
  const int64_t size = (int64_t)bppsa_dtype_size(model->dtype);
  bppsa_view x, y, weight = {0};
  BPPSA_TRY(bppsa_cnn_activation(model, i - 1, &x));
  BPPSA_TRY(bppsa_cnn_activation(model, i, &y));
  int64_t parameter = 0;
  for (int64_t k = 0; k < i; ++k) {
    const bppsa_cnn_layer *layer = &f->network.layers.layers[k];
    parameter += bppsa_cnn_has_weights(layer) ? 1 + layer->bias : 0;
  }
  weight = model->parameters[parameter < model->parameter_count ? parameter : 0].value;
  const bppsa_jacobian_operands operands = {.batch = 1,
                                            .weights = weight.data,
                                            .input = (char *)x.data + sample * pattern->rows * size,
                                            .output = (char *)y.data + sample * pattern->cols * size};
  void *values = bppsa_calloc(pattern->nnz, (size_t)size), *kept = NULL;
  if (values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_csr_free(&f->compact[i]);
  bppsa_status status = bppsa_jacobian_fill(f->jacobians[i], model->dtype, &operands, values);
  status = status == BPPSA_OK ? bppsa_csr_compact(pattern, model->dtype, values, &f->compact[i], &kept) : status;
  bppsa_free(values);
  bppsa_free(kept);
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

/* Adds a plan's counts to the steps', and BP's to the operators'; the steps' other fields are the first plan's. */
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

/* Means over the samples, of BP's mat-vecs as of the scan's. */
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

/* The most expensive step of every level, all of the middle; totals that follow from the steps. */
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

static bppsa_status parse_levels(const bppsa_cli *cli, bppsa_scan_config *config) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_LEVELS);
  bppsa_option_value number;
  if (strcmp(value->text, "auto") == 0) {
    config->method.algorithm = BPPSA_SCAN_AUTO;
    return BPPSA_OK;
  }
  if (bppsa_option_parse(BPPSA_OPTION_UP_LEVELS, value->text, &number) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--up-levels: '%s', expected %s", value->text,
                      bppsa_option_get(BPPSA_OPTION_LEVELS)->expected);
  }
  config->method.algorithm = BPPSA_SCAN_BLELLOCH;
  config->method.up_levels = number.integer;
  return BPPSA_OK;
}

static bppsa_status scan_config(const bppsa_cli *cli, const bppsa_flops *f, bppsa_scan_config *config) {
  *config = bppsa_scan_config_default();
  BPPSA_TRY(parse_levels(cli, config));
  config->element = BPPSA_ELEMENT_CSR;
  config->jacobians = f->count;
  config->dim = bppsa_cnn_size(&f->network.layers, f->count);
  config->patterns = f->patterns;
  config->planner = f->device;
  config->symbolic = true;
  config->input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given;
  config->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  config->memory_limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer;
  return bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &config->dtype);
}

/* Every sample's own patterns, with the number of up-levels that holds for all. */
static bppsa_status count_samples(const bppsa_model *model, bppsa_scan_config config, bppsa_flops *f) {
  const bppsa_csr **own = bppsa_calloc(f->count, sizeof *own);
  bppsa_status status = own == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  config.patterns = own;
  for (int64_t sample = 0; status == BPPSA_OK && sample < f->samples; ++sample) {
    for (int64_t i = 0; status == BPPSA_OK && i < f->count; ++i) {
      status = compact_layer(model, f, i, sample);
      own[i] = f->patterns[i]->identity ? f->patterns[i] : &f->compact[i];
      f->operators[i].nnz = (sample > 0 ? f->operators[i].nnz : 0) + (double)own[i]->nnz / (double)f->samples;
    }
    bppsa_scan_plan_destroy(f->plan);
    f->plan = NULL;
    status = status == BPPSA_OK ? bppsa_scan_plan_create(&config, &f->plan) : status;
    status = status == BPPSA_OK && sample == 0 ? reserve_steps(f->plan, f) : status;
    if (status == BPPSA_OK) {
      add_steps(f->plan, sample == 0, f);
    }
  }
  bppsa_free((void *)own);
  BPPSA_TRY(status);
  divide_steps(f);
  f->totals = *bppsa_scan_plan_totals(f->plan);
  /* the records that steps name are the last plan's: all plans have the same */
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  for (int64_t i = 0; bppsa_scan_plan_next(f->plan, &it, &step); ++i) {
    f->steps[i].level = step.level;
    f->steps[i].product = NULL;
  }
  find_critical(f);
  return BPPSA_OK;
}

static bppsa_status count_patterns(const bppsa_cli *cli, const bppsa_model *model, bppsa_flops *f) {
  bppsa_scan_config config, automatic;
  BPPSA_TRY(scan_config(cli, f, &config));
  automatic = config;
  automatic.method.algorithm = BPPSA_SCAN_AUTO;
  BPPSA_TRY(bppsa_scan_plan_create(&automatic, &f->automatic));
  if (config.method.algorithm == BPPSA_SCAN_AUTO) { /* execution uses the patterns known ahead: so does its choice */
    config.method.algorithm = BPPSA_SCAN_BLELLOCH;
    config.method.up_levels = bppsa_scan_plan_config(f->automatic)->method.up_levels;
  }
  if (f->values) {
    return count_samples(model, config, f);
  }
  BPPSA_TRY(bppsa_scan_plan_create(&config, &f->plan));
  BPPSA_TRY(reserve_steps(f->plan, f));
  add_steps(f->plan, true, f);
  f->totals = *bppsa_scan_plan_totals(f->plan);
  return BPPSA_OK;
}

/* ---- the batch ---- */

/* --input, or one image of random numbers by --seed. */
static bppsa_status load_batch(const bppsa_cli *cli, const bppsa_flops *f, bppsa_dtype dtype, bppsa_buffer *x) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_INPUT);
  const int64_t *in = f->network.layers.in, shape[] = {1, in[0], in[1], in[2]};
  if (path->given) {
    BPPSA_TRY(bppsa_setup_reals(path->text, dtype, x));
    const int64_t wanted[] = {x->view.ndim > 0 && x->view.shape[0] > 0 ? x->view.shape[0] : 1, in[0], in[1], in[2]};
    return bppsa_setup_shape(path->text, &x->view, "[B, C, H, W]", 4, wanted);
  }
  BPPSA_TRY(bppsa_buffer_create(NULL, dtype, 4, shape, x));
  for (int64_t i = 0; i < bppsa_view_count(&x->view); ++i) {
    const uint64_t seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
    bppsa_view_set(&x->view, i, 4 * bppsa_random_double(seed, BPPSA_STREAM_IMAGES, (uint64_t)i) - 2);
  }
  return BPPSA_OK;
}

/* A model of the batch's size with the pruned weights of `from`. */
static bppsa_status copy_weights(const bppsa_model *from, bppsa_model *to) {
  for (int64_t p = 0; p < from->parameter_count; ++p) {
    BPPSA_TRY(bppsa_view_convert(&from->parameters[p].value, &to->parameters[p].value));
  }
  return BPPSA_OK;
}

/* Labels only change the seed's values, which are dense: they are checked, and no count depends on them. */
static bppsa_status check_labels(const bppsa_cli *cli, int64_t samples) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_LABELS);
  bppsa_buffer labels = {0};
  if (!path->given) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(path->text, &labels)));
  bppsa_status status = bppsa_setup_shape(path->text, &labels.view, "[B]", 1, &samples);
  if (status == BPPSA_OK && labels.view.dtype != BPPSA_I64) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected i64", path->text, bppsa_dtype_name(labels.view.dtype));
  }
  bppsa_buffer_free(&labels);
  return status;
}

static bppsa_status count_values(const bppsa_cli *cli, const bppsa_model *weights, bppsa_flops *f) {
  bppsa_buffer x = {0};
  bppsa_model *model = NULL;
  bppsa_view logits;
  bppsa_status status = load_batch(cli, f, weights->dtype, &x);
  f->samples = status == BPPSA_OK ? x.view.shape[0] : 1;
  status = status == BPPSA_OK ? check_labels(cli, f->samples) : status;
  status = status == BPPSA_OK ? make_model(cli, f, f->samples, &model) : status;
  status = status == BPPSA_OK ? copy_weights(weights, model) : status;
  status = status == BPPSA_OK ? model->ops->forward(model, &x.view, NULL, &logits) : status;
  status = status == BPPSA_OK ? count_patterns(cli, model, f) : status;
  bppsa_model_destroy(model);
  bppsa_buffer_free(&x);
  return status;
}

/* ---- all of it ---- */

static bppsa_status count_network(const bppsa_cli *cli, bppsa_flops *f, bppsa_model **weights) {
  const bool weighted = f->values || bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real > 0 || f->network.mask != NULL ||
                        bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given;
  if (weighted) {
    BPPSA_TRY(make_model(cli, f, 1, weights));
    BPPSA_TRY(make_masks(cli, *weights, f));
  }
  BPPSA_TRY(make_patterns(cli, f));
  const bool input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given;
  BPPSA_TRY(f->pruned || f->values ? bppsa_cnn_count_bp(&f->network.layers, NULL, input, f->device, &f->unpruned)
                                   : bppsa_cnn_count_chain(&f->network.layers, f->patterns, input, f->device, &f->unpruned));
  BPPSA_TRY(f->values ? count_values(cli, *weights, f) : count_patterns(cli, NULL, f));
  const double besides = bppsa_cnn_flops_besides(&f->network.layers, f->patterns);
  f->work = bppsa_work_of_scan(&f->totals, besides);
  f->bp = bppsa_work_of_bp(&f->totals, besides);
  return BPPSA_OK;
}

bppsa_status bppsa_flops_count(const bppsa_cli *cli, bppsa_flops *f) {
  if (bppsa_cli_value(cli, BPPSA_OPTION_MASK)->given && bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--mask: given beside --prune, expected one of them");
  }
  BPPSA_TRY(bppsa_network_open(cli, &f->network));
  f->count = f->network.layers.count - 1;
  const char *pattern = bppsa_cli_value(cli, BPPSA_OPTION_FLOPS_PATTERN)->text; /* NULL: the command has no choice */
  f->values = pattern != NULL && strcmp(pattern, "value") == 0;
  f->samples = 1;
  if (!f->values && (bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->given || bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->given)) {
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
  const bppsa_status status = count_network(cli, f, &weights);
  bppsa_model_destroy(weights);
  return status;
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
  bppsa_free(f->compact);
  bppsa_free((void *)f->names);
  bppsa_free((void *)f->jacobians);
  bppsa_free((void *)f->patterns);
  bppsa_free(f->operators);
  bppsa_free(f->steps);
  bppsa_masks_free(&f->masks);
  bppsa_device_destroy(f->device);
  bppsa_network_close(&f->network);
  *f = (bppsa_flops){0};
}
