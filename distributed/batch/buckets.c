#include "distributed/batch/buckets.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"

/* What has happened to a bucket in the present batch. */
typedef enum { FILLING = 0, COMPLETE, REDUCED, SENT } bucket_state;

typedef struct {
  int64_t first, count; /* parameters */
  int64_t elements;
  /* Holds the gradients of a block, later those of the batch: a copy, or on a GPU the model's own array, with gaps of 0 between
   * tensors */
  void *data;
  bppsa_view view;           /* of data */
  int64_t ready;             /* parameters complete in the present block */
  bppsa_ordered_sum *sum[2]; /* for each of `sizes`; NULL: not needed */
  bppsa_comm_request *request;
  bucket_state state;
} bucket;

/* The last bucket carries the blocks' numbers. */
enum { SIZES = 2, NUMBERS = sizeof(bppsa_data_parallel_sums) / sizeof(double) };

struct bppsa_buckets {
  bppsa_comm *comm;
  bppsa_model *model;
  bool ordered;
  int32_t tag;
  int64_t count; /* buckets, the numbers included */
  bucket *all;   /* in the order in which they are complete, which is the order of their collective operations on every rank */
  bool in_order;
  int64_t *urgency;   /* indices of buckets, the first parameters' bucket first unless they go in order; the numbers come last */
  int32_t *bucket_of; /* of each parameter */
  int64_t sizes[SIZES]; /* blocks of a batch for which there are sums; 0: none */
  int size;             /* of the present batch */
  int64_t block, end;   /* this rank's present block, and the one behind its last */
  int64_t begun;        /* buckets whose collective operation has begun */
  bool reported;        /* the model has reported gradients of the present block */
  bppsa_status status;  /* the first error of messages that begin while the model computes */
};

/* ---- layout ---- */

/* Cuts parameters first .. end - 1 into buckets: a bucket ends when it has `bytes` bytes. step: 1 upwards, -1 from the last one
 * down. Returns their number, and describes them in `made` unless it is NULL. */
static int64_t cut(const bppsa_model *model, int64_t first, int64_t end, int step, int64_t bytes, bucket *made) {
  const int64_t size = (int64_t)bppsa_dtype_size(model->dtype);
  int64_t count = 0, elements = 0, parameters = 0;
  for (int64_t i = 0; i < end - first; ++i) {
    const int64_t p = step > 0 ? first + i : end - 1 - i;
    elements += bppsa_view_count(&model->parameters[p].gradient);
    ++parameters;
    if (elements * size < bytes && i + 1 < end - first) {
      continue;
    }
    if (made != NULL) {
      made[count] = (bucket){.first = step > 0 ? p - parameters + 1 : p, .count = parameters, .elements = elements};
    }
    ++count;
    elements = parameters = 0;
  }
  return count;
}

static int64_t cut_all(const bppsa_model *model, int64_t delayed, int64_t bytes, bucket *made) {
  const int64_t upper = cut(model, delayed, model->parameter_count, -1, bytes, made);
  return upper + cut(model, 0, delayed, 1, bytes, made != NULL ? made + upper : NULL);
}

/* Is the bucket's array a part of the model's gradients on a GPU? The last bucket, of numbers, is in host memory. */
static bool on_gpu(const bppsa_buckets *b, const bucket *k) {
  return b->model->device != NULL && k != &b->all[b->count - 1];
}

