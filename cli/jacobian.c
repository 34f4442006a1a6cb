/* `bppsa jacobian OPERATOR`: the transposed Jacobian of one operator, to a file and in numbers. */
#include <string.h>

#include "cli/setup.h"
#include "jacobian/file.h"
#include "runs/jacobian_files.h"
#include "terminal/machine.h"

#define COMMON                                                                                                                   \
  {.option = BPPSA_OPTION_OUT, .metavar = "J.npz|J.mtx", .help = "where the matrix goes: SciPy's sparse NPZ, or Matrix Market"}, \
      BPPSA_USE(SPY), {.option = BPPSA_OPTION_DEVICE, .help = "where the values are computed"}, BPPSA_USE(DTYPE),                \
      BPPSA_USE(THREADS), BPPSA_USES_END
#define SHAPE                                                                                                                    \
  BPPSA_USE(IN_SHAPE), {                                                                                                         \
    .option = BPPSA_OPTION_INPUT, .help = "the input [C,H,W]: its shape, and the values that depend on it"                       \
  }
#define WINDOW                                                                                                                   \
  BPPSA_USE(KERNEL), BPPSA_USE(STRIDE), {                                                                                        \
    .option = BPPSA_OPTION_PADDING, .meaning = &bppsa_meaning_pixels                                                             \
  }
#define WEIGHTS(help_text) {.option = BPPSA_OPTION_WEIGHTS, .metavar = "F.npy", .help = help_text}, BPPSA_USE(MASK)

static const bppsa_option_use uses_conv[] = {
    SHAPE, BPPSA_USE(OUT_CHANNELS), WINDOW, BPPSA_USE(DILATION), BPPSA_USE(GROUPS), WEIGHTS("[Co,Ci/G,kh,kw]"), COMMON};
static const bppsa_option_use uses_linear[] = {SHAPE, BPPSA_USE(OUT_CHANNELS), WEIGHTS("[Co,C*H*W]"), COMMON};
static const bppsa_option_use uses_plain[] = {SHAPE, COMMON};
static const bppsa_option_use uses_leaky[] = {SHAPE, BPPSA_USE(SLOPE), COMMON};
static const bppsa_option_use uses_gelu[] = {SHAPE, BPPSA_USE(APPROXIMATE), COMMON};
static const bppsa_option_use uses_adaptive[] = {SHAPE, BPPSA_USE(SIZE), COMMON};
static const bppsa_option_use uses_norm[] = {
    SHAPE,
    {.option = BPPSA_OPTION_WEIGHTS, .metavar = "F.npy", .help = "weight / sqrt(running_var + eps) of each channel [C]"},
    COMMON};
static const bppsa_option_use uses_max[] = {SHAPE, WINDOW, BPPSA_USE(DILATION), BPPSA_USE(CEIL_MODE), BPPSA_USE(PATTERN), COMMON};
static const bppsa_option_use uses_average[] = {SHAPE, WINDOW, BPPSA_USE(CEIL_MODE), BPPSA_USE(EXCLUDE_PAD), COMMON};
#define STEP(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},                                                                          \
        {.option = BPPSA_OPTION_INPUT, .required = true, .help = "the step's input [I]"},                                        \
        {.option = BPPSA_OPTION_H0, .help = "the state before the step [H]"},                                                    \
        {.option = BPPSA_OPTION_C0, .help = "likewise the cell state [H] of an LSTM"}, only COMMON                               \
  }
#define CELL(id, words, functions, rate, sweep) static const bppsa_option_use uses_##id[] = STEP(BPPSA_OPTIONS_##functions);
#include "networks/cells.inc"

static const char notes[] =
    "Rows are inputs and columns outputs, both in the order [C][H][W]. Without --input (and without --weights where an operator "
    "has them)\nall values are 1: the pattern alone.\n";
static const char notes_step[] = "One step of the first layer, h0 to h1.\n";

/* One run of the command. */
typedef struct {
  bppsa_jacobian_request wanted;
  bppsa_jacobian_arrays arrays;
} session;

/* ---- options ---- */

/* Reads whole numbers with commas between them: *count of them, at most `most`. */
static bppsa_status parse_list(const bppsa_cli *cli, bppsa_option option, int most, int64_t *numbers, int *count) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  return bppsa_text_numbers(value->text, most, numbers, count)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected %s", value->meaning->name, value->text,
                          value->meaning->expected);
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
  if (!bppsa_cli_value(cli, BPPSA_OPTION_PADDING)->present) {
    return BPPSA_OK;
  }
  BPPSA_TRY(parse_list(cli, BPPSA_OPTION_PADDING, 4, p, &count));
  if (count == 3) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--padding: three numbers, expected one, two or four");
  }
  for (int i = 0; i < 4; ++i) { /* one number for all sides; one for height and one for width; or one for each side */
    padding[i] = count == 4 ? p[i] : p[count == 2 ? i / 2 : 0];
  }
  return BPPSA_OK;
}

/* ---- operators ---- */

