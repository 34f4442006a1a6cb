/* Optimisers over a model's parameters, with PyTorch's equations in PyTorch's order of operations.
 *
 *     sgd    g = g + λ p;  v = µ v + g;  p = p - lr v          (v = g where µ = 0)
 *     adam   g = g + λ p;  m = β1 m + (1-β1) g;  v = β2 v + (1-β2) g²
 *            p = p - lr/(1-β1^k) · m / (√v / √(1-β2^k) + ε)          k = 1, 2, …
 *     adamw  p = (1 - lr λ) p, then adam with λ = 0: the moments do not contain the decay
 *
 * λ is the weight decay. Gradients are clipped before it is added, as in PyTorch when clip_grad_norm_ precedes the optimiser's
 * step.
 */
#ifndef BPPSA_TRAIN_OPTIMIZER_H
#define BPPSA_TRAIN_OPTIMIZER_H

#include "core/compute/device.h"
#include "core/compute/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { BPPSA_ADAM = 0, BPPSA_SGD, BPPSA_ADAMW, BPPSA_OPTIMIZER_COUNT } bppsa_optimizer_kind; /* the rule of an update */

/* What one kind of optimiser has that another has not. */
typedef struct {
  const char *name;
  const char *slots[2]; /* the names of a parameter's state tensors, as in PyTorch; NULL: it has fewer */
  bool momentum;        /* it takes µ, and has no state where µ is 0 */
  bool moments;         /* its state is m and v of Adam's equations; otherwise it is the velocity of SGD's */
  bool decoupled;       /* the weight decay shrinks the parameters; otherwise it is added to the gradient */
  double weight_decay;  /* PyTorch's default */
} bppsa_optimizer_row;

/* The row of a kind in the table of optimisers; NULL: there is no such kind. */
const bppsa_optimizer_row *bppsa_optimizer_get(bppsa_optimizer_kind kind);
/* "adam", "sgd" or "adamw" to the kind; ERR_ARGUMENT for anything else. */
bppsa_status bppsa_optimizer_parse(const char *text, bppsa_optimizer_kind *kind);
const char *bppsa_optimizer_name(bppsa_optimizer_kind kind);

typedef struct {
  bppsa_optimizer_kind kind;
  double lr;           /* > 0 and finite */
  double momentum;     /* sgd: µ in [0, 1) */
  double beta1, beta2; /* adam, adamw: in [0, 1) */
  double epsilon;      /* adam, adamw: >= 0 */
  double weight_decay; /* λ >= 0 */
} bppsa_optimizer_config;

/* Adam with lr 1e-3, betas 0.9 and 0.999, ε 1e-8; momentum 0, no weight decay. */
bppsa_optimizer_config bppsa_optimizer_config_default(void);

/* The number of state tensors of each parameter, all of its shape: 2 for Adam, 1 for SGD with momentum, 0 for SGD without it. The
 * first one is a gradient that is smoothed over the steps. */
int64_t bppsa_optimizer_slots(const bppsa_optimizer_config *config);

typedef struct bppsa_optimizer bppsa_optimizer; /* an optimiser of one model, with its state */

/* Makes zero state for every parameter. The model must outlive the optimiser. ERR_ARGUMENT names the setting; ERR_MEMORY; for a
 * GPU model also ERR_CUDA. */
bppsa_status bppsa_optimizer_create(const bppsa_optimizer_config *config, bppsa_model *model, bppsa_optimizer **optimizer);
void bppsa_optimizer_destroy(bppsa_optimizer *optimizer); /* NULL is legal */

/* Makes one update from the parameters' gradients, on the model's device: computes their norm, clips it to clip_norm (0: does not
 * clip), and takes a step unless the norm is not finite. `device` gives the threads (NULL: one) for a model in host memory, whose
 * gradients are clipped in place; a GPU's gradients stay unchanged. Allocates nothing, and waits for a GPU. ERR_CUDA. */
bppsa_status bppsa_optimizer_update(bppsa_optimizer *optimizer, const bppsa_device *device, double clip_norm, double *norm);

/* Sets the learning rate for the next steps, >= 0 and finite; a schedule sets it before every step (train/rate.h). */
void bppsa_optimizer_set_lr(bppsa_optimizer *optimizer, double lr);

/* Takes a step without clipping, for a model in host memory. Allocates nothing, cannot fail. */
void bppsa_optimizer_step(bppsa_optimizer *optimizer, const bppsa_device *device);

/* The state that a checkpoint stores. Its values may be overwritten to continue an earlier run. */
typedef struct {
  int64_t step;              /* steps taken so far */
  int64_t count;             /* tensors */
  bppsa_named_view *tensors; /* "NAME.exp_avg", "NAME.exp_avg_sq"; or "NAME.momentum_buffer"; size count, owned */
} bppsa_optimizer_state;

/* Borrowed until the optimiser is destroyed. The tensors are in host memory; for a GPU model they are copies, see below. */
bppsa_optimizer_state *bppsa_optimizer_get_state(bppsa_optimizer *optimizer);
bppsa_status
bppsa_optimizer_push(bppsa_optimizer *optimizer); /* copies the tensors to the GPU; does nothing for other models. ERR_CUDA */
bppsa_status bppsa_optimizer_pull(bppsa_optimizer *optimizer); /* copies them back */

/* The 2-norm of all gradients together, for a model in host memory. Squares are summed in double, in an order fixed by the shapes
 * alone, and scaled where they would over- or underflow. Not finite exactly if a gradient is not, or if the norm exceeds the
 * largest double. */
double bppsa_gradient_norm(const bppsa_model *model, const bppsa_device *device);

/* Scales all gradients by max_norm / (norm + 1e-6) if that is below 1, as PyTorch's clip_grad_norm_ does; for a model in host
 * memory. `norm` is the result of bppsa_gradient_norm. */
void bppsa_gradient_clip(bppsa_model *model, const bppsa_device *device, double norm, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
