#include "runs/jacobian_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/number.h"
#include "core/files/file.h"
#include "core/files/npy.h"

/* A request while it is loaded, its files, and the memory that its operands point to. */
typedef struct {
  const bppsa_jacobian_files *files;
  bppsa_jacobian_request *wanted;
  bppsa_jacobian_arrays *arrays;
} loading;

/* ---- files ---- */

/* Returns zeroed memory that the arrays own, or NULL. */
static void *new_array(bppsa_jacobian_arrays *arrays, int64_t count, size_t size) {
  void *made = bppsa_calloc(count, size);
  arrays->arrays[arrays->count] = made;
  arrays->count += made != NULL;
  return made;
}

/* Copies an array of `count` reals, in the request's dtype. */
static bppsa_status keep(const loading *l, const bppsa_view *view, const char *what, int64_t count, const void **data) {
  char shape[BPPSA_SHAPE_TEXT];
  if (view->dtype != BPPSA_F32 && view->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: dtype %s, expected f32 or f64", what, bppsa_view_dtype_name(view));
  }
  if (bppsa_view_count(view) != count) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: shape %s, expected %" PRId64 " values", what,
                      bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape), count);
  }
  for (int64_t i = 0; l->wanted->dtype == BPPSA_F32 && view->dtype == BPPSA_F64 && i < count; ++i) {
    const double value = bppsa_view_get(view, i);
    if (isfinite(value) && !isfinite((float)value)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: element %" PRId64 " is %g, beyond f32, expected --dtype f64 or smaller values",
                        what, i, value);
    }
  }
  void *to = new_array(l->arrays, count, bppsa_dtype_size(l->wanted->dtype));
  if (to == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view made = bppsa_view_make(to, l->wanted->dtype, view->ndim, view->shape);
  BPPSA_TRY(bppsa_view_convert(view, &made));
  *data = to;
  return BPPSA_OK;
}

/* Loads the NPY file of an option, which must have `count` values, and keeps it; without a path *data is unchanged. */
static bppsa_status load(const loading *l, const char *option, const char *path, int64_t count, const void **data) {
  if (path == NULL) {
    return BPPSA_OK;
  }
  bppsa_buffer array;
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(path, &array)));
  char what[300];
  snprintf(what, sizeof what, "%s: %s", option, path);
  if (path == l->files->weights) {
    (void)bppsa_weight_list_converted(array.view.dtype, &array.view, l->wanted->dtype, l->arrays->note);
  }
  bppsa_status status = bppsa_npy_to_reals(path, &array);
  status = status != BPPSA_OK ? status : keep(l, &array.view, what, count, data);
  bppsa_buffer_free(&array);
  return status;
}

/* Reads the shape of an NPY file's array. */
static bppsa_status shape_of(const char *path, bppsa_view *view) {
  bppsa_buffer array;
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(path, &array)));
  *view = array.view;
  view->data = NULL;
  bppsa_buffer_free(&array);
  return BPPSA_OK;
}

/* ---- sizes ---- */

bppsa_status bppsa_jacobian_input_shape(const bppsa_jacobian_files *files, bppsa_op *op) {
  if (files->input == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--in-shape: missing, expected this option or --input");
  }
  bppsa_view view;
  BPPSA_TRY(shape_of(files->input, &view));
  const int skip = view.ndim == 4 && view.shape[0] == 1;
  if (view.ndim - skip > 3 || view.ndim < 1) {
    char shape[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--input: %s: shape %s, expected one sample [C,H,W]", files->input,
                      bppsa_shape_text(view.ndim, view.shape, shape, sizeof shape));
  }
  for (int i = 0; i < 3; ++i) {
    op->in[i] = i + skip < view.ndim ? view.shape[i + skip] : 1;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_jacobian_weight_shape(const bppsa_jacobian_files *files, bool known_channels, bool known_kernel,
                                         bppsa_op *op) {
  bppsa_view view;
  const bool conv = op->kind == BPPSA_OPERATOR_CONV2D;
  if (files->weights == NULL) {
    return known_channels && (!conv || known_kernel)
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: missing, expected this option or --weights",
                            known_channels ? "--kernel" : "--out-channels");
  }
  BPPSA_TRY(shape_of(files->weights, &view));
  if (view.ndim != (conv ? 4 : 2)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: %s: %d dimensions, expected %s", files->weights, (int)view.ndim,
                      conv ? "[Co,Ci/G,kh,kw]" : "[Co,C*H*W]");
  }
  if (!known_channels) {
    op->out_channels = view.shape[0];
  }
  if (conv && !known_kernel) {
    op->kernel[0] = view.shape[2];
    op->kernel[1] = view.shape[3];
  }
  return BPPSA_OK;
}

