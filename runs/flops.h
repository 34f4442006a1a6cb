/* What `flops` counts: a network's transposed Jacobians and the steps of their scan (flops.c), in words and as JSON
 * (flops_report.c), its layers one by one (layer_table.c), and a picture of both (flops_picture.c). */
#ifndef BPPSA_RUNS_FLOPS_H
#define BPPSA_RUNS_FLOPS_H

#include "cnn/live.h"
#include "cnn/row_counts.h"
#include "cnn/shrink.h"
#include "cnn/work.h"
#include "core/base/text.h"
#include "jacobian/jacobian.h"
#include "networks/masks.h"
#include "networks/weights.h"
#include "scan/work.h"

/* Paths and names are borrowed and must outlive the counts. */
typedef struct {
  const char *network; /* a kind's name or the path of a network's file */
  int64_t in[3];       /* the input [C, H, W] that the network takes; 0 in front: its own */
  const char *mask;    /* path of a file of masks, or NULL */
  const char *weights; /* path of a safetensors file; NULL: random weights by the seed */
  double prune;        /* fraction of the weights that is pruned, 0 .. 1 */
  bppsa_prune_method method;
  bppsa_prune_structure structure; /* what is pruned as a whole */
  uint64_t seed;                   /* makes random weights, and an image where no input is given */
  bool values;                     /* count patterns of a batch's values (flops.c), not those that are guaranteed */
  const char *input;               /* with `values`: path of the images [B,C,H,W] as NPY; NULL: one image of random numbers */
  const char *labels;              /* with `values`: path of int64 labels [B], which are checked, or NULL */
  int64_t batch;                   /* samples whose products are held in memory */
  bool layers_only;                /* count the layers alone: no pattern and no plan is made, and what follows is not used */
  bppsa_scan_method scan;          /* blelloch with this number of up-levels, or auto */
  bool input_grad;                 /* count the step to the input's gradient too */
  bppsa_dtype dtype;               /* of Jacobians and products */
  bool convert_weights;            /* convert a file's weights to dtype before their values are counted */
  int64_t memory_limit;            /* bytes of patterns and held products; 0: no limit was asked for */
  int64_t assumed_limit;           /* the limit on bytes of patterns and of a model where no limit was asked for */
  int64_t most_patterns; /* bytes of guaranteed patterns that are made; beyond them rows are counted (cnn/row_counts.h) */
  double count_work;     /* then: the most work for a product; beyond it rows are drawn at random, by the seed */
} bppsa_flops_request;

enum { BPPSA_FLOPS_MOST_PATTERNS = 64 << 20 };

/* Returns the defaults: no pruning (method class-uniform), seed 0, guaranteed patterns, batch 1, up-levels by auto, f32, patterns
 * of 64 MiB, BPPSA_CNN_COUNT_WORK. The caller sets network and assumed_limit. */
bppsa_flops_request bppsa_flops_request_default(void);

/* An operator's transposed Jacobian; with values the mean over samples. */
typedef struct {
  int64_t rows, cols;
  double nnz;
  int64_t bp_flops; /* BP's mat-vec with it; 0 for the first operator if the input's gradient is not wanted */
} bppsa_flops_operator;

typedef struct {
  bppsa_flops_request request;
  bppsa_network network;
  bppsa_device *device;
  int64_t count;                 /* operators in front of the head */
  const char **names;            /* of the operators, size count; borrowed from the network */
  bool pruned;                   /* some weights are left out of the patterns */
  char note[BPPSA_WEIGHTS_NOTE]; /* from bppsa_weights_set, or "" */
  int64_t samples;
  bppsa_masks masks;           /* for all weights; empty where structure alone decides the patterns */
  bppsa_jacobian **jacobians;  /* NULL for layers that join or split tensors */
  const bppsa_csr **patterns;  /* of the operators' own transposed Jacobians, known ahead of any input; NULL likewise */
  bppsa_cnn_elements elements; /* the same over live sets: in a chain they are the operators' own */
  bppsa_cnn_counter *counter;  /* counts rows where patterns would be too large; then the four above are not made. Or NULL */
  bppsa_flops_operator *operators;
  bppsa_cnn_layer_work *layers; /* every layer by itself, the head too: size count + 1 */
  bppsa_cnn_shrunk *shrunk;     /* what is left of it without useless channels, likewise */
  bppsa_scan_plan *plan;        /* the plan that is asked for; it uses `elements` or, with values, the last sample's */
  bppsa_scan_plan *automatic;   /* the plan that auto would choose over `elements` */
  int64_t automatic_flops;      /* FLOPs on its critical path, by the patterns that are counted */
  bppsa_csr *compact;           /* with values: the operators' patterns of the current sample, size count */
  bppsa_cnn_elements sampled;   /* with values: those of the current sample over live sets */
  int64_t step_count;
  bppsa_scan_step *steps; /* with counts and critical path; with values these are means over the samples */
  bppsa_scan_totals totals;
  bppsa_work work, bp;        /* the work of the scan, and of BP over the same patterns */
  bppsa_cnn_bp_work unpruned; /* BP's work with all weights, by structure */
} bppsa_flops;

