/* Writes a data set as a pair of NPY files, a few samples at a time. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "core/files/npy.h"
#include "train/blocks.h"
#include "train/data/dataset.h"

enum { CHUNK_BYTES = 4 << 20 };

/* Consecutive samples in the layout of the files. */
typedef struct {
  int64_t capacity; /* samples */
  size_t x_bytes;   /* of one sample */
  size_t y_bytes;
  int64_t y_steps;
  char *x;    /* [capacity, T, I] */
  int64_t *y; /* [capacity, y_steps] */
} chunk;

static bppsa_status chunk_create(const bppsa_dataset *dataset, bppsa_dtype dtype, chunk *made) {
  const int64_t shape[2] = {dataset->seq_len, dataset->input};
  int64_t count;
  chunk c = {.y_steps = dataset->labels_per_step ? dataset->seq_len : 1};
  BPPSA_TRY(bppsa_shape_bytes(dtype, 2, shape, &count, &c.x_bytes));
  c.y_bytes = (size_t)c.y_steps * sizeof(int64_t);
  const int64_t fit = CHUNK_BYTES / (int64_t)(c.x_bytes + c.y_bytes);
  c.capacity = bppsa_min(fit < 1 ? 1 : fit, dataset->samples);
  c.x = bppsa_calloc(c.capacity, c.x_bytes);
  c.y = bppsa_calloc(c.capacity, c.y_bytes);
  if (c.x == NULL || c.y == NULL) {
    bppsa_free(c.x);
    bppsa_free(c.y);
    return BPPSA_ERR_MEMORY;
  }
  *made = c;
  return BPPSA_OK;
}

typedef struct {
  const bppsa_dataset *dataset;
  bppsa_dtype dtype;
  int32_t threads;
  int64_t first; /* first sample of the chunk */
  const chunk *c;
} filling;

static void fill_samples(const void *context, int32_t worker, int64_t first, int64_t end) {
  const filling *f = context;
  const int64_t shape[3] = {f->dataset->seq_len, 1, f->dataset->input};
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    const int64_t index = f->first + i;
    const bppsa_view x = bppsa_view_make(f->c->x + (size_t)i * f->c->x_bytes, f->dtype, 3, shape);
    f->dataset->ops->fill(f->dataset, f->threads, 1, &index, &x, f->c->y + i * f->c->y_steps);
  }
}

/* Fills samples first .. first+count-1, each as a batch of one: [T, 1, I] has the layout of [T, I] in the file. */
static void chunk_fill(const bppsa_dataset *dataset, bppsa_dtype dtype, int32_t threads, int64_t first, int64_t count, chunk *c) {
  const double bytes = 2 * (double)c->x_bytes * (double)count;
  bppsa_parallel_for(threads, count, bppsa_loop_work(0, bytes), fill_samples, &(filling){dataset, dtype, threads, first, c});
}

static bppsa_status write_all(const bppsa_dataset *dataset, bppsa_dtype dtype, int32_t threads, chunk *c, bppsa_npy_writer *x,
                              bppsa_npy_writer *y, bppsa_dataset_progress progress, void *context) {
  for (int64_t first = 0; first < dataset->samples; first += c->capacity) {
    const int64_t count = bppsa_min(c->capacity, dataset->samples - first);
    chunk_fill(dataset, dtype, threads, first, count, c);
    BPPSA_TRY(bppsa_npy_writer_write(x, c->x, (size_t)count * c->x_bytes));
    BPPSA_TRY(bppsa_npy_writer_write(y, c->y, (size_t)count * c->y_bytes));
    if (progress != NULL) {
      progress(context, first + count, dataset->samples);
    }
  }
  return BPPSA_OK;
}

/* Opens both files, writes and commits them; aborts a file that is not committed. */
static bppsa_status write_files(const bppsa_dataset *dataset, bppsa_dtype dtype, int32_t threads, chunk *c, const char *x_path,
                                const char *y_path, bppsa_dataset_progress progress, void *context) {
  const bool images = dataset->image[0] > 0;
  const int64_t *image = dataset->image, x_shape[4] = {dataset->samples, images ? image[0] : dataset->seq_len,
                                                       images ? image[1] : dataset->input, image[2]};
  const int64_t y_shape[2] = {dataset->samples, dataset->seq_len};
  bppsa_npy_writer *x = NULL, *y = NULL;
  bppsa_status status = bppsa_npy_writer_create(x_path, dtype, images ? 4 : 3, x_shape, &x);
  if (status == BPPSA_OK) {
    status = bppsa_npy_writer_create(y_path, BPPSA_I64, dataset->labels_per_step ? 2 : 1, y_shape, &y);
  }
  if (status == BPPSA_OK) {
    status = write_all(dataset, dtype, threads, c, x, y, progress, context);
  }
  if (status == BPPSA_OK) {
    status = bppsa_npy_writer_commit(x);
    x = NULL;
  }
  if (status == BPPSA_OK) {
    status = bppsa_npy_writer_commit(y);
    y = NULL;
  }
  bppsa_npy_writer_abort(x);
  bppsa_npy_writer_abort(y);
  return status;
}

bppsa_status bppsa_dataset_write(const bppsa_dataset *dataset, const bppsa_device *device, bppsa_dtype dtype, const char *x_path,
                                 const char *y_path, bppsa_dataset_progress progress, void *context) {
  BPPSA_REQUIRE(dataset != NULL && x_path != NULL && y_path != NULL);
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: dtype %s, expected f32 or f64", x_path, bppsa_dtype_name(dtype));
  }
  if (bppsa_objective_real(&dataset->objective)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: the data set has real targets, expected labels to write", y_path);
  }
  if (strcmp(x_path, y_path) == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: inputs and labels go to the same file, expected two", x_path);
  }
  chunk c;
  BPPSA_TRY(chunk_create(dataset, dtype, &c));
  const bppsa_status status = write_files(dataset, dtype, bppsa_threads(device), &c, x_path, y_path, progress, context);
  bppsa_free(c.x);
  bppsa_free(c.y);
  return status;
}
