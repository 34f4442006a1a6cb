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
  bppsa_forward_method forward; /* of TIME and ALONE */
  const char *scheme;    /* of data parallelism, as in schedule/: "wait-free", "priority", "reverse-first-k"; NULL otherwise */
  int64_t reverse_first; /* k */
  char name[40];         /* "blelloch", "blelloch-speculative", "reverse-first-2" */
} bppsa_ranks_entry;

/* What a rank counted in one pass. In the report of an entry: of the rank that sends most, or of all ranks together. */
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
  bppsa_comm *group; /* of the entry's ranks; NULL: it has no part, or is alone */
  bppsa_model *model;
  bppsa_data_parallel *parallel; /* BATCH */
  int64_t count;                 /* blocks of samples that it computes one after the other */
  bppsa_view *x;                 /* of each block */
  void **seeds;
  int64_t before;                     /* bytes that the rank, or its GPU, held before */
  double forward_s, backward_s;       /* the fastest passes of an entry that is alone */
  double reduced_s;                   /* the latest pass, of the slowest rank */
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
  bppsa_comm *arrays; /* of all ranks, for arrays of the device: the world, or NCCL */
  int64_t gpus;       /* that the ranks of a node compute on; 0: processors */
  int64_t group_count;
  int32_t sizes[BPPSA_RANKS_GROUPS]; /* 1, 2, 4, .. and all ranks */
  bppsa_comm *groups[BPPSA_RANKS_GROUPS];
  bppsa_ranks_subject *subjects; /* size BPPSA_RANKS_NETWORKS */
  int64_t subject;               /* whose parts there are */
  bppsa_ranks_part *parts;       /* size BPPSA_RANKS_ENTRIES */
  double ping_s;                 /* of the latest ping */
  bppsa_ranks_report report;     /* rank 0: of the latest count */
} bppsa_ranks_crew;

/* Opens the networks, lists the rows and splits the communicators; collective. Free it on failure too. ERR_*. */
bppsa_status bppsa_ranks_crew_open(const struct bppsa_bench_settings *asked, const bppsa_device *device, bppsa_ranks_crew *crew);
void bppsa_ranks_crew_close(bppsa_ranks_crew *crew);

/* The orders of rank 0; each is carried out by all ranks that have a part in it. After an error of one of them the crew can only be
 * closed. */
bppsa_status bppsa_ranks_crew_make(bppsa_ranks_crew *crew, int64_t subject, int64_t entry);
bppsa_status bppsa_ranks_crew_pass(bppsa_ranks_crew *crew, int64_t entry, double *seconds); /* of the slowest rank */
/* A pass whose messages are counted, and the memory that its ranks hold. */
bppsa_status bppsa_ranks_crew_count(bppsa_ranks_crew *crew, int64_t entry, bppsa_ranks_report *report);
bppsa_status bppsa_ranks_crew_drop(bppsa_ranks_crew *crew); /* all parts */
/* The median time, of `rounds`, of a message of so many bytes from rank 0 to rank 1, which is half of one there and back. With
 * `broadcast`: of one from rank 0 to all others and a message of a byte back from the last one. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_ranks_crew_ping(bppsa_ranks_crew *crew, bool broadcast, int64_t bytes, int64_t rounds, double *seconds);

/* What the other ranks do. */
bppsa_status bppsa_ranks_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);

/* The samples that a rank's model takes at once in an entry of data parallelism. */
int64_t bppsa_ranks_block(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry);
/* Fills the part of a batch that begins with step from_step and sample first, both from 0: inputs, noise of variance 1, or the seed
 * of the logits, noise over the rows of the loss. A number depends on the seed and its place in the whole batch alone. view:
 * [steps][samples][..] or, of what has no steps, [samples][..]. */
void bppsa_ranks_fill(const bppsa_ranks_subject *subject, uint64_t seed, bool inputs, int64_t from_step, int64_t first,
                      const bppsa_view *view);
/* The network's configuration of gradients as an entry wants them. */
bppsa_network_config bppsa_ranks_config(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry);

#endif
