/* The contract between a network and its callers: the training loop, `grad`, `eval`, the schedule executor.
 *
 * A model takes a batch and gives logits; it takes the loss's gradient with respect to the logits (the seed) and
 * gives the gradients of its parameters. It never sees a loss, an optimiser or a data set.
 *
 *     forward(x, h0)  ->  logits [B, C] or [T, B, C]        (borrowed, valid until the next forward)
 *     backward(seed)  ->  parameters[i].gradient, input gradient, h0 gradient
 *
 * A model on a GPU takes x, h0 and the seed in GPU memory, and returns its logits and input gradients in GPU memory. Its passes are
 * queued on the device's stream (core/compute/device.h) and may still run when they return. Its parameters' views are in host
 * memory: they are copies. bppsa_model_push copies values to the GPU; bppsa_model_pull copies values or gradients from the GPU.
 *
 * All views are contiguous and of the model's dtype. Batches may be smaller than the planned one. x is borrowed until the
 * backward pass (and any search for a non-finite value) is over, the seed until the next forward.
 */
#ifndef BPPSA_CORE_COMPUTE_MODEL_H
#define BPPSA_CORE_COMPUTE_MODEL_H

#include "core/base/view.h"
#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight or bias, or a statistic. Both views are owned by the model. */
typedef struct {
  const char *name; /* as in PyTorch, e.g. "rnn.weight_hh_l0" */
  bppsa_view value;
  bppsa_view gradient; /* same shape */
  /* The passes of a model in training set the value themselves, such as running means of a batch norm: no optimiser does, and the
   * gradient is 0. */
  bool statistic;
} bppsa_parameter;

/* The first non-finite value of the latest forward or backward pass, in the order in which it appeared. */
typedef struct {
  /* "hidden state", "logits", "gradient of the hidden state"; or "value of", "gradient of", followed by name. Static */
  const char *what;
  const char *name; /* the parameter's name, or NULL */
  int64_t layer;    /* from 0; -1: none */
  int64_t step;     /* time step from 1 (0: the initial state); -1: none */
  int64_t sample;   /* index in the batch, from 0; -1: none */
} bppsa_nonfinite;

typedef struct bppsa_model bppsa_model; /* a network with its parameters */

/* How many layers, and how many of the model's first parameters, have their gradients computed last. possible: for how many layers
 * the model has the memory. */
typedef struct {
  int64_t layers, parameters, possible;
} bppsa_delayed;

/* The kinds of passes that a model may give an account of. */
typedef enum { BPPSA_PASS_FORWARD = 0, BPPSA_PASS_BACKWARD, BPPSA_PASS_KINDS } bppsa_pass;
const char *bppsa_pass_name(bppsa_pass pass); /* "forward", "backward" */

/* An account of what passes of one kind did beside their results, in numbers that the model's kind alone explains. Who runs the
 * passes adds the numbers up, shows their text and keeps them in checkpoints. */
enum { BPPSA_ACCOUNT_NUMBERS = 13 /* the most */, BPPSA_ACCOUNT_PLAN = 224, BPPSA_ACCOUNT_TEXT = 512 };
typedef struct {
  int count;      /* numbers */
  int state;      /* the first so many are the state that the bits of later passes depend on; they are not added */
  unsigned reals; /* bit i: number i is a real number; otherwise it counts something */
  /* How the passes are made: what runs with the same bits have in common (BPPSA_ACCOUNT_PLAN). Returns text. */
  const char *(*plan)(const bppsa_model *model, char *text, size_t size);
  bppsa_status (*latest)(bppsa_model *model, double *numbers); /* of the latest pass, for which it waits on a GPU. ERR_CUDA */
  void (*add)(double *sums, const double *numbers);
  /* A JSON object (BPPSA_ACCOUNT_TEXT). Returns text; NULL: the numbers are of no pass. */
  const char *(*text)(const double *numbers, char *text, size_t size);
  bppsa_status (*restore)(bppsa_model *model, const double *numbers); /* sets the state. ERR_CUDA */
} bppsa_model_account;

/* Where the sequences of a batch begin and end: what a forward pass is given beside x and h0. All zero: every sample is one
 * sequence of T steps. The arrays are borrowed until the pass's backward passes are over. */
