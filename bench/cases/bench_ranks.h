/* What the files of `bench ranks` share: ranks_crew.c has the orders that rank 0 gives (crew.h), bench_ranks.c the descriptor,
 * ranks_model.h the predictions. */
#ifndef BPPSA_BENCH_CASES_BENCH_RANKS_H
#define BPPSA_BENCH_CASES_BENCH_RANKS_H

#include "bench/cases/case.h"
#include "bench/cases/crew.h"
#include "distributed/batch/data_parallel.h"

/* What the ranks of an entry share. */
typedef enum { BPPSA_RANKS_ALONE = 0, BPPSA_RANKS_TIME, BPPSA_RANKS_BATCH } bppsa_ranks_share_of;

/* One row: a network, a number of ranks, and how they compute its gradients. */
typedef struct {
  bppsa_ranks_share_of share; /* ALONE: one rank without communicators */
  int32_t ranks;
  bppsa_gradient_method method;
  bppsa_forward_method forward; /* if share is TIME or ALONE */
  const char *scheme; /* for data parallelism a scheme of schedule/: "wait-free", "priority", "reverse-first-k"; otherwise NULL */
  int64_t reverse_first; /* k */
  char name[40];         /* "blelloch", "blelloch-speculative", "reverse-first-2" */
} bppsa_ranks_entry;

/* The counts of one pass. A report has the largest count of any rank, and the sum over all ranks. */
enum {
  BPPSA_RANKS_MESSAGES = 0, /* sent */
  BPPSA_RANKS_BYTES,
  BPPSA_RANKS_COLLECTIVES,
  BPPSA_RANKS_COLLECTIVE_BYTES,
  BPPSA_RANKS_HELD, /* bytes of memory that the entry holds; ranks that share a GPU each count the bytes of all of them */
  BPPSA_RANKS_COUNTS
};
typedef struct {
  int64_t most[BPPSA_RANKS_COUNTS], all[BPPSA_RANKS_COUNTS];
} bppsa_ranks_report;

/* A rank's part of an entry. */
typedef struct {
  const bppsa_ranks_entry *entry;
  bppsa_comm *group; /* the entry's ranks; NULL: this rank has no part, or is alone */
  bppsa_model *model;
  bppsa_data_parallel *parallel; /* BATCH */
  int64_t count;                 /* number of blocks of samples, which the rank computes one after the other */
  bppsa_view *x;                 /* of each block */
  void **seeds;
  int64_t before;                     /* bytes that the rank or its GPU held before the part was made */
  double forward_s, backward_s;       /* the fastest passes of an entry that is alone */
  double reduced_s;                   /* seconds of the slowest rank in the latest pass */
  int64_t counts[BPPSA_RANKS_COUNTS]; /* of the latest counted pass */
} bppsa_ranks_part;

enum { BPPSA_RANKS_NETWORKS = 2, BPPSA_RANKS_ENTRIES = 192, BPPSA_RANKS_GROUPS = 16 };

/* One of the networks, and its rows. */
typedef struct {
  bppsa_network network;
  bppsa_network_config config; /* of the whole batch */
  int64_t count;
  bppsa_ranks_entry entries[BPPSA_RANKS_ENTRIES];
} bppsa_ranks_subject;

typedef struct {
  const struct bppsa_bench_settings *asked;
  const bppsa_device *device;
  bppsa_comm *world;
  bppsa_comm *arrays; /* all ranks, for arrays in the device's memory: the world, or one over NCCL */
  int64_t gpus;       /* number of GPUs on which the ranks of a node compute; 0: they compute on processors */
  int64_t group_count;
  int32_t sizes[BPPSA_RANKS_GROUPS]; /* 1, 2, 4, .. and all ranks */
  bppsa_comm *groups[BPPSA_RANKS_GROUPS];
  bppsa_ranks_subject *subjects; /* size BPPSA_RANKS_NETWORKS */
  int64_t subject;               /* the network whose entries have parts now */
  bppsa_ranks_part *parts;       /* size BPPSA_RANKS_ENTRIES */
  double ping_s;                 /* of the latest ping */
  bppsa_ranks_report report;     /* rank 0: of the latest count */
} bppsa_ranks_crew;

/* Opens the networks, lists the rows and splits the communicators; collective. Free it on failure too. ERR_*. */
bppsa_status bppsa_ranks_crew_open(const struct bppsa_bench_settings *asked, const bppsa_device *device, bppsa_ranks_crew *crew);
void bppsa_ranks_crew_close(bppsa_ranks_crew *crew);

/* These are orders of rank 0, carried out by all ranks that have a part in the entry. After an error the crew can only be
 * closed. */
bppsa_status bppsa_ranks_crew_make(bppsa_ranks_crew *crew, int64_t subject, int64_t entry);
bppsa_status bppsa_ranks_crew_pass(bppsa_ranks_crew *crew, int64_t entry, double *seconds); /* of the slowest rank */
/* Makes a pass, and counts its messages and the memory that its ranks hold. */
bppsa_status bppsa_ranks_crew_count(bppsa_ranks_crew *crew, int64_t entry, bppsa_ranks_report *report);
bppsa_status bppsa_ranks_crew_drop(bppsa_ranks_crew *crew); /* frees all parts */
/* Measures the median time, over `rounds`, of a message from rank 0 to rank 1 (half of one there and back) or, with `broadcast`, of
 * a broadcast by rank 0 and a message of one byte back from the last rank. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_ranks_crew_ping(bppsa_ranks_crew *crew, bool broadcast, int64_t bytes, int64_t rounds, double *seconds);

/* The other ranks serve rank 0 until it dismisses them. */
bppsa_status bppsa_ranks_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);

/* How many samples a rank's model takes at once in an entry of data parallelism. */
int64_t bppsa_ranks_block(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry);
/* Fills the part of a batch that begins with step from_step and sample first, both counted from 0. inputs: noise of variance 1;
 * otherwise the gradients of the logits: noise divided by the number of rows of the loss. A number depends only on the seed and its
 * place in the whole batch. view: [steps][samples][..] or, of what has no steps, [samples][..]. */
void bppsa_ranks_fill(const bppsa_ranks_subject *subject, uint64_t seed, bool inputs, int64_t from_step, int64_t first,
                      const bppsa_view *view);
/* The network's configuration for the gradients of an entry. */
bppsa_network_config bppsa_ranks_config(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry);

#endif
