/* Command line options: one table of all of them, one parser.
 *
 * Every option is written `--name value` or `--name=value`; flags take no value. An option given twice counts once, the last
 * time. Nothing is allocated: texts borrow from argv.
 */
#ifndef BPPSA_CLI_OPTIONS_H
#define BPPSA_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/text.h"

typedef enum {
  BPPSA_OPTION_MODEL = 0,
  BPPSA_OPTION_LAYERS,
  BPPSA_OPTION_HIDDEN,
  BPPSA_OPTION_NONLINEARITY,
  BPPSA_OPTION_NO_BIAS,
  BPPSA_OPTION_BIDIRECTIONAL,
  BPPSA_OPTION_DROPOUT,
  BPPSA_OPTION_LOSS,
  BPPSA_OPTION_IGNORE_LABEL,
  BPPSA_OPTION_INIT,
  BPPSA_OPTION_DATA,
  BPPSA_OPTION_SET,
  BPPSA_OPTION_PADDING,
  BPPSA_OPTION_DIRECTORY,
  BPPSA_OPTION_FILES,
  BPPSA_OPTION_SAMPLES,
  BPPSA_OPTION_SEQ_LEN,
  BPPSA_OPTION_BATCH,
  BPPSA_OPTION_VALIDATION,
  BPPSA_OPTION_LENGTHS,
  BPPSA_OPTION_ORDER,
  BPPSA_OPTION_NO_SHUFFLE,
  BPPSA_OPTION_BACKWARD,
  BPPSA_OPTION_ALGORITHM,
  BPPSA_OPTION_UP_LEVELS,
  BPPSA_OPTION_CHUNKS,
  BPPSA_OPTION_FORWARD,
  BPPSA_OPTION_FORWARD_CHUNKS,
  BPPSA_OPTION_WARM_UP,
  BPPSA_OPTION_TOLERANCE,
  BPPSA_OPTION_BACKWARD_CHUNKS,
  BPPSA_OPTION_BACKWARD_WARM_UP,
  BPPSA_OPTION_BACKWARD_TOLERANCE,
  BPPSA_OPTION_PLAN,
  BPPSA_OPTION_WEIGHT_GRADIENTS,
  BPPSA_OPTION_INPUT_GRAD,
  BPPSA_OPTION_EPOCHS,
  BPPSA_OPTION_ITERATIONS,
  BPPSA_OPTION_OPTIMIZER,
  BPPSA_OPTION_LR,
  BPPSA_OPTION_MOMENTUM,
  BPPSA_OPTION_WEIGHT_DECAY,
  BPPSA_OPTION_LR_SCHEDULE,
  BPPSA_OPTION_LR_STEP_SIZE,
  BPPSA_OPTION_LR_GAMMA,
  BPPSA_OPTION_LR_PERIOD,
  BPPSA_OPTION_LR_MIN,
  BPPSA_OPTION_WARMUP,
  BPPSA_OPTION_CLIP_NORM,
  BPPSA_OPTION_PREDICT_AHEAD,
  BPPSA_OPTION_SEED,
  BPPSA_OPTION_DEVICE,
  BPPSA_OPTION_DTYPE,
  BPPSA_OPTION_THREADS,
  BPPSA_OPTION_RANKS,
  BPPSA_OPTION_SPLIT,
  BPPSA_OPTION_TRANSPORT,
  BPPSA_OPTION_TIMEOUT,
  BPPSA_OPTION_REDUCTION,
  BPPSA_OPTION_REVERSE_FIRST,
  BPPSA_OPTION_ALLOW_OTHER_RANKS,
  BPPSA_OPTION_WEIGHTS,
  BPPSA_OPTION_PREFIX,
  BPPSA_OPTION_INPUT,
  BPPSA_OPTION_LABELS,
  BPPSA_OPTION_GRAD_OUTPUT,
  BPPSA_OPTION_H0,
  BPPSA_OPTION_C0,
  BPPSA_OPTION_OUT,
  BPPSA_OPTION_STATES,
  BPPSA_OPTION_OUT_X,
  BPPSA_OPTION_OUT_Y,
  BPPSA_OPTION_LOG,
  BPPSA_OPTION_SAVE_WEIGHTS,
  BPPSA_OPTION_CHECKPOINT,
  BPPSA_OPTION_CHECKPOINT_EVERY,
  BPPSA_OPTION_RESUME,
  BPPSA_OPTION_SVG,
  BPPSA_OPTION_RESULTS,
  BPPSA_OPTION_QUICK,
  BPPSA_OPTION_RIVALS,
  BPPSA_OPTION_EARLIER,
  BPPSA_OPTION_CUDNN_DTYPE,
  BPPSA_OPTION_INPUT_GRADIENT,
  BPPSA_OPTION_COLD,
  BPPSA_OPTION_REFERENCES,
  BPPSA_OPTION_SAVE_REFERENCES,
  BPPSA_OPTION_REPEATS,
  BPPSA_OPTION_TIME_LIMIT,
  BPPSA_OPTION_WORKERS,
  BPPSA_OPTION_NEIGHBOURS,
  BPPSA_OPTION_MEMORY_LIMIT,
  BPPSA_OPTION_SCHEME,
  BPPSA_OPTION_STAGES,
  BPPSA_OPTION_MICRO_BATCHES,
  BPPSA_OPTION_WIDTH,
  BPPSA_OPTION_REPLICAS,
  BPPSA_OPTION_CUT,
  BPPSA_OPTION_REVERSE_K,
  BPPSA_OPTION_ELEMENTS,
  BPPSA_OPTION_SPLIT_BACKWARD,
  BPPSA_OPTION_SKIP_FIRST_INPUT_GRAD,
  BPPSA_OPTION_RECOMPUTE,
  BPPSA_OPTION_SYNC,
  BPPSA_OPTION_DOUBLING,
  BPPSA_OPTION_HALVING,
  BPPSA_OPTION_WINDOW,
  BPPSA_OPTION_WEIGHT_GRAD_COST,
  BPPSA_OPTION_STEP_COST,
  BPPSA_OPTION_SYNC_COST,
  BPPSA_OPTION_MESSAGE_SIZE,
  BPPSA_OPTION_GRADIENT_SIZE,
  BPPSA_OPTION_PRODUCT_COST,
  BPPSA_OPTION_APPLY_COST,
  BPPSA_OPTION_COSTS,
  BPPSA_OPTION_ALPHA,
  BPPSA_OPTION_BETA,
  BPPSA_OPTION_CONTENTION,
  BPPSA_OPTION_ISSUE_OVERHEAD,
  BPPSA_OPTION_PRECOMPILED,
  BPPSA_OPTION_MEMORY_CAP,
  BPPSA_OPTION_LIST,
  BPPSA_OPTION_COMPARE,
  BPPSA_OPTION_TRACE,
  BPPSA_OPTION_CSV,
  BPPSA_OPTION_LOAD,
  BPPSA_OPTION_IN_SHAPE,
  BPPSA_OPTION_OUT_CHANNELS,
  BPPSA_OPTION_KERNEL,
  BPPSA_OPTION_STRIDE,
  BPPSA_OPTION_DILATION,
  BPPSA_OPTION_GROUPS,
  BPPSA_OPTION_CEIL_MODE,
  BPPSA_OPTION_EXCLUDE_PAD,
  BPPSA_OPTION_SLOPE,
  BPPSA_OPTION_PATTERN,
  BPPSA_OPTION_MASK,
  BPPSA_OPTION_SPY,
  BPPSA_OPTION_PRUNE,
  BPPSA_OPTION_SYNTHETIC,
  BPPSA_OPTION_CNN,
  BPPSA_OPTION_FRACTION,
  BPPSA_OPTION_METHOD,
  BPPSA_OPTION_LEFT,
  BPPSA_OPTION_RIGHT,
  BPPSA_OPTION_SYSTEM,
  BPPSA_OPTION_STRATEGY,
  BPPSA_OPTION_PROCESSORS,
  BPPSA_OPTION_SCALING,
  BPPSA_OPTION_GROUP_SIZE,
  BPPSA_OPTION_COLLECTIVE,
  BPPSA_OPTION_PLOT,
  BPPSA_OPTION_SAVE_MODEL,
  BPPSA_OPTION_SAVE_SYSTEM,
  BPPSA_OPTION_SAVE_COSTS,
  BPPSA_OPTION_JSON,
  BPPSA_OPTION_HELP,
  BPPSA_OPTION_COUNT
} bppsa_option;

