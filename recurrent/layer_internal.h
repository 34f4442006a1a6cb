/* The inside of stateless passes: what their files share. */
#ifndef BPPSA_RECURRENT_LAYER_INTERNAL_H
#define BPPSA_RECURRENT_LAYER_INTERNAL_H

#include <stddef.h>

#include "recurrent/layer.h"
#include "recurrent/recurrent_internal.h"
#include "scan/plan.h"

enum { LAYER_PARAMETERS = 1 + MOST_PARAMETERS /* the reset state in front */ };

struct bppsa_layer {
  recurrent_network *network; /* without arrays */
  bppsa_device_kind kind;     /* of the devices of its passes, */
  int32_t index;              /* and their number */
  bool scans;
  int64_t scan_bytes;            /* of the executor of a scan on a GPU */
  bppsa_scan_plan *tangent_plan; /* of tangents by a scan; NULL: they go step by step */
  bppsa_layer_sizes sizes;
};

typedef struct {
  recurrent_network n;
  recurrent_layer layer;
  bppsa_parameter parameters[LAYER_PARAMETERS], zeros[2];
  void *columns[BPPSA_CELL_MATRICES + 1];
  /* In scratch: the initial state of a pair [B][S]; zeros [G·H], which stand for missing biases; room for unwanted gradients, and
   * other room for that of b_ih, because the gradient of b_hh is copied from it. */
  void *first, *zero, *unwanted, *unwanted_bias;
  void *no_seed; /* on a GPU that looks at the gradients of all outputs (bppsa_backward_method.exact_inputs): zeros [T][B][H] */
  void *scan;    /* the memory of an executor on a GPU */
  _Alignas(max_align_t) char room[RECURRENT_PASS_BYTES]; /* the backend's part */
} layer_pass;

/* Bytes of scratch of a pass whose network serves RECURRENT_FORWARD, RECURRENT_BACKWARD or both. */
bppsa_status bppsa_layer_measure(const bppsa_layer *layer, unsigned serves, int64_t *bytes);
/* Checks what a pass is given. Arrays that the configuration needs must not be NULL, and those that it does not know must be. */
bppsa_status bppsa_layer_check_pass(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *in,
                                    const bppsa_layer_tape *tape, const void *scratch);
bppsa_status bppsa_layer_check_gradients(const bppsa_layer *layer, const bppsa_layer_seed *seed, const bppsa_layer_gradients *to);
/* Makes the pass's network, with its arrays in scratch. to: of a backward pass, otherwise NULL. *end: the address behind the
 * arrays. */
bppsa_status bppsa_layer_begin(const bppsa_layer *layer, const bppsa_device *device, unsigned serves,
                               const bppsa_layer_inputs *in, const bppsa_layer_tape *tape, const bppsa_layer_gradients *to,
                               void *scratch, layer_pass *pass, int64_t *end);
/* Copies packed states to the tape, or back. */
void bppsa_layer_move_tape(const layer_pass *pass, const bppsa_layer_tape *tape, bool back);
/* Makes the executor of the pass's scan, if it runs one; the caller destroys pass->layer.scan. */
bppsa_status bppsa_layer_make_scan(const bppsa_layer *layer, const bppsa_device *device, layer_pass *pass);
/* Writes the gradients of the states to n->g. */
bppsa_status bppsa_layer_seed_pass(layer_pass *pass, const bppsa_layer_seed *seed);

#endif
