/* The inside of a product plan. */
#ifndef BPPSA_JACOBIAN_PRODUCT_INTERNAL_H
#define BPPSA_JACOBIAN_PRODUCT_INTERNAL_H

#include "jacobian/product.h"

enum { PRODUCT_WIDEST_SHARED = 96 * 1024 }; /* a row of at most so many bytes is summed in a GPU's shared memory */

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of C that one thread computes together. */
typedef struct {
  int64_t row, rows; /* row: the first; rows: their number */
  int64_t pair;      /* slots: pairs in front of its first row */
} product_task;

/* dense: C[rows, n] = A[rows, k] B[k, n]. Values are contiguous; offsets are those of one sample. */
typedef struct {
  int64_t rows, k, n;
  int64_t a, b, c;
} product_band;

/* conv: y is the column of entry e in row x of S_A. Entries f .. f + length - 1 of row y of S_B land on the entries from `slot`
 * on of row x of S_C. */
typedef struct {
  int32_t e, f, length, slot;
} product_run;

/* ---- on a GPU ---- */

/* slots: for an entry of A, where its row of B begins, and its first pair. The next link's pair tells the length of the row.
 * Empty rows of B have 0 for b, and so have the links behind the last entry: a pass reads their values and slots but adds none. */
enum { PRODUCT_LINKS_BEHIND = 8 };
typedef struct {
  int64_t b, pair;
} product_link;

/* slots: rows of C of similar width, which share a launch: `rows` of them, from index `first` of `order` on. */
typedef struct {
  int64_t first, rows, width; /* width: of the widest row */
  int32_t number;             /* number of the class: it has the same bounds in all plans */
  int32_t threads;            /* of a block: more where B's rows are longer */
} product_class;
enum { PRODUCT_CLASSES = 6 };

/* diagonal: row r of C is a[a] times the row of B that begins at b */
typedef struct {
  int64_t a, b;
} product_scale;

/* conv: an entry of S_C. Its meetings begin at `first` and end where those of the next entry begin. Its row of S_C begins at
 * `start` and has `positions` entries. A meeting is a pair of entries of S_A and S_B whose product is added to it; they are in
 * the order of S_A's entries. */
typedef struct {
  int64_t first;
  int32_t start, positions;
} product_place;
typedef struct {
  int32_t left, right;
} product_meeting;

/* What a pass on a GPU is given: one allocation in GPU memory, and the sizes of its launches. */
typedef struct {
  int32_t index;                  /* number of the GPU */
  void *stream;                   /* stream of the device the plan was made for */
  void *memory;                   /* NULL: not allocated (yet) */
  int64_t *a_ptr, *b_ptr, *c_ptr; /* row pointers: slots: of A and C; diagonal: of C; conv: of S_A and S_B */
  int32_t *order;                 /* slots: rows of C that have entries, class by class */
  product_link *links;            /* size nnz of A + PRODUCT_LINKS_BEHIND */
  void *slots;                    /* 2 or 4 bytes for each pair */
  int32_t *columns;               /* B diagonal: columns of A */
  product_scale *scales;          /* A diagonal */
  product_band *bands;            /* dense */
  int64_t *tile_ptr;              /* dense: first tile of each band, size band_count + 1 */
  product_place *places;          /* conv: size nnz of S_C + 1 */
  product_meeting *meetings;
  /* conv: A's values as [e][mid channel][row channel], B's as [f][mid channel][column channel], of `samples` samples */
  void *left, *right;
  int64_t left_reals, right_reals; /* from one sample to the next */
  int64_t samples;
  int32_t class_count;
  product_class classes[PRODUCT_CLASSES];
  int32_t tile;  /* dense, conv: rows and columns of a block's tile */
  int64_t tiles; /* dense: of all bands; conv: of one entry of S_C */
} product_gpu;

struct bppsa_product {
  const bppsa_csr *a, *b;
  bppsa_csr own_a, own_b; /* copies with columns, where a or b have none and their structure cannot be used */
  bppsa_csr pattern;
  bppsa_product_config config;
  bppsa_product_info info;
  int32_t threads;
  int64_t pairs;
  bool right; /* diagonal: B is diagonal, not A */
  int64_t task_count;
  product_task *tasks;
  uint16_t *slots16; /* slots: for each pair the place in the row of C; one of the two arrays is NULL */
  int32_t *slots32;
  int64_t widest; /* most entries in a row of C */
  /* ones: additions into entries of C, which have the slots above; and for each row of C the slots that several ways of ones reach,
   * once for every way (twice NULL: there are none) */
  int64_t sums, *twice_ptr;
  int32_t *twice;
  int64_t band_count;
  product_band *bands;
  int64_t *run_ptr; /* conv: first run of each position x, size S_A.rows + 1 */
  product_run *runs;
  int64_t row_block; /* conv: row channels in a task */
  void *packed;      /* conv: B's values as [y][channel][f][column channel] */
  void *scratch;     /* memory for every thread */
  int64_t scratch_reals;
  bool on_gpu;
  product_gpu gpu;
};

