/* `bppsa jacobian OPERATOR`: the transposed Jacobian of one operator, to a file and in numbers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/command.h"
#include "cli/jacobian_fill.h"
#include "cli/machine.h"
#include "cli/network_kind.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/npy.h"
#include "draw/spy.h"
#include "jacobian/file.h"
#include "jacobian/jacobian.h"

#define COMMON                                                                                                                   \
  {.option = BPPSA_OPTION_OUT, .metavar = "J.npz|J.mtx", .help = "where the matrix goes: SciPy's sparse NPZ, or Matrix Market"}, \
      {.option = BPPSA_OPTION_SPY}, {.option = BPPSA_OPTION_DEVICE, .help = "where the values are computed"},                    \
      {.option = BPPSA_OPTION_DTYPE}, {.option = BPPSA_OPTION_THREADS}, {.option = BPPSA_OPTION_JSON},                           \
      {.option = BPPSA_OPTION_HELP}, {                                                                                           \
    .option = BPPSA_OPTION_COUNT                                                                                                 \
  }
#define SHAPE                                                                                                                    \
  {.option = BPPSA_OPTION_IN_SHAPE}, {                                                                                           \
    .option = BPPSA_OPTION_INPUT, .help = "the input [C,H,W]: its shape, and the values that depend on it"                       \
  }
#define WINDOW                                                                                                                   \
  {.option = BPPSA_OPTION_KERNEL}, {.option = BPPSA_OPTION_STRIDE}, {                                                            \
    .option = BPPSA_OPTION_PAD                                                                                                   \
  }
#define WEIGHTS(help_text)                                                                                                       \
  {.option = BPPSA_OPTION_WEIGHTS, .metavar = "F.npy", .help = help_text}, {                                                     \
    .option = BPPSA_OPTION_MASK                                                                                                  \
  }

static const bppsa_option_use uses_conv[] = {SHAPE,
                                             {.option = BPPSA_OPTION_OUT_CHANNELS},
                                             WINDOW,
                                             {.option = BPPSA_OPTION_DILATION},
                                             {.option = BPPSA_OPTION_GROUPS},
                                             WEIGHTS("[Co,Ci/G,kh,kw]"),
                                             COMMON};
static const bppsa_option_use uses_linear[] = {SHAPE, {.option = BPPSA_OPTION_OUT_CHANNELS}, WEIGHTS("[Co,C*H*W]"), COMMON};
static const bppsa_option_use uses_plain[] = {SHAPE, COMMON};
static const bppsa_option_use uses_leaky[] = {SHAPE, {.option = BPPSA_OPTION_SLOPE}, COMMON};
static const bppsa_option_use uses_max[] = {
    SHAPE, WINDOW, {.option = BPPSA_OPTION_DILATION}, {.option = BPPSA_OPTION_CEIL_MODE}, {.option = BPPSA_OPTION_POOL_PATTERN},
    COMMON};
static const bppsa_option_use uses_average[] = {
    SHAPE, WINDOW, {.option = BPPSA_OPTION_CEIL_MODE}, {.option = BPPSA_OPTION_EXCLUDE_PAD}, COMMON};
static const bppsa_option_use uses_rnn[] = {{.option = BPPSA_OPTION_WEIGHTS, .required = true},
                                            {.option = BPPSA_OPTION_INPUT, .required = true, .help = "the step's input [I]"},
                                            {.option = BPPSA_OPTION_H0, .help = "the state before the step [H]"},
                                            {.option = BPPSA_OPTION_NONLINEARITY},
                                            COMMON};
static const bppsa_option_use uses_gru[] = {{.option = BPPSA_OPTION_WEIGHTS, .required = true},
                                            {.option = BPPSA_OPTION_INPUT, .required = true, .help = "the step's input [I]"},
                                            {.option = BPPSA_OPTION_H0, .help = "the state before the step [H]"},
                                            COMMON};

static const char notes[] =
    "Rows are inputs and columns outputs, both in the order [C][H][W]. Without --input (and without --weights where an operator "
    "has them)\nall values are 1: the pattern alone.\n";
static const char notes_step[] = "One step of the first layer, h0 to h1.\n";

enum { ARRAYS = 8 };

/* What a run holds. */
typedef struct {
  bppsa_device *device;
  bppsa_dtype dtype;
  bppsa_op op;
  bppsa_jacobian_operands operands;
  void *arrays[ARRAYS]; /* owned */
  int count;
  uint8_t *mask;
  bool filled; /* values come from operands, and are not all 1 */
  bppsa_jacobian *j;
  const bppsa_csr *csr; /* the generator's pattern, or the compact one */
  bppsa_csr compact;
  void *values;
  double plan_s, fill_s;
} session;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- options ---- */

