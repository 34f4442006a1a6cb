/* The table of all options. */
#include <float.h>

#include "cli/options.h"
#include "comm/comm.h"
#include "networks/network_kinds.h"

#define SPAN(from, to) .least = (from), .most = (to)
#define COUNT_EXPECTED "a whole number, 1 or more"
#define COUNT32_EXPECTED "a whole number from 1 to 2147483647"

static const char *const nonlinearities[] = {"tanh", "relu", NULL};
static const char *const losses[] = {"last", "all", NULL};
static const char *const train_losses[] = {"last", "all", "mse", "mse-all", "bce", "bce-all", NULL};
static const char *const inits[] = {"default", "orthogonal", NULL};
static const char *const plans[] = {"estimate", "measure", NULL};
static const char *const weight_gradients[] = {"in-order", "second-stream", NULL};
static const char *const optimizers[] = {"adam", "sgd", "adamw", NULL};
static const char *const lr_schedules[] = {"constant", "step", "cosine", NULL};
static const char *const sets[] = {"S", "M", "L", NULL};
static const char *const paddings[] = {"constant", "reflect", NULL};
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

/* The kinds of recurrent networks. */
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

#define MILLION_EXPECTED "a whole number from 1 to 1000000"
#define COST_EXPECTED "a number from 0 to 1e15"
#define COST(metavar_, fallback_, help_)                                                                                         \
  BPPSA_REAL, BPPSA_GROUP_COSTS, metavar_, fallback_, help_, COST_EXPECTED, .low = 0, .high = 1e15