/* Finds or makes the bucket's array. */
static bppsa_status place(const bppsa_buckets *b, bucket *k) {
  const bppsa_model *model = b->model;
  const bool numbers = k == &b->all[b->count - 1];
  const bppsa_dtype dtype = numbers ? BPPSA_F64 : model->dtype;
  if (on_gpu(b, k)) {
    const bppsa_view *first = &model->parameters[k->first].value, *last = &model->parameters[k->first + k->count - 1].value;
    const char *start = model->parameters[0].value.data, *begin = first->data, *end = (char *)last->data + bppsa_view_bytes(last);
    k->elements = (end - begin) / (int64_t)bppsa_dtype_size(dtype);
    k->data = (char *)model->device_gradients + (begin - start);
  } else if ((k->data = bppsa_calloc(k->elements, bppsa_dtype_size(dtype))) == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  k->view = bppsa_view_make(k->data, dtype, 1, &k->elements);
  k->view.device = on_gpu(b, k) ? BPPSA_CUDA : BPPSA_CPU;
  return BPPSA_OK;
}

/* Fills in everything that follows from the cut. */
static bppsa_status lay_out(bppsa_buckets *b) {
  b->all[b->count - 1] = (bucket){.elements = NUMBERS};
  for (int64_t i = 0; i < b->count; ++i) {
    bucket *k = &b->all[i];
    BPPSA_TRY(place(b, k));
    for (int64_t p = k->first; p < k->first + k->count; ++p) {
      b->bucket_of[p] = (int32_t)i;
    }
    int64_t at = i;
    for (; !b->in_order && i + 1 < b->count && at > 0 && b->all[b->urgency[at - 1]].first > k->first; --at) {
      b->urgency[at] = b->urgency[at - 1];
    }
    b->urgency[at] = i;
  }
  return BPPSA_OK;
}

static void free_sums(bppsa_buckets *b, int size) {
  for (int64_t i = 0; i < b->count; ++i) {
    bppsa_ordered_sum_destroy(b->all[i].sum[size]);
    b->all[i].sum[size] = NULL;
  }
  b->sizes[size] = 0;
}

/* Finds or makes the sums for batches of so many blocks: full ones, which are made first, and the last one of an epoch. */
static bppsa_status find_sums(bppsa_buckets *b, int64_t blocks) {
  int size = 0;
  while (size < SIZES && b->sizes[size] != blocks && b->sizes[size] != 0) {
    ++size;
  }
  size = size < SIZES ? size : SIZES - 1;
  if (b->sizes[size] != blocks) {
    free_sums(b, size);
    for (int64_t i = 0; i < b->count; ++i) {
      bucket *k = &b->all[i];
      BPPSA_TRY(bppsa_ordered_sum_create(b->comm, blocks, NULL, k->view.dtype, k->elements, b->tag + (int32_t)i, &k->sum[size]));
    }
    b->sizes[size] = blocks;
  }
  b->size = size;
  return BPPSA_OK;
}

bppsa_status bppsa_buckets_create(bppsa_comm *comm, bppsa_model *model, const bppsa_data_parallel_config *config, int64_t delayed,
                                  int64_t blocks, bppsa_buckets **made) {
  bppsa_buckets *b = bppsa_calloc(1, sizeof *b);
  if (b == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *b = (bppsa_buckets){.comm = comm,
                       .model = model,
                       .ordered = config->reduction == BPPSA_REDUCTION_ORDERED,
                       .tag = config->tag,
                       .in_order = config->in_order,
                       .count = cut_all(model, delayed, config->bucket_bytes, NULL) + 1};
  if (b->tag + b->count > BPPSA_COMM_MAX_TAG) {
    const int64_t count = b->count;
    bppsa_free(b);
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "data parallelism: %" PRId64 " buckets from tag %d on, expected tags up to %d: larger buckets", count,
                      config->tag, BPPSA_COMM_MAX_TAG);
  }
  b->all = bppsa_calloc(b->count, sizeof *b->all);
  b->urgency = bppsa_calloc(b->count, sizeof *b->urgency);
  b->bucket_of = bppsa_calloc(model->parameter_count + 1, sizeof *b->bucket_of);
  bppsa_status status = b->all == NULL || b->urgency == NULL || b->bucket_of == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    (void)cut_all(model, delayed, config->bucket_bytes, b->all);
    status = lay_out(b);
  }
  if (status == BPPSA_OK && b->ordered) {
    status = find_sums(b, blocks);
  }
  if (status != BPPSA_OK) {
    bppsa_buckets_destroy(b);
    return status;
  }
  *made = b;
  return BPPSA_OK;
}

void bppsa_buckets_destroy(bppsa_buckets *b) {
  if (b == NULL) {
    return;
  }
  b->model->listener = (bppsa_gradient_listener){0};
  for (int64_t i = 0; b->all != NULL && i < b->count; ++i) {
    bppsa_comm_cancel(1, &b->all[i].request);
    if (!on_gpu(b, &b->all[i])) {
      bppsa_free(b->all[i].data);
    }
  }
  for (int size = 0; b->all != NULL && size < SIZES; ++size) {
    free_sums(b, size);
  }
  bppsa_free(b->all);
  bppsa_free(b->urgency);
  bppsa_free(b->bucket_of);
  bppsa_free(b);
}

int64_t bppsa_buckets_count(const bppsa_buckets *b) {
  return b->count - 1;
}

/* ---- messages ---- */

/* Goes on with what is complete, without waiting. Reductions of several buckets are independent of each other; the collective
 * operations behind them begin in one order on all ranks. */
static bppsa_status progress(bppsa_buckets *b) {
  for (int64_t u = 0; b->ordered && u < b->count; ++u) {
    bucket *k = &b->all[b->urgency[u]];
    bool done = false;
    if (k->state == COMPLETE) {
      BPPSA_TRY(bppsa_ordered_sum_reduce(k->sum[b->size], false, &done));
      k->state = done ? REDUCED : COMPLETE;
    }
  }
  for (; b->begun < b->count && b->all[b->begun].state == (b->ordered ? REDUCED : COMPLETE); ++b->begun) {
    bucket *k = &b->all[b->begun];
    BPPSA_TRY(b->ordered ? bppsa_ordered_sum_ibroadcast(k->sum[b->size], &k->view, &k->request)
                         : bppsa_comm_iallreduce(b->comm, BPPSA_COMM_SUM, &k->view, &k->request));
    k->state = SENT;
  }
  return BPPSA_OK;
}

