/* A network as users name it, and the families of networks: where recurrent and convolutional networks differ,
 * bppsa_network_family has a column that readers ask. */
#ifndef BPPSA_NETWORKS_NAMED_NETWORK_H
#define BPPSA_NETWORKS_NAMED_NETWORK_H

#include "cnn/cnn.h"
#include "core/compute/chain.h"
#include "core/files/json.h"
#include "core/files/safetensors.h"
#include "networks/network_kinds.h"
#include "networks/weight_list.h"
#include "train/data/dataset.h"

typedef struct bppsa_network {
  const bppsa_network_kind *kind;
  const char *name;         /* the kind's name, or the path of a network's file (borrowed) */
  bppsa_cnn_network layers; /* the layers of a convolutional network; otherwise empty */
  const char *mask_path;    /* borrowed, or NULL */
  bppsa_safetensors *mask;  /* the file of the masks, or NULL */
  int64_t mask_count;
  bppsa_named_view *masks;                 /* which weights stay, size mask_count; they view the file, or memory behind them */
  bppsa_weight_gradients weight_gradients; /* how BP of a convolutional network computes weight gradients */
} bppsa_network;

/* Opens the network `name`, a kind's name or the path of a network's file (ending in .json or .onnx), and the mask of a
 * convolutional network's weights at `mask_path` (NULL: none), a file of masks or one with pruned weights; both texts must outlive
 * it. ERR_ARGUMENT: an unknown name, a file that is not there; ERR_* of bppsa_cnn_network_load, bppsa_cnn_onnx_load and
 * bppsa_safetensors_load. */
bppsa_status bppsa_network_open(const char *name, const char *mask_path, bppsa_network *network);
/* Gives a convolutional network another input [C, H, W], as --in-shape asks for it. ERR_ARGUMENT, ERR_SHAPE: it does not take such
 * an input; then it stays as it was; ERR_MEMORY. */
bppsa_status bppsa_network_reshape(bppsa_network *network, const int64_t in[3]);
void bppsa_network_close(bppsa_network *network); /* a zeroed one is legal */

/* ---- configurations ---- */

/* The settings that only a network of steps has. */
typedef struct {
  int64_t seq_len, hidden, layers; /* T, H, L */
  bppsa_nonlinearity nonlinearity;
  bppsa_forward_method forward; /* how its states are computed */
  bool lengths;                 /* its samples may have lengths */
  bool resets;                  /* its samples may begin anew in front of any step */
  bool reset_state;             /* from a learned state */
  bool no_bias;                 /* its layers have no biases */
  bool bidirectional;           /* every layer walks through time in both directions */
  double dropout;               /* between its layers, while it is trained */
  uint64_t dropout_seed;
  bool no_head;                      /* its outputs are the top layer's states, whose gradient the caller brings */
  bppsa_backward_method speculation; /* how speculative BP computes its gradients */
  int64_t recompute;                 /* BP keeps the states of every so many steps; 0: all */
} bppsa_network_steps;

typedef struct {
  int64_t batch;     /* B >= 1, the largest batch */
  int64_t input;     /* I >= 1, the values of a step, or C·H·W of an image */
  int64_t classes;   /* C >= 1; a convolutional network's last layer has as many outputs */
  bool loss_all;     /* with steps: the loss needs logits at every step; otherwise of the last one */
  bppsa_dtype dtype; /* f32, f64 */
  bppsa_gradient_method method;
  bool input_gradients;
  int64_t memory_limit;      /* bytes the network may hold; 0: no limit */
  int64_t optimizer_slots;   /* an optimiser's arrays, each as large as the parameters; the network counts them */
  int64_t delayed;           /* first layers whose weight gradients may be put off (cnn/cnn.h); 0 with steps */
  bool training;             /* the model is trained: a convolutional network's dropout leaves numbers out in steps of training */
  bool batch_statistics;     /* batch norms of a model that is trained normalise by the batch (cnn/cnn.h) */
  uint64_t dropout_seed;     /* of a convolutional network */
  bppsa_network_steps steps; /* zero where the family has no steps */
} bppsa_network_config;

