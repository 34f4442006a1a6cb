/* Random sequences of calls on one scan executor (tests/support/calls.h): executions on changing values and batches, some of them
 * not finite or useless to multiply, refused ones between them. Executors of sparse elements are those of random chains. */
#include <pthread.h>

#include "tests/scan/csr_chain.h"
#include "tests/support/calls.h"

enum { MOST_STEPS = 24, MOST_DIM = 12, MOST_ARRAYS = 4 };

/* Arrays that an execution is given, in blocks of their own. */
typedef struct {
  bppsa_scan_operands o;
  int64_t count; /* numbers in o.gradients */
  void *gradients, *jt, *injected, *diagonal, *weights[MOST_ARRAYS], *columns[MOST_ARRAYS + 1];
  bppsa_csr_values values[LONGEST];
} operands;

typedef struct {
  bppsa_scan_config config;
  chain chain; /* csr */
  int64_t dims[MOST_STEPS + 1];
  bppsa_device *device, *others[2];
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
} subject;

/* ---- operands ---- */

static int64_t size_of_step(const subject *o, int64_t t) {
  if (o->config.element == BPPSA_ELEMENT_CSR) {
    return o->chain.offsets[t + 1] - o->chain.offsets[t];
  }
  return o->config.dims != NULL ? o->dims[t] : o->config.dim;
}

/* Numbers of a kind of a drawn scale; sometimes one of them is not finite. */
static void *numbers(call_sequence *s, const subject *o, int64_t count, double scale, bool odd) {
  static const double scales[] = {1, 1, 1, 1e-3, 30, 1e8, 0};
  void *array = random_reals(s, o->config.dtype, count, scale * scales[draw(s, 0, 6)]);
  if (odd && chance(s, 20)) {
    spoil(s, o->config.dtype, array, count);
  }
  return array;
}

static void draw_shared(call_sequence *s, const subject *o, operands *p, bool odd) {
  const bppsa_scan_config *c = &o->config;
  const bool pair = c->element == BPPSA_ELEMENT_PAIR;
  const int64_t h = c->dim / (pair ? 2 : 1), b = p->o.batch, row = chance(s, 50) ? 0 : bppsa_dtype_padded(c->dtype, h);
  for (int64_t k = 0; k < c->matrices + pair; ++k) {
    if (k < c->matrices) {
      p->weights[k] = numbers(s, o, h * (row > 0 ? row : h), 1, false);
    }
    p->columns[k] = numbers(s, o, c->jacobians * b * h, 1, odd);
  }
  p->diagonal = c->diagonal ? numbers(s, o, c->jacobians * b * h, 1, odd) : NULL;
  p->o.weights = (const void *const *)p->weights;
  p->o.weight_row = row;
  p->o.columns = (const void *const *)p->columns;
  p->o.diagonal = p->diagonal;
}

static void draw_operands(call_sequence *s, const subject *o, operands *p) {
  const bppsa_scan_config *c = &o->config;
  const bool odd = chance(s, 15);
  *p = (operands){.o.batch = draw(s, 1, c->batch)};
  const int64_t n = c->jacobians, b = p->o.batch;
  int64_t jt = 0;
  for (int64_t t = 0; t <= n; ++t) {
    p->count += size_of_step(o, t) * b;
    jt += t > 0 ? size_of_step(o, t - 1) * (c->element == BPPSA_ELEMENT_DENSE ? size_of_step(o, t) : 1) * b : 0;
  }
  p->gradients = numbers(s, o, p->count, 1, odd);
  if (c->element == BPPSA_ELEMENT_CSR) {
    for (int64_t t = 0; t < n; ++t) {
      const bool shared = chance(s, 30);
      const int64_t nnz = c->patterns[t]->nnz;
      const void *data = numbers(s, o, nnz * (shared ? 1 : b), 1, odd);
      p->values[t] = (bppsa_csr_values){data, shared ? 0 : nnz};
    }
    p->o.values = p->values;
  } else if (c->element == BPPSA_ELEMENT_RECURRENT || c->element == BPPSA_ELEMENT_PAIR) {
    draw_shared(s, o, p, odd);
  } else {
    p->o.jt = p->jt = numbers(s, o, jt, 1, odd);
  }
  if (c->affine) {
    p->injected = chance(s, 50) ? numbers(s, o, p->count, 1, odd) : NULL; /* NULL: the array of gradients itself */
  }
  p->o.gradients = p->gradients;
  p->o.injected = p->injected != NULL || !c->affine ? p->injected : p->gradients;
  note(s, " batch %lld%s", (long long)b, odd ? ", odd" : "");
}

