/* The lanes of a parallel forward pass on a CPU (recurrent/walk.h): which of them count as neighbours, what they read and how much
 * memory they need. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"

static forward_problem problem_of(int64_t seq_len, int64_t batch, int64_t chunks, int64_t warm_up) {
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.seq_len = seq_len;
  p.config.batch = batch;
  p.config.forward.chunks = chunks;
  p.config.forward.warm_up = warm_up;
  return p;
}

/* Two samples of one unit with two stable states (test_forward.c). Chunk 2 shows that the guesses were wrong, and chunks 3 and 4
 * begin anew from its end. Both warm-ups reach back to that end. So the last chunk of sample 0 starts at the same step as the first
 * one of sample 1, whose lane comes next; but they are lanes of different chunks, and each stores the steps of its own. */
static void test_new_guesses_of_neighbours(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  forward_problem p = problem_of(500, 2, 5, 100);
  p.config.hidden = 1;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) {
    bppsa_view_set(&model->parameters[i].value, 0, i == 1 ? 2 : 0);
  }
  float x[1000] = {0}, starts[2] = {.5f, .5f};
  const bppsa_view in = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){500, 2, 1}),
                   h0 = bppsa_view_make(starts, BPPSA_F32, 3, (int64_t[]){1, 2, 1});
  bppsa_view h;
  bppsa_forward_stats s;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in, &h0), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, &s), BPPSA_OK);
  assert_true(s.mended == 2 && s.reseeded == 2 && s.tails == 0);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  for (int64_t i = 2 * 100; i < 2 * 500; ++i) {
    assert_true(fabs(bppsa_view_get(&h, i) - 0.957504) < 1e-5);
  }
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

/* The last chunk has one step less than the others, but its lane takes as many steps as theirs. The kernels must not read behind
 * the last step of x: the page behind it is made unreadable. */
static void test_end_of_input(void **state) {
  (void)state;
  enum { STEPS = 1000 };
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = STEPS * sizeof(float);
  assert_true(bytes <= page);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
  bppsa_device *device = cpu_device(1);
  const forward_problem p = problem_of(STEPS, 1, 7, 10);
  forward_run run = run_forward(&p, device);
  void *x = pages + page - bytes;
  memcpy(x, run.in, bytes);
  const bppsa_view in = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){STEPS, 1, 1}),
                   h0 = bppsa_view_make(run.state, BPPSA_F32, 3, (int64_t[]){1, 1, p.config.hidden});
  bppsa_view h;
  assert_int_equal(bppsa_recurrent_forward_layers(run.model, &in, &h0), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(run.model, 0, &h), BPPSA_OK);
  for (int64_t i = 0; i < run.count; ++i) {
    assert_true(bppsa_view_get(&h, i) == run.h[0][i]);
  }
  free_run(&run, device);
  bppsa_device_destroy(device);
  assert_int_equal(munmap(pages, 2 * page), 0);
}

/* The bytes that a parallel forward pass adds to a network. */
static int64_t added_bytes(int32_t threads, int64_t chunks) {
  bppsa_device *device = cpu_device(threads);
  forward_problem p = problem_of(1000, 1, chunks, 10);
  int64_t parallel, sequential;
  assert_int_equal(bppsa_recurrent_count(&p.config, p.cell, device, &parallel), BPPSA_OK);
  p.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  assert_int_equal(bppsa_recurrent_count(&p.config, p.cell, device, &sequential), BPPSA_OK);
  bppsa_device_destroy(device);
  return parallel - sequential;
}

/* Sixteen lanes are one group, which one thread walks: a second thread needs no memory. It does with one lane more. */
static void test_memory(void **state) {
  (void)state;
  assert_true(added_bytes(1, 16) > 0);
  assert_int_equal(added_bytes(2, 16), added_bytes(1, 16));
  assert_true(added_bytes(2, 17) > added_bytes(1, 17));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_new_guesses_of_neighbours), cmocka_unit_test(test_end_of_input),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