/* The defaults of the network's kind: bppsa_recurrent_config_default, or bppsa_cnn_config_default with the layers' sizes. */
bppsa_network_config bppsa_network_config_default(const bppsa_network *network);
bppsa_recurrent_config bppsa_network_recurrent_config(const bppsa_network_config *config);
bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_network_config *config);

/* Finds the architecture that tensors under the network's own names describe: fills dtype, and of a recurrent network
 * input, hidden, layers, biases, directions and classes. `where` names the source. ERR_* of bppsa_recurrent_infer and
 * bppsa_cnn_infer. */
bppsa_status bppsa_network_infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                                 bppsa_network_config *config);

/* ---- families ---- */

enum { BPPSA_NETWORK_FIELDS = 8, BPPSA_NETWORK_FIELD = 64, BPPSA_NETWORK_NAME = 80, BPPSA_NETWORK_DIMS = 4 };

/* A setting that must be the same in a resumed run as in the first one. */
typedef struct {
  const char *key;
  char text[BPPSA_NETWORK_FIELD];
} bppsa_network_field;

/* The shape and the name of an array: a batch, or the states of a layer. */
typedef struct {
  char name[BPPSA_NETWORK_NAME];
  int32_t ndim;
  int64_t shape[BPPSA_NETWORK_DIMS];
} bppsa_network_shape;

/* The functions behind bppsa_network_*, and what else readers ask about a network. A function may be NULL where a line says so. */
struct bppsa_network_family {
  const char *name;        /* "recurrent", "convolutional" */
  const char *samples;     /* what its samples are: "sequences", "images" */
  bool steps;              /* samples are sequences: states and inputs are [T,B,..], a loss may be on every step */
  bool bp_is_linear;       /* sequential BP is the linear scan, so that one of the two is measured */
  bool plans;              /* making a model for a scan plans products, which takes so long that reports say how long */
  const char *head;        /* the name of its head's tensors: "linear"; NULL: the head is one of the layers */
  int64_t head_parameters; /* parameters at the end of the model's list that get no gradients from `backward` below */

  /* Opens the network that the name and the mask's path (or NULL) mean. *network has its kind already; the caller closes it, also
   * on failure. NULL: the name says everything, and masks are ignored. */
  bppsa_status (*open)(const char *name, const char *mask_path, bppsa_network *network);
  /* Copies the masks of weights into a network without masks; other names are left out. NULL: the network takes none. */
  bppsa_status (*masks)(const bppsa_weight_list *masks, bppsa_network *network);
  bppsa_network_config (*config)(const bppsa_network *network); /* bppsa_network_config_default */
  bppsa_status (*infer)(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                        bppsa_network_config *config);
  /* Returns the name of the first tensor in its weights' file, without "PREFIX."; *text has BPPSA_NETWORK_TEXT bytes. */
  const char *(*first_weight)(const bppsa_network *network, char *text);

  bppsa_status (*create)(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                         bppsa_model **model);
  /* Implements bppsa_network_count. */
  bppsa_status (*count)(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                        int64_t *bytes);
  bppsa_status (*init)(bppsa_model *model, bppsa_init init, uint64_t seed);
  const bppsa_scan_plan *(*plan)(const bppsa_network_config *config, const bppsa_model *model); /* the plan of the top layer */
  /* Makes the network as a chain of layers, with the parameters of `create`; config.batch is the most samples of a call. */
  bppsa_status (*chain)(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                        bppsa_chain **chain);

