/* Inside of a product plan. */
#ifndef BPPSA_JACOBIAN_PRODUCT_INTERNAL_H
#define BPPSA_JACOBIAN_PRODUCT_INTERNAL_H

#include "jacobian/product.h"

enum { PRODUCT_WIDEST_SHARED = 96 * 1024 }; /* a GPU sums rows of up to so many bytes in shared memory */

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of C that one thread computes together. */
typedef struct {
  int64_t row, rows; /* first, number */
  int64_t pair;      /* slots: pairs before its first row */
} product_task;

/* dense: C[rows, n] = A[rows, k] B[k, n], values contiguous, offsets of one sample */
typedef struct {
  int64_t rows, k, n;
  int64_t a, b, c;
} product_band;

/* conv: entries f .. f + length - 1 of S_B's row y (y: column of entry e of S_A's row x) are entries slot .. of S_C's row x */
typedef struct {
  int32_t e, f, length, slot;
} product_run;

/* ---- on a GPU ---- */

/* slots: an entry of A: where its row of B begins, and its first pair. The row is as long as it is far to the next entry's pair. */
typedef struct {
  int64_t b, pair;
} product_link;

/* slots: rows of C of about a width, which are launched together: `rows` of them from place `first` of the order on */
typedef struct {
  int64_t first, rows, width; /* width: of the widest */
  int32_t number;             /* of the class: rows of other plans' have the same bounds */
  int32_t threads;            /* of a block, as B's rows are long */
} product_class;
enum { PRODUCT_CLASSES = 6 };

/* diagonal: row r of C is a[a] times the row of B that begins at b */
typedef struct {
  int64_t a, b;
} product_scale;

/* conv: an entry of S_C: its meetings begin at `first` and end where the next entry's begin; its row of S_C begins at `start` and
 * has `positions` entries. A meeting: the entries of S_A and of S_B whose product lands there, in the order of S_A's. */
typedef struct {
  int64_t first;
  int32_t start, positions;
} product_place;
typedef struct {
  int32_t left, right;
} product_meeting;

/* What a pass on a GPU is given: one allocation there, and what a launch needs to know here. */
typedef struct {
  int32_t index;                  /* the GPU */
  void *stream;                   /* of the device the plan was made for */
  void *memory;                   /* NULL: nothing is there (yet) */
  int64_t *a_ptr, *b_ptr, *c_ptr; /* slots, diagonal: row pointers of A and C; conv: of S_A and S_B */
  int32_t *order;                 /* slots: C's rows that have entries, class by class */
  product_link *links;            /* size nnz of A + 1 */
  void *slots;                    /* 2 or 4 bytes a pair */
  int32_t *columns;               /* diagonal on the right: of A */
  product_scale *scales;          /* diagonal on the left */
  product_band *bands;            /* dense */
  int64_t *tile_ptr;              /* dense: first tile of every band, size band_count + 1 */
  product_place *places;          /* conv: size nnz of S_C + 1 */
  product_meeting *meetings;
  void *left,
      *right; /* conv: A's values as [e][mid channel][row channel], B's as [f][mid channel][column channel], of `samples` samples */
  int64_t left_reals, right_reals; /* of a sample, to the next one's */
  int64_t samples;
  int32_t class_count;
  product_class classes[PRODUCT_CLASSES];
  int32_t tile;  /* dense, conv: rows and columns that a block computes */
  int64_t tiles; /* dense: in all; conv: of one entry of S_C */
} product_gpu;

struct bppsa_product {
  const bppsa_csr *a, *b;
  bppsa_csr own_a, own_b; /* copies with columns, where a or b have none and their structure is of no use */
  bppsa_csr pattern;
  bppsa_product_config config;
  bppsa_product_info info;
  int32_t threads;
  int64_t pairs;
  bool right; /* diagonal: B is, not A */
  int64_t task_count;
  product_task *tasks;
  uint16_t *slots16; /* slots: entry of the row of C, a pair each; one of the two */
  int32_t *slots32;
  int64_t widest; /* most entries of a row of C */
  int64_t band_count;
  product_band *bands;
  int64_t *run_ptr; /* conv: first run of every position x, size S_A.rows + 1 */
  product_run *runs;
  int64_t row_block; /* conv: row channels of a task */
  void *packed;      /* conv: B's values as [y][channel][f][column channel] */
  void *scratch;     /* per thread */
  int64_t scratch_reals;
  bool on_gpu;
  product_gpu gpu;
};

