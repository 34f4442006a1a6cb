/* What the commands share: the parsed command line, output, checks of files. */
#ifndef BPPSA_CLI_COMMAND_H
#define BPPSA_CLI_COMMAND_H

#include <stdio.h>

#include "cli/options.h"
#include "core/base/view.h"
#include "core/files/json.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

typedef struct bppsa_command bppsa_command;

/* One run of a command. */
typedef struct {
  const bppsa_command *command;
  const char *object; /* the command's object as typed, or the path of a network file; NULL: none */
  int argc;           /* words of the command line, beginning with the program's name */
  char **argv;
  bppsa_output to;
  bppsa_interrupt *interrupt; /* the run's */
  bool *elsewhere;            /* receives whether another process of the job reports the error */
  bppsa_option_value values[BPPSA_OPTION_COUNT];
} bppsa_cli;

struct bppsa_command {
  const char *verb;   /* "train" */
  const char *object; /* "rnn", or BPPSA_NETWORK_FILE; NULL: the verb alone */
  const char *summary;
  const char *example;          /* a command line without "bppsa " */
  const char *notes;            /* lines below the options in the help, or NULL */
  const bppsa_option_use *uses; /* ends with BPPSA_OPTION_COUNT */
  bppsa_status (*run)(bppsa_cli *cli);
};

extern const bppsa_command bppsa_command_plan_file, bppsa_command_data_bitstream, bppsa_command_data_irmas,
    bppsa_command_data_instruments, bppsa_command_bench_crossover, bppsa_command_bench_mfcc, bppsa_command_bench_forward,
    bppsa_command_bench_step, bppsa_command_bench_ranks, bppsa_command_bench_schedule, bppsa_command_figures,
    bppsa_command_schedule, bppsa_command_oracle, bppsa_command_calibrate, bppsa_command_doctor, bppsa_command_bench_product,
    bppsa_command_bench_scan, bppsa_command_bench_threads, bppsa_command_bench_jacobian, bppsa_command_flops_file,
    bppsa_command_jacobian_conv2d, bppsa_command_jacobian_linear, bppsa_command_jacobian_relu, bppsa_command_jacobian_leaky_relu,
    bppsa_command_jacobian_tanh, bppsa_command_jacobian_sigmoid, bppsa_command_jacobian_maxpool2d,
    bppsa_command_jacobian_avgpool2d, bppsa_command_jacobian_flatten, bppsa_command_jacobian_relu6,
    bppsa_command_jacobian_adaptive_avgpool2d, bppsa_command_jacobian_global_avgpool, bppsa_command_jacobian_batchnorm2d,
    bppsa_command_jacobian_dropout, bppsa_command_jacobian_hardsigmoid, bppsa_command_jacobian_hardswish,
    bppsa_command_jacobian_silu, bppsa_command_jacobian_gelu, bppsa_command_train_file, bppsa_command_eval_file,
    bppsa_command_grad_file, bppsa_command_data_cifar10, bppsa_command_prune, bppsa_command_bench_lenet5,
    bppsa_command_bench_vgg11, bppsa_command_bench_oracle;
#define IMAGES(id, words, shape, levels)                                                                                         \
  extern const bppsa_command bppsa_command_train_##id, bppsa_command_eval_##id, bppsa_command_grad_##id,                         \
      bppsa_command_plan_##id, bppsa_command_flops_##id;
#include "networks/image_networks.inc"
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  extern const bppsa_command bppsa_command_train_##id, bppsa_command_eval_##id, bppsa_command_grad_##id,                         \
      bppsa_command_plan_##id, bppsa_command_bench_##id, bppsa_command_jacobian_##id;
#include "networks/cells.inc"

/* Returns all commands, NULL-terminated; the commands of one verb stand together. */
const bppsa_command *const *bppsa_commands(void);
/* What the object of a verb is: "model", "data set" or "benchmark". */
const char *bppsa_object_noun(const char *verb);
/* Writes the name of a command, as "train rnn". Returns text. */
const char *bppsa_command_name(const bppsa_command *command, char *text, size_t size);
#define BPPSA_COMMAND_NAME 64

/* The parsed value of an option. */
static inline const bppsa_option_value *bppsa_cli_value(const bppsa_cli *cli, bppsa_option option) {
  return &cli->values[option];
}

static inline bool bppsa_cli_given(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given;
}

/* Checks, before the work starts, every path that the options name to be written: the directory exists and can be written into, the
 * file system takes the name, and a symbolic link leads to something. An existing file must be regular (for BPPSA_PATH_FOLDER a
 * directory) and writable, and the command must neither read it nor write it for another option. ERR_ARGUMENT. */
bppsa_status bppsa_cli_check_paths(const bppsa_cli *cli);

#endif
