/* The table of all options. */
#include <float.h>

#include "cli/options.h"

#define SPAN(from, to) .least = (from), .most = (to)
#define COUNT_EXPECTED "a whole number, 1 or more"
#define COUNT32_EXPECTED "a whole number from 1 to 2147483647"

static const char *const models[] = {"rnn", "gru", NULL};
static const char *const nonlinearities[] = {"tanh", "relu", NULL};
static const char *const losses[] = {"last", "all", NULL};
static const char *const inits[] = {"default", "orthogonal", NULL};
static const char *const backwards[] = {"bp", "scan", NULL};
static const char *const algorithms[] = {"auto", "linear", "blelloch", "chunked", NULL};
static const char *const plans[] = {"estimate", "measure", NULL};
static const char *const optimizers[] = {"adam", "sgd", NULL};
static const char *const sets[] = {"S", "M", "L", NULL};
static const char *const paddings[] = {"constant", "reflect", NULL};
static const char *const dtypes[] = {"f32", "f64", NULL};

static const char *const splits[] = {"wi", "iw", NULL};
static const char *const syncs[] = {"post", "eager", "eager-opt", NULL};
static const char *const windows[] = {"iteration", "backward-forward", NULL};
static const char *const contentions[] = {"port", "none", "network", NULL};

#define MILLION_EXPECTED "a whole number from 1 to 1000000"
#define COST_EXPECTED "a number from 0 to 1e15"
#define COST(metavar_, fallback_, help_)                                                                                         \
  BPPSA_REAL, BPPSA_GROUP_COSTS, metavar_, fallback_, help_, COST_EXPECTED, .low = 0, .high = 1e15