/* Opens the network and counts (layers_only: fills only what stands in front of `jacobians`, and `layers`); the caller frees
 * the counts. ERR_ARGUMENT: a recurrent network, an input without `values`, `values` of layers alone, counts that exceed the memory
 * limit; ERR_* of the files. */
bppsa_status bppsa_flops_count(const bppsa_flops_request *request, bppsa_flops *flops);
void bppsa_flops_free(bppsa_flops *flops); /* a zeroed one is legal */

/* ---- in words and as JSON (flops_report.c) ---- */

/* The document of `bppsa flops`; NULL when out of memory. Its "dominant" and "conclusion" are the texts of the functions below. */
json_t *bppsa_flops_json(const bppsa_flops *flops);
/* Writes the same counts for people: operators, steps, totals, conclusion. */
void bppsa_flops_text(const bppsa_flops *flops, bppsa_text *text);
/* Makes the document of `bppsa plan` for a convolutional network (NULL when out of memory), and the same for people. */
json_t *bppsa_flops_plan_json(const bppsa_flops *flops);
void bppsa_flops_plan_text(const bppsa_flops *flops, bppsa_text *text);
/* Draws the scan as counted, with the operators' names, as SVG. ERR_ARGUMENT: too many products. ERR_MEMORY. */
bppsa_status bppsa_flops_draw(const bppsa_flops *flops, bppsa_text *drawing);
/* Draws bars of the layers' FLOPs as SVG, convolutions and linear operators alone, with the scan's steps above BP's over them if a
 * scan was counted (flops_picture.c). */
void bppsa_flops_picture(const bppsa_flops *flops, bppsa_text *drawing);

/* Makes the counter of rows and fills `operators`, `unpruned`; *besides: FLOPs of the weights' gradients (flops_rows.c). Errors of
 * bppsa_cnn_counter_create and bppsa_scan_plan_create. */
bppsa_status bppsa_flops_count_rows(bppsa_flops *flops, double *besides);

/* The mask of layer i while the network is counted, or NULL where it keeps all its weights (borrowed). */
const uint8_t *bppsa_flops_mask(const bppsa_flops *flops, int64_t i);
/* Fills `layers`, from the masks above, or from the network's where there are none. ERR_* of bppsa_cnn_count_layer and
 * bppsa_cnn_mask_bytes; ERR_ARGUMENT: a mask of no weight; ERR_MEMORY. */
bppsa_status bppsa_layer_table_count(bppsa_flops *flops);
/* The same of the layers, one by one (layer_table.c): a document, or with `beside` the members "layers", "classes" and "total" for
 * an object; a table for people; and a table as CSV, which begins with a line of names. */
json_t *bppsa_layer_table_json(const bppsa_flops *flops);
bool bppsa_layer_table_put(json_t *object, const bppsa_flops *flops);
void bppsa_layer_table_text(const bppsa_flops *flops, bppsa_text *text);
void bppsa_layer_table_csv(const bppsa_flops *flops, bppsa_text *text);

/* What both kinds of documents say about the request and its weights: network, method, weights, seed, prune, pruned_fraction and
 * mask; and the words that name the weights and their pruning in a title. */
bool bppsa_flops_put_weights(json_t *object, const bppsa_flops *flops);
void bppsa_flops_add_weights(const bppsa_flops *flops, bppsa_text *text);

/* Both return text. dominant: the most expensive step on the critical path, "[pool3·conv5]·[relu5·conv6]: 1.2e+09 FLOP, 80 %
 * of the critical path". conclusion: what follows from the counts, in a sentence. */
#define BPPSA_FLOPS_DOMINANT 480
#define BPPSA_FLOPS_CONCLUSION 720
const char *bppsa_flops_dominant(const bppsa_flops *flops, char *text, size_t size);
const char *bppsa_flops_conclusion(const bppsa_flops *flops, char *text, size_t size);

#endif
