/* The table of all commands, and how they are called. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

static const bppsa_command *const commands[] = {
#define CELL(id, words, functions, rate, sweep) &bppsa_command_train_##id,
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) &bppsa_command_train_##id,
#include "networks/image_networks.inc"
    &bppsa_command_train_file,

#define CELL(id, words, functions, rate, sweep) &bppsa_command_eval_##id,
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) &bppsa_command_eval_##id,
#include "networks/image_networks.inc"
    &bppsa_command_eval_file,

#define CELL(id, words, functions, rate, sweep) &bppsa_command_grad_##id,
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) &bppsa_command_grad_##id,
#include "networks/image_networks.inc"
    &bppsa_command_grad_file,

#define CELL(id, words, functions, rate, sweep) &bppsa_command_plan_##id,
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) &bppsa_command_plan_##id,
#include "networks/image_networks.inc"
    &bppsa_command_plan_file,
    &bppsa_command_data_bitstream,
    &bppsa_command_data_irmas,
    &bppsa_command_data_instruments,
    &bppsa_command_data_cifar10,

#define CELL(id, words, functions, rate, sweep) &bppsa_command_bench_##id,
#include "networks/cells.inc"
    &bppsa_command_bench_crossover,
    &bppsa_command_bench_mfcc,
    &bppsa_command_bench_forward,
    &bppsa_command_bench_step,
    &bppsa_command_bench_ranks,
    &bppsa_command_bench_schedule,
    &bppsa_command_bench_oracle,
    &bppsa_command_bench_jacobian,
    &bppsa_command_bench_product,
    &bppsa_command_bench_scan,
    &bppsa_command_bench_threads,
    &bppsa_command_bench_lenet5,
    &bppsa_command_bench_vgg11,
    &bppsa_command_jacobian_conv2d,
    &bppsa_command_jacobian_linear,
    &bppsa_command_jacobian_relu,
    &bppsa_command_jacobian_leaky_relu,
    &bppsa_command_jacobian_tanh,
    &bppsa_command_jacobian_sigmoid,
    &bppsa_command_jacobian_maxpool2d,
    &bppsa_command_jacobian_avgpool2d,
    &bppsa_command_jacobian_flatten,
    &bppsa_command_jacobian_relu6,
    &bppsa_command_jacobian_adaptive_avgpool2d,
    &bppsa_command_jacobian_global_avgpool,
    &bppsa_command_jacobian_batchnorm2d,
    &bppsa_command_jacobian_dropout,
    &bppsa_command_jacobian_hardsigmoid,
    &bppsa_command_jacobian_hardswish,
    &bppsa_command_jacobian_silu,
    &bppsa_command_jacobian_gelu,

#define CELL(id, words, functions, rate, sweep) &bppsa_command_jacobian_##id,
#include "networks/cells.inc"

#define IMAGES(id, words, shape, levels) &bppsa_command_flops_##id,
#include "networks/image_networks.inc"
    &bppsa_command_flops_file,
    &bppsa_command_prune,
    &bppsa_command_figures,
    &bppsa_command_schedule,
    &bppsa_command_oracle,
    &bppsa_command_calibrate,
    &bppsa_command_doctor,
    NULL};

const bppsa_command *const *bppsa_commands(void) {
  return commands;
}

const char *bppsa_object_noun(const char *verb) {
  if (strcmp(verb, "jacobian") == 0 || strcmp(verb, "flops") == 0) {
    return strcmp(verb, "flops") == 0 ? "network" : "operator";
  }
  return strcmp(verb, "data") == 0 ? "data set" : strcmp(verb, "bench") == 0 ? "benchmark" : "model";
}

const char *bppsa_command_name(const bppsa_command *command, char *text, size_t size) {
  snprintf(text, size, "%s%s%s", command->verb, command->object != NULL ? " " : "",
           command->object != NULL ? command->object : "");
  return text;
}
