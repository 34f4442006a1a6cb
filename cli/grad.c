/* `bppsa grad MODEL`: the gradients of one batch, written as a safetensors file. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/setup.h"
#include "core/alloc.h"
#include "core/npy.h"
#include "train/loss.h"

/* What both kinds of network take; `only` is what one of them takes besides. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""},                            \
        only{.option = BPPSA_OPTION_TRAIN_LOSS}, {.option = BPPSA_OPTION_IGNORE_LABEL}, {.option = BPPSA_OPTION_BACKWARD},       \
        {.option = BPPSA_OPTION_ALGORITHM}, {.option = BPPSA_OPTION_UP_LEVELS}, {.option = BPPSA_OPTION_CHUNKS},                 \
        {.option = BPPSA_OPTION_PLAN}, {.option = BPPSA_OPTION_DEVICE}, {.option = BPPSA_OPTION_DTYPE, .fallback = ""},          \
        {.option = BPPSA_OPTION_THREADS}, {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},                      \
        {.option = BPPSA_OPTION_WEIGHTS, .required = true}, {.option = BPPSA_OPTION_PREFIX},                                     \
        {.option = BPPSA_OPTION_INPUT, .required = true}, {.option = BPPSA_OPTION_LABELS, .required = true},                     \
        {.option = BPPSA_OPTION_H0}, {.option = BPPSA_OPTION_OUT, .required = true}, {.option = BPPSA_OPTION_JSON},              \
        {.option = BPPSA_OPTION_HELP}, {                                                                                         \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY), uses_gru[] = USES();

/* What convolutional networks take. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_TRAIN_LOSS, .help = "last: cross-entropy; mse: mean squared error of real targets"},
    {.option = BPPSA_OPTION_IGNORE_LABEL},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_MASK_HELP},
    {.option = BPPSA_OPTION_BACKWARD},
    {.option = BPPSA_OPTION_ALGORITHM},
    {.option = BPPSA_OPTION_UP_LEVELS},
    {.option = BPPSA_OPTION_PLAN},
    {.option = BPPSA_OPTION_WEIGHT_GRADIENTS},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    {.option = BPPSA_OPTION_PREFIX},
    {.option = BPPSA_OPTION_INPUT, .required = true, .help = "input [B,C,H,W]"},
    {.option = BPPSA_OPTION_LABELS, .required = true, .help = "int64 labels [B]; with --loss mse reals [B,C]"},
    {.option = BPPSA_OPTION_OUT, .required = true},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

enum { EXTRAS = 3 }; /* input, h0, loss */

/* What one run holds. */
typedef struct {
  bppsa_recurrent_config config;
  bppsa_chosen chosen;
  bppsa_network network;
  bppsa_objective objective;
  bppsa_safetensors *file;
  bppsa_device *device;
  bppsa_model *model;
  /* [T,B,I] or [B,C,H,W]; int64 [B] or [T,B], or real targets like the logits (both on the host); [L,B,H] (empty without --h0) */
  bppsa_buffer x, labels, h0;
  bppsa_buffer seed;    /* like the logits */
  bppsa_buffer dx, dh0; /* gradients of x and h0, on the host */
  double loss;
  float loss_f32;
  int64_t count;             /* tensors of the result */
  bppsa_named_view *tensors; /* size parameters + EXTRAS */
} gradients;

/* ---- the batch ---- */

/* [B,C,H,W] as the network has it. */
static bppsa_status take_images(const char *path, gradients *g) {
  const bppsa_view *x = &g->x.view;
  const int64_t *in = g->network.layers.in, batch = x->ndim > 0 ? x->shape[0] : 0, shape[] = {batch, in[0], in[1], in[2]};
  BPPSA_TRY(bppsa_setup_shape(path, x, "[B, C, H, W]", 4, shape));
  g->config.batch = batch;
  return batch > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_SHAPE, "%s: no sample, expected at least one", path);
}

static bppsa_status load_input(const bppsa_cli *cli, gradients *g) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->text;
  BPPSA_TRY(bppsa_setup_reals(path, g->config.dtype, &g->x));
  const bppsa_view *x = &g->x.view;
  if (g->network.kind->convolutional) {
    return take_images(path, g);
  }
  if (x->ndim != 3 || x->shape[0] < 1 || x->shape[1] < 1 || x->shape[2] != g->config.input) {
    char found[BPPSA_SHAPE_TEXT];
    const int axis = x->ndim != 3 ? -1 : x->shape[1] == g->config.input ? 1 : x->shape[0] == g->config.input ? 0 : -1;
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "%s: shape %s, expected [T, B, I] with T and B at least 1 and I = %" PRId64 " as in the weights%s", path,
                      bppsa_shape_text(x->ndim, x->shape, found, sizeof found), g->config.input,
                      axis == 1   ? "; its middle axis has that size"
                      : axis == 0 ? "; its first axis has that size"
                                  : "");
  }
  g->config.seq_len = x->shape[0];
  g->config.batch = x->shape[1];
  return BPPSA_OK;
}

