#include "runs/outputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/files/npz.h"

enum { LOGITS = 0, PREDICTIONS, STATES };

/* An array of the archive; its first extent counts samples. */
typedef struct {
  bppsa_network_shape about;
  bppsa_dtype dtype;
} array;

struct bppsa_outputs {
  bppsa_npz_writer *file;
  const bppsa_network *network;
  const bppsa_device *device; /* the device that holds the model's memory; NULL: the host */
  bppsa_model *model;
  int64_t count; /* how many arrays */
  array arrays[];
};

/* ---- what is written ---- */

/* Lists the arrays: logits [N,C] or [N,T,C]; predictions [N] or [N,T], or for real targets a copy of the logits; states [N,T,H]
 * or [N,C,H,W]. */
static void describe(const bppsa_network_config *c, const bppsa_dataset *dataset, int64_t samples, bppsa_outputs *out) {
  const bool every = dataset->labels_per_step;
  const int64_t steps = c->steps.seq_len, classes = out->model->classes;
  array *a = out->arrays;
  a[LOGITS] = (array){{"logits", every ? 3 : 2, {samples, every ? steps : classes, classes}}, c->dtype};
  a[PREDICTIONS] = (array){{"predictions", every ? 2 : 1, {samples, steps}}, BPPSA_I64};
  if (bppsa_objective_real(&dataset->objective)) {
    a[PREDICTIONS] = a[LOGITS];
    snprintf(a[PREDICTIONS].about.name, sizeof a[PREDICTIONS].about.name, "predictions");
  }
  for (int64_t i = STATES; i < out->count; ++i) {
    a[i] = (array){out->network->kind->family->states_shape(out->network, c, i - STATES, samples), c->dtype};
  }
}

static bppsa_status create(const char *path, bppsa_outputs *out) {
  bppsa_npz_array *list = bppsa_calloc(out->count, sizeof *list);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < out->count; ++i) {
    const array *a = &out->arrays[i];
    list[i] = (bppsa_npz_array){a->about.name, NULL, a->dtype, a->about.ndim, a->about.shape, NULL};
  }
  const bppsa_status status = bppsa_npz_writer_create(path, out->count, list, &out->file);
  bppsa_free(list);
  return status;
}

bppsa_status bppsa_outputs_open(const char *path, bool states, const bppsa_network *network, const bppsa_network_config *config,
                                const bppsa_dataset *dataset, const bppsa_device *device, bppsa_model *model, int64_t count,
                                bppsa_outputs **outputs) {
  const int64_t arrays = STATES + (states ? network->kind->family->layers(network, config) : 0);
  bppsa_outputs *made = bppsa_calloc(1, sizeof *made + (size_t)arrays * sizeof *made->arrays);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->network = network;
  made->device = model->device != NULL ? device : NULL;
  made->model = model;
  made->count = arrays;
  describe(config, dataset, count, made);
  const bppsa_status status = create(path, made);
  if (status != BPPSA_OK) {
    bppsa_outputs_abort(made);
    return status;
  }
  *outputs = made;
  return BPPSA_OK;
}

/* ---- a batch ---- */

/* Transposes rows of `width` bytes from [T][b], steps first, to [b][T], samples first. */
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

/* Writes a view of the model to an array, in host memory and samples first. The view is [b, ..]; a network with steps has [T, b,
 * width]. */
static bppsa_status fetch(const bppsa_outputs *out, const bppsa_view *view, bppsa_buffer *copy) {
  bppsa_buffer made = {0};
  BPPSA_TRY(bppsa_buffer_fetch(out->device, view, &made));
  bppsa_status status = BPPSA_OK;
  if (view->ndim == 3 && out->network->kind->family->steps) {
    status = reorder(&made, view->shape[0], view->shape[1], (size_t)view->shape[2] * bppsa_dtype_size(view->dtype));
  }
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&made);
    return status;
  }
  *copy = made;
  return BPPSA_OK;
}

/* Writes the class of the largest logit of every row, the first of several equal ones. For real targets it writes the outputs. */
static bppsa_status add_predictions(const bppsa_outputs *out, const bppsa_view *logits) {
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

static bppsa_status add(const bppsa_outputs *out, int64_t index, const bppsa_view *view) {
  bppsa_buffer copy = {0};
  BPPSA_TRY(fetch(out, view, &copy));
  bppsa_status status = bppsa_npz_writer_write(out->file, index, copy.view.data, bppsa_view_bytes(&copy.view));
  if (status == BPPSA_OK && index == LOGITS) {
    status = add_predictions(out, &copy.view);
  }
  bppsa_buffer_free(&copy);
  return status;
}

bppsa_status bppsa_outputs_add(void *context, const bppsa_view *logits) {
  const bppsa_outputs *out = context;
  BPPSA_TRY(add(out, LOGITS, logits));
  for (int64_t i = STATES; i < out->count; ++i) {
    bppsa_view states;
    BPPSA_TRY(out->network->kind->family->states(out->model, i - STATES, &states));
    BPPSA_TRY(add(out, i, &states));
  }
  return BPPSA_OK;
}

/* ---- the end ---- */

bppsa_status bppsa_outputs_commit(bppsa_outputs *out) {
  if (out == NULL) {
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_npz_writer_commit(out->file);
  bppsa_free(out);
  return status;
}

void bppsa_outputs_abort(bppsa_outputs *out) {
  if (out != NULL) {
    bppsa_npz_writer_abort(out->file);
    bppsa_free(out);
  }
}
