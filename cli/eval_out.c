#include "cli/eval_out.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/npz.h"

enum { LOGITS = 0, PREDICTIONS, STATES, NAME = 80, DIMS = 4 };

/* An array of the archive: what one sample has of it, samples first. */
typedef struct {
  char name[NAME];
  bppsa_dtype dtype;
  int32_t ndim;
  int64_t shape[DIMS]; /* [N, ...] */
} array;

struct bppsa_eval_out {
  bppsa_npz_writer *file;
  const bppsa_network *network;
  const bppsa_device *device; /* of the model; NULL: in host memory */
  bppsa_model *model;
  int64_t count; /* arrays */
  array arrays[];
};

static bppsa_status check_suffix(const bppsa_cli *cli) {
  static const char suffix[] = ".npz";
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  const size_t length = out->given ? strlen(out->text) : 0, end = strlen(suffix);
  if (out->given && (length < end || strcmp(out->text + length - end, suffix) != 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: '%s', expected a name that ends in %s", out->text, suffix);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_eval_out_check(const bppsa_cli *cli) {
  static const bppsa_option inputs[] = {BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_MASK};
  if (bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given && !bppsa_cli_value(cli, BPPSA_OPTION_OUT)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--states: given without --out, expected --out P.npz too");
  }
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT));
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; ++i) {
    BPPSA_TRY(bppsa_cli_check_distinct(cli, inputs[i], BPPSA_OPTION_OUT));
  }
  BPPSA_TRY(bppsa_setup_check_data(cli, BPPSA_OPTION_OUT));
  return check_suffix(cli);
}

/* ---- what is written ---- */

/* Logits [N,C] or [N,T,C], predictions [N] or [N,T], or where targets are real the logits; states [N,T,H] or [N,C,H,W]. */
static void describe(const bppsa_recurrent_config *c, const bppsa_dataset *dataset, int64_t samples, bppsa_eval_out *out) {
  const bool every = dataset->labels_per_step, images = out->network->kind->convolutional;
  const int64_t steps = c->seq_len, classes = out->model->classes;
  array *a = out->arrays;
  a[LOGITS] = (array){"logits", c->dtype, every ? 3 : 2, {samples, every ? steps : classes, classes}};
  a[PREDICTIONS] = (array){"predictions", BPPSA_I64, every ? 2 : 1, {samples, steps}};
  if (dataset->real_targets) {
    a[PREDICTIONS] = a[LOGITS];
    snprintf(a[PREDICTIONS].name, NAME, "predictions");
  }
  for (int64_t i = STATES; i < out->count; ++i) {
    const int64_t layer = i - STATES;
    if (images) {
      const bppsa_cnn_layer *about = &out->network->layers.layers[layer];
      a[i] = (array){"", c->dtype, 4, {samples, about->out[0], about->out[1], about->out[2]}};
      snprintf(a[i].name, NAME, "states_%.60s", about->name);
    } else {
      a[i] = (array){"", c->dtype, 3, {samples, steps, c->hidden}};
      snprintf(a[i].name, NAME, "states_l%" PRId64, layer);
    }
  }
}

static bppsa_status create(const char *path, bppsa_eval_out *out) {
  bppsa_npz_array *list = bppsa_calloc(out->count, sizeof *list);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < out->count; ++i) {
    const array *a = &out->arrays[i];
    list[i] = (bppsa_npz_array){a->name, NULL, a->dtype, a->ndim, a->shape, NULL};
  }
  const bppsa_status status = bppsa_npz_writer_create(path, out->count, list, &out->file);
  bppsa_free(list);
  return status;
}

bppsa_status bppsa_eval_out_open(const bppsa_cli *cli, const bppsa_network *network, const bppsa_recurrent_config *config,
                                 const bppsa_dataset *dataset, const bppsa_device *device, bppsa_model *model, int64_t count,
                                 bppsa_eval_out **out) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  const bool states = bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given;
  const int64_t layers =
      network->kind->convolutional ? network->layers.count - 1 : config->layers; /* the head gives the logits */
  const int64_t arrays = STATES + (states ? layers : 0);
  if (!path->given) {
    *out = NULL;
    return BPPSA_OK;
  }
  bppsa_eval_out *made = bppsa_calloc(1, sizeof *made + (size_t)arrays * sizeof *made->arrays);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->network = network;
  made->device = model->device != NULL ? device : NULL;
  made->model = model;
  made->count = arrays;
  describe(config, dataset, count, made);
  const bppsa_status status = create(path->text, made);
  if (status != BPPSA_OK) {
    bppsa_eval_out_abort(made);
    return status;
  }
  *out = made;
  return BPPSA_OK;
}

