/* Models as the oracle sees them: a chain of layers with their sizes, their FLOPs and, where somebody measured them, their times.
 *
 * A model file is one JSON object:
 *
 *     {"name": "tiny", "samples": 50000,
 *      "layers": [{"name": "conv1", "kind": "conv", "in": [3, 32, 32], "out": [6, 28, 28], "kernel": [5, 5],
 *                  "w": 450, "bias": 6, "flops": 705600},
 *                 {"name": "fc", "kind": "linear", "in": [4704], "out": [10], "w": 47040, "bias": 10}]}
 *
 *   Required are name, layers, and for each layer kind, in, out.
 *   samples       D, samples of the data set; default 1
 *   kind          conv, linear, norm, elementwise, pool, add, recurrent
 *   in, out       [channels, extents...] of one sample, up to three extents; recurrent: [features, T]. At most 1e18 elements
 *   kernel, stride   of conv and pool, one number for each axis; default 1
 *   padding       of conv and pool, positions added at both ends of an axis together; default: what the positions of `out` need, as
 *                 long as every window sees some of the input
 *   norm and add need `out` equal to `in`, elementwise needs as many elements
 *   w, bias       elements; default 0. x and y, the elements of `in` and `out`, may be given and are checked
 *   flops         one sample's forward pass; default: 2 w for each output position, or y if there are no weights
 *   forward_s, backward_s   measured seconds of one sample, and update_s of one update; default: from the FLOPs and the system
 *   product_flops, product_s   recurrent: FLOPs and measured seconds of one sample's product of two steps' Jacobians
 *   spread        {"forward_s": [1e-4, 2e-4], ..}: the range in which each measured time of the layer lies (oracle/system.h)
 *   scan_s        recurrent: measured seconds that a linear scan of one sample takes longer than its backward pass; default 0
 *   Layers form a chain: each takes the output of the one before it, in its shape or as one row; a recurrent layer may also give
 *   only its last state. The main path of a residual block may be followed by the layers of its shortcut: the first takes the
 *   block's input, and after the last an "add" takes the outputs of both paths.
 *   gather        true: from this layer on, spatial strategies hold whole samples; default: from the first linear or recurrent one
 */
#ifndef BPPSA_ORACLE_LAYER_MODEL_H
#define BPPSA_ORACLE_LAYER_MODEL_H

#include <stdbool.h>

#include "oracle/share.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_ORACLE_AXES = 3, BPPSA_ORACLE_MOST_LAYERS = 32768, BPPSA_ORACLE_MEASURED = 160 };

typedef enum {
  BPPSA_LAYER_CONV = 0,
  BPPSA_LAYER_LINEAR,
  BPPSA_LAYER_NORM,        /* batch normalisation: a scale and a shift a channel */
  BPPSA_LAYER_ELEMENTWISE, /* ReLU, dropout */
  BPPSA_LAYER_POOL,
  BPPSA_LAYER_ADD,       /* the sum at the end of a residual block */
  BPPSA_LAYER_RECURRENT, /* T steps of a cell; the first extent is T */
  BPPSA_LAYER_KINDS
} bppsa_layer_kind;

typedef struct {
  char name[BPPSA_ORACLE_NAME];
  bppsa_layer_kind kind;
  int64_t in[1 + BPPSA_ORACLE_AXES], out[1 + BPPSA_ORACLE_AXES]; /* channels, extents; 1 where there is none */
  int64_t kernel[BPPSA_ORACLE_AXES], stride[BPPSA_ORACLE_AXES];
  int64_t padding[BPPSA_ORACLE_AXES]; /* sum over both sides; -1: not given */
  double x, y;                        /* elements of input and output, one sample */
  double w, bias;                     /* elements */
  double flops;                       /* of the forward pass, one sample */
  double forward_s;                   /* measured, one sample; negative: not measured */
  double backward_s;                  /* measured, one sample; negative: not measured */
  double update_s;                    /* measured, one update; negative: not measured */
  double product_flops;               /* recurrent: the product of two steps' Jacobians, one sample; otherwise 0 */
  double product_s;                   /* measured, one sample; negative: not measured */
  double scan_s;                      /* recurrent: measured seconds that a linear scan takes longer than BP, one sample */
  /* The range of seconds in which each measured time lies. */
  bppsa_oracle_spread forward_spread, backward_spread, update_spread, product_spread, scan_spread;
} bppsa_oracle_layer;

/* The members of a layer's "spread" that the oracle reads; their pointers lead into the layer, which already holds its times. */
enum { BPPSA_ORACLE_LAYER_SPREADS = 5 };
void bppsa_oracle_layer_spreads(bppsa_oracle_layer *layer, bppsa_oracle_spread_member members[BPPSA_ORACLE_LAYER_SPREADS]);

typedef struct {
  char name[BPPSA_ORACLE_NAME];
  int64_t samples;            /* D */
  int64_t count;              /* G */
  int64_t gather;             /* spatial strategies split the layers before this one; `count`: all */
  bppsa_oracle_layer *layers; /* size count, owned */
  int64_t share_count;
  bppsa_oracle_share *shares;           /* measurements of ranks that share the model; size share_count, owned */
  char measured[BPPSA_ORACLE_MEASURED]; /* when and on what its layers were measured; "": not known */
} bppsa_oracle_model;

/* Makes the model `name`: a built-in one (bppsa_oracle_model_name), or one from a file whose name ends in .json, which is a model
 * file or a network file (cnn/network.h). ERR_ARGUMENT: an unknown name, a file that cannot be read; ERR_FORMAT names layer and
 * member; ERR_MEMORY. */
bppsa_status bppsa_oracle_model_open(const char *name, bppsa_oracle_model *model);
void bppsa_oracle_model_free(bppsa_oracle_model *model); /* a zeroed one is legal */

/* Return name and description of built-in model i; NULL after the last. */
const char *bppsa_oracle_model_name(int64_t i);
const char *bppsa_oracle_model_summary(int64_t i);

/* Reads a model file's document. `where` names it in messages. ERR_FORMAT, ERR_MEMORY. */
bppsa_status bppsa_oracle_model_parse(const char *where, const json_t *document, bppsa_oracle_model *model);
/* Writes the model as such a document; NULL when out of memory. */
json_t *bppsa_oracle_model_json(const bppsa_oracle_model *model);

/* Counts the elements of a shape. */
double bppsa_oracle_elements(const int64_t shape[1 + BPPSA_ORACLE_AXES]);
/* Counts the weights and biases of all layers. */
double bppsa_oracle_parameters(const bppsa_oracle_model *model);
/* Does the layer hold weights? Filter and channel parallelism exchange the outputs of such layers. */
bool bppsa_oracle_weighted(const bppsa_oracle_layer *layer);

#ifdef __cplusplus
}
#endif
#endif