/* ---- symbolic (product_symbolic.c) ---- */

/* Matching pairs of all rows; ERR_MEMORY beyond 64 bits. */
bppsa_status bppsa_product_count_pairs(const bppsa_csr *a, const bppsa_csr *b, int64_t *pairs);
/* Entries of every row of C into row_ptr [rows + 1]. */
bppsa_status bppsa_product_count_rows(const bppsa_csr *a, const bppsa_csr *b, int32_t threads, int64_t *row_ptr);
/* C's columns, row_ptr being there; with slots (16 or 32) their positions pair by pair. tasks: see struct. */
bppsa_status bppsa_product_fill_rows(bppsa_product *p, bool slots);
/* Cuts the rows into tasks of about equal numbers of pairs. */
bppsa_status bppsa_product_cut(bppsa_product *p);

/* ---- structure (product_blocks.c) ---- */

/* C = A B as K ⊗ S, known by structure alone, and its number of pairs. *known = false where the two structures do not fit. */
bppsa_status bppsa_product_blocks(const bppsa_csr *a, const bppsa_csr *b, bppsa_csr *c, int64_t *pairs, bool *known);
/* Is every row of A one of a band whose columns follow each other, and B's rows of a band equal? Then the bands. Of patterns that
 * are known by structure alone only full ones are bands. */
bppsa_status bppsa_product_find_bands(bppsa_product *p, bool *found);
/* Runs, blocking and scratch of a convolution-structured plan; pattern and its blocks are there. */
bppsa_status bppsa_product_plan_conv(bppsa_product *p);
/* Bytes of its runs, at most, and of its scratch for all threads. */
int64_t bppsa_product_conv_index_bytes(const bppsa_product *p);
int64_t bppsa_product_conv_scratch_bytes(const bppsa_product *p);
/* Most entries of a row of a pattern with structure. */
int64_t bppsa_product_widest(const bppsa_csr *csr);
/* Calls of GEMM in a pass. */
double bppsa_product_conv_calls(const bppsa_product *p);

/* ---- numeric (product_cpu.c) ---- */

void bppsa_product_run_f32(const bppsa_product *p, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);
void bppsa_product_run_f64(const bppsa_product *p, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);

/* ---- on a GPU (product_gpu.c: plans; product_cuda.cu or product_nocuda.c: passes) ---- */

/* GPU memory: indices, and scratch. 2 for every multiplication of a pass. Seconds it takes, roughly. */
int64_t bppsa_product_gpu_index_bytes(const bppsa_product *p, bppsa_product_kind kind);
int64_t bppsa_product_gpu_scratch_bytes(const bppsa_product *p, bppsa_product_kind kind);
double bppsa_product_gpu_flops(const bppsa_product *p, bppsa_product_kind kind);
double bppsa_product_gpu_predict(const bppsa_product *p, bppsa_product_kind kind);
/* Takes the memory and fills it. Patterns, slots and bands are there; slots are released. ERR_MEMORY with the bytes;
 * ERR_UNSUPPORTED: more blocks than a launch has; ERR_CUDA. */
bppsa_status bppsa_product_gpu_plan(bppsa_product *p);
void bppsa_product_gpu_free(bppsa_product *p);

/* Lets the kernels of the plan's kind have the shared memory they need. ERR_CUDA. */
bppsa_status bppsa_product_cuda_prepare(const bppsa_product *p);
/* Queues passes of plans of one dtype on one GPU, one at least. ERR_CUDA. */
bppsa_status bppsa_product_cuda_run(const bppsa_product_pass *first, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif

#endif
