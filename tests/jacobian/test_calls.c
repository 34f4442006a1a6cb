/* Random sequences of calls on plans of products of sparse matrices (tests/support/calls.h): several plans alive, executed many
 * times on changing values, alone or queued together, planned anew with other patterns and sizes, refused calls between them. */
#include <pthread.h>

#include "jacobian/product.h"
#include "tests/scan/csr_chain.h"
#include "tests/support/calls.h"

enum { PLANS = 3, MOST_SIZE = 40, MOST_BATCH = 4 };

/* A plan and its patterns, which it borrows. */
typedef struct {
  chain chain; /* of two operators, whose Jacobians have channel structure; n 0: the patterns are drawn */
  bppsa_csr own[2];
  const bppsa_csr *a, *b;
  bppsa_product_config config;
  bppsa_product *product;
} plan;

typedef struct {
  bppsa_device *device, *others[2];
  bppsa_dtype dtype; /* of all, so that they can be queued together */
  plan plans[PLANS];
} subject;

/* ---- patterns ---- */

static bppsa_csr draw_pattern(call_sequence *s, int64_t rows, int64_t cols) {
  const int64_t kind = draw(s, 0, 5), percent = kind == 0 ? 100 : kind == 1 ? 0 : draw(s, 1, 60);
  const bool diagonal = kind == 2 && rows == cols;
  int32_t columns[MOST_SIZE * MOST_SIZE];
  int64_t ends[MOST_SIZE + 1] = {0}, nnz = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if (diagonal ? c == r : chance(s, percent)) {
        columns[nnz++] = (int32_t)c;
      }
    }
    ends[r + 1] = nnz;
  }
  bppsa_csr csr;
  assert_ok(bppsa_csr_create(rows, cols, nnz, &csr));
  memcpy(csr.row_ptr, ends, (size_t)(rows + 1) * sizeof *ends);
  memcpy(csr.col, columns, (size_t)nnz * sizeof *columns);
  csr.identity = diagonal && chance(s, 30);
  return csr;
}

static void draw_patterns(call_sequence *s, const subject *o, plan *p) {
  *p = (plan){0};
  if (chance(s, 50)) {
    counter = (uint64_t)draw(s, 0, INT32_MAX);
    make_chain(&p->chain, 2, o->dtype, o->device);
    p->a = p->chain.patterns[0];
    p->b = p->chain.patterns[1];
    return;
  }
  const int64_t most = chance(s, 20) ? MOST_SIZE : 12, middle = draw(s, 1, most);
  p->own[0] = draw_pattern(s, draw(s, 1, most), middle);
  p->own[1] = draw_pattern(s, middle, draw(s, 1, most));
  p->a = &p->own[0];
  p->b = &p->own[1];
}

static void free_plan(plan *p) {
  bppsa_product_destroy(p->product);
  free_chain(&p->chain);
  bppsa_csr_free(&p->own[0]);
  bppsa_csr_free(&p->own[1]);
  *p = (plan){0};
}

/* ---- planning ---- */

/* A plan with other patterns takes the place of one. */
static void plan_anew(call_sequence *s, void *object) {
  subject *o = object;
  plan *p = &o->plans[draw(s, 0, PLANS - 1)];
  free_plan(p);
  draw_patterns(s, o, p);
  p->config = bppsa_product_config_default();
  p->config.dtype = o->dtype;
  p->config.kind = chance(s, 50) ? (bppsa_product_kind)draw(s, 1, BPPSA_PRODUCT_KINDS - 1) : BPPSA_PRODUCT_AUTO;
  bppsa_status status = bppsa_product_create(p->a, p->b, &p->config, o->device, &p->product);
  if (status != BPPSA_OK) { /* the kind does not apply */
    assert_int_equal(status, BPPSA_ERR_UNSUPPORTED);
    assert_null(p->product);
    p->config.kind = BPPSA_PRODUCT_AUTO;
    assert_ok(bppsa_product_create(p->a, p->b, &p->config, o->device, &p->product));
  }
  note(s, " %lld x %lld x %lld, %s", (long long)p->a->rows, (long long)p->a->cols, (long long)p->b->cols,
       bppsa_product_kind_name(bppsa_product_get_info(p->product)->kind));
}