/* Reals like the logits; a last axis of 1 may be missing. */
static bppsa_status load_targets(const bppsa_cli *cli, gradients *g) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->text;
  const bool all = g->config.loss_all, single = g->config.classes == 1;
  const int64_t shape[3] = {g->config.seq_len, g->config.batch, g->config.classes};
  BPPSA_TRY(bppsa_setup_reals(path, g->config.dtype, &g->labels));
  bppsa_view *view = &g->labels.view;
  if (single && view->ndim == (all ? 2 : 1)) {
    view->shape[view->ndim] = 1;
    *view = bppsa_view_make(view->data, view->dtype, view->ndim + 1, view->shape);
  }
  return bppsa_setup_shape(path, view, all ? "[T, B, C]" : "[B, C]", all ? 3 : 2, all ? shape : shape + 1);
}

static bppsa_status load_labels(const bppsa_cli *cli, gradients *g) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->text;
  const bool all = g->config.loss_all;
  const int64_t batch = g->config.batch, shape[2] = {g->config.seq_len, batch};
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(path, &g->labels)));
  const bppsa_view *labels = &g->labels.view;
  if (labels->dtype != BPPSA_I64) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected i64", path, bppsa_dtype_name(labels->dtype));
  }
  if (!all && labels->ndim == 1 && labels->shape[0] != batch && labels->shape[0] == shape[0] && !g->network.kind->convolutional) {
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "%s: %" PRId64 " labels, expected %" PRId64 ": --input is [T, B, I] = [%" PRId64 ", %" PRId64 ", %" PRId64
                      "], but looks like [B, T, I]",
                      path, shape[0], batch, shape[0], batch, g->config.input);
  }
  BPPSA_TRY(bppsa_setup_shape(path, labels, all ? "[T, B]" : "[B]", all ? 2 : 1, all ? shape : shape + 1));
  const int64_t count = bppsa_view_count(labels), *values = labels->data;
  for (int64_t i = 0; i < count; ++i) {
    if (g->objective.ignores && values[i] == g->objective.ignored) {
      continue;
    }
    if (values[i] < 0 || values[i] >= g->config.classes) {
      char position[64];
      const int64_t index[2] = {i / batch, i % batch};
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: label %" PRId64 " at %s, expected 0 .. %" PRId64, path, values[i],
                        bppsa_shape_text(all ? 2 : 1, all ? index : index + 1, position, sizeof position), g->config.classes - 1);
    }
  }
  return BPPSA_OK;
}

static bppsa_status load_h0(const bppsa_cli *cli, gradients *g) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_H0);
  if (!path->given) {
    return BPPSA_OK;
  }
  const int64_t shape[3] = {g->config.layers, g->config.batch, g->config.hidden};
  BPPSA_TRY(bppsa_setup_reals(path->text, g->config.dtype, &g->h0));
  return bppsa_setup_shape(path->text, &g->h0.view, "[L, B, H]", 3, shape);
}

static bppsa_status load_batch(const bppsa_cli *cli, gradients *g) {
  BPPSA_TRY(load_input(cli, g));
  BPPSA_TRY((g->objective.mse ? load_targets : load_labels)(cli, g));
  return load_h0(cli, g);
}

/* ---- the gradients ---- */

static bppsa_status compute_loss(const gradients *g, const bppsa_view *logits, bppsa_loss_result *result) {
  const bppsa_objective *o = &g->objective;
  const bppsa_view *seed = &g->seed.view, *labels = &g->labels.view;
  if (o->mse) {
    return bppsa_mean_squared_error(g->device, logits, labels, seed, result);
  }
  return o->ignores ? bppsa_cross_entropy_ignoring(g->device, logits, labels->data, o->ignored, seed, result)
                    : bppsa_cross_entropy(g->device, logits, labels->data, seed, result);
}

static bppsa_status forward_backward(gradients *g) {
  bppsa_view logits;
  bppsa_loss_result result;
  const bppsa_view *h0 = g->h0.view.data != NULL ? &g->h0.view : NULL;
  BPPSA_TRY(bppsa_buffer_move(g->device, &g->x));
  if (h0 != NULL) {
    BPPSA_TRY(bppsa_buffer_move(g->device, &g->h0));
  }
  BPPSA_TRY(g->model->ops->forward(g->model, &g->x.view, h0, &logits));
  BPPSA_TRY(bppsa_buffer_create(g->device, logits.dtype, logits.ndim, logits.shape, &g->seed));
  BPPSA_TRY(compute_loss(g, &logits, &result));
  g->loss = result.loss;
  if (!isfinite(g->loss)) {
    return bppsa_setup_fail_nonfinite(g->model, "loss");
  }
  BPPSA_TRY(g->model->ops->backward(g->model, &g->seed.view));
  return bppsa_model_pull(g->model, true);
}