static void free_operands(operands *p) {
  void *const blocks[] = {p->gradients, p->jt, p->injected, p->diagonal};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  for (int64_t k = 0; k <= MOST_ARRAYS; ++k) {
    bppsa_free(k < MOST_ARRAYS ? p->weights[k] : NULL);
    bppsa_free(p->columns[k]);
  }
  for (int64_t t = 0; t < LONGEST; ++t) {
    bppsa_free((void *)p->values[t].data);
  }
}

/* ---- executions ---- */

typedef struct {
  bppsa_scan_executor *executor;
  bppsa_scan_operands o;
  bppsa_status status;
} execution;

static void *run_execution(void *argument) {
  execution *e = argument;
  e->status = e->executor->execute(e->executor, &e->o);
  return NULL;
}

/* Beside that of another executor of the same plan, or of a plan of its own. */
static void execute(call_sequence *s, void *object) {
  subject *o = object;
  operands p;
  draw_operands(s, o, &p);
  const bool own_plan = chance(s, 50), beside = chance(s, 30);
  void *seed = copy_bytes(p.gradients, (size_t)p.count * bppsa_dtype_size(o->config.dtype));
  bppsa_scan_plan *plan = o->plan;
  if (own_plan) {
    assert_ok(bppsa_scan_plan_create(&o->config, &plan));
  }
  execution fresh = {.o = p.o};
  assert_ok(bppsa_scan_executor_create(plan, o->others[draw(s, 0, 1)], &fresh.executor));
  fresh.o.gradients = seed;
  fresh.o.injected = p.o.injected == p.gradients ? seed : p.o.injected;
  const int64_t redone = o->executor->redone;
  pthread_t thread;
  bppsa_alloc_fail_at(1); /* an execution allocates nothing */
  const bool started = beside && pthread_create(&thread, NULL, run_execution, &fresh) == 0;
  const bppsa_status status = o->executor->execute(o->executor, &p.o);
  if (started) {
    assert_int_equal(pthread_join(thread, NULL), 0);
  } else {
    run_execution(&fresh);
  }
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  assert_int_equal(fresh.status, BPPSA_OK);
  assert_same_reals("gradients", o->config.dtype, p.gradients, seed, p.count);
  assert_ok(bppsa_scan_executor_count(o->executor));
  assert_ok(bppsa_scan_executor_count(fresh.executor));
  assert_int_equal(o->executor->redone - redone, fresh.executor->redone);
  bppsa_scan_executor_destroy(fresh.executor);
  if (own_plan) {
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_free(seed);
  free_operands(&p);
}

/* Takes away what an execution needs; false: this kind of element does not need it. */
static bool take_away(call_sequence *s, const subject *o, operands *p) {
  const bppsa_scan_config *c = &o->config;
  const bool shared = c->element == BPPSA_ELEMENT_RECURRENT || c->element == BPPSA_ELEMENT_PAIR;
  switch (draw(s, 0, 6)) {
  case 0:
    p->o.batch = chance(s, 50) ? 0 : c->batch + 1;
    return true;
  case 1:
    p->o.gradients = NULL;
    break;
  case 2:
    p->o.injected = NULL;
    return c->affine && c->jacobians > 0;
  case 3:
    p->o.jt = NULL;
    p->o.columns = NULL;
    p->o.values = NULL;
    break;
  case 4:
    p->o.diagonal = NULL;
    return c->diagonal && shared && c->jacobians > 0;
  case 5:
    p->o.weight_row = 1;
    return shared && c->dim / (c->element == BPPSA_ELEMENT_PAIR ? 2 : 1) > 1;
  default:
    p->o.weights = NULL;
    return shared && c->jacobians > 0;
  }
  return c->jacobians > 0;
}

static void refused(call_sequence *s, void *object) {
  subject *o = object;
  operands p;
  draw_operands(s, o, &p);
  void *before = copy_bytes(p.gradients, (size_t)p.count * bppsa_dtype_size(o->config.dtype));
  if (take_away(s, o, &p)) {
    assert_refused(o->executor->execute(o->executor, &p.o), BPPSA_ERR_ARGUMENT);
    assert_same_reals("gradients", o->config.dtype, p.gradients, before, p.count);
  }
  bppsa_free(before);
  free_operands(&p);
}

/* The search for a number that is not finite changes nothing, and says of the same operands the same. */
static void find_nonfinite(call_sequence *s, void *object) {
  subject *o = object;
  operands p;
  bppsa_scan_nonfinite first, second;
  draw_operands(s, o, &p);
  void *before = copy_bytes(p.gradients, (size_t)p.count * bppsa_dtype_size(o->config.dtype));
  assert_ok(bppsa_scan_find_nonfinite(o->plan, o->device, &p.o, &first));
  assert_ok(bppsa_scan_find_nonfinite(o->plan, o->others[0], &p.o, &second));
  assert_same_reals("gradients", o->config.dtype, p.gradients, before, p.count);
  assert_ptr_equal(first.operand, second.operand);
  assert_true(first.operand == NULL || (first.step == second.step && first.element == second.element));
  bppsa_free(before);
  free_operands(&p);
}

/* Another plan and executor is made meanwhile, and some allocation fails. */
static void out_of_memory(call_sequence *s, void *object) {
  const subject *o = object;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  fail_an_allocation(s, 30);
  bppsa_status status = bppsa_scan_plan_create(&o->config, &plan);
  status = status == BPPSA_OK ? bppsa_scan_executor_create(plan, o->device, &executor) : status;
  const bool failed = allocations_work();
  note(s, "%s", failed ? " failed" : "");
  assert_int_equal(status, failed ? BPPSA_ERR_MEMORY : BPPSA_OK);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

/* The executor goes, and another one of the plan takes its place. */
static void make_again(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_scan_executor_destroy(o->executor);
  assert_ok(bppsa_scan_executor_create(o->plan, o->others[draw(s, 0, 1)], &o->executor));
}

static const call_kind calls[] = {{"execute", 30, execute},
                                  {"refused", 8, refused},
                                  {"find_nonfinite", 4, find_nonfinite},
                                  {"out_of_memory", 3, out_of_memory},
                                  {"make_again", 1, make_again},
                                  {NULL, 0, NULL}};

/* ---- a sequence ---- */

static void draw_config(call_sequence *s, subject *o) {
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_AUTO, BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  const bool large = chance(s, 12); /* threads share only long loops */
  bppsa_scan_config *c = &o->config;
  *c = bppsa_scan_config_default();
  c->element = (bppsa_element)draw(s, 0, BPPSA_ELEMENTS - 1);
  c->dtype = chance(s, 50) ? BPPSA_F64 : BPPSA_F32;
  c->jacobians = draw(s, chance(s, 5) ? 0 : 1, MOST_STEPS);
  c->batch = large ? draw(s, 8, 16) : draw(s, 1, 4);
  c->dim = large ? draw(s, 16, 40) : draw(s, 1, MOST_DIM);
  c->input = chance(s, 50);
  c->affine = chance(s, 50);
  c->matrices = draw(s, 1, MOST_ARRAYS);
  c->diagonal = c->element == BPPSA_ELEMENT_PAIR || (c->element == BPPSA_ELEMENT_RECURRENT && chance(s, 50));
  c->dim += c->element == BPPSA_ELEMENT_PAIR ? c->dim % 2 : 0;
  for (int64_t t = 0; t <= MOST_STEPS; ++t) {
    o->dims[t] = large ? draw(s, 10, 30) : draw(s, 1, MOST_DIM);
  }
  c->dims = c->element == BPPSA_ELEMENT_DENSE && chance(s, 50) ? o->dims : NULL;
  const bppsa_scan_algorithm algorithm = algorithms[draw(s, 0, 3)];
  if (c->element == BPPSA_ELEMENT_CSR) {
    counter = (uint64_t)draw(s, 0, INT32_MAX);
    make_chain(&o->chain, draw(s, 1, 12), c->dtype, o->device);
    *c = config_of(&o->chain, algorithm == BPPSA_SCAN_CHUNKED ? BPPSA_SCAN_BLELLOCH : algorithm, draw(s, -1, 4), o->device);
    c->input = chance(s, 50);
  } else {
    c->method = bppsa_scan_method_of(algorithm);
    c->method.up_levels = algorithm == BPPSA_SCAN_BLELLOCH ? draw(s, -1, 6) : c->method.up_levels;
    c->method.chunks = algorithm == BPPSA_SCAN_CHUNKED ? draw(s, 0, 9) : c->method.chunks;
  }
  char text[BPPSA_METHOD_TEXT];
  note(s, "\nelement %d, %s, %s, n %lld, batch %lld, dim %lld%s%s", (int)c->element, bppsa_dtype_name(c->dtype),
       bppsa_scan_method_text(&c->method, text, sizeof text), (long long)c->jacobians, (long long)c->batch, (long long)c->dim,
       c->affine ? ", affine" : "", c->input ? ", input" : "");
}

static void run(call_sequence *s) {
  subject o = {.device = random_device(s), .others = {cpu_device(1), cpu_device(3)}};
  draw_config(s, &o);
  assert_ok(bppsa_scan_plan_create(&o.config, &o.plan));
  assert_ok(bppsa_scan_executor_create(o.plan, o.device, &o.executor));
  make_calls(s, calls, &o);
  bppsa_scan_executor_destroy(o.executor);
  bppsa_scan_plan_destroy(o.plan);
  free_chain(&o.chain);
  bppsa_device_destroy(o.device);
  bppsa_device_destroy(o.others[0]);
  bppsa_device_destroy(o.others[1]);
}

int main(int argc, char **argv) {
  const call_subject executor = {"scan executor", 200, 2000, 5, 20, run};
  return run_sequences(&executor, argc, argv);
}