static plan *some_plan(call_sequence *s, subject *o) {
  plan *p = &o->plans[draw(s, 0, PLANS - 1)];
  return p->product != NULL ? p : NULL;
}

/* ---- passes ---- */

typedef struct {
  bppsa_csr_values a, b;
  void *found, *expected;
  int64_t count; /* numbers in both */
} operands;

static bppsa_csr_values draw_values(call_sequence *s, const subject *o, const bppsa_csr *csr, int64_t batch) {
  const bool shared = chance(s, 40);
  const int64_t count = csr->nnz * (shared ? 1 : batch);
  void *values = random_reals(s, o->dtype, count, chance(s, 10) ? 1e8 : 1);
  if (chance(s, 10)) {
    spoil(s, o->dtype, values, count);
  }
  return (bppsa_csr_values){values, shared ? 0 : csr->nnz};
}

static operands draw_operands(call_sequence *s, const subject *o, const plan *p, int64_t batch) {
  operands e = {.a = draw_values(s, o, p->a, batch), .b = draw_values(s, o, p->b, batch)};
  e.count = bppsa_product_pattern(p->product)->nnz * (e.a.stride == 0 && e.b.stride == 0 ? batch > 0 : batch);
  e.found = random_reals(s, o->dtype, e.count, 1); /* what lies there is overwritten */
  e.expected = random_reals(s, o->dtype, e.count, 1);
  return e;
}

static void free_operands(operands *e) {
  bppsa_free((void *)e->a.data);
  bppsa_free((void *)e->b.data);
  bppsa_free(e->found);
  bppsa_free(e->expected);
}

typedef struct {
  bppsa_product *product;
  const operands *e;
  int64_t batch;
  bppsa_status status;
} execution;

static void *run_execution(void *argument) {
  execution *x = argument;
  x->status = bppsa_product_execute(x->product, x->batch, x->e->a, x->e->b, x->e->expected);
  return NULL;
}

/* The result of a fresh plan. */
static void assert_fresh(call_sequence *s, const subject *o, const plan *p, int64_t batch, const operands *e) {
  execution x = {.e = e, .batch = batch};
  assert_ok(bppsa_product_create(p->a, p->b, &p->config, o->others[draw(s, 0, 1)], &x.product));
  assert_true(bppsa_csr_same(bppsa_product_pattern(p->product), bppsa_product_pattern(x.product)));
  run_execution(&x);
  assert_int_equal(x.status, BPPSA_OK);
  assert_same_reals("product", o->dtype, e->found, e->expected, e->count);
  bppsa_product_destroy(x.product);
}

/* Alone, or while another thread executes another plan of the same patterns. */
static void execute(call_sequence *s, void *object) {
  subject *o = object;
  const plan *p = some_plan(s, o);
  if (p == NULL) {
    return;
  }
  const int64_t batch = draw(s, 0, MOST_BATCH);
  operands e = draw_operands(s, o, p, batch);
  execution beside = {.e = &e, .batch = batch};
  pthread_t thread;
  const bool both = chance(s, 30);
  if (both) {
    assert_ok(bppsa_product_create(p->a, p->b, &p->config, o->others[1], &beside.product));
  }
  bppsa_alloc_fail_at(1); /* a pass allocates nothing */
  const bool started = both && pthread_create(&thread, NULL, run_execution, &beside) == 0;
  const bppsa_status status = bppsa_product_execute(p->product, batch, e.a, e.b, e.found);
  if (started) {
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(beside.status, BPPSA_OK);
  }
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  if (started) {
    assert_same_reals("product", o->dtype, e.found, e.expected, e.count);
  }
  assert_fresh(s, o, p, batch, &e);
  bppsa_product_destroy(beside.product);
  free_operands(&e);
}

/* All plans in one call. */
static void queue(call_sequence *s, void *object) {
  subject *o = object;
  operands e[PLANS];
  bppsa_product_pass passes[PLANS];
  const plan *plans[PLANS];
  int64_t count = 0;
  const int64_t batch = draw(s, 0, MOST_BATCH);
  for (int64_t i = 0; i < PLANS; ++i) {
    const plan *p = &o->plans[i];
    if (p->product != NULL) {
      e[count] = draw_operands(s, o, p, batch);
      plans[count] = p;
      passes[count] = (bppsa_product_pass){p->product, e[count].a, e[count].b, e[count].found};
      count += 1;
    }
  }
  bppsa_alloc_fail_at(1);
  const bppsa_status status = bppsa_product_queue(passes, count, batch, NULL);
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  for (int64_t i = 0; i < count; ++i) {
    assert_fresh(s, o, plans[i], batch, &e[i]);
    free_operands(&e[i]);
  }
}