/* ---- operators ---- */

/* Turns a numeric array of the weights' size, of any dtype, into one byte for each weight. */
static bppsa_status make_mask(const loading *l, const bppsa_view *view) {
  const int64_t count = bppsa_op_weights(&l->wanted->op);
  if (bppsa_view_count(view) != count) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--mask: %s: %" PRId64 " values, expected %" PRId64 ", one for each weight",
                      l->files->mask, bppsa_view_count(view), count);
  }
  uint8_t *mask = new_array(l->arrays, count, 1);
  if (mask == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = bppsa_number_set(view, i);
  }
  l->wanted->mask = mask;
  return BPPSA_OK;
}

static bppsa_status load_mask(const loading *l) {
  bppsa_buffer array;
  if (l->files->mask == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(l->files->mask, &array)));
  const bppsa_status status = make_mask(l, &array.view);
  bppsa_buffer_free(&array);
  return status;
}

static bppsa_status load_operator(const loading *l) {
  bppsa_jacobian_request *wanted = l->wanted;
  const bppsa_op *op = &wanted->op;
  const int64_t weights = bppsa_op_weights(op);
  BPPSA_TRY(load(l, "--input", l->files->input, op->in[0] * op->in[1] * op->in[2], &wanted->operands.input));
  if (weights > 0) {
    BPPSA_TRY(load(l, "--weights", l->files->weights, weights, &wanted->operands.weights));
    BPPSA_TRY(load_mask(l));
    wanted->filled = wanted->operands.weights != NULL;
    return BPPSA_OK;
  }
  if (op->kind == BPPSA_OPERATOR_BATCHNORM2D) {
    BPPSA_TRY(load(l, "--weights", l->files->weights, op->in[0], &wanted->operands.scale));
    wanted->filled = wanted->operands.scale != NULL;
    return BPPSA_OK;
  }
  wanted->filled = wanted->operands.input != NULL || bppsa_op_shares_values(op);
  return BPPSA_OK;
}

/* ---- a cell's step ---- */

/* Finds the tensor CELL.name of the first layer. ERR_ARGUMENT: the file has no such tensor. */
static bppsa_status find_tensor(const loading *l, const bppsa_weight_list *tensors, const char *name, const bppsa_view **view,
                                char *what, size_t size) {
  char full[64];
  snprintf(full, sizeof full, "%s.%s", bppsa_op_name(&l->wanted->op), name);
  snprintf(what, size, "--weights: %s: %s", l->files->weights, full);
  *view = bppsa_weight_list_find(tensors, full);
  if (*view != NULL && l->arrays->note[0] == '\0') {
    const bppsa_list_origin *origin = bppsa_weight_list_origin(tensors, full);
    (void)bppsa_weight_list_converted(origin->stored, *view, l->wanted->dtype, l->arrays->note);
  }
  return *view != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s missing, expected weights with PyTorch's names", what);
}

static bppsa_status keep_tensor(const loading *l, const bppsa_weight_list *tensors, const char *name, int64_t count,
                                const void **data) {
  char what[300];
  const bppsa_view *view;
  BPPSA_TRY(find_tensor(l, tensors, name, &view, what, sizeof what));
  return keep(l, view, what, count, data);
}

