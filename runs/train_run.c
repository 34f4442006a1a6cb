#include "runs/train_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/files/rescue.h"
#include "train/checkpoint.h"
#include "train/line.h"

void bppsa_train_run_free(bppsa_train_run *run) {
  bppsa_train_trace_destroy(run->trace);
  bppsa_text_free(&run->timeline);
  bppsa_data_parallel_destroy(run->ranks);
  bppsa_pipeline_train_destroy(run->pipeline);
  bppsa_layer_train_destroy(run->layer_train);
  bppsa_rank_schedule_free(&run->schedule);
  bppsa_staleness_destroy(run->staleness);
  bppsa_model_destroy(run->model);
  bppsa_rank_network_free(&run->on);
  bppsa_dataset_destroy(run->dataset);
  bppsa_buffer_free(&run->order);
  bppsa_device_destroy(run->device);
  bppsa_safetensors_destroy(run->weights);
  bppsa_network_close(&run->network);
  *run = (bppsa_train_run){0};
}

/* ---- the model ---- */

bppsa_status bppsa_train_run_reserve(bppsa_train_run *run) {
  const bool parts = run->layers.split != NULL || (run->schedule.split != NULL && !run->schedule.one_device);
  const int64_t limit = run->config.memory_limit, each = (int64_t)sizeof(int64_t);
  run->config.optimizer_slots = parts ? 0 : bppsa_optimizer_slots(&run->train.optimizer);
  if (limit > 0 && run->epoch_samples >= limit / each) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--samples: %" PRId64 " of an epoch, whose order takes %" PRId64 " bytes each, expected fewer than fit the "
                      "memory limit of %" PRId64,
                      run->epoch_samples, each, limit);
  }
  run->config.memory_limit = limit > 0 ? limit - each * run->epoch_samples : 0;
  return BPPSA_OK;
}

bppsa_status bppsa_train_run_make_schedule(bppsa_train_run *run) {
  return bppsa_rank_schedule_make(&run->schedule, &run->network, &run->train, run->dataset, run->epoch_samples, run->device,
                                  bppsa_comm_size(run->on.comm), &run->config);
}

bppsa_status bppsa_train_run_make_layers(bppsa_train_run *run) {
  return bppsa_rank_layers_make(&run->layers, &run->network, &run->train, run->device, bppsa_comm_size(run->on.comm),
                                &run->config);
}

static bppsa_status join_stages(bppsa_train_run *run) {
  const bppsa_rank_schedule *s = &run->schedule;
  const bppsa_pipeline_config config = {.schedule = s->list, .samples = s->samples, .optimizer = run->train.optimizer};
  BPPSA_TRY(bppsa_pipeline_train_create(bppsa_rank_network_among(&run->on), s->chain, run->model, &config, &run->pipeline));
  run->train.ranks = bppsa_pipeline_train_ranks(run->pipeline);
  run->train.reduction = bppsa_rank_schedule_reduction(s, run->reduction, sizeof run->reduction);
  return BPPSA_OK;
}

static bppsa_status join_layers(bppsa_train_run *run) {
  bppsa_comm *comm = run->on.comm;
  const bppsa_layer_train_config *config = &run->layers.config;
  BPPSA_TRY(bppsa_layer_train_create(comm, &run->network.layers, run->model, config, run->device, &run->layer_train));
  run->train.ranks = bppsa_layer_train_ranks(run->layer_train);
  run->train.reduction = bppsa_layer_train_text(config, bppsa_comm_get_transport(comm), bppsa_comm_size(comm), run->reduction,
                                                sizeof run->reduction);
  return BPPSA_OK;
}

static bppsa_status join_ranks(bppsa_train_run *run) {
  bppsa_comm *comm = bppsa_rank_network_among(&run->on);
  const bppsa_data_parallel_config *parallel = &run->on.parallel;
  BPPSA_TRY(bppsa_data_parallel_create(comm, run->model, parallel, &run->ranks));
  run->train.ranks = bppsa_data_parallel_ranks(run->ranks);
  run->train.reduction = bppsa_data_parallel_text(parallel, bppsa_comm_get_transport(comm), bppsa_comm_size(comm), run->reduction,
                                                  sizeof run->reduction);
  return BPPSA_OK;
}

/* Follows the weights of a run that counts iterations on one processor, from its first step on. */
static bppsa_status follow_weights(bppsa_train_run *run) {
  const char *beside = run->on.comm != NULL            ? "beside ranks"
                       : run->model->device != NULL    ? "beside --device cuda"
                       : run->train.epochs > 0         ? "without --iterations, whose rows have the errors"
                       : run->train.checkpoint != NULL ? "beside --checkpoint, which keeps no older weights"
                                                       : NULL;
  if (run->ahead == 0) {
    return BPPSA_OK;
  }
  if (beside != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--predict-ahead: given %s, expected a run by iterations on one processor", beside);
  }
  BPPSA_TRY(bppsa_rank_schedule_check_smooth(&run->train.optimizer, "--predict-ahead", ""));
  return bppsa_staleness_create(run->model, run->ahead, &run->staleness);
}

