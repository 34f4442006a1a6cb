/* `bppsa jacobian OPERATOR`: the transposed Jacobian of one operator, to a file and in numbers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/machine.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/npy.h"
#include "jacobian/file.h"
#include "models/jacobian_matrix.h"

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

/* One run of the command. */
typedef struct {
  bppsa_jacobian_request wanted;
  void *arrays[ARRAYS]; /* owned: the memory that the operands point to */
  int count;
  uint8_t *mask;
} session;

/* ---- options ---- */

/* Reads whole numbers with commas between them: *count of them, at most `most`. */
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

/* Reads one number for both axes, or two; does nothing where the option is absent. */
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
  for (int i = 0; i < 4; ++i) { /* one number for all sides; one for height and one for width; or one for each side */
    padding[i] = count == 4 ? p[i] : p[count == 2 ? i / 2 : 0];
  }
  return BPPSA_OK;
}

/* ---- files ---- */

/* Copies an array of `count` reals, in the run's dtype; the session owns the copy. */
static bppsa_status keep(session *s, const bppsa_view *view, const char *what, int64_t count, const void **data) {
  char shape[BPPSA_SHAPE_TEXT];
  if (view->dtype != BPPSA_F32 && view->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: dtype %s, expected f32 or f64", what, bppsa_dtype_name(view->dtype));
  }
  if (bppsa_view_count(view) != count) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: shape %s, expected %" PRId64 " values", what,
                      bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape), count);
  }
  void *to = bppsa_alloc((size_t)count * bppsa_dtype_size(s->wanted.dtype));
  if (to == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->arrays[s->count++] = to;
  const bppsa_view made = bppsa_view_make(to, s->wanted.dtype, view->ndim, view->shape);
  BPPSA_TRY(bppsa_view_convert(view, &made));
  *data = to;
  return BPPSA_OK;
}

/* Loads the NPY file of an option, which must have `count` values, and keeps it. */
static bppsa_status load(session *s, const bppsa_cli *cli, bppsa_option option, int64_t count, const void **data) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->present) {
    return BPPSA_OK;
  }
  bppsa_buffer array;
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(value->text, &array)));
  char what[300];
  snprintf(what, sizeof what, "%s: %s", bppsa_option_get(option)->name, value->text);
  const bppsa_status status = keep(s, &array.view, what, count, data);
  bppsa_buffer_free(&array);
  return status;
}

/* Reads the shape of an NPY file's array. */
static bppsa_status shape_of(const bppsa_cli *cli, bppsa_option option, bppsa_view *view) {
  bppsa_buffer array;
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(bppsa_cli_value(cli, option)->text, &array)));
  *view = array.view;
  view->data = NULL;
  bppsa_buffer_free(&array);
  return BPPSA_OK;
}

/* Takes C, H, W from --in-shape, or from the input; a batch of one counts as a sample. */
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

/* Takes output channels and kernel from the weights' shape where no option gives them. */
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