typedef enum { BPPSA_INTEGER = 0, BPPSA_SIZE, BPPSA_REAL, BPPSA_TEXT, BPPSA_CHOICE, BPPSA_FLAG } bppsa_option_kind;

typedef enum {
  BPPSA_GROUP_MODEL = 0,
  BPPSA_GROUP_DATA,
  BPPSA_GROUP_GRADIENTS,
  BPPSA_GROUP_TRAINING,
  BPPSA_GROUP_COSTS,
  BPPSA_GROUP_MEASUREMENT,
  BPPSA_GROUP_MACHINE,
  BPPSA_GROUP_RANKS,
  BPPSA_GROUP_FILES,
  BPPSA_GROUP_OUTPUT,
  BPPSA_GROUP_COUNT
} bppsa_option_group;

/* What a command does with the path that an option names. */
typedef enum {
  BPPSA_NO_PATH = 0,
  BPPSA_PATH_READ,
  BPPSA_PATH_OR_NAME, /* read, if it has a dot, as F.csv has; otherwise a name that the program knows */
  BPPSA_PATH_WRITTEN,
  BPPSA_PATH_FOLDER /* written into */
} bppsa_path_use;

typedef struct {
  const char *name; /* "--seq-len" */
  bppsa_option_kind kind;
  bppsa_option_group group;
  const char *metavar;                  /* "T"; of a choice NULL: its choices */
  const char *fallback;                 /* the default as it would be typed, or NULL: none */
  const char *help;                     /* a line */
  const char *expected;                 /* "a whole number, 1 or more"; of a choice NULL */
  const char *const *choices;           /* NULL-terminated; of a choice that another table lists NULL */
  int64_t least, most;                  /* the range of an integer, or of a size in bytes */
  double low, high;                     /* the range of a real; both ends are allowed */
  const char *otherwise;                /* what applies without the option, in words, where there is no fallback; or NULL */
  bppsa_path_use path;                  /* of a text */
  const char *(*listed)(int32_t index); /* the choice of that number in the other table, NULL behind the last one */
} bppsa_option_info;

