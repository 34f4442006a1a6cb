/* What the two files of `bench step` share: its steps (bench_step.c) and its rivals (step_rivals.c). */
#ifndef BPPSA_BENCH_CASES_BENCH_STEP_H
#define BPPSA_BENCH_CASES_BENCH_STEP_H

#include "bench/cases/case.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "train/batch.h"
#include "train/optimizer_internal.h"

typedef enum {
  BPPSA_STEP_SEQUENTIAL,
  BPPSA_STEP_SCAN,
  BPPSA_STEP_SPECULATIVE,
  BPPSA_STEP_AUTO,
  BPPSA_STEP_METHODS
} bppsa_step_method;

typedef struct bppsa_step_session bppsa_step_session;

/* A step with a row of its own: one of the project's, or its graph, or a method of --rivals. */
typedef struct bppsa_step_entry {
  bppsa_step_session *s;
  int method; /* bppsa_step_method, of the project's */
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  bppsa_batch batch;
  bppsa_gradient_method backward; /* as it was chosen */
  bppsa_timed_work timed;
  struct bppsa_step_entry *plain; /* of a graph: the step that was recorded; NULL otherwise */
  bppsa_bench_recording recording;
  const char *guest;
} bppsa_step_entry;

struct bppsa_step_session {
  bppsa_bench *bench;
  bppsa_recurrent_config config;
  bppsa_dataset *data;
  int64_t *indices, *labels; /* [B]; [B] or [T,B] */
  bppsa_guest *guest;        /* the program of --rivals; NULL: none */
  /* Of a point, freed after it. */
  bppsa_init init;
  const char *init_name;
  bppsa_buffer x;      /* [T,B,I] in host memory */
  bppsa_model *holder; /* has the weights before the step, in host memory */
  int64_t reals;       /* of all parameters */
  double *gradients;   /* the reference's, of all parameters one after the other */
  double *expected;    /* room for the weights of a parameter */
  double loss;         /* the reference's */
  double conditioning; /* the loss's gradient errs by so many roundings of its own size, at least 1 */
  int64_t reach;       /* steps that the gradient of the last step goes back */
  bppsa_outlook *outlook;
  bppsa_step_entry entries[BPPSA_STEP_METHODS], graphs[BPPSA_STEP_METHODS], guests[BPPSA_GUEST_METHODS];
};

/* The residual of a step's gradients and of the weights behind it, in `unit` roundings of the dtype. */
double bppsa_step_judge(const bppsa_step_session *s, const bppsa_view *gradients, const bppsa_view *values, double unit);

/* Enters the methods of --rivals. What is refused is left out, by name; so is cuDNN on a GPU. ERR_* of these. */
bppsa_status bppsa_step_enter_rivals(bppsa_step_session *s);

#endif
