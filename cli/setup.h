/* From options to configurations: the functions that several verbs use. */
#ifndef BPPSA_CLI_SETUP_H
#define BPPSA_CLI_SETUP_H

#include "cli/command.h"
#include "cnn/prune.h"
#include "core/base/text.h"
#include "core/compute/device.h"
#include "networks/named_network.h"
#include "networks/planner.h"
#include "networks/weights.h"
#include "runs/pack_run.h"
#include "train/data/dataset.h"
#include "train/objective.h"

/* The help of options whose meaning for convolutional networks differs. */
#define BPPSA_MASK_HELP "which weights stay; the others are 0 and stay out of the scan's patterns"
#define BPPSA_IMAGES_HELP "cifar10:DIR (its binary version) or npy:X,Y (X [N,C,H,W], Y [N]; with --loss mse or bce Y [N,C])"
#define BPPSA_IMAGES_VALIDATION_HELP "fraction of the samples held out instead of CIFAR-10's test batch"
#define BPPSA_IMAGES_LOSS_HELP "last: cross-entropy; mse, bce: mean squared error, binary cross-entropy of real targets"
#define BPPSA_REFUSE_HELP "refuse a network that needs more; 1024's multiples as 500K, 64M, 2G [3/4 of available memory]"

/* The options that a cell with these functions has beyond the options of every cell (networks/cells.inc). */
#define BPPSA_OPTIONS_TANH
#define BPPSA_OPTIONS_TANH_OR_RELU BPPSA_USE(NONLINEARITY),

/* ---- networks ---- */

/* Of convolutional networks, whose option it is to take another input than their own. */
#define BPPSA_IN_SHAPE_USE                                                                                                       \
  { .option = BPPSA_OPTION_IN_SHAPE, .help = "the input, instead of the network's own" }
/* Reads --in-shape; where it is not given, *in stays as it is. ERR_ARGUMENT. */
bppsa_status bppsa_setup_in_shape(const bppsa_cli *cli, int64_t in[3]);

/* The kind that the command's object names, otherwise the kind of --model, otherwise rnn. */
const bppsa_network_kind *bppsa_setup_kind(const bppsa_cli *cli);
/* Opens the network the command's object names, with --mask and --weight-gradients. ERR_ARGUMENT: a second stream is asked for
 * with a scan or on a processor; ERR_* of bppsa_network_open. */
bppsa_status bppsa_setup_network(const bppsa_cli *cli, bppsa_network *network);
/* What --up-levels and --chunks mean. In a command that runs one method, each chooses its scan (blelloch, chunked) and gives the
 * number. In a command that runs all algorithms, they only give the numbers of blelloch and chunked. */
typedef enum { BPPSA_RUNS_ONE = 0, BPPSA_RUNS_ALL } bppsa_runs;
/* Puts model and gradient options into a configuration; where the command does not take an option, its default stays.
 * ERR_ARGUMENT: gradient options that contradict each other. */
bppsa_status bppsa_setup_config(const bppsa_cli *cli, bppsa_runs runs, bppsa_network_config *config);
/* Puts --memory-limit into the configuration; where it is not given, three quarters of what the device has available. */
void bppsa_setup_limit(const bppsa_cli *cli, const bppsa_device *device, bppsa_network_config *config);
/* Reads --plan and chooses by it (bppsa_planner_choose), within the configuration's memory limit, with progress on a terminal. */
bppsa_status bppsa_setup_choose(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device,
                                bppsa_network_config *config, bppsa_chosen *chosen);
/* Returns the bytes that a device has available. */
int64_t bppsa_setup_memory(const bppsa_device *device);

/* Reads --weights and --prefix (bppsa_weights_load, bppsa_weights_set). The note of bppsa_weights_set goes to standard error. */
bppsa_status bppsa_setup_weights(const bppsa_cli *cli, bppsa_network *network, bppsa_network_config *config,
                                 bppsa_safetensors **file);
bppsa_status bppsa_setup_model(const bppsa_cli *cli, const bppsa_network *network, const bppsa_safetensors *file,
                               bppsa_model *model);
/* These note where the number that is used is not the one that was asked for, mostly because it was too large. note_larger: for an
 * option; note_option: for an option of the command line, which ranks along time may also enlarge; note_scan: for --up-levels or
 * --chunks of the planned method; note_steps: for these two and the numbers of the forward pass, in a command that runs all
 * algorithms over `steps` steps; note_forward: for --forward-chunks and --warm-up, or a speculative pass that became sequential
 * (plan NULL: there is no forward pass with a plan). Only the first rank calls them. */