static const bppsa_option_info table[BPPSA_OPTION_COUNT] = {
    [BPPSA_OPTION_MODEL] = {"--model", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "rnn", "the network", .choices = models},
    [BPPSA_OPTION_LAYERS] = {"--layers", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "L", "1", "recurrent layers",
                             "a whole number from 1 to 1000", SPAN(1, 1000)},
    [BPPSA_OPTION_HIDDEN] = {"--hidden", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "H", "20", "size of the hidden state",
                             COUNT32_EXPECTED, SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_NONLINEARITY] = {"--nonlinearity", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "tanh", "the cell's function",
                                   .choices = nonlinearities},
    [BPPSA_OPTION_LOSS] = {"--loss", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "last", "cross-entropy of the last or of every step",
                           .choices = losses},
    [BPPSA_OPTION_INIT] = {"--init", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "default",
                           "PyTorch's initialisation, or W_hh orthogonal besides", .choices = inits},
    [BPPSA_OPTION_DATA] =
        {"--data", BPPSA_TEXT, BPPSA_GROUP_DATA, "DATA", "bitstream",
         "bitstream (made on the fly), npy:X,Y (X [N,T,I], Y [N] or [N,T]), irmas:DIR or instruments:DIR (WAV files)",
         "bitstream, npy:X,Y, irmas:DIR or instruments:DIR", .choices = NULL},
    [BPPSA_OPTION_SET] = {"--set", BPPSA_CHOICE, BPPSA_GROUP_DATA, NULL, "S",
                          "features of WAV files: 259 steps of 38, 517 of 24, 1034 of 12", .choices = sets},
    [BPPSA_OPTION_PADDING] = {"--padding", BPPSA_CHOICE, BPPSA_GROUP_DATA, NULL, "constant",
                              "of WAV files at their ends: silence, or their mirror image", .choices = paddings},
    [BPPSA_OPTION_DIRECTORY] = {"--directory", BPPSA_TEXT, BPPSA_GROUP_DATA, "DIR", NULL,
                                "WAV files as DIR/CLASS/NAME.wav; the name of the option may be left out",
                                "the path of a directory", .choices = NULL},
    [BPPSA_OPTION_FILES] = {"--files", BPPSA_INTEGER, BPPSA_GROUP_DATA, "N", NULL, "files to write",
                            "a whole number from 1 to 1000000", SPAN(1, 1000000)},
    [BPPSA_OPTION_SAMPLES] = {"--samples", BPPSA_INTEGER, BPPSA_GROUP_DATA, "N", NULL, "samples of the data set",
                              COUNT32_EXPECTED, SPAN(1, INT32_MAX), .otherwise = "bitstream 32000, others the files'"},
    [BPPSA_OPTION_SEQ_LEN] = {"--seq-len", BPPSA_INTEGER, BPPSA_GROUP_DATA, "T", NULL, "time steps of a sample", COUNT_EXPECTED,
                              SPAN(1, INT64_MAX), .otherwise = "bitstream 1000, others the files'"},
    [BPPSA_OPTION_BATCH] = {"--batch", BPPSA_INTEGER, BPPSA_GROUP_DATA, "B", "16", "samples of a batch", COUNT32_EXPECTED,
                            SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_VALIDATION] = {"--validation", BPPSA_REAL, BPPSA_GROUP_DATA, "FRACTION", "0",
                                 "fraction of the samples held out, the last ones", "a fraction, 0 or more and below 1", .low = 0,
                                 .high = 1 - DBL_EPSILON / 2},
    [BPPSA_OPTION_BACKWARD] = {"--backward", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "scan",
                               "sequential back-propagation, or the scan", .choices = backwards},
    [BPPSA_OPTION_ALGORITHM] = {"--algorithm", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "auto",
                                "of the scan; auto: the fastest, see --plan", .choices = algorithms},
    [BPPSA_OPTION_UP_LEVELS] = {"--up-levels", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "L", NULL,
                                "up-sweep levels, then a linear middle; implies blelloch", "a whole number, 0 or more",
                                SPAN(0, INT64_MAX), .otherwise = "all"},
    [BPPSA_OPTION_CHUNKS] = {"--chunks", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "P", NULL, "chunks of time; implies chunked",
                             COUNT_EXPECTED, SPAN(1, INT64_MAX), .otherwise = "from T"},
    [BPPSA_OPTION_PLAN] = {"--plan", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "estimate",
                           "how auto chooses: by the cost model, or by timing here (kept in a cache)", .choices = plans},
    [BPPSA_OPTION_INPUT_GRAD] = {"--input-grad", BPPSA_FLAG, BPPSA_GROUP_GRADIENTS, NULL, NULL,
                                 "list the step to the initial state's gradient too", NULL, .choices = NULL},
    [BPPSA_OPTION_EPOCHS] = {"--epochs", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL, "passes over the training samples",
                             COUNT32_EXPECTED, SPAN(1, INT32_MAX), .otherwise = "1, without --iterations"},
    [BPPSA_OPTION_ITERATIONS] = {"--iterations", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL,
                                 "training steps, instead of epochs", COUNT_EXPECTED, SPAN(1, INT64_MAX)},
    [BPPSA_OPTION_OPTIMIZER] = {"--optimizer", BPPSA_CHOICE, BPPSA_GROUP_TRAINING, NULL, "adam", "the update rule",
                                .choices = optimizers},
    [BPPSA_OPTION_LR] = {"--lr", BPPSA_REAL, BPPSA_GROUP_TRAINING, "RATE", "0.001", "learning rate", "a number above 0",
                         .low = DBL_MIN, .high = DBL_MAX},
    [BPPSA_OPTION_MOMENTUM] = {"--momentum", BPPSA_REAL, BPPSA_GROUP_TRAINING, "M", "0", "of SGD",
                               "a number, 0 or more and below 1", .low = 0, .high = 1 - DBL_EPSILON / 2},
    [BPPSA_OPTION_CLIP_NORM] = {"--clip-norm", BPPSA_REAL, BPPSA_GROUP_TRAINING, "NORM", NULL,
                                "scale gradients down to this norm", "a number above 0", .low = DBL_MIN, .high = DBL_MAX,
                                .otherwise = "no clipping"},
    [BPPSA_OPTION_SEED] = {"--seed", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", "0", "of weights, data and shuffling",
                           "a whole number, 0 or more", SPAN(0, INT64_MAX)},
    [BPPSA_OPTION_DEVICE] = {"--device", BPPSA_TEXT, BPPSA_GROUP_MACHINE, "cpu|cuda[:K]", "cpu", "where to run",
                             "cpu, cuda or cuda:K", .choices = NULL},
    [BPPSA_OPTION_DTYPE] = {"--dtype", BPPSA_CHOICE, BPPSA_GROUP_MACHINE, NULL, "f32", "type of all values", .choices = dtypes},
    [BPPSA_OPTION_THREADS] = {"--threads", BPPSA_INTEGER, BPPSA_GROUP_MACHINE, "N", NULL, "host threads",
                              "a whole number from 1 to 4096", SPAN(1, 4096), .otherwise = "all cores"},
    [BPPSA_OPTION_WEIGHTS] = {"--weights", BPPSA_TEXT, BPPSA_GROUP_FILES, "W.safetensors", NULL, "weights, with PyTorch's names",
                              "the path of a safetensors file", .choices = NULL},
    [BPPSA_OPTION_INPUT] = {"--input", BPPSA_TEXT, BPPSA_GROUP_FILES, "X.npy", NULL, "input [T,B,I]", "the path of an NPY file",
                            .choices = NULL},
    [BPPSA_OPTION_LABELS] = {"--labels", BPPSA_TEXT, BPPSA_GROUP_FILES, "Y.npy", NULL, "int64 labels [B]; [T,B] with --loss all",
                             "the path of an NPY file", .choices = NULL},
    [BPPSA_OPTION_H0] = {"--h0", BPPSA_TEXT, BPPSA_GROUP_FILES, "H.npy", NULL, "initial state [L,B,H]", "the path of an NPY file",
                         .otherwise = "zeros"},
    [BPPSA_OPTION_OUT] = {"--out", BPPSA_TEXT, BPPSA_GROUP_FILES, "G.safetensors", NULL, "where the gradients go",
                          "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_OUT_X] = {"--out-x", BPPSA_TEXT, BPPSA_GROUP_FILES, "X.npy", NULL, "where the sequences go, [N,T,1]",
                            "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_OUT_Y] = {"--out-y", BPPSA_TEXT, BPPSA_GROUP_FILES, "Y.npy", NULL,
                            "where the labels go, int64 [N]; [N,T] with --loss all", "the path of the file to write",
                            .choices = NULL},
    [BPPSA_OPTION_LOG] = {"--log", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.jsonl", NULL,
                          "JSON lines: one a step with --iterations, one an epoch otherwise", "the path of the file to write",
                          .choices = NULL},
    [BPPSA_OPTION_SAVE_WEIGHTS] = {"--save-weights", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.safetensors", NULL,
                                   "where the trained weights go", "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_CHECKPOINT] = {"--checkpoint", BPPSA_TEXT, BPPSA_GROUP_FILES, "DIR", NULL,
                                 "save the run's state there, the latest and the one before", "the path of a directory",
                                 .choices = NULL},
    [BPPSA_OPTION_CHECKPOINT_EVERY] = {"--checkpoint-every", BPPSA_INTEGER, BPPSA_GROUP_FILES, "STEPS", NULL, "how often",
                                       COUNT_EXPECTED, SPAN(1, INT64_MAX),
                                       .otherwise = "every epoch; every 100 steps with --iterations"},
    [BPPSA_OPTION_RESUME] = {"--resume", BPPSA_FLAG, BPPSA_GROUP_FILES, NULL, NULL,
                             "go on from the checkpoint, bit for bit; the log is cut back to it", NULL, .choices = NULL},
    [BPPSA_OPTION_SVG] = {"--svg", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.svg", NULL, "a drawing of the plan's levels",
                          "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_RESULTS] = {"--results", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                              "what bench rnn or gru wrote with --out, instead of measuring", "the path of a JSON file",
                              .choices = NULL},
    [BPPSA_OPTION_QUICK] = {"--quick", BPPSA_FLAG, BPPSA_GROUP_MEASUREMENT, NULL, NULL, "a small sweep, for a laptop", NULL,
                            .choices = NULL},
    [BPPSA_OPTION_REPEATS] = {"--repeats", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "N", NULL,
                              "timed repeats of every point [as the time budget allows, at least 3]",
                              "a whole number from 1 to 10000", SPAN(1, 10000)},
    [BPPSA_OPTION_WORKERS] = {"--workers", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "P", NULL,
                              "predict the maps for P workers too", "a whole number, 1 or more", SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_MEMORY_LIMIT] = {"--memory-limit", BPPSA_SIZE, BPPSA_GROUP_MACHINE, "BYTES", NULL,
                                   "skip what needs more; 1024's multiples as 500K, 64M, 2G [3/4 of available memory]",
                                   "a number of bytes, 1 or more, such as 1000000, 500K, 64M or 2G", SPAN(1, INT64_MAX)},
    [BPPSA_OPTION_SCHEME] = {"--scheme", BPPSA_TEXT, BPPSA_GROUP_MODEL, "SCHEME", NULL,
                             "an id of --list; the name of the option may be left out",
                             "a scheme that bppsa schedule --list names", .choices = NULL},
    [BPPSA_OPTION_STAGES] = {"--stages", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "D", "4",
                             "workers: stages, data-parallel copies, or shares", MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_MICRO_BATCHES] = {"--micro-batches", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "N", "4",
                                    "of an iteration, of pipelines", MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_MODEL_LAYERS] = {"--layers", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "L", NULL,
                                   "layers of the model, spread over the stages", MILLION_EXPECTED, SPAN(1, 1000000),
                                   .otherwise = "one a stage"},
    [BPPSA_OPTION_WIDTH] = {"--width", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "W", "1", "data-parallel copies of it all",
                            MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_REPLICAS] = {"--replicas", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "2F", "2", "pipelines of chimera, half of them up",
                               MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_REVERSE_K] = {"--reverse-k", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "K", NULL, "of reverse-first-k",
                                "a whole number from 0 to 1000000", SPAN(0, 1000000), .otherwise = "the best"},
    [BPPSA_OPTION_ELEMENTS] = {"--elements", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "N", NULL, "of scans: Jacobians and one gradient",
                               "a whole number from 2 to 1000000", SPAN(2, 1000000), .otherwise = "16 Jacobians a worker"},
    [BPPSA_OPTION_SPLIT_BACKWARD] = {"--split-backward", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, NULL,
                                     "I and W apart, layer by layer, W or I first", .choices = splits, .otherwise = "one B"},
    [BPPSA_OPTION_SKIP_FIRST_INPUT_GRAD] = {"--skip-first-input-grad", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                                            "no input gradient of layer 0", NULL, .choices = NULL},
    [BPPSA_OPTION_RECOMPUTE] = {"--recompute", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                                "activations are made again for the backward pass", NULL, .choices = NULL},
    [BPPSA_OPTION_SYNC] = {"--sync", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "eager-opt",
                           "gradients of replicas: behind all passes, as they come, or but for the middle stages",
                           .choices = syncs},
    [BPPSA_OPTION_DOUBLING] = {"--doubling", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                               "chimera: forward passes over two micro-batches", NULL, .choices = NULL},
    [BPPSA_OPTION_HALVING] = {"--halving", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL, "chimera: backward passes in two halves",
                              NULL, .choices = NULL},
    [BPPSA_OPTION_WINDOW] = {"--window", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, NULL, "what the makespan covers",
                             .choices = windows, .otherwise = "iteration; data parallel: backward-forward"},
    [BPPSA_OPTION_FORWARD_COST] = {"--forward", COST("F", "1", "time of F, a layer and micro-batch")},
    [BPPSA_OPTION_INPUT_GRAD_COST] = {"--input-grad", COST("I", "1", "time of I")},
    [BPPSA_OPTION_WEIGHT_GRAD_COST] = {"--weight-grad", COST("W", "1", "time of W; B = I + W")},
    [BPPSA_OPTION_STEP_COST] = {"--step-cost", COST("T", "0", "time of a layer's update")},
    [BPPSA_OPTION_SYNC_COST] = {"--sync-cost", COST("T", NULL, "time of a layer's SYNC"), .otherwise = "from the link"},
    [BPPSA_OPTION_MESSAGE_SIZE] = {"--message", COST("WORDS", "1", "activations behind a layer; a product of scans")},
    [BPPSA_OPTION_GRADIENT_SIZE] = {"--gradient", COST("WORDS", "1", "weight gradients of a layer")},
    [BPPSA_OPTION_PRODUCT_COST] = {"--product", COST("T", "1", "of scans: two matrices")},
    [BPPSA_OPTION_APPLY_COST] = {"--apply", COST("T", "1", "of scans: a matrix and a vector")},
    [BPPSA_OPTION_COSTS] =
        {"--costs", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
         "costs a layer: forward, input_grad, weight_grad, sync, step, activation, message, gradient; product, apply",
         "the path of a JSON file", .choices = NULL},
    [BPPSA_OPTION_ALPHA] = {"--alpha", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "latency of a message", COST_EXPECTED, .low = 0,
                            .high = 1e15},
    [BPPSA_OPTION_BETA] = {"--beta", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "time of a word", COST_EXPECTED, .low = 0,
                           .high = 1e15},
    [BPPSA_OPTION_CONTENTION] = {"--contention", BPPSA_CHOICE, BPPSA_GROUP_MACHINE, NULL, "port",
                                 "transfers wait for those of their worker, for none, or for all", .choices = contentions},
    [BPPSA_OPTION_ISSUE_OVERHEAD] = {"--issue-overhead", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "time to issue a kernel",
                                     COST_EXPECTED, .low = 0, .high = 1e15},
    [BPPSA_OPTION_PRECOMPILED] = {"--precompiled", BPPSA_FLAG, BPPSA_GROUP_MACHINE, NULL, NULL,
                                  "kernels are issued once, as one graph", NULL, .choices = NULL},
    [BPPSA_OPTION_MEMORY_CAP] = {"--memory-cap", BPPSA_REAL, BPPSA_GROUP_MACHINE, "M", NULL,
                                 "activations of a worker, M_a; of multi-stream times the conventional peak", "a number above 0",
                                 .low = DBL_MIN, .high = 1e15, .otherwise = "none; multi-stream 1.1"},
    [BPPSA_OPTION_LIST] = {"--list", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "all schemes, with their papers", NULL,
                           .choices = NULL},
    [BPPSA_OPTION_COMPARE] = {"--compare", BPPSA_TEXT, BPPSA_GROUP_OUTPUT, "A,B,C", NULL, "several schemes, a row each",
                              "schemes with commas between", .choices = NULL},
    [BPPSA_OPTION_TRACE] = {"--trace", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL, "a trace for Perfetto or chrome://tracing",
                            "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_CSV] = {"--csv", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.csv", NULL, "the schedule, a row a worker",
                          "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_LOAD] = {"--load", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.csv", NULL, "a schedule that --csv wrote, edited or not",
                           "the path of a CSV file", .choices = NULL},
    [BPPSA_OPTION_JSON] = {"--json", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "one JSON document on standard output", NULL,
                           .choices = NULL},
    [BPPSA_OPTION_HELP] = {"--help", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "this text", NULL, .choices = NULL},
};

static const char *const titles[BPPSA_GROUP_COUNT] = {"Model",       "Data",    "Gradients", "Training", "Costs",
                                                      "Measurement", "Machine", "Files",     "Output"};

const bppsa_option_info *bppsa_option_get(bppsa_option option) {
  return &table[option];
}

const char *bppsa_option_group_title(bppsa_option_group group) {
  return titles[group];
}

const char *bppsa_option_fallback(const bppsa_option_use *use) {
  const char *text = use->fallback != NULL ? use->fallback : table[use->option].fallback;
  return text != NULL && text[0] != '\0' ? text : NULL;
}
