/* Recurrent networks cut along time, on ranks that are threads: loss and gradients against the textbook's, messages and bytes
 * against the formulas of docs/time-ranks.md, wrong requests, no memory. */
#include "tests/distributed/split_problem.h"
#include "tests/support/cell_sensitivity.h"
#include "tests/support/length.h"
#include "tests/support/lstm_reference.h"

static const bppsa_gradient_method methods[] = {
    {.backward = BPPSA_BACKWARD_BP},
    {.backward = BPPSA_BACKWARD_AUTO, .scan.algorithm = BPPSA_SCAN_AUTO},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_LINEAR, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = -1}}};
enum { METHODS = sizeof methods / sizeof *methods };

static const int64_t rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};
enum { RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

enum { LIMIT = 30, LONG = 1000 };

static void fail_job(const split_job *j, int64_t ranks, const char *why) {
  const bppsa_recurrent_config *c = &j->p->c;
  char text[BPPSA_METHOD_TEXT];
  fail_msg("%s, %s, %d ranks, T %d, B %d, H %d, L %d, loss all %d, %d groups: %s", cell.cell->name,
           bppsa_gradient_method_text(&j->method, text, sizeof text), (int)ranks, (int)c->seq_len, (int)c->batch, (int)c->hidden,
           (int)c->layers, (int)c->loss_all, (int)j->micro_batches, why);
}

/* Residuals are below LIMIT. Of a long sequence a tensor's may be larger, by at most ten times what the problem itself moves the
 * gradient of that tensor. methods_of: the method with the largest residual of each tensor. Overwrites the problem. */
static void judge(split_job *j, const int methods_of[TENSORS + 2], int64_t ranks, uint64_t seed) {
  dice d = {.seed = seed};
  double moved[TENSORS + 2] = {0};
  bool asked = false;
  for (int64_t i = 0; i < j->p->count + 2; ++i) {
    const split_worst *worst = &j->worst[i];
    if (worst->residual < LIMIT) {
      continue;
    }
    if (!asked && j->p->c.seq_len >= LONG) {
      sensitivities(j->p, 1, ranks, &d, moved);
      asked = true;
    }
    if (!(isfinite(moved[i]) && worst->residual < 10 * moved[i])) {
      char why[160];
      snprintf(why, sizeof why, "%s: residual %g, where the problem moves by %g", worst->name, worst->residual, moved[i]);
      j->method = methods[methods_of[i]];
      fail_job(j, ranks, why);
    }
  }
}

/* Every method on p ranks. */
static void compare(const bppsa_recurrent_config *c, int64_t ranks, int64_t groups, bool count, uint64_t seed) {
  problem p = make_problem(c, true, seed);
  split_worst worst[TENSORS + 2];
  split_job j = {.p = &p, .micro_batches = groups, .repeats = 2, .worst = worst};
  double before[TENSORS + 2];
  int methods_of[TENSORS + 2] = {0};
  j.loss = reference(&p);
  clear_worst(worst);
  for (int m = 0; m < METHODS; ++m) {
    for (int64_t i = 0; i < p.count + 2; ++i) {
      before[i] = worst[i].residual;
    }
    j.method = methods[m];
    j.count = count && j.method.backward != BPPSA_BACKWARD_AUTO;
    const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
    if (bppsa_comm_run(&config, split_rank, &j, NULL) != BPPSA_OK) {
      fail_job(&j, ranks, bppsa_last_error());
    }
    for (int64_t i = 0; i < p.count + 2; ++i) {
      methods_of[i] = worst[i].residual <= before[i] ? methods_of[i] : m;
    }
  }
  judge(&j, methods_of, ranks, seed);
  free_problem(&p);
}

static bppsa_recurrent_config small(void) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.dtype = BPPSA_F64;
  c.input_gradients = true;
  c.classes = 3;
  c.hidden = 4;
  c.input = 2;
  c.batch = 3;
  return c;
}

/* T = 1, 1 + apart .. 40, four times as far apart on every push, on every number of ranks, with one to three layers, loss last
 * and all, one to three groups. */
static void every_length(uint64_t seed, int64_t apart) {
  apart *= at_full_length() ? 1 : 4;
  for (int i = 0; i < RANK_COUNTS; ++i) {
    for (int64_t steps = 1; steps <= 40; steps += apart, ++seed) {
      bppsa_recurrent_config c = small();
      c.seq_len = steps;
      c.layers = 1 + (int64_t)(seed % 3);
      c.loss_all = seed / 3 % 2 == 0;
      compare(&c, rank_counts[i], 1 + (int64_t)(seed / 6 % 3), false, seed);
    }
  }
}

