/* The layers (recurrent/layer.h) that the handlers of python/xla.h compute with: one for each configuration, shape and device that
 * was used lately. A layer never changes; the list of them has a lock. */
#ifndef BPPSA_PYTHON_XLA_LAYERS_H
#define BPPSA_PYTHON_XLA_LAYERS_H

#include <stdbool.h>

#include "python/xla_call.h"
#include "recurrent/layer.h"

/* All that a layer depends on. Compared byte by byte, so it begins as zeros. */
typedef struct {
  char cell[BPPSA_XLA_WORD], method[BPPSA_XLA_WORD], forward[BPPSA_XLA_WORD];
  int64_t relu, f64, threads;
  int64_t gpu; /* 0: the CPU; otherwise the GPU's number, counted from 1 */
  int64_t steps, batch, input, hidden;
  int64_t biases, lengths, resets, reset_state;
} bppsa_xla_key;

typedef struct {
  bppsa_xla_key key;
  bppsa_device *device;
  bppsa_layer *layer;
  bppsa_layer_sizes sizes;
  int64_t tangent, second, third; /* bytes of scratch of derivatives along directions */
  int64_t users;                  /* calls that compute with it now */
  uint64_t stamp;                 /* of its latest use */
  bool kept;                      /* it is in the list */
  bool pair;                      /* the cell's state is one */
} bppsa_xla_layer;

/* Finds the layer or makes it. Errors of bppsa_layer_create. */
bppsa_status bppsa_xla_take_layer(const bppsa_xla_key *key, bppsa_xla_layer **layer);
/* Every layer that was taken is given back. */
void bppsa_xla_give_back(bppsa_xla_layer *layer);
/* Layers that are kept; for tests. */
int64_t bppsa_python_xla_kept(void);

#endif