/* Takes over a bucket that is complete in the present block. */
static bppsa_status take_over(bppsa_buckets *b, bucket *k) {
  k->ready = 0;
  if (b->ordered) {
    BPPSA_TRY(bppsa_ordered_sum_add(k->sum[b->size], b->block, &k->view));
  }
  if (b->block + 1 < b->end) {
    return BPPSA_OK;
  }
  k->state = COMPLETE;
  return progress(b);
}

/* Copies a parameter's gradient to or from its bucket, unless the bucket is where the gradient is. */
static void copy_gradient(const bppsa_buckets *b, const bucket *k, int64_t parameter, bool to_bucket) {
  const bppsa_view *gradient = &b->model->parameters[parameter].gradient;
  char *at = k->data;
  if (on_gpu(b, k)) {
    return;
  }
  for (int64_t before = k->first; before < parameter; ++before) {
    at += bppsa_view_bytes(&b->model->parameters[before].gradient);
  }
  memcpy(to_bucket ? at : gradient->data, to_bucket ? gradient->data : at, bppsa_view_bytes(gradient));
}

/* The model's listener. On a GPU it is called when the whole pass has been queued. */
static void ready(void *context, int64_t first, int64_t count) {
  bppsa_buckets *b = context;
  b->reported = true;
  for (int64_t p = first; p < first + count && b->status == BPPSA_OK; ++p) {
    bucket *k = &b->all[b->bucket_of[p]];
    copy_gradient(b, k, p, true);
    if (++k->ready == k->count) {
      b->status = take_over(b, k);
    }
  }
}

/* ---- a batch ---- */

bppsa_status bppsa_buckets_begin(bppsa_buckets *b, int64_t blocks, int64_t first, int64_t mine) {
  BPPSA_TRY(b->ordered ? find_sums(b, blocks) : BPPSA_OK);
  b->block = first - 1;
  b->end = first + mine;
  b->begun = 0;
  b->status = BPPSA_OK;
  for (int64_t i = 0; i < b->count; ++i) {
    bucket *k = &b->all[i];
    k->ready = 0;
    k->state = FILLING;
    if (mine == 0) { /* this rank adds nothing, but passes on what the others add */
      BPPSA_TRY(bppsa_memory_clear(on_gpu(b, k) ? b->model->device : NULL, k->data, (int64_t)bppsa_view_bytes(&k->view)));
      k->state = COMPLETE;
    }
  }
  return mine == 0 ? progress(b) : BPPSA_OK;
}

void bppsa_buckets_begin_block(bppsa_buckets *b) {
  ++b->block;
  b->reported = false;
  b->model->listener = (bppsa_gradient_listener){.ready = ready, .context = b};
}

bppsa_status bppsa_buckets_end_block(bppsa_buckets *b, const bppsa_data_parallel_sums *sums) {
  b->model->listener = (bppsa_gradient_listener){0};
  if (!b->reported && b->model->parameter_count > 0) { /* a model that does not report: everything is complete now */
    ready(b, 0, b->model->parameter_count);
  }
  bucket *numbers = &b->all[b->count - 1];
  if (b->status == BPPSA_OK) {
    memcpy(numbers->data, sums, sizeof *sums);
    b->status = take_over(b, numbers);
  }
  return b->status;
}

bppsa_status bppsa_buckets_finish(bppsa_buckets *b, bppsa_data_parallel_sums *sums) {
  for (int64_t i = 0; i < b->count; ++i) {
    bucket *k = &b->all[i];
    if (k->state == FILLING) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "%s: its backward pass did not report the gradients of parameters %" PRId64 " .. %" PRId64,
                        b->model->ops->name, k->first, k->first + k->count - 1);
    }
    if (k->state == COMPLETE && b->ordered) {
      bool done = false;
      BPPSA_TRY(bppsa_ordered_sum_reduce(k->sum[b->size], true, &done));
      k->state = REDUCED;
    }
    BPPSA_TRY(progress(b));
  }
  for (int64_t i = 0; i < b->count; ++i) {
    bucket *k = &b->all[i];
    BPPSA_TRY(bppsa_comm_wait(&k->request));
    for (int64_t p = k->first; p < k->first + k->count; ++p) {
      copy_gradient(b, k, p, false);
    }
  }
  memcpy(sums, b->all[b->count - 1].data, sizeof *sums);
  return BPPSA_OK;
}
