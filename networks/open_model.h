/* A model by its name, in one call: the network, its sizes, its weights. */
#ifndef BPPSA_NETWORKS_OPEN_MODEL_H
#define BPPSA_NETWORKS_OPEN_MODEL_H

#include "core/compute/device.h"
#include "core/compute/model.h"
#include "recurrent/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a model shall be. A size of 0 is left open: the weights say it, otherwise the network's default. */
typedef struct {
  const char *weights; /* a safetensors file with PyTorch's names, or an ONNX model; NULL: what the network's file has if it is an
                        * ONNX model, otherwise they are drawn, by `init` and `seed` */
  const char *mask;    /* of a convolutional network: a safetensors file of masks, or of pruned weights; NULL: no mask, or the
                        * mask that comes with pruned weights */
  bppsa_init init;
  uint64_t seed;
  int64_t batch;                   /* B, the largest batch */
  int64_t seq_len, hidden, layers; /* T, H, L of a recurrent network */
  int64_t input, classes;          /* I and C of a recurrent network */
  bool loss_all;                   /* of a recurrent network: outputs at every step [T,B,C], otherwise at the last [B,C] */
  bppsa_dtype dtype;               /* f32 or f64, of a model without a file of weights; otherwise theirs */
  bppsa_gradient_method method;
  bool input_gradients;  /* computes the gradients of x and h0 too */
  bool training;         /* a convolutional network's dropout leaves numbers out in steps of training */
  bool batch_statistics; /* and its batch norms normalise by the batch */
} bppsa_model_config;

/* Everything open, f32, seed 0; the cost model chooses the method. */
bppsa_model_config bppsa_model_config_default(void);

/* Makes the model of that name, with its parameters. name: "rnn", "gru", "lstm", "lenet5", "vgg11", .. as `bppsa train` takes it,
 * or the path of a network's file. The device must outlive the model; destroy it with bppsa_model_destroy. ERR_ARGUMENT: an unknown
 * name, a size that contradicts the weights or that the network does not have, a file that is not there; ERR_FORMAT: a tensor that
 * is missing (the message lists those of the file) or not finite; ERR_SHAPE, ERR_UNSUPPORTED, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_model_open(const char *name, const bppsa_model_config *config, const bppsa_device *device,
                              bppsa_model **model);

#ifdef __cplusplus
}
#endif
#endif
