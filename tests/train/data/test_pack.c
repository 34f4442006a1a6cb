/* Samples packed into rows: best-fit decreasing beside a search of all rows, batches beside the samples' own, refusals. */
#include <math.h>

#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/files/npy.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/data/lengths.h"
#include "train/data/loss_weights.h"
#include "train/data/pack.h"
#include "train/data/resets.h"

enum { SAMPLES = 11, STEPS = 6, MOST = 200 };

/* The longest sample first; each to the row with the least room that is enough, of several to the one used last. */
static int64_t search(int64_t samples, const int64_t *lengths, int64_t steps, int64_t *row, int64_t *first) {
  int64_t room[MOST], used[MOST], rows = 0, clock = 0;
  bool done[MOST] = {false};
  for (int64_t k = 0; k < samples; ++k) {
    int64_t i = -1, to = -1;
    for (int64_t j = 0; j < samples; ++j) {
      i = !done[j] && (i < 0 || lengths[j] > lengths[i]) ? j : i;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const bool fits = room[r] >= lengths[i];
      to = fits && (to < 0 || room[r] < room[to] || (room[r] == room[to] && used[r] > used[to])) ? r : to;
    }
    if (to < 0) {
      to = rows++;
      room[to] = steps;
    }
    done[i] = true;
    row[i] = to;
    first[i] = steps - room[to];
    room[to] -= lengths[i];
    used[to] = clock++;
  }
  return rows;
}

static void test_rows(void **state) {
  (void)state;
  for (uint64_t k = 0; k < 300; ++k) {
    const int64_t samples = 1 + (int64_t)bppsa_random_below(k, BPPSA_STREAM_TEST, 0, MOST);
    const int64_t steps = 1 + (int64_t)bppsa_random_below(k, BPPSA_STREAM_TEST, 1, k % 3 == 0 ? 7 : 300);
    int64_t lengths[MOST], row[MOST], first[MOST], order[MOST], expected_row[MOST], expected_first[MOST], rows = 0, used = 0;
    int64_t next[MOST] = {0};
    for (int64_t i = 0; i < samples; ++i) {
      lengths[i] = 1 + (int64_t)bppsa_random_below(k, BPPSA_STREAM_TEST, 2 + (uint64_t)i, (uint64_t)steps);
      used += lengths[i];
    }
    assert_int_equal(bppsa_pack_rows(samples, lengths, steps, row, first, order, &rows), BPPSA_OK);
    assert_int_equal(rows, search(samples, lengths, steps, expected_row, expected_first));
    assert_memory_equal(row, expected_row, (size_t)samples * sizeof *row);
    assert_memory_equal(first, expected_first, (size_t)samples * sizeof *first);
    for (int64_t j = 0; j < samples; ++j) { /* in their order, the samples of a row follow each other without a gap */
      assert_int_equal(first[order[j]], next[row[order[j]]]);
      next[row[order[j]]] += lengths[order[j]];
      assert_true(next[row[order[j]]] <= steps);
    }
    assert_true(rows * steps >= used && rows <= 1 + 2 * used / steps); /* at most one row is less than half full */
  }
}

