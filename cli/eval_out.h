/* `eval --out P.npz`: what the network gives for every sample. */
#ifndef BPPSA_CLI_EVAL_OUT_H
#define BPPSA_CLI_EVAL_OUT_H

#include "cli/setup.h"
#include "train/trainer.h"

typedef struct bppsa_eval_out bppsa_eval_out;

/* --out is proven, and is no file that is read; --states is given only with it. ERR_ARGUMENT. */
bppsa_status bppsa_eval_out_check(const bppsa_cli *cli);
/* The archive of `count` samples: logits, predictions, with --states the states of every layer. *out: NULL without --out. What is
 * given must outlive it. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_eval_out_open(const bppsa_cli *cli, const bppsa_network *network, const bppsa_recurrent_config *config,
                                 const bppsa_dataset *dataset, const bppsa_device *device, bppsa_model *model, int64_t count,
                                 bppsa_eval_out **out);
/* For bppsa_evaluate_each: adds the batch that the model has just seen. */
bppsa_status bppsa_eval_out_add(void *out, const bppsa_view *logits);
/* Destroys the archive in every case; nothing is at the path before. NULL is legal. */
bppsa_status bppsa_eval_out_commit(bppsa_eval_out *out);
void bppsa_eval_out_abort(bppsa_eval_out *out);

#endif