  /* Implements bppsa_network_match for samples of this family. */
  bppsa_status (*match)(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                        const bppsa_dataset *dataset);
  /* Takes sizes from the data set. weights: weights give the other sizes. NULL: the network has all its sizes. */
  void (*fit)(const bppsa_dataset *dataset, bool weights, bppsa_network_config *config);
  /* Takes sizes from a batch, which is read from the file `path`. ERR_SHAPE: it is no batch of this network. */
  bppsa_status (*take_batch)(const char *path, const bppsa_network *network, const bppsa_view *x, bppsa_network_config *config);

  /* The passes that the planner times: a forward pass, and the backward pass of a seed. A head that is no layer is left out. */
  bppsa_status (*forward)(bppsa_model *model, const bppsa_view *x);
  bppsa_status (*backward)(bppsa_model *model, const bppsa_view *seed);
  void (*batch)(const bppsa_network *network, const bppsa_network_config *config, bppsa_network_shape *x,
                bppsa_network_shape *seed); /* gives the shapes that the two passes take */
  /* Returns the configuration of a scan of the network; the caller sets its device. */
  bppsa_scan_config (*scan)(const bppsa_network *network, const bppsa_network_config *config);

  /* layers: how many layers have states. states_shape: name and shape of a layer's states for `samples` samples, samples first.
   * states: the states themselves, [b,..] or [T,b,H], with two directions [T,b,2H] (borrowed, until the next pass). */
  int64_t (*layers)(const bppsa_network *network, const bppsa_network_config *config);
  bppsa_network_shape (*states_shape)(const bppsa_network *network, const bppsa_network_config *config, int64_t layer,
                                      int64_t samples);
  bppsa_status (*states)(const bppsa_model *model, int64_t layer, bppsa_view *states);

  const char *(*describe)(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size);
  bool (*json)(const bppsa_network *network, const bppsa_network_config *config, json_t *object);
  const char *(*identity)(const bppsa_network *network, char *text, size_t size); /* NULL: its kind's name says all */
  /* Lists the network's settings that compared runs must share; loss: the name of the run's loss. Returns how many. */
  int64_t (*fields)(const bppsa_network *network, const bppsa_network_config *config, const char *loss,
                    bppsa_network_field fields[BPPSA_NETWORK_FIELDS]);
};

/* ---- models ---- */

bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                  bppsa_model **model);
/* Counts the bytes of the model that bppsa_network_create would make, as config->memory_limit counts them, and allocates nothing
 * large. ERR_* of bppsa_network_create. */
bppsa_status bppsa_network_count(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                 int64_t *bytes);
bppsa_status bppsa_network_init(const bppsa_network *network, bppsa_model *model, bppsa_init init, uint64_t seed);
/* Returns the method by which the model computes its gradients, with `auto` resolved; the top layer's, if layers differ. */
bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                           const bppsa_model *model);

/* Checks that the data are of the network's kind (sequences or images), have its input size, and have no more classes than it.
 * `weights` names the weights that gave a recurrent network its sizes; NULL: it has none yet. ERR_SHAPE. */
bppsa_status bppsa_network_match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                                 const bppsa_dataset *dataset);
/* Checks the data like bppsa_network_match, then takes the sizes that they give: the steps, and for a recurrent network without
 * weights the input size and the classes. ERR_SHAPE: *config is unchanged. */
bppsa_status bppsa_network_fit(const bppsa_network *network, const char *weights, const bppsa_dataset *dataset,
                               bppsa_network_config *config);

/* ---- words and numbers ---- */

/* Writes "rnn: T 1000, ..." or "lenet5: B 256, 11 layers, [3, 32, 32] to 10 classes"; a network in a file is named by its path.
 * Returns text (BPPSA_NETWORK_TEXT). */
const char *bppsa_network_describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size);
/* The network's sizes as fields of a JSON object. */
bool bppsa_network_json(const bppsa_network *network, const bppsa_network_config *config, json_t *object);
/* Writes a checksum of layers and mask; two runs of the same network have the same one. "" where the kind's name says all.
 * Returns text. */
const char *bppsa_network_identity(const bppsa_network *network, char *text, size_t size);

#endif