static void rnn(void **state) {
  (void)state;
  cell = (cell_reference)RNN_REFERENCE;
  every_length(7, 1);
}

static void gru(void **state) {
  (void)state;
  cell = (cell_reference)GRU_REFERENCE;
  every_length(10, 1);
}

/* Its states and their gradients are pairs. */
static void lstm(void **state) {
  (void)state;
  cell = (cell_reference)LSTM_REFERENCE;
  every_length(13, 3);
}

/* T = 1000 on every number of ranks, in both types. */
static void long_sequences(void **state) {
  (void)state;
  for (int i = 0; i < RANK_COUNTS; ++i) {
    for (int at = 0; at < 6; ++at) {
      static const cell_reference cells[] = {RNN_REFERENCE, GRU_REFERENCE, LSTM_REFERENCE};
      bppsa_recurrent_config c = small();
      c.seq_len = LONG;
      c.layers = 1 + i % 2;
      c.loss_all = at & 1;
      c.dtype = i % 3 == 2 ? BPPSA_F32 : BPPSA_F64;
      cell = cells[at / 2];
      compare(&c, rank_counts[i], 1 + i % 3, false, 60 + (uint64_t)i);
    }
  }
}

/* Messages and bytes for every p up to 33, with more steps than ranks, and fewer. */
static void traffic(void **state) {
  (void)state;
  for (int64_t ranks = 1; ranks <= 33; ++ranks) {
    cell = ranks % 5 == 3 ? (cell_reference)LSTM_REFERENCE : (cell_reference)RNN_REFERENCE;
    bppsa_recurrent_config c = small();
    c.seq_len = ranks % 3 == 0 ? 19 : 41;
    c.layers = 1 + ranks % 2;
    c.loss_all = ranks % 4 < 2;
    compare(&c, ranks, 1 + ranks % 3, true, 90);
  }
}

/* Batches smaller than the planned one, with fewer samples than groups, against a network of the whole sequence. */
enum { SMALL_T = 7, SMALL_B = 4, SMALL_CLASSES = 10 };

/* Steps first + 1 .. first + steps of a batch of b samples, forward and backward. */
static bppsa_status pass_small(bppsa_model *m, int64_t first, int64_t steps, int64_t b) {
  static const double numbers[SMALL_T * SMALL_B * SMALL_CLASSES] = {0.5, -0.25, 1, 0, 2, 3, 1, -1, 0, 1, 0.25, 2, 1};
  const bppsa_view x = bppsa_view_make((void *)(uintptr_t)(numbers + first * b), BPPSA_F64, 3, (int64_t[]){steps, b, 1});
  bppsa_view logits;
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  CHECK(logits.ndim == 3 && logits.shape[0] == steps && logits.shape[1] == b && logits.shape[2] == SMALL_CLASSES);
  const bppsa_view seed = bppsa_view_make((void *)(uintptr_t)(numbers + first * b * SMALL_CLASSES), BPPSA_F64, 3, logits.shape);
  return m->ops->backward(m, &seed);
}

static bppsa_status smaller_batch(bppsa_comm *comm, void *context) {
  const bppsa_gradient_method *method = context;
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = SMALL_T;
  c.batch = SMALL_B;
  c.hidden = 3;
  c.method.backward = BPPSA_BACKWARD_BP;
  c.dtype = BPPSA_F64;
  c.loss_all = true;
  const bppsa_split_time split = {.comm = comm, .micro_batches = 3};
  bppsa_device *device = NULL;
  bppsa_model *m = NULL, *whole = NULL;
  int64_t first, steps;
  bppsa_ranks_share(SMALL_T, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &steps);
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &whole));
  c.method = *method;
  BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &m));
  BPPSA_TRY(bppsa_split_time_init(m, BPPSA_INIT_ORTHOGONAL, 7));
  BPPSA_TRY(bppsa_recurrent_init(whole, BPPSA_INIT_ORTHOGONAL, 7));
  static const int64_t batches[] = {4, 1, 2, 3, 4};
  for (int i = 0; i < 5; ++i) {
    BPPSA_TRY(pass_small(m, first, steps, batches[i]));
    BPPSA_TRY(pass_small(whole, 0, SMALL_T, batches[i]));
    for (int64_t k = 0; k < m->parameter_count; ++k) {
      const bppsa_view *got = &m->parameters[k].gradient;
      BPPSA_TRY(check_part(m->parameters[k].name, got, whole->parameters[k].gradient.data, whole->parameters[k].gradient.data,
                           SMALL_T, NULL));
    }
  }
  bppsa_model_destroy(m);
  bppsa_model_destroy(whole);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void smaller_batches(void **state) {
  (void)state;
  for (int m = 0; m < METHODS; ++m) {
    bppsa_gradient_method method = methods[m];
    for (int64_t ranks = 1; ranks <= 4; ++ranks) {
      const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
      if (bppsa_comm_run(&config, smaller_batch, &method, NULL) != BPPSA_OK) {
        fail_msg("method %d, %d ranks: %s", m, (int)ranks, bppsa_last_error());
      }
    }
  }
}

