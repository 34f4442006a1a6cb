/* The inside of a recurrent network cut along time: what a rank holds (split_time.c) and its passes (split_time_passes.c). */
#ifndef BPPSA_DISTRIBUTED_TIME_SPLIT_TIME_INTERNAL_H
#define BPPSA_DISTRIBUTED_TIME_SPLIT_TIME_INTERNAL_H

#include "comm/ordered.h"
#include "distributed/time/split_time.h"

/* What each tag is for. */
enum { TAG_STATES = 0, TAG_SCAN, TAG_ENDS, TAG_SUM };

typedef struct split_network split_network;

/* A group of samples with its own network of this rank's steps. */
typedef struct {
  split_network *split;
  bppsa_model *model;
  int64_t first, samples; /* of the latest pass; 0 samples: none */
  /* Arrays of the device. */
  char *x, *seed;            /* [t][samples][I], like the logits: the group's part of the batch; NULL with one group */
  uint8_t *resets;           /* [T][samples], in host memory: likewise; NULL where no sample may begin anew, too */
  char *states;              /* [L][samples][S]: h0 of the group, then what goes to another rank */
  bppsa_comm_request **sent; /* [requests]: messages under way */
} split_group;

struct split_network {
  bppsa_model base;
  bppsa_model_ops ops;
  bppsa_comm *comm;              /* of all ranks */
  bppsa_comm *active;            /* of the ranks that hold steps; owned unless it is comm; NULL: this rank holds none */
  int32_t tag, rank, ranks;      /* ranks: those that hold steps */
  bppsa_recurrent_config config; /* of the whole network, AUTO resolved */
  const bppsa_cell *cell;
  const bppsa_device *device; /* where the arrays below are */
  bool gpu;
  int64_t first, steps; /* this rank's steps: first + 1 .. first + steps */
  int64_t group_count;
  split_group *groups;  /* size group_count */
  bppsa_model **models; /* size group_count: the groups' models */
  int64_t *samples;     /* size group_count: their samples in the latest pass */
  int64_t requests;     /* the most messages of a group under way: one a layer, or the two of a speculative pass */
  int64_t batch;        /* b of the latest forward pass; 0: none */
  bool backward_done;
  char *logits, *dx, *dh0; /* of the whole batch; NULL with one group, whose network has them */
  char *carry;             /* [samples][S]: a gradient that arrives */
  char *zeros;             /* [samples][H]: the seed of a rank without a head */
  bppsa_ranks_scan_context scan;
  int64_t reals; /* of all parameters; on a GPU with the gaps between them */
  char *flat;    /* [reals]: their gradients one behind the other; NULL with one rank, and on a GPU, where they are so anyway */
  bppsa_ordered_sum *sum;
  /* Of speculative backward passes: the weight gradients of each block of steps are summed by themselves (split_time_back.c).
   * Blocks first_block .. first_block + own_blocks - 1, of `blocks`, end in this rank's steps. */
  int64_t blocks, first_block, own_blocks;
  char *taken; /* [own_blocks][reals] */
};

/* S, the numbers of a state: H, or 2 H where a cell's state is a pair. */
static inline int64_t split_state_size(const split_network *s) {
  return (s->cell->pair ? 2 : 1) * s->config.hidden;
}
/* Has this rank logits? */
static inline bool split_has_head(const split_network *s) {
  return s->steps > 0 && (s->config.loss_all || s->rank == 0);
}
/* Rows of a sample among this rank's logits. */
static inline int64_t split_logit_steps(const split_network *s) {
  return !split_has_head(s) ? 0 : s->config.loss_all ? s->steps : 1;
}

/* How the states are computed, with AUTO resolved for the whole sequence: SPECULATIVE with the plan's chunks and largest work, or
 * sequential. On GPUs collective: the fewest chunks that a rank's GPU has. Errors of bppsa_forward_plan_make. */
bppsa_status split_time_forward_method(const split_network *s, const bppsa_device *device, bppsa_forward_method *method);
bppsa_forward_part split_time_part(split_group *g);
/* Call before a pass. *speculates: the ranks do not wait for each other's states. *pause: the present pause, now that of all
 * groups. */
bppsa_status split_time_begin(const split_network *s, bool *speculates, bppsa_forward_pause *pause);
/* Begins to send, and makes the message set out. */
bppsa_status split_time_send_off(const split_network *s, int32_t to, int32_t tag, const bppsa_view *view,
                                 bppsa_comm_request **sent);
/* Waits for a group's messages. */
bppsa_status split_time_wait(const split_group *g);
/* Call after a pass: merges the groups' statistics and pauses. before: the pause with which the pass began. */
bppsa_status split_time_end(const split_network *s, const bppsa_forward_pause *before);

/* Are backward passes speculative? Then the networks' parts send their gradients by themselves. */
static inline bool split_speculates_back(const split_network *s) {
  return s->config.method.backward == BPPSA_BACKWARD_SPECULATIVE;
}
/* Plans the speculative backward pass of the whole sequence, and gives its number of chunks to the part. A plan with one chunk
 * makes the part's method BP. Errors of bppsa_backward_plan_make. */
bppsa_status split_time_backward_method(split_network *s, const bppsa_device *device);
/* Makes the sum over all blocks of steps. */
bppsa_status split_time_create_sums(split_network *s);
/* The fields of a network's part that speculative backward passes need. */
void split_time_add_back(split_group *g, bppsa_forward_part *part);
/* Call before and behind the groups' backward passes: *before is the state in which they began. */
bppsa_status split_time_back_begin(const split_network *s, bppsa_backward_state *before);
bppsa_status split_time_back_end(const split_network *s, const bppsa_backward_state *before);
/* Gives the blocks that end here to the sum over all ranks. */
bppsa_status split_time_add_sums(const split_network *s);

bppsa_status split_time_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits);
bppsa_status split_time_forward_spans(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                      bppsa_view *logits);
bppsa_status split_time_backward(bppsa_model *model, const bppsa_view *seed);
bppsa_status split_time_last_states(bppsa_model *model, int64_t shape[2], int64_t apart, void *states);
/* bppsa_recurrent_ends of a group: gradients that go through the ends of this rank's steps. */
bppsa_status split_time_join_injected(void *group, int64_t layer, void *g); /* scans over ranks: u_0 comes from the next rank */
/* Other methods: g_T comes from the rank before, and g_0 goes to the next one. */
bppsa_status split_time_receive_carry(void *group, int64_t layer, void *g);
bppsa_status split_time_send_carry(void *group, int64_t layer, const void *g);

#endif
