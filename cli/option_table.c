/* The table of all options. */
#include <float.h>

#include "cli/options.h"
#include "comm/comm.h"
#include "networks/network_kinds.h"

#define SPAN(from, to) .least = (from), .most = (to)

static const char *const nonlinearities[] = {"tanh", "relu", NULL};
static const char *const reset_states[] = {"learned", "zeros", NULL};
static const char *const losses[] = {"last", "all", NULL};
static const char *const train_losses[] = {"last", "all", "mse", "mse-all", "bce", "bce-all", NULL};
static const char *const inits[] = {"default", "orthogonal", NULL};
static const char *const plans[] = {"estimate", "measure", NULL};
static const char *const weight_gradients[] = {"in-order", "second-stream", NULL};
static const char *const input_gradients[] = {"absolute", "exact", NULL};
static const char *const optimizers[] = {"adam", "sgd", "adamw", NULL};
static const char *const lr_schedules[] = {"constant", "step", "cosine", NULL};
static const char *const sets[] = {"S", "M", "L", NULL};
static const char *const paddings[] = {"constant", "reflect", NULL};
static const char *const batch_norms[] = {"batch", "given", NULL};
static const char *const gelu_forms[] = {"none", "tanh", NULL};
static const char *const pool_patterns[] = {"window", "argmax", NULL};
static const char *const flops_patterns[] = {"guaranteed", "value", NULL};
static const char *const prune_methods[] = {"class-blind", "class-uniform", "class-distribution", NULL};
static const char *const dtypes[] = {"f32", "f64", NULL};
static const char *const cudnn_dtypes[] = {"bf16", NULL};

static const char *const reductions[] = {"ordered", "library", NULL};
static const char *const splits[] = {"wi", "iw", NULL};
static const char *const syncs[] = {"post", "eager", "eager-opt", NULL};
static const char *const windows[] = {"iteration", "backward-forward", NULL};
static const char *const scalings[] = {"weak", "strong", NULL};
static const char *const collectives[] = {"auto", "ring", "tree", "ordered", NULL};
static const char *const contentions[] = {"port", "none", "network", NULL};

/* ---- choices that other tables list ---- */

/* Returns the name of a recurrent network by its number, NULL behind the last one. */
static const char *model(int32_t index) {
  const bppsa_network_kind *kind;
  for (int64_t i = 0; (kind = bppsa_network_kind_at(i)) != NULL; ++i) {
    if (kind->cell != NULL && index-- == 0) {
      return kind->name;
    }
  }
  return NULL;
}

static const char *backward(int32_t index) {
  return index <= (int32_t)BPPSA_BACKWARD_SCAN ? bppsa_backward_name((bppsa_backward)index) : NULL;
}

static const char *any_backward(int32_t index) {
  return index <= (int32_t)BPPSA_BACKWARD_SPECULATIVE ? bppsa_backward_name((bppsa_backward)index) : NULL;
}

static const char *algorithm(int32_t index) {
  return index < (int32_t)BPPSA_SCAN_ALGORITHMS ? bppsa_scan_algorithm_name((bppsa_scan_algorithm)index) : NULL;
}

static const char *transport(int32_t index) {
  return index < (int32_t)BPPSA_COMM_TRANSPORT_COUNT ? bppsa_comm_transport_name((bppsa_comm_transport)index) : NULL;
}

static const char *forward(int32_t index) {
  return index <= (int32_t)BPPSA_FORWARD_AUTO ? bppsa_forward_name((bppsa_forward_kind)index) : NULL;
}

/* ---- the table ---- */

/* What a text or a number is expected to be, and its range. */
#define COUNT32 "a whole number from 1 to 2147483647", SPAN(1, INT32_MAX)
#define COUNT64 "a whole number, 1 or more", SPAN(1, INT64_MAX)
#define FROM_0 "a whole number, 0 or more", SPAN(0, INT64_MAX)
#define MILLION "a whole number from 1 to 1000000", SPAN(1, 1000000)
#define NPY_FILE "the path of an NPY file", .path = BPPSA_PATH_READ
#define WRITTEN_FILE "the path of the file to write", .path = BPPSA_PATH_WRITTEN
#define FLAG(group, help_) BPPSA_FLAG, group, NULL, NULL, help_, NULL, .choices = NULL
#define COST_EXPECTED "a number from 0 to 1e15"
#define COST(metavar_, fallback_, help_)                                                                                         \
  BPPSA_REAL, BPPSA_GROUP_COSTS, metavar_, fallback_, help_, COST_EXPECTED, .low = 0, .high = 1e15