/* The result: every parameter's gradient, input, h0, loss. Views borrow from the model and from g. */
static bppsa_status collect(gradients *g) {
  const bppsa_model *model = g->model;
  bppsa_view input, h0;
  BPPSA_TRY(model->ops->input_gradients(g->model, &input, &h0));
  BPPSA_TRY(bppsa_buffer_fetch(g->device, &input, &g->dx));
  if (g->h0.view.data != NULL) {
    BPPSA_TRY(bppsa_buffer_fetch(g->device, &h0, &g->dh0));
  }
  g->tensors = bppsa_calloc(model->parameter_count + EXTRAS, sizeof *g->tensors);
  if (g->tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    g->tensors[g->count++] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].gradient};
  }
  g->tensors[g->count++] = (bppsa_named_view){"input", g->dx.view};
  if (g->h0.view.data != NULL) {
    g->tensors[g->count++] = (bppsa_named_view){"h0", g->dh0.view};
  }
  g->loss_f32 = (float)g->loss;
  void *loss = model->dtype == BPPSA_F32 ? (void *)&g->loss_f32 : (void *)&g->loss;
  g->tensors[g->count++] = (bppsa_named_view){"loss", bppsa_view_make(loss, model->dtype, 0, NULL)};
  return BPPSA_OK;
}

/* The 2-norm, scaled by the largest element so that squares neither over- nor underflow; not finite where an element is not. */
static double norm_of(const bppsa_view *view) {
  const int64_t count = bppsa_view_count(view);
  double largest = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double size = fabs(bppsa_view_get(view, i));
    if (!isfinite(size)) {
      return size;
    }
    largest = size > largest ? size : largest;
  }
  for (int64_t i = 0; largest > 0 && i < count; ++i) {
    const double part = bppsa_view_get(view, i) / largest;
    sum += part * part;
  }
  return largest * sqrt(sum);
}

static bppsa_status check_finite(const gradients *g) {
  for (int64_t i = 0; i < g->count; ++i) {
    const bppsa_view *view = &g->tensors[i].view;
    const int64_t count = bppsa_view_count(view);
    for (int64_t k = 0; k < count; ++k) {
      if (!isfinite(bppsa_view_get(view, k))) {
        char what[128];
        snprintf(what, sizeof what, "gradient of %s, element %" PRId64, g->tensors[i].name, k);
        return bppsa_setup_fail_nonfinite(g->model, what);
      }
    }
  }
  return BPPSA_OK;
}

static const bppsa_option inputs[] = {BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_INPUT, BPPSA_OPTION_LABELS, BPPSA_OPTION_H0,
                                      BPPSA_OPTION_MASK};

static bppsa_status compute(const bppsa_cli *cli, gradients *g) {
  BPPSA_TRY(bppsa_network_open(cli, &g->network));
  g->config = bppsa_network_config_default(&g->network);
  BPPSA_TRY(bppsa_setup_config(cli, &g->config));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT));
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; ++i) {
    BPPSA_TRY(bppsa_cli_check_distinct(cli, inputs[i], BPPSA_OPTION_OUT));
  }
  BPPSA_TRY(bppsa_setup_device(cli, &g->device));
  BPPSA_TRY(bppsa_setup_weights(cli, &g->network, &g->config, &g->file));
  BPPSA_TRY(bppsa_objective_setup(cli, g->file, &g->objective));
  BPPSA_TRY(load_batch(cli, g));
  g->config.input_gradients = true;
  g->chosen = bppsa_planner_chooser(&g->config);
  BPPSA_TRY(bppsa_planner_choose(cli, &g->network, g->device, &g->config, &g->chosen));
  BPPSA_TRY(bppsa_network_create(&g->network, &g->config, g->device, &g->model));
  BPPSA_TRY(bppsa_setup_model(cli, g->file, g->model));
  BPPSA_TRY(forward_backward(g));
  BPPSA_TRY(collect(g));
  return check_finite(g);
}

/* ---- output ---- */

static json_t *tensor_json(const bppsa_named_view *tensor) {
  json_t *object = json_object();
  bool ok = bppsa_json_put_shape(object, "shape", tensor->view.ndim, tensor->view.shape);
  ok = ok && bppsa_json_put_text(object, "name", tensor->name);
  ok = ok && bppsa_json_put_real(object, "norm", norm_of(&tensor->view));
  return bppsa_json_finish(object, ok);
}

