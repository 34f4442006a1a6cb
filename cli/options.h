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
#define OPTION(id, ...) BPPSA_OPTION_##id,
#include "cli/options.inc"
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
  BPPSA_PATH_FOLDER /* a directory in which files are written */
} bppsa_path_use;

typedef struct {
  const char *name; /* "--seq-len" */
  bppsa_option_kind kind;
  bppsa_option_group group;
  const char *metavar;                  /* "T"; NULL for a choice, which shows its choices */
  const char *fallback;                 /* the default as it would be typed, or NULL: none */
  const char *help;                     /* a line */
  const char *expected;                 /* "a whole number, 1 or more"; NULL for a choice */
  const char *const *choices;           /* NULL-terminated; NULL for a choice that another table lists */
  int64_t least, most;                  /* the range of an integer, or of a size in bytes */
  double low, high;                     /* the range of a real; both ends are allowed */
  const char *otherwise;                /* what applies without the option if there is no fallback, in words; or NULL */
  bppsa_path_use path;                  /* for a text that is a path */
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
  const char *instead;        /* for a flag: a hint for somebody who gave it a value; NULL: none */
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
  const bppsa_option_info *meaning; /* what the command means by the option, if it is present */
} bppsa_option_value;

/* The table's row: the name of an option, and what most commands mean by it. */
const bppsa_option_info *bppsa_option_get(bppsa_option option);
/* What a command means by an option. */
const bppsa_option_info *bppsa_option_of(const bppsa_option_use *use);
/* Other meanings of options than the table's. */
extern const bppsa_option_info bppsa_meaning_any_model, bppsa_meaning_model_layers, bppsa_meaning_train_loss,
    bppsa_meaning_pixels, bppsa_meaning_input_size, bppsa_meaning_levels_or_auto, bppsa_meaning_levels_auto_or_none,
    bppsa_meaning_stage_chunks, bppsa_meaning_forward_cost, bppsa_meaning_input_grad_cost, bppsa_meaning_train_iterations,
    bppsa_meaning_rank_micro_batches, bppsa_meaning_flops_pattern, bppsa_meaning_any_backward;
/* Returns the option's choice number `index`, counted from 0, or NULL behind the last one. */
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

/* The options with which every list ends. */
#define BPPSA_USES_END BPPSA_USE(JSON), BPPSA_USE(HELP), BPPSA_USE(COUNT)
/* The options of commands that compute gradients by speculative BP. */
#define BPPSA_BACKWARD_USES                                                                                                      \
  BPPSA_USE_AS(BACKWARD, any_backward), BPPSA_USE(BACKWARD_CHUNKS), BPPSA_USE(BACKWARD_WARM_UP), BPPSA_USE(BACKWARD_TOLERANCE)
/* The options of forward passes in parallel. */
#define BPPSA_FORWARD_USES BPPSA_USE(FORWARD), BPPSA_USE(FORWARD_CHUNKS), BPPSA_USE(WARM_UP), BPPSA_USE(TOLERANCE)

#endif