/* Reads --mask, a numeric array of any dtype and of the weights' size. */
static bppsa_status read_mask(session *s, const bppsa_cli *cli) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_MASK);
  if (!value->present) {
    return BPPSA_OK;
  }
  bppsa_buffer array;
  const int64_t count = bppsa_op_weights(&s->wanted.op);
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(value->text, &array)));
  bppsa_status status = BPPSA_OK;
  const size_t size = bppsa_dtype_size(array.view.dtype);
  if (bppsa_view_count(&array.view) != count) {
    status = bppsa_fail(BPPSA_ERR_ARGUMENT, "--mask: %s: %" PRId64 " values, expected %" PRId64 ", one for each weight",
                        value->text, bppsa_view_count(&array.view), count);
  } else if ((s->mask = bppsa_calloc(count, 1)) == NULL) {
    status = BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; status == BPPSA_OK && i < count;
       ++i) { /* a value is 0 when all its bytes are 0, except for the sign bit of a real */
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

/* Reads the options and files of an operator that is no recurrent step. */
static bppsa_status read_operator(session *s, const bppsa_cli *cli) {
  bppsa_op *op = &s->wanted.op;
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
  BPPSA_TRY(load(s, cli, BPPSA_OPTION_INPUT, op->in[0] * op->in[1] * op->in[2], &s->wanted.operands.input));
  if (weights) {
    BPPSA_TRY(load(s, cli, BPPSA_OPTION_WEIGHTS, bppsa_op_weights(op), &s->wanted.operands.weights));
    BPPSA_TRY(read_mask(s, cli));
  }
  s->wanted.filled =
      weights ? s->wanted.operands.weights != NULL
              : s->wanted.operands.input != NULL || op->kind == BPPSA_OPERATOR_AVGPOOL2D || op->kind == BPPSA_OPERATOR_FLATTEN;
  return BPPSA_OK;
}

/* Finds the tensor OPERATOR.name of the first layer. ERR_ARGUMENT: the file has no such tensor. */
static bppsa_status find_tensor(const session *s, const bppsa_safetensors *file, const char *path, const char *name,
                                const bppsa_view **view, char *what, size_t size) {
  char full[64];
  snprintf(full, sizeof full, "%s.%s", bppsa_op_name(&s->wanted.op), name);
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
  const int64_t gates = s->wanted.op.step->gates;
  char what[300], rows[24] = "";
  const bppsa_view *hh;
  BPPSA_TRY(find_tensor(s, file, path, "weight_hh_l0", &hh, what, sizeof what));
  if (hh->ndim != 2 || hh->shape[0] != gates * hh->shape[1]) {
    if (gates > 1) {
      snprintf(rows, sizeof rows, "%" PRId64, gates);
    }
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s has another shape, expected [%sH,H]", what, rows);
  }
  const int64_t h = s->wanted.op.in[0] = hh->shape[1];
  bppsa_view x;
  BPPSA_TRY(shape_of(cli, BPPSA_OPTION_INPUT, &x));
  s->wanted.operands.inputs = bppsa_view_count(&x);
  BPPSA_TRY(keep_tensor(s, file, path, "weight_hh_l0", gates * h * h, &s->wanted.operands.weights));
  BPPSA_TRY(keep_tensor(s, file, path, "weight_ih_l0", gates * h * s->wanted.operands.inputs, &s->wanted.operands.weights_ih));
  BPPSA_TRY(keep_tensor(s, file, path, "bias_ih_l0", gates * h, &s->wanted.operands.bias_ih));
  BPPSA_TRY(keep_tensor(s, file, path, "bias_hh_l0", gates * h, &s->wanted.operands.bias_hh));
  BPPSA_TRY(load(s, cli, BPPSA_OPTION_INPUT, s->wanted.operands.inputs, &s->wanted.operands.input));
  return load(s, cli, BPPSA_OPTION_H0, h, &s->wanted.operands.state);
}

static bppsa_status read_step(session *s, const bppsa_cli *cli) {
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(bppsa_input_status(bppsa_safetensors_load(bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, &file)));
  const bppsa_status status = read_tensors(s, cli, file);
  bppsa_safetensors_destroy(file);
  BPPSA_TRY(status);
  if (s->wanted.operands.state == NULL) { /* without --h0 the state is zero */
    s->arrays[s->count] = bppsa_calloc(s->wanted.op.in[0], sizeof(double));
    s->wanted.operands.state = s->arrays[s->count++];
    BPPSA_TRY(s->wanted.operands.state == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  }
  const bppsa_option_value *nonlinearity = bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY);
  s->wanted.op.relu = nonlinearity->present && strcmp(nonlinearity->text, "relu") == 0;
  s->wanted.filled = true;
  return BPPSA_OK;
}

/* ---- the matrix ---- */

static bppsa_status make(session *s, const bppsa_cli *cli, const bppsa_device *device, bppsa_jacobian_matrix *matrix) {
  const bppsa_option_value *pattern = bppsa_cli_value(cli, BPPSA_OPTION_POOL_PATTERN);
  BPPSA_TRY(s->wanted.op.kind == BPPSA_OPERATOR_STEP ? read_step(s, cli) : read_operator(s, cli));
  s->wanted.mask = s->mask;
  s->wanted.compact = pattern->present && strcmp(pattern->text, "argmax") == 0;
  s->wanted.memory = bppsa_machine_memory();
  if (s->wanted.compact && !s->wanted.filled) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--pattern argmax: no input, expected --input: which value is the largest depends on it");
  }
  return bppsa_jacobian_matrix_create(&s->wanted, device, matrix);
}

static bppsa_status render(const bppsa_cli *cli, const bppsa_jacobian_matrix *matrix, bppsa_text *shown) {
  if (cli->to.json) {
    return bppsa_json_render(bppsa_jacobian_matrix_json(matrix), &shown->text);
  }
  bppsa_jacobian_matrix_text(matrix, shown);
  return bppsa_text_check(shown);
}

static bppsa_status finish(bppsa_cli *cli, const bppsa_jacobian_matrix *matrix) {
  bppsa_text shown = {0};
  bppsa_status status = render(cli, matrix, &shown);
  status = status == BPPSA_OK ? bppsa_jacobian_picture(matrix, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text,
                                                       bppsa_cli_value(cli, BPPSA_OPTION_SPY)->text)
                              : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

static bppsa_status check_ending(const bppsa_cli *cli) {
  const bppsa_option_value *file = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  return !file->present || bppsa_csr_check_path(file->text) == BPPSA_OK ? BPPSA_OK
                                                                        : bppsa_fail_prefix(BPPSA_ERR_ARGUMENT, "--out");
}

/* Finds the operator that the command names: one of jacobian/op.h, or a recurrent cell's step. */
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
  bppsa_device *device = NULL;
  bppsa_jacobian_matrix matrix = {0};
  BPPSA_TRY(check_ending(cli));
  BPPSA_TRY(find_operator(cli, &s.wanted.op));
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &s.wanted.dtype));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  bppsa_status status = make(&s, cli, device, &matrix);
  status = status == BPPSA_OK ? finish(cli, &matrix) : status;
  bppsa_jacobian_matrix_free(&matrix);
  for (int i = 0; i < s.count; ++i) {
    bppsa_free(s.arrays[i]);
  }
  bppsa_free(s.mask);
  bppsa_device_destroy(device);
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
