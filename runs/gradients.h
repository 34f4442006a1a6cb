/* The gradients of one batch, read from files: every parameter's, the input's, the initial state's, and the loss. */
#ifndef BPPSA_RUNS_GRADIENTS_H
#define BPPSA_RUNS_GRADIENTS_H

#include "core/base/text.h"
#include "core/compute/device_buffer.h"
#include "networks/planner.h"
#include "recurrent/certify.h"
#include "runs/rank_network.h"
#include "train/objective.h"

/* All pointers are owned. The caller sets the first six members. */
typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_chosen chosen; /* where the choice of the method comes from */
  bppsa_objective objective;
  bppsa_safetensors *file; /* the file of the weights */
  bppsa_device *device;
  bppsa_model *model;    /* with its weights, created once the batch is loaded */
  bppsa_rank_network on; /* the ranks that compute; the caller sets it */
  /* x: [T,B,I] or [B,C,H,W]. labels, on the host like x: int64 [B] or [T,B], or real targets of the logits' shape; without a loss
   * the gradient of the top layer's states, [T,B,H], or of its last states, [B,H]. h0: the initial state [L,B,H], for an LSTM
   * [L,B,2H] with h in front of c, or empty. */
  bppsa_buffer x, labels, h0;
  int64_t *lengths;       /* how many steps each sample has, [B], or NULL */
  uint8_t *resets;        /* where samples begin anew, [T,B], or NULL */
  int64_t *samples;       /* 0 .. B - 1 where batch norms normalise by the batch, as in a step of training, or NULL */
  double *loss_weights;   /* of the rows' losses, [T,B] or [B] as the labels, or NULL */
  bppsa_buffer seed;      /* the gradient of the logits, in their shape */
  bppsa_buffer dx, dh0;   /* gradients of x and h0, on the host */
  bppsa_buffer halves[2]; /* an LSTM's gradients of h0 and c0 one by one, [L,B,H]; otherwise empty */
  double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS]; /* the model's accounts of its passes */
  bool certifies;                /* the caller wants a certificate of the weight gradients, of a recurrent network */
  bppsa_certificate certificate; /* if it does */
  double loss;                   /* NaN without a loss */
  float loss_f32;
  int64_t count;             /* how many tensors the result has */
  bppsa_named_view *tensors; /* every parameter's gradient, input, h0 (an LSTM's c0 too), the loss if any; borrowed */
} bppsa_gradients;

/* The paths of a batch's NPY files. */
typedef struct {
  const char *input;
  const char *labels;       /* labels or targets; NULL without a loss */
  const char *grad_output;  /* the gradient of the states, without a loss */
  const char *h0, *c0;      /* NULL: zeros */
  const char *lengths;      /* how many steps each sample has; NULL: all have T */
  const char *resets;       /* where samples begin anew; NULL: nowhere */
  const char *loss_weights; /* of the loss; NULL: all are 1 */
} bppsa_gradients_files;

/* Loads a batch and takes its sizes into the configuration; without a loss, the gradient's shape also says if it covers every
 * step. ERR_ARGUMENT: a label or target out of range, a missing file, c0 of a network that has none; ERR_SHAPE, ERR_FORMAT,
 * ERR_MEMORY. */
bppsa_status bppsa_gradients_load(const bppsa_gradients_files *files, bppsa_gradients *gradients);
/* A forward and a backward pass of the model, and a certificate if it is wanted. ERR_NUMERIC names the first value that is not
 * finite; ERR_MEMORY, ERR_CUDA; errors of bppsa_certify. */
bppsa_status bppsa_gradients_compute(bppsa_gradients *gradients);
/* Does the same on ranks: each computes its part of the batch with its part of the network. Every rank gets the loss and the
 * parameters' gradients of the whole batch; only rank 0 gets those of x and h0, and only it may save. Collective. ERR_COMM too. */
bppsa_status bppsa_gradients_compute_on_ranks(const bppsa_rank_network *ranks, bppsa_gradients *gradients);
void bppsa_gradients_free(bppsa_gradients *gradients); /* a zeroed one is legal */

/* Saves the tensors. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_gradients_save(const bppsa_gradients *gradients, const char *path);
/* Makes the document of `bppsa grad` (NULL when out of memory), and for people a table of norms, which ends with the loss and the
 * path of the file that holds the tensors. */
json_t *bppsa_gradients_json(const bppsa_gradients *gradients);
void bppsa_gradients_text(const bppsa_gradients *gradients, const char *path, bppsa_text *text);

#endif