static void put(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape, void *values) {
  const bppsa_view view = bppsa_view_make(values, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static int64_t lengths[SAMPLES] = {6, 1, 3, 3, 2, 5, 1, 4, 6, 2, 2};

static int enter(void **state) {
  float x[SAMPLES][STEPS][2];
  double y[SAMPLES][STEPS], w[SAMPLES][STEPS], *random = uniform(5, SAMPLES * STEPS * 4, 1);
  uint8_t r[SAMPLES][STEPS];
  int64_t labels[SAMPLES];
  (void)state;
  for (int i = 0; i < SAMPLES * STEPS; ++i) {
    x[i / STEPS][i % STEPS][0] = (float)random[4 * i];
    x[i / STEPS][i % STEPS][1] = (float)random[4 * i + 1];
    y[i / STEPS][i % STEPS] = random[4 * i + 2];
    w[i / STEPS][i % STEPS] = 1 + fabs(random[4 * i + 3]) / 2;
    r[i / STEPS][i % STEPS] = i % 5 == 0;
    labels[i / STEPS] = i / STEPS % 3;
  }
  bppsa_free(random);
  put("X.npy", BPPSA_F32, 3, (int64_t[]){SAMPLES, STEPS, 2}, x);
  put("Y.npy", BPPSA_F64, 2, (int64_t[]){SAMPLES, STEPS}, y);
  put("C.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, labels);
  put("L.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths);
  put("R.npy", BPPSA_U8, 2, (int64_t[]){SAMPLES, STEPS}, r);
  put("W.npy", BPPSA_F64, 2, (int64_t[]){SAMPLES, STEPS}, w);
  return 0;
}

/* kind 0: real targets on every step; 1: a label for each sample; 2: the bitstream, two features, labels on every step. */
static bppsa_dataset *make(int kind) {
  const bppsa_dataset_options options = {.samples = SAMPLES,
                                         .seq_len = STEPS,
                                         .input = kind == 2 ? 2 : 0,
                                         .labels_per_step = kind != 1,
                                         .objective = {.kind = kind == 0 ? BPPSA_LOSS_SQUARED : BPPSA_LOSS_CROSS_ENTROPY}};
  bppsa_dataset *made;
  assert_int_equal(bppsa_dataset_create(kind == 0   ? "npy:X.npy,Y.npy"
                                        : kind == 1 ? "npy:X.npy,C.npy"
                                                    : "bitstream",
                                        &options, &made),
                   BPPSA_OK);
  assert_int_equal(bppsa_dataset_load_lengths(made, "L.npy"), BPPSA_OK);
  if (kind != 2) {
    assert_int_equal(bppsa_dataset_load_resets(made, "R.npy"), BPPSA_OK);
    assert_int_equal(bppsa_dataset_load_loss_weights(made, "W.npy"), BPPSA_OK);
  }
  return made;
}

/* What a batch of all samples of a set holds. */
typedef struct {
  bppsa_buffer x, targets;
  int64_t labels[SAMPLES * MOST];
} contents;

static void read_all(const bppsa_dataset *d, const bppsa_device *device, contents *c) {
  int64_t shape[4], indices[SAMPLES];
  const bool real = bppsa_objective_real(&d->objective);
  for (int64_t i = 0; i < d->samples; ++i) {
    indices[i] = i;
  }
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F64, bppsa_dataset_shape(d, d->samples, shape), shape, &c->x), BPPSA_OK);
  memset(c->x.view.data, 0xff, bppsa_view_bytes(&c->x.view));
  assert_int_equal(bppsa_dataset_fill(d, device, d->samples, indices, &c->x.view, real ? NULL : c->labels), BPPSA_OK);
  if (real) {
    shape[2] = d->classes;
    assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F64, 3, shape, &c->targets), BPPSA_OK);
    memset(c->targets.view.data, 0xff, bppsa_view_bytes(&c->targets.view));
    assert_int_equal(bppsa_dataset_targets(d, d->samples, indices, &c->targets.view), BPPSA_OK);
  }
}

static void free_contents(contents *c) {
  bppsa_buffer_free(&c->x);
  bppsa_buffer_free(&c->targets);
}

/* Compares step t of sample i with step `at` of row r. */
static void compare(const bppsa_dataset *d, const contents *whole, int64_t i, int64_t t, const bppsa_dataset *rows,
                    const contents *packed, int64_t r, int64_t at) {
  const bool last = t == lengths[i] - 1, judged = d->labels_per_step || last;
  const int64_t row = d->labels_per_step ? t * d->samples + i : i, packed_row = at * rows->samples + r;
  for (int64_t c = 0; c < d->input; ++c) {
    assert_true(bppsa_view_get(&whole->x.view, (t * d->samples + i) * d->input + c) ==
                bppsa_view_get(&packed->x.view, packed_row * d->input + c));
  }
  assert_int_equal(rows->resets[r * rows->seq_len + at], t == 0 || (d->resets != NULL && d->resets[i * d->seq_len + t]));
  const double weight = d->loss_weights != NULL ? d->loss_weights[d->labels_per_step ? i * d->seq_len + t : i] : 1;
  assert_true(rows->loss_weights[r * rows->seq_len + at] == (judged ? weight : 0));
  if (judged && d->ops->targets != NULL && bppsa_objective_real(&d->objective)) {
    assert_true(bppsa_view_get(&whole->targets.view, row) == bppsa_view_get(&packed->targets.view, packed_row));
  } else if (judged) {
    assert_int_equal(whole->labels[row], packed->labels[packed_row]);
  }
}

/* Every step of every sample is where the packing says; all other steps are empty. Held-out samples are in held-out rows. Unpacked
 * again, the set is the old one. */