/* Whole numbers with commas between them; *count of them, at most `most`. */
static bppsa_status parse_list(const bppsa_cli *cli, bppsa_option option, int most, int64_t *numbers, int *count) {
  const bppsa_option_info *info = bppsa_option_get(option);
  const char *text = bppsa_cli_value(cli, option)->text;
  char word[32];
  *count = 0;
  for (const char *at = text;; ++at) {
    const size_t length = strcspn(at, ",");
    bool good = *count < most && length > 0 && length < 11 && strspn(at, "0123456789") >= length;
    if (good) {
      memcpy(word, at, length);
      word[length] = '\0';
      numbers[(*count)++] = strtoll(word, NULL, 10);
      at += length;
    }
    if (!good || (*at != ',' && *at != '\0')) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected %s", info->name, text, info->expected);
    }
    if (*at == '\0') {
      return BPPSA_OK;
    }
  }
}

/* One number for both axes, or two; nothing where the option is absent. */
static bppsa_status parse_pair(const bppsa_cli *cli, bppsa_option option, int64_t pair[2]) {
  int count;
  int64_t numbers[2];
  if (!bppsa_cli_value(cli, option)->present) {
    return BPPSA_OK;
  }
  BPPSA_TRY(parse_list(cli, option, 2, numbers, &count));
  pair[0] = numbers[0];
  pair[1] = numbers[count - 1];
  return BPPSA_OK;
}

static bppsa_status parse_padding(const bppsa_cli *cli, int64_t padding[4]) {
  int count;
  int64_t p[4];
  if (!bppsa_cli_value(cli, BPPSA_OPTION_PAD)->present) {
    return BPPSA_OK;
  }
  BPPSA_TRY(parse_list(cli, BPPSA_OPTION_PAD, 4, p, &count));
  if (count == 3) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--padding: three numbers, expected one, two or four");
  }
  for (int i = 0; i < 4; ++i) { /* one; height and width; or every side */
    padding[i] = count == 4 ? p[i] : p[count == 2 ? i / 2 : 0];
  }
  return BPPSA_OK;
}

/* ---- files ---- */

/* Reals of an array of `count` values in the run's dtype, which the session owns. */
static bppsa_status keep(session *s, const bppsa_view *view, const char *what, int64_t count, const void **data) {
  char shape[BPPSA_SHAPE_TEXT];
  if (view->dtype != BPPSA_F32 && view->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: dtype %s, expected f32 or f64", what, bppsa_dtype_name(view->dtype));
  }
  if (bppsa_view_count(view) != count) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: shape %s, expected %" PRId64 " values", what,
                      bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape), count);
  }
  void *to = bppsa_alloc((size_t)count * bppsa_dtype_size(s->dtype));
  if (to == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->arrays[s->count++] = to;
  const bppsa_view made = bppsa_view_make(to, s->dtype, view->ndim, view->shape);
  BPPSA_TRY(bppsa_view_convert(view, &made));
  *data = to;
  return BPPSA_OK;
}

/* Loads the NPY file of an option and keeps it; count < 0: any number, which the caller then finds in *view's shape. */
static bppsa_status load(session *s, const bppsa_cli *cli, bppsa_option option, int64_t count, const void **data) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->present) {
    return BPPSA_OK;
  }
  bppsa_buffer array;
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(value->text, &array)));
  char what[300];
  snprintf(what, sizeof what, "%s: %s", bppsa_option_get(option)->name, value->text);
  const bppsa_status status = keep(s, &array.view, what, count, data);
  bppsa_buffer_free(&array);
  return status;
}

