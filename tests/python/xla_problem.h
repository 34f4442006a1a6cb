/* A GRU's arrays by their names, and calls of the handlers of python/xla.c with them. */
#ifndef BPPSA_TESTS_PYTHON_XLA_PROBLEM_H
#define BPPSA_TESTS_PYTHON_XLA_PROBLEM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "python/passes.h"
#include "python/xla.h"
#include "python/xla_layers.h"
#include "tests/python/xla_frame.h"

enum { T = 7, B = 3, I = 2, H = 5, G = 3 * H, MOST = 4096 };
#define SHAPE(name, shape, type) shape,
static const char *const shapes[ARRAYS] = {BPPSA_PYTHON_ARRAYS(SHAPE)};
#define TYPE(name, shape, type) type,
static const char types[ARRAYS] = {BPPSA_PYTHON_ARRAYS(TYPE)};
#define BIT(name) (INT64_C(1) << ARRAY_##name)

static const int64_t INPUTS = BIT(x) | BIT(h0) | BIT(w_ih) | BIT(w_hh) | BIT(b_ih) | BIT(b_hh);
static const int64_t TAPE = BIT(h) | BIT(saved);
static const int64_t GRADIENTS = BIT(of_x) | BIT(of_h0) | BIT(of_w_ih) | BIT(of_w_hh) | BIT(of_b_ih) | BIT(of_b_hh);

/* ---- a frame ---- */

typedef struct {
  int64_t extents[26]; /* by letter */
  int64_t members;     /* 0: no axis for them */
  int64_t with_axis;   /* bits: arrays that have it */
  double data[ARRAYS][MOST];
  bppsa_xla_buffer buffers[ARRAYS];
  int64_t dims[ARRAYS][4];
  const char *cell, *method;
} problem;

static inline void set_shape(problem *p, int which) {
  const int64_t rank = (int64_t)strlen(shapes[which]);
  const bool axis = p->with_axis >> which & 1;
  int64_t *dims = p->dims[which];
  *dims = p->members;
  for (int64_t k = 0; k < rank; ++k) {
    dims[axis + k] = p->extents[shapes[which][k] - 'A'];
  }
  p->buffers[which] = (bppsa_xla_buffer){.size = sizeof(bppsa_xla_buffer),
                                         .dtype = types[which] == 'r'   ? BPPSA_XLA_F64
                                                  : types[which] == 'u' ? BPPSA_XLA_U8
                                                                        : BPPSA_XLA_S32,
                                         .data = p->data[which],
                                         .rank = rank + axis,
                                         .dims = dims};
}

static inline problem *make_problem(void) {
  problem *p = calloc(1, sizeof *p);
  assert_non_null(p);
  const int64_t extents[] = {T, T + 1, B, I, H, G, H, 4 * H, (int64_t)sizeof p->data[0]};
  for (int k = 0; k < 9; ++k) {
    p->extents["TNBIHGSKZ"[k] - 'A'] = extents[k];
  }
  for (int which = 0; which < ARRAYS; ++which) {
    for (int k = 0; k < MOST && types[which] == 'r'; ++k) {
      p->data[which][k] = sin(1.0 + which * 131 + k * 17) * 0.7;
    }
    set_shape(p, which);
  }
  p->cell = "gru";
  p->method = "bp";
  return p;
}

static inline void list_buffers(problem *p, int64_t bits, xla_buffers *list) {
  for (int which = 0; which < ARRAYS; ++which) {
    if (bits >> which & 1) {
      xla_add_buffer(list, &p->buffers[which]);
    }
  }
}

/* Calls a handler; 0, or the error's code. */
static inline int32_t call(bppsa_xla_error *(*handler)(bppsa_xla_frame *), problem *p, int64_t arguments, int64_t results) {
  xla_attributes attributes = {.count = 0};
  xla_buffers given = {.count = 0}, wanted = {.count = 0};
  xla_add_number(&attributes, "arguments", arguments);
  xla_add_word(&attributes, "cell", p->cell);
  xla_add_word(&attributes, "forward", "sequential");
  xla_add_word(&attributes, "method", p->method);
  xla_add_number(&attributes, "relu", 0);
  xla_add_number(&attributes, "results", results);
  xla_add_number(&attributes, "threads", 1);
  list_buffers(p, arguments, &given);
  list_buffers(p, results, &wanted);
  return xla_call(handler, &attributes, &given, &wanted);
}

#endif