/* Takes C, H, W from --in-shape, or from the input. */
static bppsa_status read_shape(const bppsa_cli *cli, const bppsa_jacobian_files *files, bppsa_op *op) {
  int count;
  if (!bppsa_cli_value(cli, BPPSA_OPTION_IN_SHAPE)->present) {
    return bppsa_jacobian_input_shape(files, op);
  }
  op->in[1] = op->in[2] = 1;
  return parse_list(cli, BPPSA_OPTION_IN_SHAPE, 3, op->in, &count);
}

/* Reads the options of an operator that is no recurrent step, and takes from files what they do not say. */
static bppsa_status read_operator(const bppsa_cli *cli, const bppsa_jacobian_files *files, bppsa_op *op) {
  const bool pool = op->kind == BPPSA_OPERATOR_MAXPOOL2D || op->kind == BPPSA_OPERATOR_AVGPOOL2D;
  const bool weights = op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_LINEAR;
  BPPSA_TRY(read_shape(cli, files, op));
  const bppsa_option_value *channels = bppsa_cli_value(cli, BPPSA_OPTION_OUT_CHANNELS),
                           *groups = bppsa_cli_value(cli, BPPSA_OPTION_GROUPS);
  op->out_channels = channels->present ? channels->integer : 1;
  op->groups = groups->present ? groups->integer : 1;
  op->kernel[0] = op->kernel[1] = pool ? 2 : 1;
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_KERNEL, op->kernel));
  if (weights) {
    BPPSA_TRY(bppsa_jacobian_weight_shape(files, channels->present, bppsa_cli_value(cli, BPPSA_OPTION_KERNEL)->present, op));
  }
  for (int i = 0; i < 2; ++i) {
    op->stride[i] = pool ? op->kernel[i] : 1;
  }
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_STRIDE, op->stride));
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_SIZE, op->size));
  BPPSA_TRY(parse_pair(cli, BPPSA_OPTION_DILATION, op->dilation));
  BPPSA_TRY(parse_padding(cli, op->padding));
  op->ceil_mode = bppsa_cli_value(cli, BPPSA_OPTION_CEIL_MODE)->given;
  op->exclude_pad = bppsa_cli_value(cli, BPPSA_OPTION_EXCLUDE_PAD)->given;
  const bppsa_option_value *slope = bppsa_cli_value(cli, BPPSA_OPTION_SLOPE);
  op->slope = slope->present ? slope->real : op->slope;
  const bppsa_option_value *approximate = bppsa_cli_value(cli, BPPSA_OPTION_APPROXIMATE);
  op->approximate = approximate->present && strcmp(approximate->text, "tanh") == 0;
  int64_t out[3];
  return bppsa_op_shape(op, out);
}

static const char *path_of(const bppsa_cli *cli, bppsa_option option) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  return value->present ? value->text : NULL;
}

static bppsa_status read_request(const bppsa_cli *cli, session *s) {
  const bppsa_jacobian_files files = {.input = path_of(cli, BPPSA_OPTION_INPUT),
                                      .weights = path_of(cli, BPPSA_OPTION_WEIGHTS),
                                      .mask = path_of(cli, BPPSA_OPTION_MASK),
                                      .h0 = path_of(cli, BPPSA_OPTION_H0),
                                      .c0 = path_of(cli, BPPSA_OPTION_C0)};
  const bppsa_option_value *nonlinearity = bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY);
  bppsa_op *op = &s->wanted.op;
  op->relu = nonlinearity->present && strcmp(nonlinearity->text, "relu") == 0;
  BPPSA_TRY(op->kind != BPPSA_OPERATOR_STEP ? read_operator(cli, &files, op) : BPPSA_OK);
  BPPSA_TRY(bppsa_jacobian_load(&files, &s->wanted, &s->arrays));
  bppsa_setup_note_weights(cli, s->arrays.note);
  return BPPSA_OK;
}

/* ---- the matrix ---- */

static bppsa_status make(session *s, const bppsa_cli *cli, const bppsa_device *device, bppsa_jacobian_matrix *matrix) {
  const bppsa_option_value *pattern = bppsa_cli_value(cli, BPPSA_OPTION_PATTERN);
  BPPSA_TRY(read_request(cli, s));
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
  bppsa_jacobian_arrays_free(&s.arrays);
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
COMMAND(adaptive_avgpool2d, "an average pool with a given output size", uses_adaptive, "--in-shape 64,7,7 --size 3", notes);
COMMAND(global_avgpool, "an average pool over all positions", uses_plain, "--in-shape 64,7,7", notes);
COMMAND(batchnorm2d, "a batch norm with given statistics", uses_norm, "--in-shape 64,32,32", notes);
COMMAND(dropout, "dropout that leaves nothing out", uses_plain, "--in-shape 64,32,32", notes);
COMMAND(relu6, "ReLU6", uses_plain, "--in-shape 64,32,32", notes);
COMMAND(hardsigmoid, "a hard sigmoid", uses_plain, "--in-shape 20", notes);
COMMAND(hardswish, "a hard swish", uses_plain, "--in-shape 20", notes);
COMMAND(silu, "SiLU", uses_plain, "--in-shape 20", notes);
COMMAND(gelu, "GELU", uses_gelu, "--in-shape 20 --approximate tanh", notes);
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  COMMAND(id, "a step of " words, uses_##id, "--weights W.safetensors --input X.npy --h0 H.npy --out J.npz", notes_step);
#include "networks/cells.inc"