/* The shape of an NPY file's array. */
static bppsa_status shape_of(const bppsa_cli *cli, bppsa_option option, bppsa_view *view) {
  bppsa_buffer array;
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(bppsa_cli_value(cli, option)->text, &array)));
  *view = array.view;
  view->data = NULL;
  bppsa_buffer_free(&array);
  return BPPSA_OK;
}

/* C, H, W from --in-shape, or from the input; a batch of one is a sample. */
static bppsa_status read_shape(const bppsa_cli *cli, bppsa_op *op) {
  const bool listed = bppsa_cli_value(cli, BPPSA_OPTION_IN_SHAPE)->present,
             given = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->present;
  if (listed) {
    int count;
    op->in[1] = op->in[2] = 1;
    return parse_list(cli, BPPSA_OPTION_IN_SHAPE, 3, op->in, &count);
  }
  if (!given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--in-shape: missing, expected it or --input");
  }
  bppsa_view view;
  BPPSA_TRY(shape_of(cli, BPPSA_OPTION_INPUT, &view));
  const int skip = view.ndim == 4 && view.shape[0] == 1;
  if (view.ndim - skip > 3 || view.ndim < 1) {
    char shape[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--input: shape %s, expected one sample [C,H,W]",
                      bppsa_shape_text(view.ndim, view.shape, shape, sizeof shape));
  }
  for (int i = 0; i < 3; ++i) {
    op->in[i] = i + skip < view.ndim ? view.shape[i + skip] : 1;
  }
  return BPPSA_OK;
}

/* Output channels and kernel from the weights' shape where no option gives them. */
static bppsa_status read_weight_shape(const bppsa_cli *cli, bppsa_op *op) {
  bppsa_view view;
  const bool conv = op->kind == BPPSA_OPERATOR_CONV2D;
  if (!bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->present) {
    return bppsa_cli_value(cli, BPPSA_OPTION_OUT_CHANNELS)->present &&
                   (!conv || bppsa_cli_value(cli, BPPSA_OPTION_KERNEL)->present)
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: missing, expected it or --weights",
                            bppsa_cli_value(cli, BPPSA_OPTION_OUT_CHANNELS)->present ? "--kernel" : "--out-channels");
  }
  BPPSA_TRY(shape_of(cli, BPPSA_OPTION_WEIGHTS, &view));
  if (view.ndim != (conv ? 4 : 2)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: %d dimensions, expected %s", (int)view.ndim,
                      conv ? "[Co,Ci/G,kh,kw]" : "[Co,C*H*W]");
  }
  if (!bppsa_cli_value(cli, BPPSA_OPTION_OUT_CHANNELS)->present) {
    op->out_channels = view.shape[0];
  }
  if (conv && !bppsa_cli_value(cli, BPPSA_OPTION_KERNEL)->present) {
    op->kernel[0] = view.shape[2];
    op->kernel[1] = view.shape[3];
  }
  return BPPSA_OK;
}

/* --mask: any numeric array of the weights' size. */
static bppsa_status read_mask(session *s, const bppsa_cli *cli) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_MASK);
  if (!value->present) {
    return BPPSA_OK;
  }
  bppsa_buffer array;
  const int64_t count = bppsa_op_weights(&s->op);
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(value->text, &array)));
  bppsa_status status = BPPSA_OK;
  const size_t size = bppsa_dtype_size(array.view.dtype);
  if (bppsa_view_count(&array.view) != count) {
    status = bppsa_fail(BPPSA_ERR_ARGUMENT, "--mask: %s: %" PRId64 " values, expected %" PRId64 ", one for each weight",
                        value->text, bppsa_view_count(&array.view), count);
  } else if ((s->mask = bppsa_calloc(count, 1)) == NULL) {
    status = BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) { /* zero is all bytes zero, but for the sign of a real */
    const unsigned char *bytes = (const unsigned char *)array.view.data + (size_t)i * size;
    for (size_t b = 0; b < size; ++b) {
      const bool real = array.view.dtype == BPPSA_F32 || array.view.dtype == BPPSA_F64 || array.view.dtype == BPPSA_F16;
      s->mask[i] = (uint8_t)(s->mask[i] | ((bytes[b] & (real && b + 1 == size ? 0x7F : 0xFF)) != 0));
    }
  }
  bppsa_buffer_free(&array);
  return status;
}

