/* From options to configurations: what train, eval, grad and plan share. */
#ifndef BPPSA_CLI_SETUP_H
#define BPPSA_CLI_SETUP_H

#include "cli/network.h"
#include "cli/objective.h"
#include "cli/planner.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/safetensors.h"
#include "recurrent/recurrent.h"
#include "train/data/dataset.h"

/* Model and gradient options into a configuration; those the command does not take keep the defaults. ERR_ARGUMENT: gradient
 * options that contradict each other. */
bppsa_status bppsa_setup_config(const bppsa_cli *cli, bppsa_recurrent_config *config);

/* ---- weights (weights.c) ---- */

/* Loads --weights and fills the architecture they describe: input, hidden, layers, classes, dtype where --dtype is not given, and
 * the nonlinearity and loss their metadata name where no option does. The names are the network's own, or as --prefix says.
 * ERR_ARGUMENT: an option or the metadata contradict; ERR_FORMAT: a tensor is missing, the message lists the file's. The caller
 * destroys *file. */
bppsa_status bppsa_setup_weights(const bppsa_cli *cli, const bppsa_network *network, bppsa_recurrent_config *config,
                                 bppsa_safetensors **file);
/* A list of a file's tensors (owned, bppsa_free), whose views borrow from it. ERR_MEMORY. */
bppsa_status bppsa_setup_tensors(const bppsa_safetensors *file, bppsa_named_view **tensors, int64_t *count);
/* Copies the file's tensors into a model, converted to its dtype, and checks that they are finite in it. */
bppsa_status bppsa_setup_model(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_model *model);

/* --device and --threads. */
bppsa_status bppsa_setup_device(const bppsa_cli *cli, bppsa_device **device);
/* --data, --samples, --seq-len, --input, --seed, and what the loss compares with (objective NULL: labels); --set and --padding of
 * WAV files, which are read on the device's threads (NULL: on one) with progress on a terminal. */
bppsa_status bppsa_setup_dataset(const bppsa_cli *cli, const bppsa_device *device, bool loss_all,
                                 const bppsa_objective *objective, bppsa_dataset **dataset);
/* The same for the data set `spec`, whatever --data says. */
bppsa_status bppsa_setup_dataset_of(const bppsa_cli *cli, const char *spec, const bppsa_device *device, bool loss_all,
                                    const bppsa_objective *objective, bppsa_dataset **dataset);
/* --input is of sequences that are made up. ERR_ARGUMENT where `spec` names others. */
bppsa_status bppsa_setup_check_input(const bppsa_option_value *input, const char *spec);
/* --set and --padding are of WAV files only. ERR_ARGUMENT where `spec` names others. */
bppsa_status bppsa_setup_check_set(const bppsa_cli *cli, const char *spec);
/* Whether a data set's text names a directory of WAV files. */
bool bppsa_is_audio(const char *spec);

/* The option names no file of the data, npy:X,Y. ERR_ARGUMENT. */
bppsa_status bppsa_setup_check_data(const bppsa_cli *cli, bppsa_option output);

/* The data must be of the network's kind, sequences or images, with its input size, and have no more classes. The sizes of a
 * recurrent network are its weights', `path` names them; NULL: it has none yet. ERR_SHAPE. */
bppsa_status bppsa_setup_match(const char *path, const bppsa_network *network, const bppsa_recurrent_config *config,
                               const bppsa_dataset *dataset);

/* The method in words and who chose it, "scan, chunked (45 chunks), chosen by estimate". Returns text. */
const char *bppsa_setup_method(bppsa_chosen chosen, const bppsa_gradient_method *method, char *text, size_t size);
/* The same of a plan, or where there is no scan "a chain of 9, no scan". Returns text. */
const char *bppsa_setup_plan(bppsa_chosen chosen, const bppsa_scan_plan *plan, char *text, size_t size);
#define BPPSA_SETUP_METHOD_TEXT (BPPSA_METHOD_TEXT + 32)
/* The same as members of a JSON object: the method's, whether auto chose ("auto"), and who ("chosen"). */
bool bppsa_setup_method_json(json_t *object, const bppsa_gradient_method *method, bppsa_chosen chosen);

/* For a result `what` that is not finite: ERR_NUMERIC with layer, step and sample of the first such value in the model's latest
 * pass. */
bppsa_status bppsa_setup_fail_nonfinite(bppsa_model *model, const char *what);

/* ---- arrays given as files (arrays.c) ---- */

/* An NPY file of reals, converted to `dtype`; its values must be finite in it. ERR_ARGUMENT, ERR_FORMAT. */
bppsa_status bppsa_setup_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array);
/* The file's array must have this shape, `words` in letters. ERR_SHAPE. */
bppsa_status bppsa_setup_shape(const char *path, const bppsa_view *view, const char *words, int32_t ndim, const int64_t *shape);

const char *bppsa_nonlinearity_name(bppsa_nonlinearity nonlinearity);
const char *bppsa_loss_name(bool loss_all);

#endif
