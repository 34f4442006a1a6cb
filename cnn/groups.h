/* Softmax, layer norm and group norm: what they normalise over, and how they are two layers. Internal.
 *
 * All three divide the values of a sample into groups of n and compute, in a group,
 *
 *     softmax                  y = e r                 e = exp(x - m),  m = max x,   r = 1 / Σ e
 *     layer norm, group norm   y = w (x - m) r + b                      m = Σ x / n, r = 1 / sqrt(Σ (x - m)² / n + ε)
 *
 * (Ba et al. 2016, Wu and He 2018). Jᵀ of a group is a diagonal and a matrix of rank 1 or 2. So that scans and counts keep this
 * form, the layer is two: its sums, a tensor of m and r of every group, and what is made of x and these sums. In the transposed
 * Jacobians the sums have columns and rows of their own:
 *
 *     softmax   dr/dx = -r y         dy/dx = y      dy/dr = e        (m is taken as a constant, since y does not depend on it)
 *     norms     dm/dx = 1 / n        dy/dx = w r    dy/dm = -w r
 *               dr/dx = -r³ (x - m) / n             dy/dr = w (x - m)
 *
 * A mat-vec through both layers multiplies 3 n or 5 n entries of a group. Only a product of both has n² of them: then, and only
 * then, the group is dense, and is counted so.
 */
#ifndef BPPSA_CNN_GROUPS_H
#define BPPSA_CNN_GROUPS_H

#include "cnn/network.h"
#include "core/base/host_device.h"

enum { BPPSA_CNN_GROUP_SUMS = 2 }; /* m and r */

/* Value i belongs to group i / (size · inner) · inner + i % inner; a group has the values first + inner · k, k < size. */
typedef struct {
  int64_t count, size, inner;
} bppsa_cnn_groups;

/* The groups of a normalisation or of its sums, whose op.in is known. bppsa_cnn_groups_check must have passed. */
bppsa_cnn_groups bppsa_cnn_groups_of(const bppsa_cnn_layer *layer);
/* ERR_ARGUMENT: an axis, a number of groups or an eps out of range; ERR_SHAPE: a layer norm's shape that is not that of the last
 * axes. */
bppsa_status bppsa_cnn_groups_check(const bppsa_cnn_layer *layer);

static inline BPPSA_HOST_DEVICE int64_t bppsa_cnn_group_of(const bppsa_cnn_groups *g, int64_t i) {
  return i / (g->size * g->inner) * g->inner + i % g->inner;
}
static inline BPPSA_HOST_DEVICE int64_t bppsa_cnn_group_first(const bppsa_cnn_groups *g, int64_t group) {
  return group / g->inner * g->size * g->inner + group % g->inner;
}

#endif
