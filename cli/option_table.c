/* The table of all options. */
#include <float.h>

#include "cli/options.h"

#define SPAN(from, to) .least = (from), .most = (to)
#define COUNT_EXPECTED "a whole number, 1 or more"
#define COUNT32_EXPECTED "a whole number from 1 to 2147483647"

static const char *const nonlinearities[] = {"tanh", "relu", NULL};
static const char *const losses[] = {"last", "all", NULL};
static const char *const inits[] = {"default", "orthogonal", NULL};
static const char *const backwards[] = {"bp", "scan", NULL};
static const char *const algorithms[] = {"auto", "linear", "blelloch", "chunked", NULL};
static const char *const plans[] = {"estimate", "measure", NULL};
static const char *const optimizers[] = {"adam", "sgd", NULL};
static const char *const sets[] = {"S", "M", "L", NULL};
static const char *const paddings[] = {"constant", "reflect", NULL};
static const char *const pool_patterns[] = {"window", "argmax", NULL};
static const char *const flops_patterns[] = {"guaranteed", NULL};
static const char *const dtypes[] = {"f32", "f64", NULL};

static const bppsa_option_info table[BPPSA_OPTION_COUNT] = {
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
    [BPPSA_OPTION_IN_SHAPE] = {"--in-shape", BPPSA_TEXT, BPPSA_GROUP_MODEL, "C,H,W", NULL,
                               "shape of the input; without H,W they are 1", "one to three whole numbers such as 3,32,32",
                               .choices = NULL},
    [BPPSA_OPTION_OUT_CHANNELS] = {"--out-channels", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "N", NULL,
                                   "channels, or values, of the output", COUNT32_EXPECTED, SPAN(1, INT32_MAX),
                                   .otherwise = "the weights'"},
    [BPPSA_OPTION_KERNEL] = {"--kernel", BPPSA_TEXT, BPPSA_GROUP_MODEL, "K|H,W", NULL, "of a window",
                             "one or two whole numbers such as 3 or 3,5", .otherwise = "the weights'; of pools 2"},
    [BPPSA_OPTION_STRIDE] = {"--stride", BPPSA_TEXT, BPPSA_GROUP_MODEL, "S|H,W", NULL, "between windows",
                             "one or two whole numbers such as 2 or 2,1", .otherwise = "1; of pools the kernel"},
    [BPPSA_OPTION_PAD] = {"--padding", BPPSA_TEXT, BPPSA_GROUP_MODEL, "P|H,W|T,B,L,R", "0", "zeros around the input",
                          "one, two or four whole numbers such as 1 or 0,1,0,1", .choices = NULL},
    [BPPSA_OPTION_DILATION] = {"--dilation", BPPSA_TEXT, BPPSA_GROUP_MODEL, "D|H,W", "1", "between taps",
                               "one or two whole numbers such as 1 or 2,1", .choices = NULL},
    [BPPSA_OPTION_GROUPS] = {"--groups", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "G", "1", "of channels", COUNT32_EXPECTED,
                             SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_CEIL_MODE] = {"--ceil-mode", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL, "windows may end outside the input",
                                NULL, .choices = NULL},
    [BPPSA_OPTION_EXCLUDE_PAD] = {"--exclude-pad", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL, "the average leaves padding out",
                                  NULL, .choices = NULL},
    [BPPSA_OPTION_SLOPE] = {"--slope", BPPSA_REAL, BPPSA_GROUP_MODEL, "S", "0.01", "below 0", "a number", .low = -DBL_MAX,
                            .high = DBL_MAX},
    [BPPSA_OPTION_POOL_PATTERN] = {"--pattern", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "window",
                                   "every value a window sees with 0 or 1, or each window's largest alone",
                                   .choices = pool_patterns},
    [BPPSA_OPTION_MASK] = {"--mask", BPPSA_TEXT, BPPSA_GROUP_FILES, "M.npy", NULL,
                           "which weights stay: of their shape, 0 is left out of the pattern", "the path of an NPY file",
                           .choices = NULL},
    [BPPSA_OPTION_SPY] = {"--spy", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.png", NULL, "a picture of the pattern (figure 5)",
                          "the path of the file to write", .choices = NULL},
    [BPPSA_OPTION_PRUNE] = {"--prune", BPPSA_REAL, BPPSA_GROUP_MODEL, "F", "0", "fraction of the weights left out",
                            "0, the network as it is", .low = 0, .high = 0},
    [BPPSA_OPTION_FLOPS_PATTERN] = {"--pattern", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "guaranteed",
                                    "what is counted: the patterns that are known ahead of any input", .choices = flops_patterns},
    [BPPSA_OPTION_LEVELS] = {"--up-levels", BPPSA_TEXT, BPPSA_GROUP_GRADIENTS, "L|auto", "auto",
                             "up-sweep levels, then a linear middle; auto: the fewest FLOPs on the critical path",
                             "a whole number, 0 or more, or auto", .choices = NULL},
    [BPPSA_OPTION_LEFT] = {"--left", BPPSA_TEXT, BPPSA_GROUP_FILES, "A.npz|A.mtx", NULL,
                           "the left factor, instead of the cases; with --right", "the path of an NPZ or Matrix Market file",
                           .choices = NULL},
    [BPPSA_OPTION_RIGHT] = {"--right", BPPSA_TEXT, BPPSA_GROUP_FILES, "B.npz|B.mtx", NULL, "the right factor",
                            "the path of an NPZ or Matrix Market file", .choices = NULL},
    [BPPSA_OPTION_JSON] = {"--json", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "one JSON document on standard output", NULL,
                           .choices = NULL},
    [BPPSA_OPTION_HELP] = {"--help", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "this text", NULL, .choices = NULL},
};

static const char *const titles[BPPSA_GROUP_COUNT] = {"Model",       "Data",    "Gradients", "Training",
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