/* An option a command takes. A list of them ends with .option = BPPSA_OPTION_COUNT. */
typedef struct {
  bppsa_option option;
  const bppsa_option_info *meaning; /* what this command means by the option; NULL: what the table says */
  const char *fallback;             /* this command's default; NULL: the meaning's; "": none */
  bool required;
  const char *metavar, *help; /* the texts of this command's help; NULL: the meaning's */
  bool operand;               /* the value may also be given without the name of the option */
  bppsa_path_use path;        /* 0: the meaning's */
  const char *instead;        /* of a flag: what takes the value that somebody gave it; NULL: nothing does */
} bppsa_option_use;

#define BPPSA_USE(name)                                                                                                          \
  { .option = BPPSA_OPTION_##name } /* with the table's texts */
#define BPPSA_USE_AS(name, meaning_)                                                                                             \
  { .option = BPPSA_OPTION_##name, .meaning = &bppsa_meaning_##meaning_ }

typedef struct {
  bool given;   /* on the command line */
  bool present; /* given, or by default */
  int64_t integer;
  double real;
  const char *text;
  int32_t choice;                   /* position in the list of choices */
  const bppsa_option_info *meaning; /* of a present value: what the command means by the option */
} bppsa_option_value;

/* The table's row: the name of an option, and what most commands mean by it. */
const bppsa_option_info *bppsa_option_get(bppsa_option option);
/* What a command means by an option. */
const bppsa_option_info *bppsa_option_of(const bppsa_option_use *use);
/* Other meanings of options than the table's. */
extern const bppsa_option_info bppsa_meaning_any_model, bppsa_meaning_model_layers, bppsa_meaning_train_loss,
    bppsa_meaning_pixels, bppsa_meaning_input_size, bppsa_meaning_levels_or_auto, bppsa_meaning_stage_chunks,
    bppsa_meaning_forward_cost, bppsa_meaning_input_grad_cost, bppsa_meaning_train_iterations, bppsa_meaning_rank_micro_batches,
    bppsa_meaning_flops_pattern, bppsa_meaning_any_backward;
/* The option's choice of that number from 0, NULL behind the last one. */
const char *bppsa_option_choice(const bppsa_option_info *info, int32_t index);
enum { BPPSA_OPTION_CHOICES = 32 }; /* more than any option has */
/* What a command does with the path of an option. */
bppsa_path_use bppsa_option_path(const bppsa_option_use *use);
const char *bppsa_option_group_title(bppsa_option_group group);
/* The default a command gives an option, or NULL. */
const char *bppsa_option_fallback(const bppsa_option_use *use);

/* Is the option in the list? */
bool bppsa_options_take(const bppsa_option_use *uses, bppsa_option option);

/* Parses one value, which must be the whole text and in its range. ERR_ARGUMENT names the option, the text and what was expected.
 * */
bppsa_status bppsa_option_parse(bppsa_option option, const char *text, bppsa_option_value *value);

/* Parses arguments 0 .. argc-1 (without program and command) into values, size BPPSA_OPTION_COUNT, defaults filled in. After
 * --help nothing else is checked. ERR_ARGUMENT: an unknown option (the message suggests one), an option without its value, a
 * required option that is missing. `command` names the command in messages. */
bppsa_status bppsa_options_parse(const char *command, const bppsa_option_use *uses, int argc, char **argv,
                                 bppsa_option_value *values);

/* The options of forward passes in parallel, for lists of options. */
/* Of commands that compute gradients by speculative BP, too. */
#define BPPSA_BACKWARD_USES                                                                                                      \
  BPPSA_USE_AS(BACKWARD, any_backward), BPPSA_USE(BACKWARD_CHUNKS), BPPSA_USE(BACKWARD_WARM_UP), BPPSA_USE(BACKWARD_TOLERANCE)
#define BPPSA_FORWARD_USES BPPSA_USE(FORWARD), BPPSA_USE(FORWARD_CHUNKS), BPPSA_USE(WARM_UP), BPPSA_USE(TOLERANCE)

#endif
