/* Moves values between tensors of a batch: copies, adds or multiplies a part of every sample. Internal. */
#ifndef BPPSA_CNN_MOVE_H
#define BPPSA_CNN_MOVE_H

#include "core/base/view.h"

typedef enum { BPPSA_MOVE_SET = 0, BPPSA_MOVE_ADD, BPPSA_MOVE_MULTIPLY } bppsa_move_how;

/* A part of every sample: sample b's begins at data + b * stride reals. */
typedef struct {
  void *data;
  int64_t stride;
} bppsa_cnn_part_view;

/* to = from, to += from, or to *= from for `count` values of each of `batch` samples. The parts must not overlap. */
void bppsa_cnn_move(bppsa_move_how how, bppsa_dtype dtype, int32_t threads, int64_t batch, int64_t count,
                    bppsa_cnn_part_view from, bppsa_cnn_part_view to);

/* The same for the positions of an image of this shape, which lie at strides of their own along each axis on both sides. Where a
 * stride of `to` is 0, several values go to one place: they are added up in double, and `how` must be BPPSA_MOVE_ADD. */
void bppsa_cnn_move_strided(bppsa_move_how how, bppsa_dtype dtype, int32_t threads, int64_t batch, const int64_t shape[3],
                            bppsa_cnn_part_view from, const int64_t from_strides[3], bppsa_cnn_part_view to,
                            const int64_t to_strides[3]);

#endif