/* Makes the loop drive the ranks through the trace, which notes their calls. */
static bppsa_status follow_ranks(bppsa_train_run *run) {
  if (run->trace_path == NULL) {
    return BPPSA_OK;
  }
  const bppsa_pipeline *executor = run->pipeline != NULL ? bppsa_pipeline_train_executor(run->pipeline) : NULL;
  BPPSA_TRY(bppsa_train_trace_create(run->on.comm, run->train.ranks, run->schedule.list, executor, &run->trace));
  run->train.ranks = bppsa_train_trace_ranks(run->trace);
  return BPPSA_OK;
}

bppsa_status bppsa_train_run_create_model(bppsa_train_run *run) {
  const double start = bppsa_now();
  run->config.steps.dropout_seed = run->config.dropout_seed = run->train.seed;
  run->config.training = true;
  run->config.steps.speculation.adapts = true;
  BPPSA_TRY(bppsa_rank_network_create(&run->network, &run->config, run->device, &run->on, &run->model));
  run->plan_s = bppsa_now() - start;
  BPPSA_TRY(follow_weights(run));
  if (run->on.comm == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(run->schedule.list != NULL ? join_stages(run) : run->layers.split != NULL ? join_layers(run) : join_ranks(run));
  return follow_ranks(run);
}

/* ---- checkpoints ---- */

#define ROWS "pack" /* the field of the steps of packed rows */

/* If the gradients' method is left open, a resumed run takes the checkpoint's. */
static void take_gradients(bppsa_train_run *run, const char *kept_text) {
  bppsa_gradient_method kept;
  /* If a scan was asked for, a checkpoint of BP belongs to another run; resuming will say so. */
  const bool scan = run->config.method.backward == BPPSA_BACKWARD_SCAN;
  if (run->chosen == BPPSA_CHOSEN_BY_ESTIMATE && bppsa_gradient_method_parse(kept_text, &kept) == BPPSA_OK &&
      !bppsa_gradient_method_open(&kept) && (!scan || kept.backward == BPPSA_BACKWARD_SCAN)) {
    run->config.method = kept;
    run->chosen = BPPSA_CHOSEN_BY_CHECKPOINT;
  }
}

bppsa_status bppsa_train_run_resume_method(bppsa_train_run *run) {
  bppsa_forward_method *forward = &run->config.steps.forward;
  const bool open = forward->kind == BPPSA_FORWARD_AUTO;
  if (!run->train.resume || (run->chosen != BPPSA_CHOSEN_BY_ESTIMATE && !open)) {
    return BPPSA_OK;
  }
  static const char *const keys[] = {"gradients", "forward", "backward"};
  char values[3][BPPSA_CHECKPOINT_VALUE];
  BPPSA_TRY(bppsa_checkpoint_peek(run->train.checkpoint, 3, keys, values));
  take_gradients(run, values[0]);
  bppsa_status status = open ? bppsa_forward_plan_read(values[1], forward) : BPPSA_OK;
  if (status == BPPSA_OK && run->chosen == BPPSA_CHOSEN_BY_CHECKPOINT) { /* of the other methods it says nothing */
    status = bppsa_backward_plan_read(values[2], &run->config.steps.speculation);
  }
  return status == BPPSA_OK ? status : bppsa_fail_prefix(status, "checkpoint in %s", run->train.checkpoint);
}

bppsa_status bppsa_train_run_kept_rows(const bppsa_train_run *run, char *kept) {
  static const char *const keys[] = {ROWS};
  char values[1][BPPSA_CHECKPOINT_VALUE] = {""};
  BPPSA_TRY(run->train.resume ? bppsa_checkpoint_peek(run->train.checkpoint, 1, keys, values) : BPPSA_OK);
  memcpy(kept, values[0], sizeof values[0]);
  return BPPSA_OK;
}

/* Sets field `count` to a copy of the text, and returns the number of the next field. */
static int64_t add_field(bppsa_train_fields *f, int64_t count, const char *key, const char *text) {
  snprintf(f->texts[count], sizeof f->texts[count], "%s", text);
  f->fields[count] = (bppsa_metadata){key, f->texts[count]};
  return count + 1;
}

/* Says where the initial weights come from: "orthogonal", or "from weights 89abcdef", the CRC-32 of the model's names and values,
 * which differs if the weights differ. */
static const char *initial_text(const bppsa_train_run *run, char text[BPPSA_TRAIN_FIELD]) {
  const bppsa_model *model = run->model;
  uLong sum = crc32_z(0, NULL, 0);
  if (run->weights == NULL) {
    return run->init;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const char *name = model->parameters[i].name;
    const bppsa_view *value = &model->parameters[i].value;
    sum = crc32_z(crc32_z(sum, (const Bytef *)name, strlen(name) + 1), value->data, bppsa_view_bytes(value));
  }
  snprintf(text, BPPSA_TRAIN_FIELD, "%s %08lx", run->init, sum);
  return text;
}

void bppsa_train_run_set_fields(bppsa_train_run *run) {
  bppsa_train_fields *f = &run->fields;
  const bppsa_network_config *c = &run->config;
  char text[BPPSA_TRAIN_FIELD];
  int64_t count = 0;
  const char *loss = bppsa_objective_loss(&run->dataset->objective, bppsa_pack_loss_all(run->dataset, c));
  bppsa_network_field fields[BPPSA_NETWORK_FIELDS];
  const int64_t of_network = run->network.kind->family->fields(&run->network, c, loss, fields);
  for (int64_t i = 0; i < of_network; ++i) {
    count = add_field(f, count, fields[i].key, fields[i].text);
  }
  count = add_field(f, count, "init", initial_text(run, text));
  if (run->dataset->packing != NULL) {
    snprintf(text, sizeof text, "%" PRId64, run->dataset->packing->steps);
    count = add_field(f, count, ROWS, text);
  }
  run->train.gradients = f->texts[count];
  const bppsa_gradient_method method = bppsa_rank_network_method(&run->network, c, &run->on, run->model);
  count = add_field(f, count, "gradients", bppsa_gradient_method_text(&method, text, sizeof text));
  run->train.fields = f->fields;
  run->train.field_count = count;
}

/* ---- weights ---- */

bppsa_status bppsa_train_run_stopped(const bppsa_train_run *run, const char *weights, const char *name) {
  const struct {
    const char *words, *path, *after;
  } kept[] = {{"its checkpoint is in", run->train.checkpoint, ", expected --resume to go on"},
              {"its weights are in", weights, ""},
              {"its log is in", run->train.log_path, ""},
              {"its timeline is in", run->trace_path, ""}};
  bppsa_line line = {.length = 0};
  if (!run->result.stopped) {
    return BPPSA_OK;
  }
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; ++i) {
    if (kept[i].path != NULL) {
      bppsa_line_add(&line, ", %s %s%s", kept[i].words, kept[i].path, kept[i].after);
    }
  }
  return bppsa_fail(BPPSA_ERR_IO, "stopped by %s after step %" PRId64 "%s", name, run->result.steps,
                    line.length > 0 ? line.text : ", nothing is kept, expected --save-weights, --log or --checkpoint");
}

