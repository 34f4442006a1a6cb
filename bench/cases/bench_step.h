/* What the files of `bench step` share: its steps (bench_step.c), its rows (step_report.c) and its rivals (step_rivals.c). */
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
  BPPSA_STEP_BOTH,
  BPPSA_STEP_AUTO,
  BPPSA_STEP_METHODS
} bppsa_step_method;

/* The parts of a step: its forward pass, its backward pass, and the rest, which is the loss and the update. The times of a row's
 * latest passes are kept. */
enum { BPPSA_STEP_PARTS = 3, BPPSA_STEP_PASSES = 101 };

typedef struct bppsa_step_session bppsa_step_session;

/* A step that has a row: one of the project's methods, its graph, or a method of --rivals. */
typedef struct bppsa_step_entry {
  bppsa_step_session *s;
  int method; /* bppsa_step_method, if it is the project's */
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  bppsa_batch batch;
  bppsa_gradient_method backward; /* the method that was chosen */
  bppsa_timed_work timed;
  bppsa_timeline *marks;                             /* where forward and backward pass begin and end */
  bool records;                                      /* the step is being recorded: it sets no marks */
  int64_t passes;                                    /* how many have been timed */
  double parts[BPPSA_STEP_PARTS][BPPSA_STEP_PASSES]; /* s */
  double error;                                      /* bppsa_step_error of the first step */
  struct bppsa_step_entry *plain;                    /* a graph: the step that was recorded; otherwise NULL */
  bppsa_bench_recording recording;
  const char *guest;
} bppsa_step_entry;

struct bppsa_step_session {
  bppsa_bench *bench;
  bppsa_recurrent_config config;
  bppsa_dataset *data;
  int64_t *indices, *labels; /* [B]; [B] or [T,B] */
  bppsa_guest *guest;        /* the program of --rivals; NULL: none */
  /* These members belong to a point and are freed after it. */
  bppsa_init init;
  const char *init_name;
  bppsa_buffer x;      /* [T,B,I] in host memory */
  bppsa_model *holder; /* keeps the weights before the step in host memory */
  int64_t reals;       /* of all parameters */
  double *gradients;   /* the reference's, of all parameters one after the other */
  double *expected;    /* room for the weights of a parameter */
  double loss;         /* the reference's */
  double conditioning; /* the error of the loss's gradient, in roundings of its own size; at least 1 */
  int64_t reach;       /* how many steps the gradient of the last step reaches back */
  bppsa_outlook *outlook;
  bppsa_step_entry entries[BPPSA_STEP_METHODS], graphs[BPPSA_STEP_METHODS], guests[BPPSA_GUEST_METHODS];
};

/* Is it among the methods of --compare, if these are given? */
bool bppsa_step_takes_part(const bppsa_step_session *s, const char *method);
/* Finds the residual of a step's gradients and of the weights after it, in units of `unit` roundings of the dtype. */
double bppsa_step_judge(const bppsa_step_session *s, const bppsa_view *gradients, const bppsa_view *values, double unit);

/* Finds the largest difference of an entry of a weight's gradient from the reference, over the weight's largest entry. */
double bppsa_step_error(const bppsa_step_session *s, const bppsa_view *gradients);

/* Functions of the case (driver.h). */
extern const bppsa_table_column bppsa_step_columns[];
bppsa_status bppsa_step_print_head(const bppsa_bench *bench);
bool bppsa_step_put(const bppsa_bench_entrant *entrant, json_t *row);
const char *bppsa_step_note(const bppsa_bench_entrant *entrant, char *text, size_t size);
bppsa_status bppsa_step_print_below(bppsa_bench *bench);

/* Enters the methods of --rivals. Refused ones are left out by name; on a GPU so is cuDNN. ERR_* of these. */
bppsa_status bppsa_step_enter_rivals(bppsa_step_session *s);

#endif