void bppsa_setup_note_larger(const bppsa_cli *cli, bppsa_option option, int64_t asked, int64_t used);
void bppsa_setup_note_option(const bppsa_cli *cli, bppsa_option option, int64_t used);
void bppsa_setup_note_scan(const bppsa_cli *cli, const bppsa_gradient_method *method);
void bppsa_setup_note_steps(const bppsa_cli *cli, int64_t steps);
/* The same for --backward-chunks and --backward-warm-up. plan NULL: the pass is BP. */
void bppsa_setup_note_backward(const bppsa_cli *cli, const bppsa_gradient_method *method, const bppsa_backward_plan *plan);
void bppsa_setup_note_forward(const bppsa_cli *cli, const bppsa_forward_plan *plan);
/* Does --chunks count the stages of a worker, as --split interleaved makes it, and not the chunks of a scan? */
bool bppsa_setup_stage_chunks(const bppsa_cli *cli);
/* These refuse options that would have no effect: the options of a list ("--NAME: given TEXT MORE"), and all options but --json
 * beside `alone`. ERR_ARGUMENT. */
bppsa_status bppsa_setup_refuse(const bppsa_cli *cli, const bppsa_option_use *list, const char *text, const char *more);
bppsa_status bppsa_setup_alone(const bppsa_cli *cli, bppsa_option alone);
/* Reads --structure, and the fraction that is pruned from --fraction or --prune, which N:M replaces. ERR_ARGUMENT: no structure, a
 * fraction that is missing, or one beside N:M that is another. */
bppsa_status bppsa_setup_structure(const bppsa_cli *cli, bppsa_option fraction, bppsa_prune_structure *structure, double *share);
/* Refuses --method, which chooses thresholds of pruning, without --prune. ERR_ARGUMENT. */
bppsa_status bppsa_setup_check_method(const bppsa_cli *cli);

/* Prints a note about the file of --weights, unless it is "". */
void bppsa_setup_note_weights(const bppsa_cli *cli, const char *note);
/* Reads --loss and --ignore-label of train, eval and grad. Without --loss, takes the loss that the weights' metadata name (file
 * NULL: none). ERR_ARGUMENT: --ignore-label beside the mean squared error. */
bppsa_status bppsa_setup_objective(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_objective *objective);

/* Creates the device that --device and --threads ask for. */
bppsa_status bppsa_setup_device(const bppsa_cli *cli, bppsa_device **device);

/* ---- data ---- */

/* Opens the data set that --data, --samples, --seq-len, --input, --seed, --set and --padding name. Its targets are the objective's.
 * WAV files are read on the threads of the device, with progress on a terminal. With --weights, whose sizes `config` has, the
 * bitstream gets as many classes as the weights, at most its ten, and as many features, unless --input says otherwise.
 * bppsa_setup_note_classes notes when there are fewer than ten classes. */
bppsa_status bppsa_setup_dataset(const bppsa_cli *cli, const bppsa_device *device, const bppsa_network_config *config,
                                 const bppsa_objective *objective, bppsa_dataset **dataset);
/* Packs the data set's samples into rows where --pack asks for it (bppsa_pack_run). kept: what the checkpoint of a resumed run says
 * of rows, or NULL. ERR_ARGUMENT: --pack is neither a number nor auto, or auto beside ranks. */
bppsa_status bppsa_setup_pack(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device, const char *kept,
                              bool ranks, double *validation, bppsa_network_config *config, bppsa_dataset **dataset,
                              bppsa_pack_times *times);
/* Reads --stateful, which makes the samples pieces of streams. ERR_ARGUMENT: beside two directions, or ranks that do not share
 * batches. */
bppsa_status bppsa_setup_streams(const bppsa_cli *cli, bool ranks, const bppsa_network_config *config, bppsa_dataset *dataset);
/* Reads --bptt, which lets gradients of streams go back through several batches, in whole rows where passes speculate or ranks
 * share steps. ERR_ARGUMENT: without --stateful, or more than 1 beside what cannot be in such rows. */
bppsa_status bppsa_setup_windows(const bppsa_cli *cli, bool ranks, bppsa_network_config *config, bppsa_dataset *dataset);
void bppsa_setup_note_classes(const bppsa_cli *cli, const bppsa_dataset *dataset);
/* Opens the data set `spec`, whatever --data says. Each sample has one label, or with loss_all one for each step. device NULL: WAV
 * files are read on one thread. */
bppsa_status bppsa_setup_dataset_of(const bppsa_cli *cli, const char *spec, const bppsa_device *device, bool loss_all,
                                    bppsa_dataset **dataset);
/* Only sequences that the program makes have an --input. ERR_ARGUMENT where `spec` names others. */
bppsa_status bppsa_setup_check_input(const bppsa_option_value *input, const char *spec);
/* Only WAV files have a --set and a --padding. ERR_ARGUMENT where `spec` names no WAV files. */
bppsa_status bppsa_setup_check_set(const bppsa_cli *cli, const char *spec);
/* Whether a data set's text names a directory of WAV files. */
bool bppsa_is_audio(const char *spec);

/* ---- what is shown ---- */

/* Prints what a command shows, a document with --json, otherwise text. Both are made before the command writes its files, so that
 * running out of memory leaves none behind. ERR_IO. */
bppsa_status bppsa_setup_show(const bppsa_cli *cli, const bppsa_text *shown);
/* The end of a command: shows the text unless the command failed, and frees it. Returns the command's status, or ERR_IO. */
bppsa_status bppsa_setup_finish(const bppsa_cli *cli, bppsa_status status, bppsa_text *shown);

#endif