static json_t *gradients_json(const gradients *g) {
  const bppsa_recurrent_config *c = &g->config;
  const bppsa_gradient_method method = bppsa_network_method(&g->network, c, g->model);
  json_t *object = json_object(), *tensors = json_array();
  bool ok = tensors != NULL;
  for (int64_t i = 0; ok && i < g->count; ++i) {
    ok = json_array_append_new(tensors, tensor_json(&g->tensors[i])) == 0;
  }
  ok = bppsa_json_put(object, "tensors", bppsa_json_finish(tensors, ok));
  ok = ok && bppsa_json_put_real(object, "loss", g->loss);
  ok = ok && bppsa_setup_method_json(object, &method, g->chosen);
  ok = ok && bppsa_network_json(&g->network, c, object);
  ok = ok && bppsa_json_put_text(object, "model", g->network.kind->name);
  ok = ok && bppsa_objective_json(object, &g->objective, c->loss_all);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c->dtype));
  return bppsa_json_finish(object, ok);
}

static bppsa_status print_table(bppsa_cli *cli, const gradients *g) {
  const bppsa_recurrent_config *c = &g->config;
  const bppsa_gradient_method method = bppsa_network_method(&g->network, c, g->model);
  char text[BPPSA_SETUP_METHOD_TEXT], shape[BPPSA_SHAPE_TEXT], network[BPPSA_NETWORK_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "%s, %s, %s\n\n", bppsa_network_describe(&g->network, c, network, sizeof network),
                            bppsa_dtype_name(c->dtype), bppsa_setup_method(g->chosen, &method, text, sizeof text)));
  BPPSA_TRY(bppsa_cli_print(cli, "%-22s %-20s %s\n", "gradient of", "shape", "norm"));
  for (int64_t i = 0; i + 1 < g->count; ++i) { /* the loss comes last */
    const bppsa_view *view = &g->tensors[i].view;
    BPPSA_TRY(bppsa_cli_print(cli, "%-22s %-20s %.6e\n", g->tensors[i].name,
                              bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape), norm_of(view)));
  }
  return bppsa_cli_print(cli, "\nloss %.6f, written to %s\n", g->loss, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text);
}

static bppsa_status save(const bppsa_cli *cli, const gradients *g) {
  return bppsa_safetensors_save(bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text, g->count, g->tensors, 0, NULL);
}

static bppsa_status output(bppsa_cli *cli, const gradients *g) {
  if (!cli->json) {
    BPPSA_TRY(save(cli, g));
    return print_table(cli, g);
  }
  char *text = NULL;
  bppsa_json_start();
  BPPSA_TRY(bppsa_cli_render(gradients_json(g), &text));
  bppsa_status status = save(cli, g);
  if (status == BPPSA_OK) {
    status = bppsa_cli_print_document(cli, text);
  }
  bppsa_free(text);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  gradients g = {0};
  bppsa_status status = compute(cli, &g);
  if (status == BPPSA_OK) {
    status = output(cli, &g);
  }
  bppsa_free(g.tensors);
  bppsa_buffer_free(&g.dx);
  bppsa_buffer_free(&g.dh0);
  bppsa_buffer_free(&g.seed);
  bppsa_buffer_free(&g.h0);
  bppsa_buffer_free(&g.labels);
  bppsa_buffer_free(&g.x);
  bppsa_model_destroy(g.model);
  bppsa_device_destroy(g.device);
  bppsa_safetensors_destroy(g.file);
  bppsa_network_close(&g.network);
  return status;
}

const bppsa_command bppsa_command_grad_rnn = {
    .verb = "grad",
    .object = "rnn",
    .summary = "Gradients of one batch by BP or by the scan, for weights from PyTorch",
    .example = "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    .uses = uses_rnn,
    .run = run};

const bppsa_command bppsa_command_grad_gru = {
    .verb = "grad",
    .object = "gru",
    .summary = "Gradients of one batch by BP or by the scan, for weights from PyTorch",
    .example = "grad gru --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    .uses = uses_gru,
    .run = run};

const bppsa_command bppsa_command_grad_lenet5 = {
    .verb = "grad",
    .object = "lenet5",
    .summary = "Gradients of one batch by BP or by the sparse scan, for weights from PyTorch",
    .example = "grad lenet5 --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    .uses = uses_cnn,
    .run = run};

const bppsa_command bppsa_command_grad_vgg11 = {
    .verb = "grad",
    .object = "vgg11",
    .summary = "Gradients of one batch by BP or by the sparse scan, for weights from PyTorch",
    .example = "grad vgg11 --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    .uses = uses_cnn,
    .run = run};

const bppsa_command bppsa_command_grad_file = {
    .verb = "grad",
    .object = BPPSA_FILE_OBJECT,
    .summary = "Gradients of one batch by BP or by the sparse scan, for weights from PyTorch",
    .example = "grad net.json --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    .uses = uses_cnn,
    .run = run};