/* ---- choices, and what is refused ---- */

typedef struct {
  bppsa_recurrent_config others; /* of rank 0 and rank 2 */
  bppsa_recurrent_config rank1;
  int64_t micro_batches; /* of all ranks */
  bppsa_status expected;
  const char *words;
} refusal;

static bppsa_status refused_on_all(bppsa_comm *comm, void *context) {
  const refusal *r = context;
  const bppsa_recurrent_config *c = bppsa_comm_rank(comm) == 1 ? &r->rank1 : &r->others;
  const bppsa_split_time split = {.comm = comm, .micro_batches = r->micro_batches};
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_split_time_create(&split, c, &bppsa_rnn_cell, device, &model);
  CHECK(status == r->expected && strstr(bppsa_last_error(), r->words) != NULL);
  CHECK(model == NULL);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void refused(void **state) {
  (void)state;
  const bppsa_recurrent_config fits = small();
  bppsa_recurrent_config speculates = fits;
  speculates.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  refusal r[] = {
      {fits, fits, 1, BPPSA_ERR_ARGUMENT, "seq_len is 5 on rank 1, expected 1000 as on rank 0"},
      {fits, fits, 1, BPPSA_ERR_ARGUMENT, "backward is 1 on rank 1, expected 0 as on rank 0"},
      {fits, speculates, 1, BPPSA_ERR_ARGUMENT, "forward is 1 on rank 1, expected 0 as on rank 0"},
      {fits, fits, 4, BPPSA_ERR_ARGUMENT, "4 micro-batches, expected at least 1 step, and 1 .. 3 micro-batches as samples"},
      {fits, fits, 0, BPPSA_ERR_ARGUMENT, "0 micro-batches"}};
  r[0].rank1.seq_len = 5;
  r[1].rank1.method.backward = BPPSA_BACKWARD_BP;
  for (size_t i = 0; i < sizeof r / sizeof *r; ++i) {
    const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
    if (bppsa_comm_run(&config, refused_on_all, &r[i], NULL) != BPPSA_OK) {
      fail_msg("%zu: %s", i, bppsa_last_error());
    }
  }
}

/* AUTO takes BP until ranks wait longer in the pipeline than a product takes; 4 / 3 of a rank's work with the last sizes. */
static bppsa_status choices(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  static const struct {
    int64_t groups, hidden;
    bool scans;
  } cases[] = {{1, 3, true}, {2, 3, false}, {2, 2, false}, {3, 1, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_recurrent_config c = small();
    bppsa_model *model = NULL;
    c.hidden = cases[i].hidden;
    c.method = (bppsa_gradient_method){.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
    const bppsa_split_time split = {.comm = comm, .micro_batches = cases[i].groups};
    BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model));
    const bppsa_gradient_method m = bppsa_split_time_method(model);
    CHECK(m.backward == (cases[i].scans ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP));
    CHECK(!cases[i].scans || m.scan.algorithm == BPPSA_SCAN_CHUNKED);
    bppsa_model_destroy(model);
  }
  int64_t number = 1;
  bppsa_loss_result result = {.rows = 1};
  const bppsa_view seed = bppsa_view_make(&number, BPPSA_I64, 0, NULL);
  CHECK(bppsa_ranks_loss(comm, &seed, &result) == BPPSA_ERR_ARGUMENT && strstr(bppsa_last_error(), "a seed of i64") != NULL);
  CHECK(number == 1 && result.rows == 1);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

/* Rows, losses and correct rows are summed over the ranks. The number of correct rows is unknown, -1, if one rank has no labels.
 * Seeds are divided by the rows of all ranks. */
static bppsa_status losses(bppsa_comm *comm, void *context) {
  const int64_t rank = bppsa_comm_rank(comm), ranks = bppsa_comm_size(comm), one = 1;
  (void)context;
  for (int64_t without = -1; without < ranks; ++without) {
    double number = 6;
    bppsa_loss_result result = {.loss = (double)rank, .correct = rank == without ? -1 : rank + 1, .rows = 3, .weight = 3};
    const bppsa_view seed = bppsa_view_make(&number, BPPSA_F64, 1, &one);
    BPPSA_TRY(bppsa_ranks_loss(comm, &seed, &result));
    CHECK(result.rows == 3 * ranks && number == 6 / (double)ranks);
    CHECK(result.loss == (double)(ranks - 1) / 2);
    CHECK(result.correct == (without >= 0 ? -1 : ranks * (ranks + 1) / 2));
  }
  return BPPSA_OK;
}

static void losses_are_of_all_ranks(void **state) {
  (void)state;
  for (int64_t ranks = 2; ranks <= 4; ranks += 2) {
    const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
    if (bppsa_comm_run(&config, losses, NULL, NULL) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
  }
}

static void chosen(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 5, .timeout = 60};
  if (bppsa_comm_run(&config, choices, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* What is not finite is found without a message: rank 1 finds the state that its input made, and the others what came of it. */
static bppsa_status finds_nonfinite(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_recurrent_config c = small();
  c.seq_len = 9;
  c.layers = 2;
  c.method = methods[3];
  const bppsa_split_time split = {.comm = comm, .micro_batches = 2};
  bppsa_device *device = NULL;
  bppsa_model *m = NULL;
  double x[3 * 3 * 2] = {0};
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &m));
  for (int64_t k = 0; k < bppsa_view_count(&m->parameters[0].value); ++k) {
    bppsa_view_set(&m->parameters[0].value, k, 1);
  }
  if (bppsa_comm_rank(comm) == 1) {
    x[(1 * 3 + 2) * 2] = NAN; /* its second step, sample 2 */
  }
  const bppsa_view view = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){3, 3, 2});
  bppsa_view logits;
  bppsa_nonfinite where;
  BPPSA_TRY(m->ops->forward(m, &view, NULL, &logits));
  const bool found = m->ops->find_nonfinite(m, &where);
  const int32_t rank = bppsa_comm_rank(comm);
  CHECK(found == (rank <= 1));
  CHECK(!found || (strcmp(where.what, "hidden state") == 0 && where.layer == 0 && where.sample == 2));
  CHECK(!found || where.step == (rank == 1 ? 5 : 6)); /* rank 0 received the state of step 6 */
  if (rank == 1) {
    x[(1 * 3 + 2) * 2] = 0;
  }
  const int64_t bias = m->parameter_count - 1;
  bppsa_view_set(&m->parameters[bias].value, 1, (double)INFINITY);
  BPPSA_TRY(m->ops->forward(m, &view, NULL, &logits));
  CHECK(m->ops->find_nonfinite(m, &where));
  CHECK(strcmp(where.what, rank == 0 ? "logits" : "value of") == 0 && where.step == (rank == 0 ? 9 : -1));
  bppsa_model_destroy(m);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void nonfinite(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  if (bppsa_comm_run(&config, finds_nonfinite, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

static void memory_runs_out(void **state) {
  (void)state;
  cell = (cell_reference)GRU_REFERENCE;
  bppsa_recurrent_config c = small();
  c.seq_len = 11;
  c.layers = 2;
  problem p = make_problem(&c, true, 3);
  split_job j = {.p = &p, .method = methods[4], .micro_batches = 2, .repeats = 1};
  j.loss = reference(&p);
  const bppsa_comm_config config = {.ranks = 4, .timeout = 60};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 4000; ++call) {
    bppsa_alloc_fail_once(call);
    status = bppsa_comm_run(&config, split_rank, &j, NULL);
    if (bppsa_alloc_live() != blocks) {
      fail_msg("call %d: %d blocks are left: %s", (int)call, (int)(bppsa_alloc_live() - blocks), bppsa_last_error());
    }
    if (status != BPPSA_OK && status != BPPSA_ERR_MEMORY && strstr(bppsa_last_error(), "not so") == NULL) {
      fail_msg("call %d: %s", (int)call, bppsa_last_error());
    }
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 100, 3999);
  free_problem(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rnn),
                                     cmocka_unit_test(gru),
                                     cmocka_unit_test(lstm),
                                     cmocka_unit_test(long_sequences),
                                     cmocka_unit_test(traffic),
                                     cmocka_unit_test(smaller_batches),
                                     cmocka_unit_test(refused),
                                     cmocka_unit_test(losses_are_of_all_ranks),
                                     cmocka_unit_test(chosen),
                                     cmocka_unit_test(nonfinite),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
