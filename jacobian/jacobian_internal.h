/* Inside of a generator. */
#ifndef BPPSA_JACOBIAN_JACOBIAN_INTERNAL_H
#define BPPSA_JACOBIAN_JACOBIAN_INTERNAL_H

#include "jacobian/jacobian.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which outputs an input position of one axis reaches: those X with x = s X + d t - p for a tap t. X increases, so that t falls.
 * Positions that are reached through the same taps are of one class: a convolution's rows differ between classes only. */
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
void bppsa_axis_free(bppsa_axis *axis);
/* The pattern of positions of two axes: row (x0, x1) holds (X0, X1) for the X0 of x0 and the X1 of x1. */
bppsa_status bppsa_axis_positions(const bppsa_axis axes[2], bppsa_csr *positions);

struct bppsa_jacobian {
  bppsa_op op;
  int64_t out[3];
  int32_t threads;
  bool shared, symbolic;
  bppsa_csr pattern;
  bppsa_csr positions; /* of a pattern with axes */
  bppsa_axis axes[2];  /* height, width: conv2d, pools; linear: a 1 x 1 convolution of C·H·W channels */
  /* conv2d, linear: weights are [G][Co/G][Ci/G][T] */
  int64_t groups, width, height, taps; /* width: Co/G, height: Ci/G, taps: T */
  int64_t channel_block;               /* input channels of a task */
  int64_t *class_ptr;                  /* first tap of every pair of classes, size classes + 1 */
  int64_t lanes, stride;               /* output channels whose entries are fetched together; packed weights between them */
  int32_t *class_from;                 /* of the classes' entries of so many output channels: c·stride + tap t0·k1 + t1 */
  int64_t *kept_ptr;                   /* with a mask: first kept weight of every input channel, size Ci + 1 */
  int32_t *kept;                       /* with a mask: the channel's weights, c·T + t, c rising and t falling */
  uint8_t *mask;                       /* step: a copy */
  void *scratch;                       /* per thread */
  int64_t scratch_reals;               /* of one thread */
  bool on_gpu;                         /* values are filled by one: no scratch */
  struct bppsa_jacobian_gpu *gpu;      /* its index arrays; NULL on a CPU, and of a symbolic generator */
};

bppsa_status bppsa_jacobian_conv_create(bppsa_jacobian *j, const uint8_t *mask);
bppsa_status bppsa_jacobian_pool_create(bppsa_jacobian *j);
bppsa_status bppsa_jacobian_diagonal_create(bppsa_jacobian *j);
bppsa_status bppsa_jacobian_step_create(bppsa_jacobian *j, const uint8_t *mask);
bool bppsa_jacobian_step_has(const bppsa_op *op, bppsa_dtype dtype);   /* factors of this type, on a CPU */
bppsa_status bppsa_jacobian_reserve(bppsa_jacobian *j, int64_t reals); /* scratch for every thread, none on a GPU */
/* Is every input in exactly one window of 2 x 2, with the pattern's entries in the order of the inputs? */
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

/* A convolution's positions, sorted by class, and what their rows are made of: taps of every class, or with a mask the kept
 * weights of every channel and class. Of the host. */
typedef struct {
  int64_t plane, classes, channels; /* positions, classes of positions, input channels of all groups */
  int32_t *class_of;                /* of sorted positions, size plane */
  int32_t *class_end;               /* behind each class's last sorted position, size classes */
  int64_t start_count, list_count;  /* plane and classes; with a mask times the channels */
  int64_t *start;                   /* S's first entry of each sorted position; with a mask the value's place */
  int64_t *list;                    /* first item of each class, size list_count + 1 */
  int32_t *items;                   /* taps; with a mask c·height·taps + t, size list[list_count] */
  int32_t *taps;                    /* while they are made, as are the following: of every class */
  int64_t *order, *cursor;          /* positions, sorted; the next item of each list */
  uint8_t *in_class;                /* of every tap */
} bppsa_jacobian_lists;

/* ERR_MEMORY; ERR_UNSUPPORTED: a mask of weights beyond 31 bits. */
bppsa_status bppsa_jacobian_lists_create(const bppsa_jacobian *j, bppsa_jacobian_lists *lists);
void bppsa_jacobian_lists_free(bppsa_jacobian_lists *lists); /* a zeroed one is legal */

/* Makes j->gpu, everything else being there: the index arrays of its kernels in the GPU's memory. ERR_MEMORY with the bytes,
 * ERR_CUDA, ERR_UNSUPPORTED: indices beyond 31 bits. */
bppsa_status bppsa_jacobian_cuda_create(bppsa_jacobian *j, const bppsa_device *device);
void bppsa_jacobian_cuda_destroy(struct bppsa_jacobian_gpu *gpu); /* NULL is legal */
int64_t bppsa_jacobian_cuda_bytes(const struct bppsa_jacobian_gpu *gpu);
/* Queues a fill; operands, which have been checked, and values are the GPU's. ERR_CUDA, ERR_UNSUPPORTED likewise. */
bppsa_status bppsa_jacobian_cuda_fill(const bppsa_jacobian *j, bppsa_dtype dtype, const bppsa_jacobian_operands *o, void *values);

#ifdef __cplusplus
}
#endif
#endif