static void test_sets(void **state) {
  (void)state;
  for (int k = 0; k < 6; ++k) {
    const bppsa_split split = {.train = k < 3 ? SAMPLES : 8, .validation = k < 3 ? 0 : 3};
    int64_t row[SAMPLES], first[SAMPLES], order[SAMPLES], counts[2] = {0}, steps = k % 2 == 0 ? 6 : 13, filled = 0;
    bppsa_device *device;
    bppsa_dataset *d = make(k % 3), *rows = NULL;
    contents whole = {.labels = {0}}, packed = {.labels = {0}};
    const uint64_t identity = d->identity;
    assert_int_equal(bppsa_device_create("cpu", 1 + k % 2, &device), BPPSA_OK);
    read_all(d, device, &whole);
    assert_int_equal(bppsa_pack_rows(split.train, lengths, steps, row, first, order, &counts[0]), BPPSA_OK);
    if (split.validation > 0) {
      assert_int_equal(bppsa_pack_rows(split.validation, lengths + split.train, steps, row + split.train, first + split.train,
                                       order, &counts[1]),
                       BPPSA_OK);
    }
    assert_int_equal(bppsa_dataset_pack(d, &split, steps, &rows), BPPSA_OK);
    assert_true(rows->samples == counts[0] + counts[1] && rows->held_out == counts[1] && rows->seq_len == steps);
    assert_true(rows->identity != identity && rows->packing->samples == SAMPLES && rows->packing->ends == (k % 3 == 1));
    assert_int_equal(rows->packing->used, 35);
    read_all(rows, device, &packed);
    for (int64_t i = 0; i < SAMPLES; ++i) {
      for (int64_t t = 0; t < lengths[i]; ++t) {
        compare(d, &whole, i, t, rows, &packed, row[i] + (i < split.train ? 0 : counts[0]), first[i] + t);
      }
    }
    for (int64_t i = 0; i < rows->samples * steps; ++i) {
      filled += rows->loss_weights[i] > 0 ? 1 : 0;
      for (int64_t c = 0; c < 2; ++c) {
        const double value = bppsa_view_get(&packed.x.view, (i % steps * rows->samples + i / steps) * 2 + c);
        assert_true(isfinite(value)); /* also behind the last sample */
      }
    }
    assert_int_equal(filled, k % 3 == 1 ? SAMPLES : 35);
    bppsa_dataset *again = NULL;
    assert_error(bppsa_dataset_pack(rows, &split, steps, &again), BPPSA_ERR_ARGUMENT, "rows of samples that are packed already");
    bppsa_dataset_unpack(&rows);
    assert_ptr_equal(rows, d);
    assert_true(d->identity == identity);
    bppsa_dataset_unpack(&rows); /* nothing is left to unpack */
    assert_int_equal(bppsa_dataset_pack(d, &split, steps + 1, &rows), BPPSA_OK);
    bppsa_dataset_destroy(rows);
    free_contents(&whole);
    free_contents(&packed);
    bppsa_device_destroy(device);
  }
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_dataset *d = make(1), *rows = NULL;
  bppsa_split split = {.train = 8, .validation = 3};
  assert_error(bppsa_dataset_pack(d, &split, 4, &rows), BPPSA_ERR_ARGUMENT,
               "packing: sample 0 has 6 steps, expected at most 4, the steps of a row");
  d->lengths[0] = 4;
  d->lengths[5] = 4;
  assert_error(bppsa_dataset_pack(d, &split, 4, &rows), BPPSA_ERR_ARGUMENT, "packing: sample 8 has 6 steps, expected at most 4");
  assert_error(bppsa_dataset_pack(d, &split, 0, &rows), BPPSA_ERR_ARGUMENT, "packing: rows of 0 steps, expected 1 .. 2147483647");
  split.train = 9;
  assert_error(bppsa_dataset_pack(d, &split, 6, &rows), BPPSA_ERR_ARGUMENT,
               "packing: 9 samples and 3 held out, expected at most 11");
  d->image[0] = 1;
  assert_error(bppsa_dataset_pack(d, &split, 6, &rows), BPPSA_ERR_ARGUMENT, "packing: images, expected sequences");
  assert_null(rows);
  bppsa_dataset_destroy(d); /* still the caller's */
  int64_t row[2], first[2], order[2], count;
  assert_error(bppsa_pack_rows(2, (int64_t[]){3, 9}, 8, row, first, order, &count), BPPSA_ERR_ARGUMENT,
               "packing: sample 1 has 9 steps, expected 1 .. 8");
  assert_error(bppsa_pack_rows(0, lengths, 8, row, first, order, &count), BPPSA_ERR_ARGUMENT, "packing: 0 samples");
}

static bppsa_status pack(void *argument) {
  bppsa_dataset **d = argument;
  const bppsa_split split = {.train = 8, .validation = 3};
  BPPSA_TRY(bppsa_dataset_pack(*d, &split, 7, d));
  bppsa_dataset_unpack(d);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_dataset *d = make(0);
  assert_true(walk_allocations(pack, &d) >= 10);
  bppsa_dataset_destroy(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_sets), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter, NULL);
}