/* ---- refused ---- */

static void refused(call_sequence *s, void *object) {
  subject *o = object;
  const plan *p = some_plan(s, o);
  if (p == NULL) {
    return;
  }
  operands e = draw_operands(s, o, p, 1);
  memcpy(e.expected, e.found, (size_t)e.count * bppsa_dtype_size(o->dtype));
  bppsa_product_config config = p->config;
  bppsa_product *other = NULL;
  switch (draw(s, 0, 4)) {
  case 0:
    assert_refused(bppsa_product_execute(p->product, -1, e.a, e.b, e.found), BPPSA_ERR_ARGUMENT);
    break;
  case 1: /* a plan of the other dtype, behind one that could run: none of them does */
    config.dtype = o->dtype == BPPSA_F32 ? BPPSA_F64 : BPPSA_F32;
    assert_ok(bppsa_product_create(p->a, p->b, &config, o->device, &other));
    const bppsa_product_pass passes[] = {{p->product, e.a, e.b, e.found}, {other, e.a, e.b, e.expected}};
    assert_refused(bppsa_product_queue(passes, 2, 1, NULL), BPPSA_ERR_ARGUMENT);
    break;
  case 2:
    config.symbolic = true;
    config.kind = BPPSA_PRODUCT_AUTO; /* it looks for no bands */
    assert_ok(bppsa_product_create(p->a, p->b, &config, o->device, &other));
    assert_refused(bppsa_product_execute(other, 1, e.a, e.b, e.found), BPPSA_ERR_ARGUMENT);
    break;
  case 3:
    config.memory_limit = 1;
    assert_refused(bppsa_product_create(p->a, p->b, &config, o->device, &other), BPPSA_ERR_ARGUMENT);
    assert_null(other);
    break;
  default:
    if (p->a->cols != p->a->rows) {
      assert_refused(bppsa_product_create(p->a, p->a, &config, o->device, &other), BPPSA_ERR_SHAPE);
      assert_null(other);
    }
  }
  assert_same_reals("product", o->dtype, e.found, e.expected, e.count);
  bppsa_product_destroy(other);
  free_operands(&e);
}

static void out_of_memory(call_sequence *s, void *object) {
  subject *o = object;
  const plan *p = some_plan(s, o);
  if (p == NULL) {
    return;
  }
  const int64_t blocks = bppsa_alloc_live();
  bppsa_product *other = NULL;
  fail_an_allocation(s, 20);
  const bppsa_status status = bppsa_product_create(p->a, p->b, &p->config, o->device, &other);
  const bool failed = allocations_work();
  assert_int_equal(status, failed ? BPPSA_ERR_MEMORY : BPPSA_OK);
  bppsa_product_destroy(other);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

static const call_kind calls[] = {{"execute", 25, execute},
                                  {"queue", 6, queue},
                                  {"plan_anew", 10, plan_anew},
                                  {"refused", 6, refused},
                                  {"out_of_memory", 3, out_of_memory},
                                  {NULL, 0, NULL}};

static void run(call_sequence *s) {
  subject o = {.device = random_device(s), .others = {cpu_device(1), cpu_device(3)}};
  o.dtype = chance(s, 50) ? BPPSA_F64 : BPPSA_F32;
  note(s, "\n%s", bppsa_dtype_name(o.dtype));
  plan_anew(s, &o);
  make_calls(s, calls, &o);
  for (int64_t i = 0; i < PLANS; ++i) {
    free_plan(&o.plans[i]);
  }
  bppsa_device_destroy(o.device);
  bppsa_device_destroy(o.others[0]);
  bppsa_device_destroy(o.others[1]);
}

int main(int argc, char **argv) {
  const call_subject products = {"product plans", 200, 2000, 5, 25, run};
  return run_sequences(&products, argc, argv);
}