static bppsa_status save_weights(const char *path, const void *context) {
  const bppsa_train_run *run = context;
  const bppsa_model *model = run->model;
  const bppsa_network_kind *kind = run->network.kind;
  bppsa_metadata metadata[3] = {{"model", kind->name}};
  int64_t known = 1;
  if (kind->cell != NULL) {
    metadata[known++] = (bppsa_metadata){"nonlinearity", bppsa_nonlinearity_name(run->config.steps.nonlinearity)};
  }
  if (kind->family->steps || bppsa_objective_real(&run->dataset->objective)) {
    metadata[known++] =
        (bppsa_metadata){"loss", bppsa_objective_loss(&run->dataset->objective, bppsa_pack_loss_all(run->dataset, &run->config))};
  }
  bppsa_named_view *tensors = bppsa_calloc(model->parameter_count, sizeof *tensors);
  if (tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  const bppsa_status status = bppsa_safetensors_save(path, model->parameter_count, tensors, known, metadata);
  bppsa_free(tensors);
  return status;
}

/* ---- files ---- */

bppsa_status bppsa_train_run_end_trace(bppsa_train_run *run) {
  const bool predicted = run->schedule.list != NULL && run->schedule.costs != NULL;
  return run->trace != NULL ? bppsa_train_trace_finish(run->trace, predicted, &run->timeline) : BPPSA_OK;
}

bppsa_status bppsa_train_run_save(const bppsa_train_run *run, const char *weights) {
  const bppsa_result_text timeline = {run->timeline.text, run->timeline.size};
  const bppsa_result_file files[] = {{weights, save_weights, run},
                                     {run->trace != NULL ? run->trace_path : NULL, bppsa_save_text, &timeline}};
  return bppsa_save_results(2, files);
}

bppsa_status bppsa_train_run_rescue(const bppsa_train_run *run, bppsa_status status, const char *weights) {
  const bool whole = run->schedule.list == NULL && run->layers.split == NULL;
  const bool kept = run->train.checkpoint != NULL; /* a checkpoint has the state to go on from */
  return status == BPPSA_ERR_IO && weights != NULL && run->samples > 0 && whole && !kept
             ? bppsa_rescue(status, &(bppsa_result_file){weights, save_weights, run}, "the weights so far are in", "")
             : status;
}
