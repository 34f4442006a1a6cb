/* Schedules from files that ask for much: what a file may not have, and lists that are large in one way: many readers of a result,
 * many senders of a receiver, many operations of a scan at one place. Each of these would take minutes if the work grew with the
 * square of the operations. */
#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "schedule/timed.h"
#include "tests/core/helpers.h"
#include "tests/support/length.h"

#define FILE_NAME BPPSA_TEST_TMP_DIR "/schedule_size.csv"

static bppsa_status load(const char *text, bppsa_schedule **list) {
  put_file(FILE_NAME, text, strlen(text));
  return bppsa_schedule_csv_load(FILE_NAME, list);
}

/* Loads the text and frees it. */
static bppsa_schedule *loaded(bppsa_text *text) {
  bppsa_schedule *list = NULL;
  if (load(text->text, &list) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  bppsa_text_free(text);
  return list;
}

static void add_times(bppsa_text *text, int64_t count, const char *what) {
  for (int64_t i = 0; i < count; ++i) {
    bppsa_text_add(text, "%s", what);
  }
}

/* ---- what a file may not have ---- */

static void assert_refused(const char *text, const char *says) {
  bppsa_schedule *list = NULL;
  char expected[240];
  snprintf(expected, sizeof expected, FILE_NAME ": %s", says);
  assert_error(load(text, &list), BPPSA_ERR_FORMAT, expected);
  assert_null(list);
}

/* Tables have a cell for each layer of a micro-batch and of a replica: their largest size is taken, the next one is not. */
static void first_rows(void **state) {
  (void)state;
  static const struct {
    const char *text, *says; /* says NULL: accepted */
  } rows[] = {
      {"scheme=gpipe,stages=1,micro-batches=4096,layers=1024\n0", NULL},
      {"scheme=gpipe,stages=1,micro-batches=4097,layers=1024\n0",
       "row 1: 4097 micro-batches of all iterations and copies times 1024 layers, expected at most 4194304"},
      {"scheme=gpipe,stages=1,micro-batches=2,layers=1000000,width=3\n0",
       "row 1: 6 micro-batches of all iterations and copies times 1000000 layers, expected at most 4194304"},
      {"scheme=pipedream,stages=1,micro-batches=2,layers=1000000,iterations=3\n0",
       "row 1: 6 micro-batches of all iterations and copies times 1000000 layers, expected at most 4194304"},
      {"scheme=chimera,stages=64,micro-batches=1,replicas=64,layers=65536\n0", NULL},
      {"scheme=chimera,stages=64,micro-batches=1,replicas=64,layers=65537\n0",
       "row 1: 64 replicas times 65537 layers, expected at most 4194304"},
      {"scheme=gpipe,stages=1,micro-batches=1,width=131072\n0", NULL},
      {"scheme=gpipe,stages=1,micro-batches=1,width=131073\n0", "row 1: 131073 workers, expected at most 131072"},
      {"scheme=scan-chunked,stages=999999,elements=1000000\n0", "row 1: 999999 workers, expected at most 131072"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    bppsa_schedule *list = NULL;
    if (rows[i].says != NULL) {
      assert_refused(rows[i].text, rows[i].says);
    } else if (load(rows[i].text, &list) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
    bppsa_schedule_destroy(list);
  }
}

static void operations(void **state) {
  (void)state;
  bppsa_text text = {0};
  bppsa_schedule *list = NULL;
  assert_refused("scheme=gpipe,stages=2,micro-batches=4\n0,F0@0+2,F1@0+3",
                 "row 2, cell 3: 'F1@0+3', expected an operation over at most two micro-batches");
  assert_refused("scheme=gpipe,stages=2,micro-batches=4\n0,STEP@0+1",
                 "row 2, cell 2: 'STEP@0+1', expected micro-batch, stage, replica and layers that the first row has");
  bppsa_text_add(&text, "scheme=gpipe,stages=1,micro-batches=4,layers=1000000\n0");
  add_times(&text, 16, ",F0@0+2");
  bppsa_text_add(&text, ",F0@0:0x999999,SYNC@0:0x554433");
  assert_int_equal(load(text.text, &list), BPPSA_OK); /* 2^25 exactly */
  bppsa_schedule_destroy(list);
  list = NULL;
  bppsa_text_add(&text, ",STEP@0:7x1");
  assert_refused(text.text, "row 2, cell 20: 'STEP@0:7x1', expected fewer operations or layers: those before it cover 33554432 "
                            "layers in all, at most 33554432 may");
  bppsa_text_free(&text);
  bppsa_text_add(&text, "scheme=scan-chunked,stages=1,elements=1000000\n0");
  add_times(&text, 33, ",APPLY0@0:0x999999,PRODUCT0@0+999999:0x999999,CARRY0@0:0x999999");
  assert_int_equal(load(text.text, &list), BPPSA_OK); /* only APPLY counts */
  bppsa_schedule_destroy(list);
  bppsa_text_add(&text, ",APPLY0@0:0x999999");
  assert_refused(text.text,
                 "row 2, cell 101: 'APPLY0@0:0x999999', expected fewer operations or layers: those before it cover 33000033 ");
  bppsa_text_free(&text);
}

/* Updates of single layers, and passes of all layers that wait for each of them: on the same worker, and on others. */
static void dependencies(void **state) {
  (void)state;
  bppsa_text text = {0};
  enum { LAYERS = 4000 };
  bppsa_text_add(&text, "scheme=gpipe,stages=1,width=1000,micro-batches=1,layers=%d\n0", LAYERS);
  for (int layer = 0; layer < LAYERS; ++layer) {
    bppsa_text_add(&text, ",STEP@0:%dx1", layer);
  }
  const size_t size = text.size;
  for (int worker = 1; worker < 1000; ++worker) {
    bppsa_text_add(&text, "\n%d,F0@0", worker);
  }
  assert_refused(text.text, "more than 3145728 operations, with a SEND and a RECV for each tensor that goes to another worker");
  text.size = size;
  add_times(&text, 2098, ",F0@0");
  assert_refused(text.text, "8392000 dependencies between operations, expected at most 8388608");
  bppsa_text_free(&text);
}

/* ---- large in one way ---- */

/* One result that a pass of every other worker reads: as many transfers, in the order of the readers. */
static void readers(void **state) {
  (void)state;
  const int many = at_full_length() ? 120000 : 12000;
  bppsa_text text = {0};
  bppsa_text_add(&text, "scheme=gpipe,stages=1,micro-batches=1,width=%d\n0,F0@0\n", many + 1);
  for (int worker = many; worker >= 1; --worker) {
    bppsa_text_add(&text, "%d,B0@0\n", worker);
  }
  bppsa_schedule *list = loaded(&text);
  assert_int_equal(list->count, 1 + 3 * many);
  assert_int_equal(list->groups, many);
  for (int64_t i = 0; i < many; ++i) {
    const bppsa_schedule_op *send = &list->ops[1 + 2 * i], *receive = send + 1;
    assert_true(send->kind == BPPSA_KIND_SEND && send->worker == 0 && send->group == i);
    assert_true(receive->kind == BPPSA_KIND_RECV && receive->worker == many - i && receive->group == i);
    assert_true(send->dep_count == 1 && list->deps[send->deps] == 0);
  }
  for (int64_t id = 1 + 2 * many; id < list->count; ++id) { /* each reads what its own worker receives */
    const bppsa_schedule_op *op = &list->ops[id];
    assert_true(op->kind == BPPSA_KIND_B && op->dep_count == 1);
    const bppsa_schedule_op *receive = &list->ops[list->deps[op->deps]];
    assert_true(receive->kind == BPPSA_KIND_RECV && receive->worker == op->worker);
  }
  bppsa_schedule_destroy(list);
}

/* A worker that has every second stage receives from as many workers as there are other stages. The schedule is valid. */
static void senders(void **state) {
  (void)state;
  const int many = at_full_length() ? 80000 : 8000;
  bppsa_text text = {0};
  bppsa_timed timed = {0};
  bppsa_text_add(&text, "scheme=gpipe,stages=%d,micro-batches=1\n%d", many, many - 1);
  for (int stage = 1; stage < many; stage += 2) {
    bppsa_text_add(&text, ",F0@%dv0", stage);
  }
  for (int stage = many - 1; stage > 0; stage -= 2) {
    bppsa_text_add(&text, ",B0@%dv0,STEP@%dv1", stage, stage);
  }
  for (int stage = 0; stage < many; stage += 2) {
    bppsa_text_add(&text, "\n%d,F0@%dv0,B0@%dv0,STEP@%dv1", stage, stage, stage, stage);
  }
  bppsa_schedule *list = loaded(&text);
  assert_int_equal(list->count, 3 * many + 2 * (2 * (many - 1)));
  if (bppsa_timed_create(list, &timed) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_true(timed.times.makespan == 3 * many);
  bppsa_timed_free(&timed);
}

/* Products and carries of all lengths that begin at one element: a CARRY finds its own product, and the next longer CARRY. Of two
 * equal ones the later is found. */
static void segments(void **state) {
  (void)state;
  const int many = at_full_length() ? 100000 : 10000;
  bppsa_text text = {0};
  bppsa_text_add(&text, "scheme=scan-chunked,stages=1,elements=%d\n0", many + 2);
  for (int length = 1; length <= many; ++length) {
    bppsa_text_add(&text, ",PRODUCT0@0:5x%d", length % (many - 10) + 1);
  }
  for (int length = many - 10; length >= 1; --length) {
    bppsa_text_add(&text, ",CARRY0@0:5x%d", length);
  }
  bppsa_schedule *list = loaded(&text);
  assert_int_equal(list->count, 2 * many - 10);
  for (int64_t id = many; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    const bool longest = op->layers == many - 10;
    assert_int_equal(op->kind, BPPSA_KIND_CARRY);
    assert_int_equal(op->dep_count, longest ? 1 : 2);
    const int64_t product = list->deps[op->deps + op->dep_count - 1];
    assert_true(list->ops[product].kind == BPPSA_KIND_PRODUCT && list->ops[product].layers == op->layers);
    assert_int_equal(product >= many - 11, op->layers <= 11); /* these occur twice */
    if (!longest) {
      assert_int_equal(list->deps[op->deps], id - 1);
    }
  }
  bppsa_schedule_destroy(list);
}

/* The k-th SYNCs of a layer are one group on all replicas, whatever else is synchronised between them. */
static void syncs(void **state) {
  (void)state;
  enum { SYNCS = 3000, LAYERS = 1000000 };
  bppsa_text text = {0};
  bppsa_text_add(&text, "scheme=gpipe,stages=1,micro-batches=1,width=4,layers=%d", LAYERS);
  for (int worker = 0; worker < 3; ++worker) {
    bppsa_text_add(&text, "\n%d", worker);
    for (int k = 0; k < SYNCS; ++k) {
      bppsa_text_add(&text, ",SYNC@0/%d:%dx1,SYNC@0/%d:%dx1", worker, LAYERS - 1, worker, k + worker);
    }
  }
  bppsa_schedule *list = loaded(&text);
  assert_int_equal(list->count, 3 * 2 * SYNCS);
  assert_int_equal(list->groups, SYNCS + SYNCS + 2); /* of the last layer; of layers 0 .. SYNCS + 1 */
  int64_t seen[3] = {0};
  static int32_t group[SYNCS], other[SYNCS + 2];
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    assert_true(op->kind == BPPSA_KIND_SYNC && op->group >= 0);
    int32_t *of = op->layer == LAYERS - 1 ? &group[seen[op->replica]++] : &other[op->layer];
    assert_true(*of == 0 || *of == op->group + 1);
    *of = op->group + 1;
  }
  bppsa_schedule_destroy(list);
}

/* ---- without memory ---- */

static bppsa_status load_again(void *argument) {
  bppsa_schedule *list = NULL;
  const bppsa_status status = load(argument, &list);
  bppsa_schedule_destroy(list);
  return status;
}

/* Every allocation of a load fails in turn, with transfers, SYNCs and segments of a scan. */
static void without_memory(void **state) {
  (void)state;
  char pipeline[] = "scheme=chimera,stages=2,micro-batches=2\n0,F0@0,B0@0,SYNC@0,STEP@0,F1@1/1,SYNC@1/1\n"
                    "1,F0@1,B0@1,SYNC@1,F1@0/1,B1@0/1,SYNC@0/1\n",
       scan[] = "scheme=scan-blelloch,stages=2,elements=5\n0,PRODUCT0@0:0x2,APPLY0@0:0x2\n1,CARRY0@1:0x2,APPLY0@1:2x2\n";
  assert_true(walk_allocations(load_again, pipeline) > 20);
  assert_true(walk_allocations(load_again, scan) > 20);
}

/* ---- what is written ---- */

/* JSON leaves operations out whose layers are too many to be told one by one; a trace has an end, too. */
static void outputs(void **state) {
  (void)state;
  bppsa_text text = {0};
  bppsa_timed timed = {0};
  bppsa_text_add(&text, "scheme=scan-chunked,stages=1,elements=1000000\n0,APPLY0@0:0x999999");
  add_times(&text, 8, ",PRODUCT0@0:0x999999");
  assert_int_equal(bppsa_timed_create(loaded(&text), &timed), BPPSA_OK);
  json_t *json = bppsa_timed_json(&timed, true);
  assert_int_equal(json_integer_value(json_object_get(json, "operations")), 9);
  assert_null(json_object_get(json, "ops"));
  json_decref(json);
  const int64_t count = timed.list->count;
  timed.list->count = BPPSA_SCHEDULE_TRACE_LIMIT + 1;
  assert_error(bppsa_schedule_trace(&timed, &text), BPPSA_ERR_ARGUMENT, "trace: 1048577 operations, expected at most 1048576");
  assert_null(text.text);
  timed.list->count = count;
  bppsa_timed_free(&timed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_rows), cmocka_unit_test(operations), cmocka_unit_test(dependencies),
      cmocka_unit_test(readers),    cmocka_unit_test(senders),    cmocka_unit_test(segments),
      cmocka_unit_test(syncs),      cmocka_unit_test(outputs),    cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