/* ---- operators ---- */

/* Everything of an operator that is no recurrent step. */
static bppsa_status read_operator(session *s, const bppsa_cli *cli) {
  bppsa_op *op = &s->op;
  const bool pool = op->kind == BPPSA_OPERATOR_MAXPOOL2D || op->kind == BPPSA_OPERATOR_AVGPOOL2D;
  const bool weights = op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_LINEAR;
  BPPSA_TRY(read_shape(cli, op));
  const bppsa_option_value *channels = bppsa_cli_value(cli, BPPSA_OPTION_OUT_CHANNELS),
                           *groups = bppsa_cli_value(cli, BPPSA_OPTION_GROUPS);
  op->out_channels = channels->present ? channels->integer : 1;
  op->groups = groups->present ? groups->integer : 1;
  op->kernel[0] = op->kernel[1] = pool ? 2 : 1;
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_KERNEL, op->kernel));
  if (weights) {
    BPPSA_TRY(read_weight_shape(cli, op));
  }
  for (int i = 0; i < 2; ++i) {
    op->stride[i] = pool ? op->kernel[i] : 1;
  }
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_STRIDE, op->stride));
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_DILATION, op->dilation));
  BPPSA_TRY(parse_padding(cli, op->padding));
  op->ceil_mode = bppsa_cli_value(cli, BPPSA_OPTION_CEIL_MODE)->given;
  op->exclude_pad = bppsa_cli_value(cli, BPPSA_OPTION_EXCLUDE_PAD)->given;
  const bppsa_option_value *slope = bppsa_cli_value(cli, BPPSA_OPTION_SLOPE);
  op->slope = slope->present ? slope->real : op->slope;
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(op, out));
  BPPSA_TRY(load(s, cli, BPPSA_OPTION_INPUT, op->in[0] * op->in[1] * op->in[2], &s->operands.input));
  if (weights) {
    BPPSA_TRY(load(s, cli, BPPSA_OPTION_WEIGHTS, bppsa_op_weights(op), &s->operands.weights));
    BPPSA_TRY(read_mask(s, cli));
  }
  s->filled = weights ? s->operands.weights != NULL
                      : s->operands.input != NULL || op->kind == BPPSA_OPERATOR_AVGPOOL2D || op->kind == BPPSA_OPERATOR_FLATTEN;
  return BPPSA_OK;
}

/* The tensor RNN|GRU.name of the first layer. ERR_ARGUMENT: there is none. */
static bppsa_status find_tensor(const session *s, const bppsa_safetensors *file, const char *path, const char *name,
                                const bppsa_view **view, char *what, size_t size) {
  char full[64];
  snprintf(full, sizeof full, "%s.%s", bppsa_op_name(&s->op), name);
  snprintf(what, size, "--weights: %s: %s", path, full);
  *view = bppsa_safetensors_find(file, full);
  return *view != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s missing, expected weights with PyTorch's names", what);
}

static bppsa_status keep_tensor(session *s, const bppsa_safetensors *file, const char *path, const char *name, int64_t count,
                                const void **data) {
  char what[300];
  const bppsa_view *view;
  BPPSA_TRY(find_tensor(s, file, path, name, &view, what, sizeof what));
  return keep(s, view, what, count, data);
}