/* Copies h0, and for a pair c0 behind it, into a state; a missing file stands for zeros. */
static bppsa_status load_state(const loading *l, int64_t h) {
  const struct { const char *option, *path; } halves[] = {{"--h0", l->files->h0}, {"--c0", l->files->c0}};
  const int64_t size = (int64_t)bppsa_dtype_size(l->wanted->dtype), count = l->wanted->op.in[0] / h;
  if (l->files->c0 != NULL && count == 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--c0: %s: an initial cell state for %s, which has none, expected a cell such as lstm",
                      l->files->c0, bppsa_op_name(&l->wanted->op));
  }
  char *state = new_array(l->arrays, count * h, (size_t)size);
  if (state == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    const void *half = NULL;
    BPPSA_TRY(load(l, halves[i].option, halves[i].path, h, &half));
    if (half != NULL) {
      memcpy(state + i * h * size, half, (size_t)(h * size));
    }
  }
  l->wanted->operands.state = state;
  return BPPSA_OK;
}

static bppsa_status load_tensors(const loading *l, const bppsa_weight_list *tensors) {
  bppsa_jacobian_operands *operands = &l->wanted->operands;
  const int64_t gates = l->wanted->op.step->gates;
  char what[300], rows[24] = "";
  const bppsa_view *hh;
  BPPSA_TRY(find_tensor(l, tensors, "weight_hh_l0", &hh, what, sizeof what));
  if (hh->ndim != 2 || hh->shape[0] != gates * hh->shape[1]) {
    if (gates > 1) {
      snprintf(rows, sizeof rows, "%" PRId64, gates);
    }
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s has another shape, expected [%sH,H]", what, rows);
  }
  const int64_t h = hh->shape[1];
  l->wanted->op.in[0] = (l->wanted->op.step->pair ? 2 : 1) * h;
  bppsa_view x;
  BPPSA_TRY(shape_of(l->files->input, &x));
  const int64_t inputs = operands->inputs = bppsa_view_count(&x);
  BPPSA_TRY(keep_tensor(l, tensors, "weight_hh_l0", gates * h * h, &operands->weights));
  BPPSA_TRY(keep_tensor(l, tensors, "weight_ih_l0", gates * h * inputs, &operands->weights_ih));
  BPPSA_TRY(keep_tensor(l, tensors, "bias_ih_l0", gates * h, &operands->bias_ih));
  BPPSA_TRY(keep_tensor(l, tensors, "bias_hh_l0", gates * h, &operands->bias_hh));
  BPPSA_TRY(load(l, "--input", l->files->input, inputs, &operands->input));
  return load_state(l, h);
}

static bppsa_status load_step(const loading *l) {
  bppsa_safetensors *file = NULL;
  bppsa_weight_list tensors = {.count = 0};
  if (l->wanted->op.step == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "jacobian: the cell has no step, expected a cell whose table has one");
  }
  BPPSA_TRY(bppsa_input_status(bppsa_safetensors_load(l->files->weights, &file)));
  bppsa_status status = bppsa_weight_list_make(l->files->weights, file, BPPSA_LIST_VALUES, &tensors);
  status = status == BPPSA_OK ? load_tensors(l, &tensors) : status;
  bppsa_weight_list_free(&tensors);
  bppsa_safetensors_destroy(file);
  l->wanted->filled = true;
  return status;
}

/* ---- loading ---- */

void bppsa_jacobian_arrays_free(bppsa_jacobian_arrays *arrays) {
  for (int i = 0; i < arrays->count; ++i) {
    bppsa_free(arrays->arrays[i]);
  }
  *arrays = (bppsa_jacobian_arrays){.count = 0};
}

bppsa_status bppsa_jacobian_load(const bppsa_jacobian_files *files, bppsa_jacobian_request *request,
                                 bppsa_jacobian_arrays *arrays) {
  bppsa_jacobian_request wanted = *request;
  bppsa_jacobian_arrays made = {.count = 0};
  const loading l = {files, &wanted, &made};
  const bppsa_status status = wanted.op.kind == BPPSA_OPERATOR_STEP ? load_step(&l) : load_operator(&l);
  if (status != BPPSA_OK) {
    bppsa_jacobian_arrays_free(&made);
    return status;
  }
  *request = wanted;
  *arrays = made;
  return BPPSA_OK;
}
