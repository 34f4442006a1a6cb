/* Weight gradients of a part of a sequence, with the same bits however the sequence is cut into parts (bppsa_forward_part).
 *
 * The steps of the whole sequence are cut into blocks. The gradients of each are summed by themselves, row by row in the order of
 * time: a product that continues a sum has the bits of one product of all rows. So a block that two parts share begins in the one
 * with the earlier steps, and its sums so far are a message to the other. The caller adds up the blocks in a fixed order. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/compute/pool.h"
#include "recurrent/recurrent_internal.h"

/* The sums of a layer: of W_ih or W_lin, then of W_hh, and of a reset state. */
typedef struct {
  recurrent_network *n;
  const recurrent_products *p;
  int64_t first, last; /* the blocks with steps here */
  int64_t begun;       /* the first of them that begins here */
  bool one;            /* of the head, with a loss on the last step: it has rows of that step alone */
  int64_t from_x;      /* reals of one block's sums of W_ih or W_lin */
  int64_t weights;     /* of W_ih and W_hh */
  int64_t all;         /* and of a reset state */
  int64_t layer;
} layer_sums;

static int64_t first_step(const recurrent_network *n, int64_t block) {
  return bppsa_cut(n->forward.seq_len, n->config.part.blocks, block);
}

/* Reals of the sums of a product's gradient: of the weights, and of the bias. */
static int64_t reals_of(const bppsa_linear *l) {
  return l->out * (l->in + 1);
}

/* Reals of a layer's sums; -1: they do not fit in 64 bits. */
static int64_t layer_reals(int64_t out, int64_t input, int64_t hidden) {
  int64_t width, reals;
  return __builtin_add_overflow(input, hidden + 2, &width) || !bppsa_mul(out, width, &reals) ? -1 : reals;
}

static void *sums_of(const layer_sums *s, int64_t block, bool hidden) {
  return bppsa_recurrent_offset(s->n, s->n->back.part.sums, (block - s->first) * s->all + (hidden ? s->from_x : 0));
}

static void *reset_sums_of(const layer_sums *s, int64_t block) {
  return bppsa_recurrent_offset(s->n, s->n->back.part.sums, (block - s->first) * s->all + s->weights);
}

/* Adds rows to a product's sums, in the order of time. Runs stay in a cache, and are too short for BLAS, whose bits depend on
 * their lengths. */
static void add_rows(const recurrent_network *n, const bppsa_linear *l, int64_t row, int64_t rows, const void *delta,
                     const void *x, int64_t bias_from, void *sums) {
  enum { LONGEST = 64, MOST_NUMBERS = 1 << 17 };
  const int64_t fitting = MOST_NUMBERS / l->in, run = fitting > LONGEST ? LONGEST : fitting < 1 ? 1 : fitting;
  for (int64_t first = 0; first < rows; first += run) {
    const int64_t count = rows - first < run ? rows - first : run, begun = count + 1; /* not the first rows of the sum */
    bppsa_linear_sum_run(l, 0, begun, 0, count, bppsa_recurrent_offset(n, delta, (row + first) * l->out),
                         bppsa_recurrent_offset(n, x, (row + first) * l->in), bias_from, sums);
  }
}

/* Adds the steps of a block that are here. */
static void add_steps(const layer_sums *s, int64_t block) {
  const recurrent_network *n = s->n;
  const recurrent_products *p = s->p;
  const int64_t first = n->config.part.first, end = first + n->config.seq_len, rows = p->from_x.rows;
  const int64_t from = first_step(n, block) > first ? first_step(n, block) : first,
                to = first_step(n, block + 1) < end ? first_step(n, block + 1) : end;
  const int64_t row = s->one ? 0 : (from - first) * n->batch, count = !s->one ? (to - from) * n->batch : to == end ? rows : 0;
  add_rows(n, &p->from_x, row, count, p->delta_x, p->x, 0, sums_of(s, block, false));
  if (p->h != NULL) {
    add_rows(n, &p->from_h, row, count, p->delta_h, p->h, p->shared, sums_of(s, block, true));
  }
  if (s->all > s->weights) {
    bppsa_reset_state_sum(n, s->layer, from - first, to - first, reset_sums_of(s, block));
  }
}

static void sum_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const layer_sums *s = context;
  (void)worker;
  for (int64_t block = s->begun + first; block < s->begun + end; ++block) {
    memset(sums_of(s, block, false), 0, (size_t)s->all * bppsa_dtype_size(s->n->config.dtype));
    add_steps(s, block);
  }
}

/* Sends or receives a block's sums so far. */
static bppsa_status pass_on(const layer_sums *s, int64_t block,
                            bppsa_status (*pass)(void *context, const bppsa_view *numbers, const bppsa_view *states)) {
  const bppsa_view view = bppsa_view_make(sums_of(s, block, false), s->n->config.dtype, 1, &s->all);
  return pass(s->n->config.part.context, NULL, &view);
}

