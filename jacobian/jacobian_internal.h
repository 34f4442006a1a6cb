/* The inside of a generator. */
#ifndef BPPSA_JACOBIAN_JACOBIAN_INTERNAL_H
#define BPPSA_JACOBIAN_JACOBIAN_INTERNAL_H

#include "jacobian/jacobian.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which outputs an input position of one axis reaches: those X with x = s X + d t - p for a tap t. They are listed with X
 * increasing, so t decreases. Positions that are reached through the same taps form a class: rows of a convolution differ only
 * between classes. */
typedef struct {
  int64_t in, out, kernel;
  int64_t *ptr;    /* first entry of each input position, size in + 1 */
  int32_t *output; /* X, size ptr[in] */
  int32_t *tap;    /* t, likewise */
  int64_t classes;
  int32_t *class_of; /* of each input position, size in */
  int32_t *member;   /* an input position of each class, size classes */
} bppsa_axis;

bppsa_status bppsa_axis_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding,
                               bppsa_axis *axis);
/* The axis of a pool or a convolution (0: height, 1: width), with `out` positions. */
bppsa_status bppsa_axis_of(const bppsa_op *op, int axis, int64_t out, bppsa_axis *made);
void bppsa_axis_free(bppsa_axis *axis);
/* The pattern of positions of two axes: row (x0, x1) holds the columns (X0, X1) for every X0 that x0 reaches and every X1 that x1
 * reaches. */
bppsa_status bppsa_axis_positions(const bppsa_axis axes[2], bppsa_csr *positions);

struct bppsa_jacobian {
  bppsa_op op;
  int64_t out[3];
  int32_t threads;
  bool shared, symbolic;
  bppsa_csr pattern;
  bppsa_csr positions; /* S, of a pattern with axes */
  bppsa_axis axes[2];  /* height, width: conv2d, pools; linear: a 1 x 1 convolution of C·H·W channels */
  /* conv2d, linear: weights are [G][Co/G][Ci/G][T] */
  int64_t groups, width, height, taps; /* width: Co/G, height: Ci/G, taps: T */
  int64_t channel_block;               /* input channels of a task */
  int64_t *class_ptr;                  /* first tap of every pair of classes, size classes + 1 */
  /* lanes: output channels whose entries are fetched together; stride: reals between their packed weights */
  int64_t lanes, stride;
  /* where the entries of the classes lie, for `lanes` output channels: c·stride + tap t0·k1 + t1 */
  int32_t *class_from;
  int64_t *kept_ptr;              /* with a mask: first kept weight of every input channel, size Ci + 1 */
  int32_t *kept;                  /* with a mask: kept weights of each channel as c·T + t, c increasing and t decreasing */
  uint8_t *mask;                  /* step: a copy */
  void *scratch;                  /* memory for every thread */
  int64_t scratch_reals;          /* of one thread */
  bool on_gpu;                    /* a GPU fills the values: there is no scratch */
  struct bppsa_jacobian_gpu *gpu; /* the GPU's index arrays; NULL on a CPU and for a symbolic generator */
};

bppsa_status bppsa_jacobian_conv_create(bppsa_jacobian *j, const uint8_t *mask);
bppsa_status bppsa_jacobian_pool_create(bppsa_jacobian *j);
bppsa_status bppsa_jacobian_diagonal_create(bppsa_jacobian *j);
bppsa_status bppsa_jacobian_step_create(bppsa_jacobian *j, const uint8_t *mask);
bool bppsa_jacobian_step_has(const bppsa_op *op, bppsa_dtype dtype);   /* has the step factors of this type on a CPU? */
bppsa_status bppsa_jacobian_reserve(bppsa_jacobian *j, int64_t reals); /* scratch for every thread; nothing on a GPU */
/* Is every input in exactly one window of 2 x 2, and are the pattern's entries in the order of the inputs? */
bool bppsa_jacobian_pool_is_plain(const bppsa_op *op);

void bppsa_jacobian_conv_f32(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_conv_f64(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_pool_f32(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_pool_f64(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_diagonal_f32(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_diagonal_f64(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_step_f32(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);
void bppsa_jacobian_step_f64(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);

/* ---- on a GPU (jacobian_gpu.c, jacobian_cuda.cu) ---- */

/* The positions of a convolution sorted by class, and what their rows are made of: the taps of every class or, with a mask, the
 * kept weights of every channel and class. In host memory. */
typedef struct {
  int64_t plane, classes, channels; /* positions, their classes, input channels of all groups */
  int32_t *class_of;                /* class of each sorted position, size plane */
  int32_t *class_end;               /* index behind each class's last sorted position, size classes */
  int64_t start_count, list_count;  /* start_count: plane, list_count: classes; with a mask both times the channels */
  int64_t *start;                   /* S's first entry of each sorted position; with a mask the offset of the value */
  int64_t *list;                    /* first item of each class, size list_count + 1 */
  int32_t *items;                   /* taps; with a mask c·height·taps + t, size list[list_count] */
  int32_t *taps;                    /* for each class; only while the arrays are made, as the following three */
  int64_t *order, *cursor;          /* order: positions, sorted; cursor: next item of each list */
  uint8_t *in_class;                /* for each tap: is it in the class? */
} bppsa_jacobian_lists;

/* ERR_MEMORY; ERR_UNSUPPORTED: a mask of weights beyond 31 bits. */
bppsa_status bppsa_jacobian_lists_create(const bppsa_jacobian *j, bppsa_jacobian_lists *lists);
void bppsa_jacobian_lists_free(bppsa_jacobian_lists *lists); /* a zeroed one is legal */

/* Makes j->gpu from the finished rest of j: the index arrays in GPU memory. ERR_MEMORY with the bytes, ERR_CUDA, ERR_UNSUPPORTED:
 * indices beyond 31 bits. */
bppsa_status bppsa_jacobian_cuda_create(bppsa_jacobian *j, const bppsa_device *device);
void bppsa_jacobian_cuda_destroy(struct bppsa_jacobian_gpu *gpu); /* NULL is legal */
int64_t bppsa_jacobian_cuda_bytes(const struct bppsa_jacobian_gpu *gpu);
/* Queues a fill. The operands have been checked; operands and values are in GPU memory. ERR_CUDA; ERR_UNSUPPORTED as above. */
bppsa_status bppsa_jacobian_cuda_fill(const bppsa_jacobian *j, bppsa_dtype dtype, const bppsa_jacobian_operands *o, void *values);

#ifdef __cplusplus
}
#endif
#endif
