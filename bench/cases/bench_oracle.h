/* What the files of `bench oracle` share: oracle_crew.c has the orders that rank 0 gives (crew.h), oracle_strategy.c what a rank
 * measures, predicts and trains of one strategy, bench_oracle.c the descriptor. */
#ifndef BPPSA_BENCH_CASES_BENCH_ORACLE_H
#define BPPSA_BENCH_CASES_BENCH_ORACLE_H

#include "bench/cases/case.h"
#include "bench/cases/crew.h"
#include "calibrate/links.h"
#include "calibrate/measured_model.h"
#include "oracle/oracle.h"
#include "runs/train_run.h"

enum { BPPSA_ORACLE_MOST_LINKS = 5, BPPSA_ORACLE_MOST_TURNS = 128, BPPSA_ORACLE_ITERATIONS = 10 /* that count in a turn */ };

/* A strategy of the oracle that ranks can execute. */
typedef struct {
  const char *strategy, *split; /* names for bppsa_oracle_strategy_at and for train --split; "": train without ranks */
  int64_t least;                /* ranks */
  bool halves;                  /* the ranks form two groups that share the batch */
} bppsa_oracle_runnable;

/* The table of runnable strategies, with their number in *count. */
const bppsa_oracle_runnable *bppsa_oracle_runnables(int64_t *count);

/* The parts of an iteration's time on rank 0: the three passes of a record and, for ranks that share layers, the phases of
 * distributed/layers/layer_split.h. */
enum { BPPSA_ORACLE_PASSES = 3, BPPSA_ORACLE_PARTS = BPPSA_ORACLE_PASSES + BPPSA_LAYER_PHASES };
const char *bppsa_oracle_part_name(int part); /* "forward" */

/* A turn: the mean times of its iterations, and what the oracle predicts from its measurements. */
typedef struct {
  double measured_s, predicted_s, part_s[BPPSA_ORACLE_PARTS], phase_s[BPPSA_PHASE_COUNT];
} bppsa_oracle_turn;

typedef struct {
  int64_t level; /* of the system */
  bppsa_link_probe *probe;
} bppsa_oracle_probe;

/* What all strategies share: the settings, and the reference gradients of one device. */
typedef struct {
  const struct bppsa_bench_settings *asked;
  const bppsa_device *device;
  bppsa_comm *world;
  int64_t at_once; /* ranks that have a processor each */
  /* There are more ranks than that. Waits for a processor are rare and long, so the times of ranks and links are then means, which
   * include such waits; otherwise they are medians, which ignore them. */
  bool crowded;
  bppsa_dataset *images;
  bppsa_model *reference; /* rank 0: the float64 model after the step that verifies strategies */
} bppsa_oracle_ground;

/* A strategy on this rank. */
typedef struct {
  const bppsa_oracle_ground *ground;
  const bppsa_oracle_runnable *what;
  int64_t ways;        /* ranks that share layers; 1: none do */
  int64_t samples;     /* that a pass of this rank takes */
  bppsa_train_run run; /* the training that is measured */
  bppsa_model *whole;  /* the weights with which parts are measured */
  bppsa_comm *group, *among;
  bppsa_step_probe *step; /* for all strategies but pipelines */
  bppsa_oracle_probe links[BPPSA_ORACLE_MOST_LINKS];
  int64_t link_count;
  bppsa_chain *chain; /* for pipelines, with values and noise */
  bppsa_view *values;
  bppsa_chain_noise *noise;
  bppsa_oracle_model model;
  bppsa_oracle_system system;
  int64_t cuts, cut[BPPSA_ORACLE_MOST_CUTS]; /* the cut of the pipeline that is trained */
  char cut_text[8 * BPPSA_ORACLE_MOST_CUTS];
  bppsa_oracle_turn latest;                                       /* rank 0 */
  double part_s[BPPSA_ORACLE_PARTS], began_s[BPPSA_LAYER_PHASES]; /* rank 0: sums of the present turn */
  int64_t iterations;
} bppsa_oracle_entry;

bppsa_status bppsa_oracle_ground_open(const struct bppsa_bench_settings *asked, const bppsa_device *device,
                                      bppsa_oracle_ground *ground);
void bppsa_oracle_ground_close(bppsa_oracle_ground *ground); /* a zeroed one is legal */

/* These are collective. The first fails with ERR_ARGUMENT or ERR_UNSUPPORTED if the ranks cannot execute the strategy. */
bppsa_status bppsa_oracle_entry_open(const bppsa_oracle_ground *ground, const bppsa_oracle_runnable *what,
                                     bppsa_oracle_entry *entry);
void bppsa_oracle_entry_close(bppsa_oracle_entry *entry); /* a zeroed one is legal */
/* Makes a step from the initial weights; rank 0 compares its gradients with the reference's. */
bppsa_status bppsa_oracle_entry_verify(bppsa_oracle_entry *entry, double *residual);
/* Calibrates, predicts and trains; rank 0 finds the turn in `latest`. */
bppsa_status bppsa_oracle_entry_turn(bppsa_oracle_entry *entry);

/* The orders of rank 0; every rank carries them out. */
typedef struct {
  bppsa_oracle_ground ground;
  bppsa_oracle_entry entry;
  double residual; /* of the latest verification */
} bppsa_oracle_crew;

bppsa_status bppsa_oracle_crew_make(bppsa_oracle_crew *crew, int64_t runnable);
bppsa_status bppsa_oracle_crew_verify(bppsa_oracle_crew *crew, double *residual);
bppsa_status bppsa_oracle_crew_turn(bppsa_oracle_crew *crew);
/* The other ranks serve rank 0 until it dismisses them. */
bppsa_status bppsa_oracle_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);

#endif
