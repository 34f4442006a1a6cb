/* The benchmarks: a descriptor for each, and the settings that they are given. */
#ifndef BPPSA_BENCH_CASES_CASE_H
#define BPPSA_BENCH_CASES_CASE_H

#include "bench/cases/bench_rnn.h"
#include "bench/harness/driver.h"
#include "cnn/prune.h"
#include "comm/comm.h"
#include "networks/named_network.h"
#include "schedule/schedule.h"

/* ranks: what its ranks share in the rows. */
typedef enum { BPPSA_BENCH_SHARES_BOTH = 0, BPPSA_BENCH_SHARES_TIME, BPPSA_BENCH_SHARES_BATCH } bppsa_bench_shares;

/* The settings of a benchmark. A benchmark reads `request` and the members whose comment names it. */
typedef struct bppsa_bench_settings {
  bppsa_bench_request request;
  bppsa_bench_point point; /* rnn, gru, crossover, threads, forward, step, ranks: the network, its weights and its data */
  bool one_point;          /* rnn, gru: the point alone, not a sweep */
  double reset_rate;       /* rnn, gru, lstm: every point also with resets of this rate; 0: without alone */
  bool both_inits;         /* rnn, gru, step: every point with default and with orthogonal weights */
  const char *rivals;      /* rnn, gru, forward, step: a program whose methods take part (bench/rivals/guest.h); NULL: none */
  const char *methods;     /* step: the methods that take part, with commas between; NULL: all of them */
  const char *references, *save_references; /* rnn, gru, lstm: files of references to read, to write; NULL: none */
  bool cudnn_bf16;                          /* rnn, gru, lstm: cuDNN's algorithms in bf16 take part too */
  int64_t cold;                 /* rnn, gru, lstm: bytes of the largest cache, which every pass finds cold; 0: as it is */
  const bppsa_network *network; /* lenet5, vgg11, schedule, oracle */
  const char *model;            /* oracle: the name of the network, or its file */
  int64_t batch;                /* lenet5, vgg11, scan, schedule, oracle: samples; forward: B of all rows; 0: its own choices */
  double prune;                 /* lenet5, vgg11: fraction of the weights that go */
  bppsa_prune_method prune_method; /* lenet5, vgg11 */
  const char *left, *right;        /* product: files of two factors; NULL: cases of its own */
  bool of_scan;                    /* product: the products of a scan of VGG-11 are the cases */
  bppsa_scan_method scan;          /* product: the method of that scan */
  int64_t longest;                 /* crossover: the largest T; forward: T; 0: its own choice */
  int64_t workers;                 /* crossover: predict for so many workers too; 0: no prediction */
  int64_t hidden;                  /* forward: H of all rows; 0: its own choices */
  bppsa_safetensors *weights;      /* rnn, gru, forward, step: the one network of the rows; NULL: its own choices */
  const char *weights_name;        /* the path of the file that `weights` come from; NULL without */
  int64_t neighbours;              /* threads: busy threads beside the measured ones; -1: one for each processor */
  int32_t set;                     /* mfcc: position in bppsa_mfcc_sets; -1: all of them */
  bppsa_mfcc_padding padding;      /* mfcc */
  bppsa_comm *comm;                /* ranks, schedule, oracle: the communicator of all ranks */
  bool nccl;                       /* ranks: arrays on GPUs travel over NCCL */
  bppsa_bench_shares shares;       /* ranks */
  int64_t micro_batches;           /* ranks: of ranks that share time */
  /* schedule: what the ranks train is `network` in batches of `batch` samples, cut into schedule.micro_batches */
  bppsa_network_config network_config;
  bppsa_schedule_config schedule; /* schedule: of all schemes; oracle: micro_batches of a pipeline */
  const char *cut;                /* schedule: the first layers of the stages, "3,5"; NULL: cut by cost */
  const char *schemes;            /* schedule: schemes, with commas between; oracle: strategies; NULL: all of them */
  const char *save_costs;         /* schedule: the file for the measured costs; NULL: none */
  const char *trace, *svg;        /* schedule: files of predicted and measured timelines; NULL: none */
} bppsa_bench_settings;

#define CELL(id, words, functions, rate, sweep)                                                                                  \
  extern const bppsa_bench_case bppsa_bench_case_##id;                                                                           \
  extern const char bppsa_bench_notes_##id[];
#include "networks/cells.inc"
/* The case of rnn, gru and lstm with --save-references: it computes the references of the points and times nothing. */
extern const bppsa_bench_case bppsa_bench_case_references;
extern const bppsa_bench_case bppsa_bench_case_crossover, bppsa_bench_case_lenet5, bppsa_bench_case_vgg11,
    bppsa_bench_case_jacobian, bppsa_bench_case_product, bppsa_bench_case_scan, bppsa_bench_case_threads, bppsa_bench_case_mfcc,
    bppsa_bench_case_forward, bppsa_bench_case_step, bppsa_bench_case_ranks, bppsa_bench_case_schedule, bppsa_bench_case_oracle;
/* oracle: checks what is asked for, and sets the repeats where none are. ERR_ARGUMENT. */
bppsa_status bppsa_oracle_settings_complete(bppsa_bench_settings *asked);
/* The benchmark of that name, or NULL. */
const bppsa_bench_case *bppsa_bench_case_find(const char *name);

/* The notes of each benchmark's help: what it measures, and how. lenet5 and vgg11 share cnn. */
extern const char bppsa_bench_notes_crossover[], bppsa_bench_notes_cnn[], bppsa_bench_notes_jacobian[],
    bppsa_bench_notes_product[], bppsa_bench_notes_scan[], bppsa_bench_notes_threads[], bppsa_bench_notes_mfcc[],
    bppsa_bench_notes_forward[], bppsa_bench_notes_step[], bppsa_bench_notes_ranks[], bppsa_bench_notes_schedule[],
    bppsa_bench_notes_oracle[];

#endif