typedef struct {
  /* [b], each 1 .. T, in host memory: only that many steps of a sample are computed; its logits on the last step are those at its
   * length; logits, states and gradients behind it are 0. NULL: all samples have T steps. */
  const int64_t *lengths;
  /* [T, b], bool or u8: where it is 1, the sample begins anew in front of the step, and where it is 0 the sample goes on. In host
   * memory, or where the model is: on a GPU bytes are copied to be checked, for which the pass waits, and so cannot be recorded; a
   * bool mask is not checked, and every byte but 0 counts as 1. NULL: all samples go on. */
  const bppsa_view *resets;
} bppsa_spans;

typedef struct {
  const char *name; /* "rnn" */

  /* x: [b, ...] in the model's shape, b <= planned batch ([T, b, I] for recurrent models). h0: [L, b, H], of an LSTM [L, b, 2H],
   * or NULL for zeros or a model without state. ERR_SHAPE. */
  bppsa_status (*forward)(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits);

  /* The same for samples with lengths or resets. NULL: the model has neither. ERR_ARGUMENT: it was created without them; ERR_SHAPE.
   */
  bppsa_status (*forward_spans)(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                bppsa_view *logits);

  /* seed: of the shape of the preceding forward pass's logits. Overwrites every parameter's gradient. */
  bppsa_status (*backward)(bppsa_model *model, const bppsa_view *seed);

  /* The gradients of x and h0 in the latest backward pass (borrowed). ERR_UNSUPPORTED unless the model was created with input
   * gradients. h0 may be NULL. */
  bppsa_status (*input_gradients)(bppsa_model *model, bppsa_view *x, bppsa_view *h0);

  /* The last states of the samples of the latest forward pass, such as a pass that goes on takes for its h0; where samples have
   * lengths, those at their ends. shape = {L, S}; states [L][apart][S], where the model is, gets the first b rows of each layer,
   * which a GPU queues; NULL: only the shape is wanted, and there need be no pass. The function NULL: the model has no states.
   * ERR_UNSUPPORTED: a model in two directions; ERR_ARGUMENT: no pass yet; ERR_CUDA. */
  bppsa_status (*last_states)(bppsa_model *model, int64_t shape[2], int64_t apart, void *states);

  /* Searches activations and gradients; true, with *where filled, if something is not finite. */
  bool (*find_nonfinite)(bppsa_model *model, bppsa_nonfinite *where);

  void (*destroy)(bppsa_model *model);
  /* bppsa_model_drop. NULL: the model drops nothing. */
  void (*drop)(bppsa_model *model, int64_t step, const int64_t *samples);
  void (*forget)(bppsa_model *model);        /* bppsa_model_forget. NULL: the model keeps nothing of the caller's */
  bppsa_status (*count)(bppsa_model *model); /* brings model->redone up to date; NULL: it always is */
  /* Puts off the weight gradients of k layers. NULL: the model cannot. */
  bppsa_status (*delay)(bppsa_model *model, int64_t k, bppsa_delayed *delayed);
  /* The model that knows how the forward passes are computed (recurrent/parallel_forward.h); NULL: this one. */
  const bppsa_model *(*inner)(const bppsa_model *model);
  /* NULL, or returns NULL: such passes have nothing to tell. */
  const bppsa_model_account *(*account)(const bppsa_model *model, bppsa_pass pass);
} bppsa_model_ops;

/* Called by a backward pass in host memory, in the pass's thread, as soon as the gradients of parameters first .. first + count - 1
 * are complete: once for every parameter, or not at all. */
typedef struct {
  void (*ready)(void *context, int64_t first, int64_t count); /* NULL: nothing is called */
  void *context;
} bppsa_gradient_listener;

struct bppsa_model {
  const bppsa_model_ops *ops;
  bppsa_dtype dtype;
  int64_t parameter_count;
  bppsa_parameter *parameters; /* size parameter_count, in PyTorch's order */
  int64_t classes;             /* C, the logits' last extent */
  /* Scan products found useless and redone step by step since creation (scan/scan.h); ops->count, if there is one, brings it
   * up to date. */
  int64_t redone;
  bppsa_gradient_listener listener; /* set by the caller; a model on a GPU ignores it */

  const bppsa_device *device; /* NULL: the host; the fields below are then 0 */
  /* GPU memory, owned: the parameters one behind the other, at the same distances as their views; gaps hold 0 */
  void *device_values, *device_gradients;
  int64_t reals; /* reals in each, with gaps */
};