static bppsa_status read_tensors(session *s, const bppsa_cli *cli, const bppsa_safetensors *file) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  const int64_t gates = s->op.step->gates;
  char what[300], rows[24] = "";
  const bppsa_view *hh;
  BPPSA_TRY(find_tensor(s, file, path, "weight_hh_l0", &hh, what, sizeof what));
  if (hh->ndim != 2 || hh->shape[0] != gates * hh->shape[1]) {
    if (gates > 1) {
      snprintf(rows, sizeof rows, "%" PRId64, gates);
    }
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s has another shape, expected [%sH,H]", what, rows);
  }
  const int64_t h = s->op.in[0] = hh->shape[1];
  bppsa_view x;
  BPPSA_TRY(shape_of(cli, BPPSA_OPTION_INPUT, &x));
  s->operands.inputs = bppsa_view_count(&x);
  BPPSA_TRY(keep_tensor(s, file, path, "weight_hh_l0", gates * h * h, &s->operands.weights));
  BPPSA_TRY(keep_tensor(s, file, path, "weight_ih_l0", gates * h * s->operands.inputs, &s->operands.weights_ih));
  BPPSA_TRY(keep_tensor(s, file, path, "bias_ih_l0", gates * h, &s->operands.bias_ih));
  BPPSA_TRY(keep_tensor(s, file, path, "bias_hh_l0", gates * h, &s->operands.bias_hh));
  BPPSA_TRY(load(s, cli, BPPSA_OPTION_INPUT, s->operands.inputs, &s->operands.input));
  return load(s, cli, BPPSA_OPTION_H0, h, &s->operands.state);
}

static bppsa_status read_step(session *s, const bppsa_cli *cli) {
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(bppsa_cli_input(bppsa_safetensors_load(bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, &file)));
  const bppsa_status status = read_tensors(s, cli, file);
  bppsa_safetensors_destroy(file);
  BPPSA_TRY(status);
  if (s->operands.state == NULL) { /* zeros */
    s->arrays[s->count] = bppsa_calloc(s->op.in[0], sizeof(double));
    s->operands.state = s->arrays[s->count++];
    BPPSA_TRY(s->operands.state == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  }
  const bppsa_option_value *nonlinearity = bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY);
  s->op.relu = nonlinearity->present && strcmp(nonlinearity->text, "relu") == 0;
  s->filled = true;
  return BPPSA_OK;
}

/* ---- the matrix ---- */

static bppsa_status make_values(session *s) {
  const bppsa_csr *csr = bppsa_jacobian_pattern(s->j);
  s->values = bppsa_alloc((size_t)csr->nnz * bppsa_dtype_size(s->dtype));
  if (s->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view view = bppsa_view_make(s->values, s->dtype, 1, &csr->nnz);
  for (int64_t i = 0; !s->filled && i < csr->nnz; ++i) {
    bppsa_view_set(&view, i, 1);
  }
  s->operands.batch = 1;
  return s->filled ? bppsa_cli_jacobian_fill(s->device, s->j, s->dtype, &s->operands, s->values, &s->fill_s) : BPPSA_OK;
}

/* --pattern argmax: without the entries that are 0. */
static bppsa_status make_compact(session *s, const bppsa_cli *cli) {
  const bppsa_option_value *pattern = bppsa_cli_value(cli, BPPSA_OPTION_POOL_PATTERN);
  if (!pattern->present || strcmp(pattern->text, "argmax") != 0) {
    return BPPSA_OK;
  }
  if (!s->filled) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--pattern argmax: no input, expected --input: which value is the largest depends on it");
  }
  void *values = NULL;
  BPPSA_TRY(bppsa_csr_compact(s->csr, s->dtype, s->values, &s->compact, &values));
  bppsa_free(s->values);
  s->values = values;
  s->csr = &s->compact;
  return BPPSA_OK;
}

/* Pattern and values are counted before anything of their size is made: 4 bytes a column, 8 an offset, and the values. */
static bppsa_status check_memory(const session *s) {
  bppsa_jacobian *counted = NULL;
  BPPSA_TRY(bppsa_jacobian_create(&s->op, NULL, true, s->device, &counted));
  const bppsa_csr *csr = bppsa_jacobian_pattern(counted);
  const double bytes = (double)csr->nnz * (double)(4 + bppsa_dtype_size(s->dtype)) + 8.0 * (double)csr->rows;
  const double most = 0.75 * (double)bppsa_machine_memory();
  bppsa_jacobian_destroy(counted);
  return s->mask != NULL || bytes <= most
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the matrix needs %.0f bytes, expected at most 3/4 of the %.0f available",
                          bppsa_op_name(&s->op), bytes, most / 0.75);
}