/* ---- a batch ---- */

/* Rows [T][b] of `width` bytes to [b][T]: steps first to samples first. */
static bppsa_status reorder(bppsa_buffer *buffer, int64_t steps, int64_t batch, size_t width) {
  char *made = bppsa_alloc((size_t)(steps * batch) * width);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      memcpy(made + (size_t)(b * steps + t) * width, (const char *)buffer->view.data + (size_t)(t * batch + b) * width, width);
    }
  }
  memcpy(buffer->view.data, made, (size_t)(steps * batch) * width);
  bppsa_free(made);
  return BPPSA_OK;
}

/* A view of the model's as it is written: in host memory, samples first. It comes as [b, ..], or [T, b, width] where the model is
 * recurrent. */
static bppsa_status fetch(const bppsa_eval_out *out, const bppsa_view *view, bppsa_buffer *copy) {
  bppsa_buffer made = {0};
  BPPSA_TRY(bppsa_buffer_fetch(out->device, view, &made));
  bppsa_status status = BPPSA_OK;
  if (view->ndim == 3 && !out->network->kind->convolutional) {
    status = reorder(&made, view->shape[0], view->shape[1], (size_t)view->shape[2] * bppsa_dtype_size(view->dtype));
  }
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&made);
    return status;
  }
  *copy = made;
  return BPPSA_OK;
}

/* The class of the largest logit of every row, the first of equal ones; of real targets the outputs. */
static bppsa_status add_predictions(const bppsa_eval_out *out, const bppsa_view *logits) {
  if (out->arrays[PREDICTIONS].dtype != BPPSA_I64) {
    return bppsa_npz_writer_write(out->file, PREDICTIONS, logits->data, bppsa_view_bytes(logits));
  }
  const int64_t classes = logits->shape[logits->ndim - 1], rows = bppsa_view_count(logits) / classes;
  int64_t *best = bppsa_calloc(rows, sizeof *best);
  if (best == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 1; c < classes; ++c) {
      best[r] = bppsa_view_get(logits, r * classes + c) > bppsa_view_get(logits, r * classes + best[r]) ? c : best[r];
    }
  }
  const bppsa_status status = bppsa_npz_writer_write(out->file, PREDICTIONS, best, (size_t)rows * sizeof *best);
  bppsa_free(best);
  return status;
}

static bppsa_status add(const bppsa_eval_out *out, int64_t index, const bppsa_view *view) {
  bppsa_buffer copy = {0};
  BPPSA_TRY(fetch(out, view, &copy));
  bppsa_status status = bppsa_npz_writer_write(out->file, index, copy.view.data, bppsa_view_bytes(&copy.view));
  if (status == BPPSA_OK && index == LOGITS) {
    status = add_predictions(out, &copy.view);
  }
  bppsa_buffer_free(&copy);
  return status;
}

bppsa_status bppsa_eval_out_add(void *context, const bppsa_view *logits) {
  const bppsa_eval_out *out = context;
  BPPSA_TRY(add(out, LOGITS, logits));
  for (int64_t i = STATES; i < out->count; ++i) {
    bppsa_view states;
    BPPSA_TRY(out->network->kind->convolutional ? bppsa_cnn_activation(out->model, i - STATES, &states)
                                                : bppsa_recurrent_states(out->model, i - STATES, &states));
    BPPSA_TRY(add(out, i, &states));
  }
  return BPPSA_OK;
}

/* ---- the end ---- */

bppsa_status bppsa_eval_out_commit(bppsa_eval_out *out) {
  if (out == NULL) {
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_npz_writer_commit(out->file);
  bppsa_free(out);
  return status;
}

void bppsa_eval_out_abort(bppsa_eval_out *out) {
  if (out != NULL) {
    bppsa_npz_writer_abort(out->file);
    bppsa_free(out);
  }
}