/* Gives a parameter's gradient on; biases that the network does not have are no parameters. */
static bppsa_status give(const recurrent_network *n, int64_t block, const bppsa_parameter *parameter) {
  const bool has = parameter >= n->base.parameters && parameter < n->base.parameters + n->base.parameter_count;
  return has ? n->config.part.take(n->config.part.context, block, parameter - n->base.parameters, &parameter->gradient)
             : BPPSA_OK;
}

/* Gives the gradient of a layer's row of the reset state on. */
static bppsa_status give_reset_state(const layer_sums *s, int64_t block) {
  const recurrent_network *n = s->n;
  const bppsa_parameter *parameter = &n->base.parameters[0];
  const int64_t size = bppsa_recurrent_state_size(n);
  memset(parameter->gradient.data, 0, bppsa_view_bytes(&parameter->gradient));
  memcpy(bppsa_recurrent_offset(n, parameter->gradient.data, s->layer * size), reset_sums_of(s, block),
         (size_t)size * bppsa_dtype_size(n->config.dtype));
  return give(n, block, parameter);
}

/* Turns a block's sums into gradients. */
static bppsa_status finish(const layer_sums *s, int64_t l, int64_t block) {
  recurrent_network *n = s->n;
  const recurrent_products *p = s->p;
  const bool head = p->h == NULL;
  const bppsa_parameter *w_ih = bppsa_recurrent_parameter(n, l, W_IH), *w_hh = bppsa_recurrent_parameter(n, l, W_HH),
                        *b_ih = head ? w_hh : bppsa_recurrent_parameter(n, l, B_IH),
                        *b_hh = head ? NULL : bppsa_recurrent_parameter(n, l, B_HH);
  bppsa_linear from_x = p->from_x, from_h = p->from_h;
  from_x.rows = from_h.rows = 1; /* one block */
  bppsa_linear_finish(&from_x, w_ih->gradient.data, b_ih->gradient.data, sums_of(s, block, false));
  BPPSA_TRY(give(n, block, w_ih));
  BPPSA_TRY(give(n, block, b_ih));
  if (head) {
    return BPPSA_OK;
  }
  bppsa_linear_finish(&from_h, w_hh->gradient.data, n->cell->split ? b_hh->gradient.data : NULL, sums_of(s, block, true));
  memcpy(b_hh->gradient.data, b_ih->gradient.data, (size_t)p->shared * bppsa_dtype_size(n->config.dtype));
  BPPSA_TRY(give(n, block, w_hh));
  BPPSA_TRY(give(n, block, b_hh));
  return s->all > s->weights ? give_reset_state(s, block) : BPPSA_OK;
}

bppsa_status bppsa_back_sum_layer(recurrent_network *n, int64_t l, const recurrent_products *p) {
  const bppsa_forward_part *part = &n->config.part;
  const int64_t all = n->forward.seq_len, first = part->first, end = first + n->config.seq_len;
  layer_sums s = {.n = n,
                  .p = p,
                  .first = bppsa_cut_part(all, part->blocks, first),
                  .last = bppsa_cut_part(all, part->blocks, end - 1),
                  .one = p->h == NULL && !n->config.loss_all,
                  .from_x = reals_of(&p->from_x),
                  .layer = l};
  const bool comes = !s.one && first_step(n, s.first) < first, goes = !s.one && first_step(n, s.last + 1) > end;
  s.begun = s.first + comes;
  s.weights = s.from_x + (p->h != NULL ? reals_of(&p->from_h) : 0);
  s.all = s.weights + (p->h != NULL && n->config.reset_state ? bppsa_recurrent_state_size(n) : 0);
  const bool early = s.last >= s.begun; /* the last block's sums do not wait for others */
  bppsa_parallel_for(n->threads, s.last - s.begun + 1, bppsa_loop_work(2 * (double)p->from_x.rows * (double)s.all, 0), sum_blocks,
                     &s);
  BPPSA_TRY(goes && early ? pass_on(&s, s.last, part->send) : BPPSA_OK);
  if (comes) {
    BPPSA_TRY(pass_on(&s, s.first, part->receive));
    add_steps(&s, s.first);
  }
  BPPSA_TRY(goes && !early ? pass_on(&s, s.last, part->send) : BPPSA_OK);
  for (int64_t k = s.first; k <= s.last - goes; ++k) {
    BPPSA_TRY(finish(&s, l, k));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_back_sums_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t gates = n->cell->gates * c->hidden, all = n->forward.seq_len,
                blocks = bppsa_cut_part(all, c->part.blocks, c->part.first + c->seq_len - 1) -
                         bppsa_cut_part(all, c->part.blocks, c->part.first) + 1;
  const int64_t input = c->layers > 1 && c->hidden > c->input ? c->hidden : c->input;
  const int64_t weights = layer_reals(gates, input, c->hidden), head = layer_reals(c->classes, c->hidden, 0),
                reset_state = c->reset_state ? bppsa_recurrent_state_size(n) : 0;
  int64_t layer;
  if (weights < 0 || head < 0 || __builtin_add_overflow(weights, reset_state, &layer)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the weight gradients' sums do not fit in 64 bits", n->cell->name);
  }
  return bppsa_recurrent_visit_array(n, visit, 1, blocks, layer > head ? layer : head, &n->back.part.sums, bytes);
}