/* ---- symbolic (product_symbolic.c) ---- */

/* Counts the matching pairs of all rows. ERR_MEMORY beyond 64 bits. */
bppsa_status bppsa_product_count_pairs(const bppsa_csr *a, const bppsa_csr *b, int64_t *pairs);
/* Counts the entries of every row of C, into row_ptr [rows + 1]. */
bppsa_status bppsa_product_count_rows(const bppsa_csr *a, const bppsa_csr *b, int32_t threads, int64_t *row_ptr);
/* Writes C's columns; row_ptr must be complete. With slots also the place of each pair, in 16 or 32 bits. */
bppsa_status bppsa_product_fill_rows(bppsa_product *p, bool slots);
/* Cuts the rows into tasks with about equal numbers of pairs. */
bppsa_status bppsa_product_cut(bppsa_product *p);

/* ---- ones beside entries (product_ones.c) ---- */

/* Counts the pairs of entries and C's rows, and cuts the rows into tasks. An identity makes C a copy of the other factor. */
bppsa_status bppsa_product_ones_count(bppsa_product *p);
/* Writes the columns of C and of its ones; with slots also the places of all sums, and scratch. */
bppsa_status bppsa_product_ones_fill(bppsa_product *p, bool slots);

/* ---- structure (product_blocks.c) ---- */

/* Makes C = A B as K ⊗ S from structure alone, and counts its pairs. *known is false where the two structures do not fit. */
bppsa_status bppsa_product_blocks(const bppsa_csr *a, const bppsa_csr *b, bppsa_csr *c, int64_t *pairs, bool *known);
/* Finds bands: groups of consecutive rows of A with the same consecutive columns, at which all rows of B are equal. *found is
 * false unless all rows are in bands. Patterns known by structure alone count as bands only if they are full. */
bppsa_status bppsa_product_find_bands(bppsa_product *p, bool *found);
/* Makes runs, blocking and scratch of a plan with channel structure; the pattern and its blocks must be complete. */
bppsa_status bppsa_product_plan_conv(bppsa_product *p);
/* Bytes of its runs, at most; bytes of its scratch for all threads. */
int64_t bppsa_product_conv_index_bytes(const bppsa_product *p);
int64_t bppsa_product_conv_scratch_bytes(const bppsa_product *p);
/* Most entries in a row of a pattern that has structure. */
int64_t bppsa_product_widest(const bppsa_csr *csr);
/* Calls of GEMM in a pass. */
double bppsa_product_conv_calls(const bppsa_product *p);

/* ---- numeric (product_cpu.c) ---- */

void bppsa_product_run_f32(const bppsa_product *p, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);
void bppsa_product_run_f64(const bppsa_product *p, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);

/* ---- on a GPU (product_gpu.c: plans; product_cuda.cu or product_nocuda.c: passes) ---- */

/* The most products that share a launch, by kernel: items of a group (core/compute/launch_group.cuh). */
enum {
  PRODUCT_COLUMNS_TOGETHER = 56,
  PRODUCT_ROWS_TOGETHER = 42,
  PRODUCT_SLOTS_TOGETHER = 34,
  PRODUCT_BANDS_TOGETHER = 46,
  PRODUCT_PACKING_TOGETHER = 39,
  PRODUCT_CONV_TOGETHER = 24
};

/* Bytes of GPU memory for indices and for scratch; the side of a tile, 0 for kinds that have none; the FLOPs of a pass, 2 for each
 * multiplication; the seconds that a pass over a batch is predicted to take (product_gpu_cost.c). */
int64_t bppsa_product_gpu_index_bytes(const bppsa_product *p, bppsa_product_kind kind);
int64_t bppsa_product_gpu_scratch_bytes(const bppsa_product *p, bppsa_product_kind kind);
int32_t bppsa_product_gpu_tile(const bppsa_product *p, bppsa_product_kind kind);
double bppsa_product_gpu_flops(const bppsa_product *p, bppsa_product_kind kind);
double bppsa_product_gpu_predict(const bppsa_product *p, bppsa_product_kind kind, int64_t batch);
/* Allocates GPU memory and fills it. Patterns, slots and bands must be complete; slots in host memory are freed. ERR_MEMORY with
 * the bytes; ERR_UNSUPPORTED: more blocks than a launch has; ERR_CUDA. */
bppsa_status bppsa_product_gpu_plan(bppsa_product *p);
void bppsa_product_gpu_free(bppsa_product *p);

/* Allows the kernels of the plan's kind the shared memory they need. ERR_CUDA. */
bppsa_status bppsa_product_cuda_prepare(const bppsa_product *p);
/* Queues passes of plans of one dtype on one GPU; there is at least one. ERR_CUDA. */
bppsa_status bppsa_product_cuda_run(const bppsa_product_pass *first, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif

#endif