static const bppsa_option_info table[BPPSA_OPTION_COUNT] = {
    [BPPSA_OPTION_MODEL] = {"--model", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "rnn", "the network", .listed = model},
    [BPPSA_OPTION_LAYERS] = {"--layers", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "L", "1", "recurrent layers",
                             "a whole number from 1 to 1000", SPAN(1, 1000)},
    [BPPSA_OPTION_HIDDEN] = {"--hidden", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "H", "20", "size of the hidden state",
                             COUNT32_EXPECTED, SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_NONLINEARITY] = {"--nonlinearity", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "tanh", "the cell's function",
                                   .choices = nonlinearities},
    [BPPSA_OPTION_NO_BIAS] = {"--no-bias", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                              "recurrent layers without biases; weights from a file say it themselves", NULL, .choices = NULL},
    [BPPSA_OPTION_BIDIRECTIONAL] = {"--bidirectional", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                                    "both directions of time in every layer; weights from a file say it", NULL, .choices = NULL},
    [BPPSA_OPTION_DROPOUT] = {"--dropout", BPPSA_REAL, BPPSA_GROUP_MODEL, "P", "0", "share of states left out between layers",
                              "a number, 0 or more and below 1", .low = 0, .high = 1 - DBL_EPSILON / 2},
    [BPPSA_OPTION_LOSS] = {"--loss", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "last", "cross-entropy of the last or of every step",
                           .choices = losses},
    [BPPSA_OPTION_IGNORE_LABEL] = {"--ignore-label", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "LABEL", NULL,
                                   "a label that takes no part in loss and accuracy, such as -100", "a whole number",
                                   SPAN(INT64_MIN, INT64_MAX), .otherwise = "none"},
    [BPPSA_OPTION_INIT] = {"--init", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "default",
                           "PyTorch's initialisation; orthogonal: the same, with W_hh orthogonal", .choices = inits},
    [BPPSA_OPTION_DATA] =
        {"--data", BPPSA_TEXT, BPPSA_GROUP_DATA, "DATA", "bitstream",
         "bitstream (made on the fly), npy:X,Y (X [N,T,I], Y [N] or [N,T]; with --loss mse or bce Y [N], [N,C], or "
         "[N,T], [N,T,C]), irmas:DIR or instruments:DIR (WAV files)",
         "bitstream, npy:X,Y, irmas:DIR, instruments:DIR or cifar10:DIR", .choices = NULL},
    [BPPSA_OPTION_SET] = {"--set", BPPSA_CHOICE, BPPSA_GROUP_DATA, NULL, "S",
                          "features of WAV files: 259 steps of 38, 517 of 24, 1034 of 12", .choices = sets},
    [BPPSA_OPTION_PADDING] = {"--padding", BPPSA_CHOICE, BPPSA_GROUP_DATA, NULL, "constant",
                              "how WAV files continue at their ends: silence, or a mirror image", .choices = paddings},
    [BPPSA_OPTION_DIRECTORY] = {"--directory", BPPSA_TEXT, BPPSA_GROUP_DATA, "DIR", NULL,
                                "WAV files as DIR/CLASS/NAME.wav; may be given without --directory", "the path of a directory",
                                .choices = NULL},
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
    [BPPSA_OPTION_LENGTHS] = {"--lengths", BPPSA_TEXT, BPPSA_GROUP_DATA, "L.npy", NULL,
                              "steps of each sample, int64 [N], for grad [B]: the others take no part", "the path of an NPY file",
                              .otherwise = "all", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_ORDER] = {"--order", BPPSA_TEXT, BPPSA_GROUP_DATA, "O.npy", NULL,
                            "order of the samples in an epoch, int64 [M]; in each epoch [E,M]", "the path of an NPY file",
                            .otherwise = "shuffled by --seed", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_NO_SHUFFLE] = {"--no-shuffle", BPPSA_FLAG, BPPSA_GROUP_DATA, NULL, NULL, "every epoch in the data's order",
                                 NULL, .choices = NULL},
    [BPPSA_OPTION_BACKWARD] = {"--backward", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "auto",
                               "sequential back-propagation, a scan, or the fastest of these, see --plan", .listed = backward},
    [BPPSA_OPTION_ALGORITHM] = {"--algorithm", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "auto",
                                "how the scan computes, and implies a scan; auto: the fastest", .listed = algorithm},
    [BPPSA_OPTION_UP_LEVELS] = {"--up-levels", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "L", NULL,
                                "up-sweep levels, then a linear middle; implies blelloch", "a whole number, 0 or more",
                                SPAN(0, INT64_MAX), .otherwise = "all"},
    [BPPSA_OPTION_CHUNKS] = {"--chunks", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "P", NULL,
                             "number of chunks of time; implies chunked", COUNT_EXPECTED, SPAN(1, INT64_MAX),
                             .otherwise = "from T"},
    [BPPSA_OPTION_FORWARD] = {"--forward", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "sequential",
                              "states step by step, or in chunks of time at once, verified; auto: the faster one, see --plan",
                              .listed = forward},
    [BPPSA_OPTION_FORWARD_CHUNKS] = {"--forward-chunks", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "C", NULL,
                                     "chunks of a speculative forward pass, which it implies", COUNT_EXPECTED, SPAN(1, INT64_MAX),
                                     .otherwise = "from T and B"},
    [BPPSA_OPTION_WARM_UP] = {"--warm-up", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "W", NULL,
                              "steps that each of these chunks begins early", "a whole number, 0 or more", SPAN(0, INT64_MAX),
                              .otherwise = "from T and the type"},
    [BPPSA_OPTION_TOLERANCE] = {"--tolerance", BPPSA_REAL, BPPSA_GROUP_GRADIENTS, "TAU", NULL,
                                "largest difference accepted where chunks meet; 0: the bits of the sequential pass",
                                "a number, 0 or more", .low = 0, .high = DBL_MAX, .otherwise = "2.4e-7; f64 2e-14"},
    [BPPSA_OPTION_BACKWARD_CHUNKS] = {"--backward-chunks", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "C", NULL,
                                      "chunks of a speculative backward pass, which it implies", COUNT_EXPECTED,
                                      SPAN(1, INT64_MAX), .otherwise = "from T and B"},
    [BPPSA_OPTION_BACKWARD_WARM_UP] = {"--backward-warm-up", BPPSA_INTEGER, BPPSA_GROUP_GRADIENTS, "W", NULL,
                                       "steps later in time at which each of these starts", "a whole number, 0 or more",
                                       SPAN(0, INT64_MAX), .otherwise = "40; f64 96"},
    [BPPSA_OPTION_BACKWARD_TOLERANCE] = {"--backward-tolerance", BPPSA_REAL, BPPSA_GROUP_GRADIENTS, "TAU", NULL,
                                         "largest difference accepted where they meet, relative to the gradients; 0: BP",
                                         "a number, 0 or more", .low = 0, .high = DBL_MAX, .otherwise = "2.4e-7; f64 8.9e-16"},
    [BPPSA_OPTION_PLAN] = {"--plan", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "estimate",
                           "how auto chooses: by the cost model, or by timing on this machine (kept in a cache)",
                           .choices = plans},
    [BPPSA_OPTION_WEIGHT_GRADIENTS] = {"--weight-gradients", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "in-order",
                                       "for BP on a GPU: in order, or on a second stream beside the gradients between layers",
                                       .choices = weight_gradients},
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
    [BPPSA_OPTION_MOMENTUM] = {"--momentum", BPPSA_REAL, BPPSA_GROUP_TRAINING, "M", "0", "momentum of SGD",
                               "a number, 0 or more and below 1", .low = 0, .high = 1 - DBL_EPSILON / 2},
    [BPPSA_OPTION_WEIGHT_DECAY] = {"--weight-decay", BPPSA_REAL, BPPSA_GROUP_TRAINING, "LAMBDA", NULL,
                                   "pulls weights to 0: by an L2 term of the loss; with adamw separate from the loss",
                                   "a number, 0 or more", .low = 0, .high = DBL_MAX, .otherwise = "0; adamw 0.01"},
    [BPPSA_OPTION_LR_SCHEDULE] = {"--lr-schedule", BPPSA_CHOICE, BPPSA_GROUP_TRAINING, NULL, "constant",
                                  "how the learning rate falls, from epoch to epoch, or step to step with --iterations",
                                  .choices = lr_schedules},
    [BPPSA_OPTION_LR_STEP_SIZE] = {"--lr-step-size", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL,
                                   "schedule step: epochs (steps with --iterations) between two falls", COUNT_EXPECTED,
                                   SPAN(1, INT64_MAX)},
    [BPPSA_OPTION_LR_GAMMA] = {"--lr-gamma", BPPSA_REAL, BPPSA_GROUP_TRAINING, "FACTOR", NULL,
                               "schedule step: the factor by which the rate falls", "a number above 0", .low = DBL_MIN,
                               .high = DBL_MAX, .otherwise = "0.1"},
    [BPPSA_OPTION_LR_PERIOD] = {"--lr-period", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL,
                                "schedule cosine: epochs (steps with --iterations) until the lowest rate", COUNT_EXPECTED,
                                SPAN(1, INT64_MAX), .otherwise = "the whole run"},
    [BPPSA_OPTION_LR_MIN] = {"--lr-min", BPPSA_REAL, BPPSA_GROUP_TRAINING, "RATE", NULL, "schedule cosine: the lowest rate",
                             "a number, 0 or more", .low = 0, .high = DBL_MAX, .otherwise = "0"},
    [BPPSA_OPTION_WARMUP] = {"--warmup", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "STEPS", NULL,
                             "steps over which the rate rises linearly from 0", "a whole number, 0 or more", SPAN(0, INT64_MAX),
                             .otherwise = "0"},
    [BPPSA_OPTION_CLIP_NORM] = {"--clip-norm", BPPSA_REAL, BPPSA_GROUP_TRAINING, "NORM", NULL,
                                "scale gradients down to this norm", "a number above 0", .low = DBL_MIN, .high = DBL_MAX,
                                .otherwise = "no clipping"},
    [BPPSA_OPTION_PREDICT_AHEAD] =
        {"--predict-ahead", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "S", NULL,
         "log how far weights predicted 1 .. S updates ahead (SpecTrain), and weights so old, are from "
         "those that come",
         "a whole number from 1 to 8", SPAN(1, BPPSA_MOST_AHEAD)},
    [BPPSA_OPTION_SEED] = {"--seed", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", "0", "of weights, data and shuffling",
                           "a whole number, 0 or more", SPAN(0, INT64_MAX)},
    [BPPSA_OPTION_DEVICE] = {"--device", BPPSA_TEXT, BPPSA_GROUP_MACHINE, "cpu|cuda[:K]", "cpu", "where to run",
                             "cpu, cuda or cuda:K", .choices = NULL},
    [BPPSA_OPTION_DTYPE] = {"--dtype", BPPSA_CHOICE, BPPSA_GROUP_MACHINE, NULL, "f32", "type of all values", .choices = dtypes},
    [BPPSA_OPTION_THREADS] = {"--threads", BPPSA_INTEGER, BPPSA_GROUP_MACHINE, "N", NULL, "host threads",
                              "a whole number from 1 to 4096", SPAN(1, 4096), .otherwise = "all cores"},
    [BPPSA_OPTION_RANKS] = {"--ranks", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "P", NULL,
                            "compute on P ranks; under mpirun P is the number of its processes", "a whole number from 1 to 4096",
                            SPAN(1, 4096), .otherwise = "without ranks"},
    [BPPSA_OPTION_SPLIT] = {"--split", BPPSA_TEXT, BPPSA_GROUP_RANKS, "SPLIT", "batch",
                            "what the ranks share: batch, time, both as time:P,batch:Q; of train also layers, as spatial, "
                            "filter, channel, data+spatial or data+filter, a scheme of schedule --list, or a schedule's F.csv",
                            "batch, time, time:P,batch:Q, or a schedule", .path = BPPSA_PATH_OR_NAME},
    [BPPSA_OPTION_TRANSPORT] = {"--transport", BPPSA_CHOICE, BPPSA_GROUP_RANKS, NULL, NULL,
                                "how they exchange arrays; nccl: from GPU to GPU", .listed = transport,
                                .otherwise = "threads; under mpirun mpi"},
    [BPPSA_OPTION_TIMEOUT] = {"--timeout", BPPSA_REAL, BPPSA_GROUP_RANKS, "S", "60", "the longest that a rank waits, in seconds",
                              "a number above 0, at most 1e6", .low = DBL_MIN, .high = 1e6},
    [BPPSA_OPTION_REDUCTION] = {"--reduction", BPPSA_CHOICE, BPPSA_GROUP_RANKS, NULL, "ordered",
                                "ordered: the same bits for every P; library: the transport's own sum", .choices = reductions},
    [BPPSA_OPTION_REVERSE_FIRST] = {"--reverse-first", BPPSA_TEXT, BPPSA_GROUP_RANKS, "K|auto", "0",
                                    "layers whose weight gradients come last, as memory admits; auto: the fastest",
                                    "a whole number from 0 to 1000000, or auto", .choices = NULL},
    [BPPSA_OPTION_ALLOW_OTHER_RANKS] = {"--allow-other-ranks", BPPSA_FLAG, BPPSA_GROUP_RANKS, NULL, NULL,
                                        "with --resume: go on although other ranks give other bits", NULL, .choices = NULL},
    [BPPSA_OPTION_WEIGHTS] = {"--weights", BPPSA_TEXT, BPPSA_GROUP_FILES, "W.safetensors", NULL, "weights, with PyTorch's names",
                              "the path of a safetensors file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_PREFIX] =
        {"--prefix", BPPSA_TEXT, BPPSA_GROUP_FILES, "P[,HEAD]", NULL,
         "what stands before the names in --weights: encoder.rnn of encoder.rnn.weight_ih_l0; HEAD: for linear", "P or P,HEAD",
         .otherwise = "the model's name, and linear"},
    [BPPSA_OPTION_INPUT] = {"--input", BPPSA_TEXT, BPPSA_GROUP_FILES, "X.npy", NULL, "input [T,B,I]", "the path of an NPY file",
                            .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_LABELS] = {"--labels", BPPSA_TEXT, BPPSA_GROUP_FILES, "Y.npy", NULL,
                             "int64 labels [B]; [T,B] with --loss all; with --loss mse or bce reals, [B] or [B,C]",
                             "the path of an NPY file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_GRAD_OUTPUT] = {"--grad-output", BPPSA_TEXT, BPPSA_GROUP_FILES, "G.npy", NULL,
                                  "instead of --labels and a loss: the gradient of the top layer's states, [T,B,H], or of the "
                                  "last ones [B,H]; a head is left out",
                                  "the path of an NPY file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_H0] = {"--h0", BPPSA_TEXT, BPPSA_GROUP_FILES, "H.npy", NULL, "initial state [L,B,H]", "the path of an NPY file",
                         .otherwise = "zeros", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_C0] = {"--c0", BPPSA_TEXT, BPPSA_GROUP_FILES, "C.npy", NULL, "initial cell state [L,B,H] of an LSTM",
                         "the path of an NPY file", .otherwise = "zeros", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_OUT] = {"--out", BPPSA_TEXT, BPPSA_GROUP_FILES, "G.safetensors", NULL, "where the gradients go",
                          "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_STATES] = {"--states", BPPSA_FLAG, BPPSA_GROUP_FILES, NULL, NULL,
                             "write the states of every layer to --out too, [N,T,H]; for images [N,C,H,W]", NULL,
                             .choices = NULL},
    [BPPSA_OPTION_OUT_X] = {"--out-x", BPPSA_TEXT, BPPSA_GROUP_FILES, "X.npy", NULL, "where the sequences go, [N,T,1]",
                            "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_OUT_Y] = {"--out-y", BPPSA_TEXT, BPPSA_GROUP_FILES, "Y.npy", NULL,
                            "where the labels go, int64 [N]; [N,T] with --loss all", "the path of the file to write",
                            .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_LOG] = {"--log", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.jsonl", NULL,
                          "JSON lines: one for each step with --iterations, otherwise one for each epoch",
                          "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_SAVE_WEIGHTS] = {"--save-weights", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.safetensors", NULL,
                                   "where the trained weights go", "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_CHECKPOINT] = {"--checkpoint", BPPSA_TEXT, BPPSA_GROUP_FILES, "DIR", NULL,
                                 "save the run's state there, the latest and the one before", "the path of a directory",
                                 .path = BPPSA_PATH_FOLDER},
    [BPPSA_OPTION_CHECKPOINT_EVERY] = {"--checkpoint-every", BPPSA_INTEGER, BPPSA_GROUP_FILES, "STEPS", NULL, "how often",
                                       COUNT_EXPECTED, SPAN(1, INT64_MAX),
                                       .otherwise = "every epoch; every 100 steps with --iterations"},
    [BPPSA_OPTION_RESUME] = {"--resume", BPPSA_FLAG, BPPSA_GROUP_FILES, NULL, NULL,
                             "go on from the checkpoint, bit for bit; the log is cut back to it", NULL, .choices = NULL},
    [BPPSA_OPTION_SVG] = {"--svg", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.svg", NULL, "a drawing of the plan's levels",
                          "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_RESULTS] = {"--results", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                              "what bench rnn, gru, lstm, ranks or forward, bench/scripts/spectrain.py or out_of_order.py "
                              "wrote with --out, instead of measuring",
                              "the path of a JSON file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_QUICK] = {"--quick", BPPSA_FLAG, BPPSA_GROUP_MEASUREMENT, NULL, NULL, "a small sweep, for a laptop", NULL,
                            .choices = NULL},
    [BPPSA_OPTION_RIVALS] = {"--rivals", BPPSA_TEXT, BPPSA_GROUP_MEASUREMENT, "PROGRAM", NULL,
                             "its methods take part: bench/rivals/recurrent.py has PyTorch's and JAX's", "the path of a program",
                             .otherwise = "none", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_EARLIER] = {"--earlier", BPPSA_TEXT, BPPSA_GROUP_MEASUREMENT, "F.jsonl", NULL,
                              "documents of earlier points, a line each: rivals that lost there are not run",
                              "the path of a file with a JSON document a line", .otherwise = "none", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_CUDNN_DTYPE] = {"--cudnn-dtype", BPPSA_CHOICE, BPPSA_GROUP_MEASUREMENT, NULL, NULL,
                                  "cuDNN's algorithms in this type too, with their errors, on a GPU in f32",
                                  .choices = cudnn_dtypes, .otherwise = "none"},
    [BPPSA_OPTION_INPUT_GRADIENT] = {"--input-gradient", BPPSA_FLAG, BPPSA_GROUP_MEASUREMENT, NULL, NULL,
                                     "backward passes compute the gradient of the input too", NULL, .choices = NULL},
    [BPPSA_OPTION_COLD] = {"--cold", BPPSA_FLAG, BPPSA_GROUP_MEASUREMENT, NULL, NULL,
                           "no pass finds what it reads in a cache; not beside --rivals", NULL, .choices = NULL},
    [BPPSA_OPTION_REFERENCES] = {"--references", BPPSA_TEXT, BPPSA_GROUP_MEASUREMENT, "F.safetensors", NULL,
                                 "references in float64 that --save-references wrote, instead of computing them",
                                 "the path of a file that --save-references wrote", .otherwise = "none", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_SAVE_REFERENCES] = {"--save-references", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.safetensors", NULL,
                                      "where the references of all points go; nothing is timed", "the path of the file to write",
                                      .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_REPEATS] = {"--repeats", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "N", NULL,
                              "timed repeats of every point [as the time budget allows, at least 3]",
                              "a whole number from 1 to 10000", SPAN(1, 10000)},
    [BPPSA_OPTION_TIME_LIMIT] = {"--time-limit", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "SECONDS", NULL,
                                 "begin no further point after that time; those left out are counted [none]",
                                 "a whole number, 1 or more", SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_WORKERS] = {"--workers", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "P", NULL,
                              "predict the maps for P workers too", "a whole number, 1 or more", SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_NEIGHBOURS] = {"--neighbours", BPPSA_INTEGER, BPPSA_GROUP_MEASUREMENT, "N", NULL,
                                 "busy threads beside the measured ones; 0: no such rows", "a whole number from 0 to 4096",
                                 SPAN(0, 4096), .otherwise = "one for each processor"},
    [BPPSA_OPTION_MEMORY_LIMIT] = {"--memory-limit", BPPSA_SIZE, BPPSA_GROUP_MACHINE, "BYTES", NULL,
                                   "skip what needs more; 1024's multiples as 500K, 64M, 2G [3/4 of available memory]",
                                   "a number of bytes, 1 or more, such as 1000000, 500K, 64M or 2G", SPAN(1, INT64_MAX)},
    [BPPSA_OPTION_SCHEME] = {"--scheme", BPPSA_TEXT, BPPSA_GROUP_MODEL, "SCHEME", NULL,
                             "an id of --list; may be given without --scheme", "a scheme that bppsa schedule --list names",
                             .choices = NULL},
    [BPPSA_OPTION_STAGES] = {"--stages", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "D", NULL,
                             "workers: stages, data-parallel copies, or shares", MILLION_EXPECTED, SPAN(1, 1000000),
                             .otherwise = "those of all ranks"},
    [BPPSA_OPTION_MICRO_BATCHES] = {"--micro-batches", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "N", "4",
                                    "micro-batches of an iteration of a pipeline", MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_WIDTH] = {"--width", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "W", "1", "data-parallel copies of the whole schedule",
                            MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_REPLICAS] = {"--replicas", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "2F", "2", "pipelines of chimera, half of them up",
                               MILLION_EXPECTED, SPAN(1, 1000000)},
    [BPPSA_OPTION_CUT] = {"--cut", BPPSA_TEXT, BPPSA_GROUP_RANKS, "L1,L2", NULL, "the first layers of all stages but the first",
                          "layers such as 3,5", .otherwise = "by the costs of layers, without them by FLOPs or number"},
    [BPPSA_OPTION_REVERSE_K] = {"--reverse-k", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "K", NULL, "the K of reverse-first-k",
                                "a whole number from 0 to 1000000", SPAN(0, 1000000), .otherwise = "the best"},
    [BPPSA_OPTION_ELEMENTS] = {"--elements", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "N", NULL,
                               "elements of a scan: Jacobians and one gradient", "a whole number from 2 to 1000000",
                               SPAN(2, 1000000), .otherwise = "16 Jacobians a worker"},
    [BPPSA_OPTION_SPLIT_BACKWARD] = {"--split-backward", BPPSA_CHOICE, BPPSA_GROUP_RANKS, NULL, NULL,
                                     "separate operations I and W for each layer, W or I first", .choices = splits,
                                     .otherwise = "one B"},
    [BPPSA_OPTION_SKIP_FIRST_INPUT_GRAD] = {"--skip-first-input-grad", BPPSA_FLAG, BPPSA_GROUP_RANKS, NULL, NULL,
                                            "no input gradient of layer 0", NULL, .choices = NULL},
    [BPPSA_OPTION_RECOMPUTE] = {"--recompute", BPPSA_FLAG, BPPSA_GROUP_RANKS, NULL, NULL,
                                "activations are made again for the backward pass", NULL, .choices = NULL},
    [BPPSA_OPTION_SYNC] = {"--sync", BPPSA_CHOICE, BPPSA_GROUP_RANKS, NULL, "eager-opt",
                           "when replicas add gradients up: after all passes, at once, or at once except for middle stages",
                           .choices = syncs},
    [BPPSA_OPTION_DOUBLING] = {"--doubling", BPPSA_FLAG, BPPSA_GROUP_RANKS, NULL, NULL,
                               "chimera: forward passes over two micro-batches", NULL, .choices = NULL},
    [BPPSA_OPTION_HALVING] = {"--halving", BPPSA_FLAG, BPPSA_GROUP_RANKS, NULL, NULL, "chimera: backward passes in two halves",
                              NULL, .choices = NULL},
    [BPPSA_OPTION_WINDOW] = {"--window", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, NULL, "what the makespan covers",
                             .choices = windows, .otherwise = "iteration; data parallel: backward-forward"},
    [BPPSA_OPTION_WEIGHT_GRAD_COST] = {"--weight-grad", COST("W", "1", "time of W; B = I + W")},
    [BPPSA_OPTION_STEP_COST] = {"--step-cost", COST("T", "0", "time of a layer's update")},
    [BPPSA_OPTION_SYNC_COST] = {"--sync-cost", COST("T", NULL, "time of a layer's SYNC"), .otherwise = "from the link"},
    [BPPSA_OPTION_MESSAGE_SIZE] = {"--message", COST("WORDS", "1", "activations behind a layer; a product of scans")},
    [BPPSA_OPTION_GRADIENT_SIZE] = {"--gradient", COST("WORDS", "1", "weight gradients of a layer")},
    [BPPSA_OPTION_PRODUCT_COST] = {"--product", COST("T", "1", "schemes of scans: time of a product of two matrices")},
    [BPPSA_OPTION_APPLY_COST] = {"--apply", COST("T", "1", "schemes of scans: time of a product with a vector")},
    [BPPSA_OPTION_COSTS] = {"--costs", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                            "costs a layer: forward, input_grad, weight_grad, backward, sync, step, activation, message, "
                            "gradient; product, apply, alpha, beta; samples (of a micro-batch)",
                            "the path of a JSON file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_ALPHA] = {"--alpha", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "latency of a message", COST_EXPECTED, .low = 0,
                            .high = 1e15},
    [BPPSA_OPTION_BETA] = {"--beta", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "time of a word", COST_EXPECTED, .low = 0,
                           .high = 1e15},
    [BPPSA_OPTION_CONTENTION] = {"--contention", BPPSA_CHOICE, BPPSA_GROUP_MACHINE, NULL, "port",
                                 "transfers wait for those of the same worker, for none, or for all others",
                                 .choices = contentions},
    [BPPSA_OPTION_ISSUE_OVERHEAD] = {"--issue-overhead", BPPSA_REAL, BPPSA_GROUP_MACHINE, "T", "0", "time to issue a kernel",
                                     COST_EXPECTED, .low = 0, .high = 1e15},
    [BPPSA_OPTION_PRECOMPILED] = {"--precompiled", BPPSA_FLAG, BPPSA_GROUP_MACHINE, NULL, NULL,
                                  "kernels are issued once, as one graph", NULL, .choices = NULL},
    [BPPSA_OPTION_MEMORY_CAP] = {"--memory-cap", BPPSA_REAL, BPPSA_GROUP_MACHINE, "M", NULL,
                                 "activations of a worker, M_a; of multi-stream times the conventional peak", "a number above 0",
                                 .low = DBL_MIN, .high = 1e15, .otherwise = "none; multi-stream 1.1"},
    [BPPSA_OPTION_SYSTEM] = {"--system", BPPSA_TEXT, BPPSA_GROUP_MODEL, "SYSTEM", NULL,
                             "a name of --list or a system file (.json); may be given without --system",
                             "a system that bppsa oracle --list names, or a file .json", .path = BPPSA_PATH_OR_NAME},
    [BPPSA_OPTION_STRATEGY] = {"--strategy", BPPSA_TEXT, BPPSA_GROUP_MODEL, "A,B", "all", "one or several of --list, or all",
                               "strategies that bppsa oracle --list names, or all", .choices = NULL},
    [BPPSA_OPTION_PROCESSORS] = {"--processors", BPPSA_TEXT, BPPSA_GROUP_MODEL, "P|A..B", NULL,
                                 "processors; A..B: A, twice that, and so on, and B", "a number, or two as 4..1024",
                                 .choices = NULL, .otherwise = "all that the system has"},
    [BPPSA_OPTION_SCALING] = {"--scaling", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "weak",
                              "weak: --batch samples for each processor; strong: --batch samples for all of them",
                              .choices = scalings},
    [BPPSA_OPTION_GROUP_SIZE] = {"--group", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "P2", NULL,
                                 "processors of a group of data+filter and data+spatial", MILLION_EXPECTED, SPAN(1, 1000000),
                                 .otherwise = "a node's, as far as model and batch allow"},
    [BPPSA_OPTION_COLLECTIVE] =
        {"--collective", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "auto",
         "how an allreduce runs; auto: ring or tree, the faster one; ordered: as bppsa train adds gradients",
         .choices = collectives},
    [BPPSA_OPTION_PLOT] = {"--plot", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.svg", NULL, "a bar a strategy, and lines over processors",
                           "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_SAVE_MODEL] = {"--save-model", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                                 "the model as a file, to change it", "the path of the file to write",
                                 .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_SAVE_SYSTEM] = {"--save-system", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                                  "the system as a file, to change it", "the path of the file to write",
                                  .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_SAVE_COSTS] = {"--save-costs", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL,
                                 "the measured costs, as schedule --costs takes them", "the path of the file to write",
                                 .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_LIST] = {"--list", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "all schemes, with their papers", NULL,
                           .choices = NULL},
    [BPPSA_OPTION_COMPARE] = {"--compare", BPPSA_TEXT, BPPSA_GROUP_OUTPUT, "A,B,C", NULL, "several schemes, a row each",
                              "schemes with commas between", .choices = NULL},
    [BPPSA_OPTION_TRACE] = {"--trace", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.json", NULL, "a trace for Perfetto or chrome://tracing",
                            "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_CSV] = {"--csv", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.csv", NULL, "the schedule, with a row for each worker",
                          "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_LOAD] = {"--load", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.csv", NULL, "a schedule that --csv wrote, edited or not",
                           "the path of a CSV file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_IN_SHAPE] = {"--in-shape", BPPSA_TEXT, BPPSA_GROUP_MODEL, "C,H,W", NULL,
                               "shape of the input; without H,W they are 1", "one to three whole numbers such as 3,32,32",
                               .choices = NULL},
    [BPPSA_OPTION_OUT_CHANNELS] = {"--out-channels", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "N", NULL,
                                   "channels, or values, of the output", COUNT32_EXPECTED, SPAN(1, INT32_MAX),
                                   .otherwise = "the weights'"},
    [BPPSA_OPTION_KERNEL] = {"--kernel", BPPSA_TEXT, BPPSA_GROUP_MODEL, "K|H,W", NULL, "size of a window",
                             "one or two whole numbers such as 3 or 3,5", .otherwise = "the weights'; of pools 2"},
    [BPPSA_OPTION_STRIDE] = {"--stride", BPPSA_TEXT, BPPSA_GROUP_MODEL, "S|H,W", NULL, "distance between windows",
                             "one or two whole numbers such as 2 or 2,1", .otherwise = "1; of pools the kernel"},
    [BPPSA_OPTION_DILATION] = {"--dilation", BPPSA_TEXT, BPPSA_GROUP_MODEL, "D|H,W", "1", "distance between a kernel's taps",
                               "one or two whole numbers such as 1 or 2,1", .choices = NULL},
    [BPPSA_OPTION_GROUPS] = {"--groups", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "G", "1", "groups of channels", COUNT32_EXPECTED,
                             SPAN(1, INT32_MAX)},
    [BPPSA_OPTION_CEIL_MODE] = {"--ceil-mode", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL, "windows may end outside the input",
                                NULL, .choices = NULL},
    [BPPSA_OPTION_EXCLUDE_PAD] = {"--exclude-pad", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL, "the average leaves padding out",
                                  NULL, .choices = NULL},
    [BPPSA_OPTION_SLOPE] = {"--slope", BPPSA_REAL, BPPSA_GROUP_MODEL, "S", "0.01", "slope below 0", "a number", .low = -DBL_MAX,
                            .high = DBL_MAX},
    [BPPSA_OPTION_PATTERN] = {"--pattern", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "window",
                              "entries for all inputs of a window, or for its largest input alone", .choices = pool_patterns},
    [BPPSA_OPTION_MASK] = {"--mask", BPPSA_TEXT, BPPSA_GROUP_FILES, "M.npy", NULL,
                           "which weights stay, in their shape: the pattern leaves out those with 0", "the path of an NPY file",
                           .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_SPY] = {"--spy", BPPSA_TEXT, BPPSA_GROUP_FILES, "F.png", NULL, "a picture of the pattern (figure 5)",
                          "the path of the file to write", .path = BPPSA_PATH_WRITTEN},
    [BPPSA_OPTION_PRUNE] = {"--prune", BPPSA_REAL, BPPSA_GROUP_MODEL, "F", "0", "fraction of the weights left out",
                            "a fraction from 0 to 1", .low = 0, .high = 1},
    [BPPSA_OPTION_FRACTION] = {"--fraction", BPPSA_REAL, BPPSA_GROUP_MODEL, "F", NULL, "fraction of the weights that is pruned",
                               "a fraction from 0 to 1", .low = 0, .high = 1},
    [BPPSA_OPTION_METHOD] = {"--method", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "class-uniform",
                             "how a layer's threshold is chosen (bppsa prune --help)", .choices = prune_methods},
    [BPPSA_OPTION_CNN] = {"--cnn", BPPSA_FLAG, BPPSA_GROUP_MODEL, NULL, NULL,
                          "convolutional networks instead: table 1, figures 5, 6 and 10", NULL, .choices = NULL},
    [BPPSA_OPTION_SYNTHETIC] = {"--synthetic", BPPSA_FLAG, BPPSA_GROUP_DATA, NULL, NULL, "make synthetic images; required", NULL,
                                .choices = NULL},
    [BPPSA_OPTION_LEFT] = {"--left", BPPSA_TEXT, BPPSA_GROUP_FILES, "A.npz|A.mtx", NULL,
                           "the left factor, instead of the cases; with --right", "the path of an NPZ or Matrix Market file",
                           .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_RIGHT] = {"--right", BPPSA_TEXT, BPPSA_GROUP_FILES, "B.npz|B.mtx", NULL, "the right factor",
                            "the path of an NPZ or Matrix Market file", .path = BPPSA_PATH_READ},
    [BPPSA_OPTION_JSON] = {"--json", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "one JSON document on standard output", NULL,
                           .choices = NULL},
    [BPPSA_OPTION_HELP] = {"--help", BPPSA_FLAG, BPPSA_GROUP_OUTPUT, NULL, NULL, "this text", NULL, .choices = NULL},
};

/* ---- what other commands mean by an option ---- */

#define MEANING(name, ...) const bppsa_option_info bppsa_meaning_##name = {__VA_ARGS__}

MEANING(any_model, "--model", BPPSA_TEXT, BPPSA_GROUP_MODEL, "MODEL", NULL,
        "a name of --list, a model file or a network file (.json); may be given without --model",
        "a model that bppsa oracle --list names, or a file .json", .path = BPPSA_PATH_OR_NAME);
MEANING(model_layers, "--layers", BPPSA_INTEGER, BPPSA_GROUP_MODEL, "L", NULL, "layers of the model, spread over the stages",
        MILLION_EXPECTED, SPAN(1, 1000000), .otherwise = "one for each stage");
MEANING(train_loss, "--loss", BPPSA_CHOICE, BPPSA_GROUP_MODEL, NULL, "last",
        "cross-entropy of the last or of every step; likewise for real targets mean squared error, or "
        "binary cross-entropy with targets in [0, 1]",
        .choices = train_losses);
MEANING(any_backward, "--backward", BPPSA_CHOICE, BPPSA_GROUP_GRADIENTS, NULL, "auto",
        "BP, a scan, the fastest of these, see --plan, or BP in chunks of time at once, verified", .listed = any_backward);
MEANING(pixels, "--padding", BPPSA_TEXT, BPPSA_GROUP_MODEL, "P|H,W|T,B,L,R", "0", "zeros around the input",
        "one, two or four whole numbers such as 1 or 0,1,0,1", .choices = NULL);
MEANING(input_size, "--input", BPPSA_INTEGER, BPPSA_GROUP_DATA, "I", NULL,
        "features of a bitstream's step: independent streams of one class", COUNT32_EXPECTED, SPAN(1, INT32_MAX),
        .otherwise = "bitstream 1 or as the weights, others the files'");
MEANING(levels_or_auto, "--up-levels", BPPSA_TEXT, BPPSA_GROUP_GRADIENTS, "L|auto", "auto",
        "up-sweep levels, then a linear middle; auto: the fewest FLOPs on the critical path",
        "a whole number, 0 or more, or auto", .choices = NULL);
MEANING(stage_chunks, "--chunks", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "V", "2", "stages a worker holds, of interleaved",
        MILLION_EXPECTED, SPAN(1, 1000000));
MEANING(forward_cost, "--forward", COST("F", "1", "time of F, a layer and micro-batch"));
MEANING(input_grad_cost, "--input-grad", COST("I", "1", "time of I"));
MEANING(train_iterations, "--iterations", BPPSA_INTEGER, BPPSA_GROUP_TRAINING, "N", NULL,
        "training steps, instead of epochs; 0: the initial weights, for --save-weights", "a whole number, 0 or more",
        SPAN(0, INT64_MAX));
MEANING(rank_micro_batches, "--micro-batches", BPPSA_INTEGER, BPPSA_GROUP_RANKS, "M", "1",
        "groups of samples, one after the other: through ranks along time, on one rank, or "
        "through a schedule's stages (there as many, if not given)",
        COUNT32_EXPECTED, SPAN(1, INT32_MAX));
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