static const bppsa_option_info table[BPPSA_OPTION_COUNT] = {
#define OPTION(id, ...) [BPPSA_OPTION_##id] = {__VA_ARGS__},
#include "cli/options.inc"
};

/* ---- what other commands mean by an option ---- */

#define MEANING(name, ...) const bppsa_option_info bppsa_meaning_##name = {__VA_ARGS__}

MEANING(any_model, "--model", BPPSA_TEXT, BPPSA_GROUP_MODEL, "MODEL", NULL,
        "a name of --list, a model file or a network file (.json); may be given without --model",
        "a model that bppsa oracle --list names, or a file .json", .path = BPPSA_PATH_OR_NAME);
MEANING(model_layers, "--layers", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "L", NULL, "layers of the model, spread over the stages",
        MILLION, .otherwise = "one for each stage");
MEANING(train_loss, "--loss", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "last",
        "cross-entropy of the last or of every step; likewise for real targets mean squared error, or "
        "binary cross-entropy with targets in [0, 1]",
        .choices = train_losses);
MEANING(any_backward, "--backward", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "auto",
        "BP, a scan, the fastest of these, see --plan, or BP in chunks of time at once, verified", .listed = any_backward);
MEANING(pixels, "--padding", BPPSA_TEXT, BPPSA_GROUP_MODEL, "P|H,W|T,B,L,R", "0", "zeros around the input",
        "one, two or four whole numbers such as 1 or 0,1,0,1", .choices = NULL);
MEANING(input_size, "--input", BPPSA_INTEGER, BPPSA_GROUP_DATA, "I", NULL,
        "features of a bitstream's step: independent streams of one class", COUNT32,
        .otherwise = "bitstream 1 or as the weights, others the files'");
MEANING(levels_or_auto, "--up-levels", BPPSA_TEXT, BPPSA_GROUP_GRADIENTS, "L|auto", "auto",
        "up-sweep levels, then a linear middle; auto: the fewest FLOPs on the critical path",
        "a whole number, 0 or more, or auto", .choices = NULL);
MEANING(stage_chunks, "--chunks", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "V", "2", "stages a worker holds, of interleaved", MILLION);
MEANING(forward_cost, "--forward", COST("F", "1", "time of F, a layer and micro-batch"));
MEANING(input_grad_cost, "--input-grad", COST("I", "1", "time of I"));
MEANING(train_iterations, "--iterations", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL,
        "training steps, instead of epochs; 0: the initial weights, for --save-weights", FROM_0);
MEANING(rank_micro_batches, "--micro-batches", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "M", "1",
        "groups of samples, one after the other: through ranks along time, on one rank, or "
        "through a schedule's stages (there as many, if not given)",
        COUNT32);
MEANING(flops_pattern, "--pattern", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "guaranteed",
        "patterns to count: those known before any input, or those of a batch's values", .choices = flops_patterns);

/* ---- reading the tables ---- */

static const char *const titles[BPPSA_GROUP_COUNT] = {"Model",       "Data",    "Gradients", "Training", "Costs",
                                                      "Measurement", "Machine", "Ranks",     "Files",    "Output"};

const char *bppsa_option_choice(const bppsa_option_info *info, int32_t index) {
  return info->listed != NULL ? info->listed(index) : info->choices != NULL ? info->choices[index] : NULL;
}

const bppsa_option_info *bppsa_option_get(bppsa_option option) {
  return &table[option];
}

const bppsa_option_info *bppsa_option_of(const bppsa_option_use *use) {
  return use->meaning != NULL ? use->meaning : &table[use->option];
}

bppsa_path_use bppsa_option_path(const bppsa_option_use *use) {
  return use->path != BPPSA_NO_PATH ? use->path : bppsa_option_of(use)->path;
}

const char *bppsa_option_group_title(bppsa_option_group group) {
  return titles[group];
}

const char *bppsa_option_fallback(const bppsa_option_use *use) {
  const char *text = use->fallback != NULL ? use->fallback : bppsa_option_of(use)->fallback;
  return text != NULL && text[0] != '\0' ? text : NULL;
}