static bppsa_status make(session *s, const bppsa_cli *cli) {
  BPPSA_TRY(s->op.kind == BPPSA_OPERATOR_STEP ? read_step(s, cli) : read_operator(s, cli));
  BPPSA_TRY(check_memory(s));
  const double start = now();
  BPPSA_TRY(bppsa_jacobian_create(&s->op, s->mask, false, s->device, &s->j));
  s->plan_s = now() - start;
  s->csr = bppsa_jacobian_pattern(s->j);
  BPPSA_TRY(make_values(s));
  return make_compact(s, cli);
}

/* ---- what is said ---- */

static json_t *shape_json(const int64_t shape[3]) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int i = 0; ok && i < 3; ++i) {
    ok = json_array_append_new(array, json_integer(shape[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *document(const session *s, const int64_t out[3]) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "operator", bppsa_op_name(&s->op));
  ok = ok && bppsa_json_put(object, "in_shape", shape_json(s->op.in));
  ok = ok && bppsa_json_put(object, "out_shape", shape_json(out));
  ok = ok && bppsa_json_put_integer(object, "rows", s->csr->rows);
  ok = ok && bppsa_json_put_integer(object, "cols", s->csr->cols);
  ok = ok && bppsa_json_put_integer(object, "nnz", s->csr->nnz);
  ok = ok && bppsa_json_put_real(object, "sparsity", bppsa_csr_sparsity(s->csr));
  ok = ok && bppsa_json_put_integer(object, "csr_bytes", bppsa_csr_bytes(s->csr, s->dtype));
  ok = ok && bppsa_json_put_integer(object, "own_bytes", bppsa_csr_bytes(s->csr, s->dtype) + 4 * (s->csr->rows + 1));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(s->dtype));
  ok = ok && bppsa_json_put_bool(object, "values", s->filled);
  ok = ok && bppsa_json_put_real(object, "plan_s", s->plan_s);
  ok = ok && bppsa_json_put_real(object, "fill_s", s->fill_s);
  return bppsa_json_finish(object, ok);
}

static bppsa_status print(bppsa_cli *cli, const session *s, const int64_t out[3]) {
  char bytes[BPPSA_SI_TEXT], in_text[BPPSA_SHAPE_TEXT], out_text[BPPSA_SHAPE_TEXT];
  return bppsa_cli_print(
      cli,
      "%s %s to %s, transposed, %s%s\n"
      "  shape      %" PRId64 " x %" PRId64 "\n"
      "  nnz        %" PRId64 "\n"
      "  sparsity   %.6f\n"
      "  bytes      %" PRId64 " as CSR with int32 offsets (%s)\n"
      "  time       %.3g ms pattern, %.3g ms values\n",
      bppsa_op_name(&s->op), bppsa_shape_text(3, s->op.in, in_text, sizeof in_text),
      bppsa_shape_text(3, out, out_text, sizeof out_text), bppsa_dtype_name(s->dtype), s->filled ? "" : ", all values 1",
      s->csr->rows, s->csr->cols, s->csr->nnz, bppsa_csr_sparsity(s->csr), bppsa_csr_bytes(s->csr, s->dtype),
      bppsa_cli_si((double)bppsa_csr_bytes(s->csr, s->dtype), "B", bytes, sizeof bytes), 1e3 * s->plan_s, 1e3 * s->fill_s);
}

/* Files first, then what is printed; the document is rendered before either. */
static bppsa_status finish(bppsa_cli *cli, const session *s) {
  const bppsa_option_value *file = bppsa_cli_value(cli, BPPSA_OPTION_OUT), *spy = bppsa_cli_value(cli, BPPSA_OPTION_SPY);
  char *text = NULL;
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(&s->op, out));
  if (cli->json) {
    bppsa_json_start();
    BPPSA_TRY(bppsa_cli_render(document(s, out), &text));
  }
  bppsa_status status = file->present ? bppsa_csr_save(file->text, s->csr, s->dtype, s->values) : BPPSA_OK;
  if (status == BPPSA_OK && spy->present) {
    status = bppsa_spy_save(spy->text, s->csr->rows, s->csr->cols, s->csr->row_ptr, s->csr->col, s->dtype, s->values);
  }
  if (status == BPPSA_OK) {
    status = cli->json ? bppsa_cli_print_document(cli, text) : print(cli, s, out);
  }
  bppsa_free(text);
  return status;
}