/* A forward pass. spans: the lengths and resets of the samples; NULL: they have none. ERR_UNSUPPORTED: the model takes none. Errors
 * of ops->forward and ops->forward_spans. */
bppsa_status bppsa_model_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                 bppsa_view *logits);

/* The backward pass of the latest forward pass. seed: the gradient of its logits, of their shape, where the model's device has its
 * memory. Overwrites the gradient of every parameter; a model on a GPU keeps them there until bppsa_model_pull copies them. Errors
 * of ops->backward: ERR_ARGUMENT where no forward pass precedes it, ERR_SHAPE. */
bppsa_status bppsa_model_backward(bppsa_model *model, const bppsa_view *seed);

/* Says that the next forward passes are of this step of training, and which samples they have (size b, borrowed until the passes
 * are over): a model with dropout leaves out numbers chosen by these alone, so that neither threads nor ranks nor a resumption
 * change them. samples NULL: nothing is left out, as before the first call. A model on a GPU reads samples and lengths when the
 * queued work runs, so a replayed recording uses what the same memory holds by then, and the step of the latest call. */
void bppsa_model_drop(bppsa_model *model, int64_t step, const int64_t *samples);

/* Forgets the latest passes and all that callers have lent: x, seed, lengths, a tape, the samples of bppsa_model_drop. That memory
 * may then be freed. Until the next forward pass the model refuses backward passes and input gradients, and finds non-finite
 * values in its parameters only. */
void bppsa_model_forget(bppsa_model *model);

/* For models on a GPU; nothing to do for others. ERR_CUDA. */
bppsa_status bppsa_model_push(bppsa_model *model);                 /* copies values from the views to the GPU */
bppsa_status bppsa_model_pull(bppsa_model *model, bool gradients); /* copies values, or gradients, from the GPU to the views */
bppsa_status bppsa_model_update_redone(bppsa_model *model);        /* brings model->redone up to date */

/* How the model gives an account of such passes; NULL: they have nothing to tell. */
const bppsa_model_account *bppsa_model_get_account(const bppsa_model *model, bppsa_pass pass);
/* Adds the latest such pass to the sums; without an account they stay as they are. ERR_CUDA. */
bppsa_status bppsa_model_add_pass(bppsa_model *model, bppsa_pass pass, double *sums);

/* Copies values into the parameters by name, converting f32 <-> f64, and pushes them to a GPU. `where` names the source in
 * messages. Names that the model does not have are ignored. ERR_FORMAT: a parameter is missing or not f32/f64, or a finite
 * value is beyond f32; ERR_SHAPE: its shape disagrees; ERR_CUDA. Nothing is changed on failure. */
bppsa_status bppsa_model_set(bppsa_model *model, const char *where, int64_t count, const bppsa_named_view *values);

/* Puts off the weight gradients of the first k layers that have weights (k < 0: none; k >= their number: all but the head's).
 * Later backward passes compute these gradients last, those of the first layer first ("reverse first-k" of ooo-backprop, Algorithm
 * 2). No bit changes. The output gradients of these layers are kept until then, so the model's memory limits how many layers it
 * puts off (the algorithm's k <- min(max_k, k)); *delayed says how many. ERR_UNSUPPORTED: the model computes weight gradients
 * together with the gradients between layers. */
bppsa_status bppsa_model_delay(bppsa_model *model, int64_t k, bppsa_delayed *delayed);

/* True, with *where filled, if a parameter's value (gradient = false) or gradient is not finite. Looks at the views as they are. */
bool bppsa_model_parameter_nonfinite(const bppsa_model *model, bool gradient, bppsa_nonfinite *where);

/* Multiplies all gradients in host memory by the factor, in double. */
void bppsa_model_scale_gradients(const bppsa_model *model, double factor);

/* For a result `what` that is not finite: ERR_NUMERIC with layer, step and sample of the first such value in the latest pass. */
bppsa_status bppsa_model_fail_nonfinite(bppsa_model *model, const char *what);

void bppsa_model_destroy(bppsa_model *model); /* NULL is legal */

/* For models: tells the listener, if there is one, that gradients are complete. */
static inline void bppsa_model_ready(const bppsa_model *model, int64_t first, int64_t count) {
  if (model->listener.ready != NULL) {
    model->listener.ready(model->listener.context, first, count);
  }
}

#ifdef __cplusplus
}
#endif
#endif