static bppsa_status check_outputs(const bppsa_cli *cli) {
  const bppsa_option_value *file = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  if (file->present && bppsa_csr_check_path(file->text) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_ARGUMENT, "--out");
  }
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_SPY));
  return bppsa_cli_check_distinct(cli, BPPSA_OPTION_OUT, BPPSA_OPTION_SPY);
}

/* The operator that the command names: one of jacobian/op.h, or a recurrent cell's step. */
static bppsa_status find_operator(const bppsa_cli *cli, bppsa_op *op) {
  const char *name = cli->command->object;
  const bppsa_network_kind *cell = bppsa_network_kind_find(name);
  bppsa_operator kind = BPPSA_OPERATOR_STEP;
  if (cell == NULL || cell->cell == NULL) {
    BPPSA_TRY(bppsa_operator_parse(name, &kind));
  }
  *op = bppsa_op_default(kind);
  op->step = kind == BPPSA_OPERATOR_STEP ? cell->cell->step : NULL;
  return BPPSA_OK;
}

static bppsa_status run(bppsa_cli *cli) {
  session s = {0};
  BPPSA_TRY(check_outputs(cli));
  BPPSA_TRY(find_operator(cli, &s.op));
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &s.dtype));
  BPPSA_TRY(bppsa_setup_device(cli, &s.device));
  bppsa_status status = make(&s, cli);
  if (status == BPPSA_OK) {
    status = finish(cli, &s);
  }
  for (int i = 0; i < s.count; ++i) {
    bppsa_free(s.arrays[i]);
  }
  bppsa_free(s.mask);
  bppsa_free(s.values);
  bppsa_csr_free(&s.compact);
  bppsa_jacobian_destroy(s.j);
  bppsa_device_destroy(s.device);
  return status;
}

#define COMMAND(name, text, use, example_text, note)                                                                             \
  const bppsa_command bppsa_command_jacobian_##name = {.verb = "jacobian",                                                       \
                                                       .object = #name,                                                          \
                                                       .summary = "Writes the sparse transposed Jacobian of " text,              \
                                                       .example = "jacobian " #name " " example_text,                            \
                                                       .notes = note,                                                            \
                                                       .uses = use,                                                              \
                                                       .run = run}
COMMAND(conv2d, "a convolution", uses_conv, "--in-shape 3,32,32 --out-channels 64 --kernel 3 --padding 1", notes);
COMMAND(linear, "a linear operator", uses_linear, "--in-shape 16,5,5 --out-channels 120", notes);
COMMAND(relu, "a ReLU", uses_plain, "--in-shape 64,32,32", notes);
COMMAND(leaky_relu, "a leaky ReLU", uses_leaky, "--in-shape 64,32,32 --slope 0.1", notes);
COMMAND(tanh, "tanh", uses_plain, "--in-shape 20", notes);
COMMAND(sigmoid, "a sigmoid", uses_plain, "--in-shape 20", notes);
COMMAND(maxpool2d, "a max-pool", uses_max, "--in-shape 64,32,32 --kernel 2", notes);
COMMAND(avgpool2d, "an average pool", uses_average, "--in-shape 64,32,32 --kernel 2", notes);
COMMAND(flatten, "flatten", uses_plain, "--in-shape 16,5,5", notes);
COMMAND(rnn, "a step of an RNN", uses_rnn, "--weights W.safetensors --input X.npy --h0 H.npy --out J.npz", notes_step);
COMMAND(gru, "a step of a GRU", uses_gru, "--weights W.safetensors --input X.npy --h0 H.npy --out J.npz", notes_step);
