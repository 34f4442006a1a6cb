/* Networks with two directions. Internal.
 *
 * A direction of a layer is computed like a layer: it walks from its first row to its last one. For the reverse direction the rows
 * of its input are turned, each sample's last step first, and so its states and gradients stand in the order in which it walks.
 * Rows that both directions see, the outputs of a level [forward, reverse] and their gradients, stand in the order of time; a
 * reverse layer's rows are turned on the way. A sample that has a length turns within its own steps. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "recurrent/recurrent_internal.h"

bppsa_status bppsa_sides_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t outputs = bppsa_recurrent_outputs(c), wider = c->input > outputs ? c->input : outputs;
  const struct {
    int64_t steps, width;
    void **array;
  } arrays[] = {{c->loss_all ? c->seq_len : 1, outputs, &n->sides.top},
                {c->seq_len, outputs, &n->sides.above},
                {c->seq_len, outputs, &n->sides.passed},
                {c->seq_len, wider, &n->sides.part}};
  for (size_t i = 0; c->bidirectional && i < sizeof arrays / sizeof *arrays; ++i) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, c->batch, arrays[i].width, arrays[i].array, bytes));
  }
  return BPPSA_OK;
}

void bppsa_sides_free(recurrent_network *n) {
  void *const own[] = {n->sides.top, n->sides.above, n->sides.passed, n->sides.part};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}

/* ---- rows ---- */

typedef struct {
  const recurrent_network *n;
  const recurrent_rows *rows;
} row_pass;

static void move_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const row_pass *pass = context;
  const recurrent_rows *r = pass->rows;
  const bool wide = pass->n->config.dtype == BPPSA_F64;
  (void)worker;
  for (int64_t row = first; row < end; ++row) {
    const int64_t source = r->turned ? bppsa_ragged_mirror(pass->n, row) : row;
    const void *from = bppsa_recurrent_offset(pass->n, r->from, source * r->from_row);
    void *to = bppsa_recurrent_offset(pass->n, r->to, row * r->to_row);
    if (!r->added) {
      memcpy(to, from, (size_t)r->width * bppsa_dtype_size(pass->n->config.dtype));
      continue;
    }
    for (int64_t i = 0; i < r->width; ++i) {
      if (wide) {
        ((double *)to)[i] += ((const double *)from)[i];
      } else {
        ((float *)to)[i] += ((const float *)from)[i];
      }
    }
  }
}

bppsa_status bppsa_sides_move(const recurrent_network *n, const recurrent_rows *rows) {
  const double bytes = 2 * (double)rows->width * (double)bppsa_dtype_size(n->config.dtype);
  bppsa_parallel_for(n->threads, rows->rows, bppsa_loop_work(0, (double)rows->rows * bytes), move_rows, &(row_pass){n, rows});
  return BPPSA_OK;
}

/* Moves all rows of the present batch; those of the reverse direction go to their mirrors. */
static bppsa_status move(const recurrent_network *n, int64_t l, const void *from, int64_t from_row, void *to, int64_t to_row,
                         int64_t width, bool added) {
  const recurrent_rows rows = {from, to, bppsa_ragged_rows(n), from_row, to_row, width, l % 2 == 1, added, false};
  return n->backend->move(n, &rows);
}

/* The half of rows [2H] that belongs to a layer. */
static void *half_of(const recurrent_network *n, int64_t l, const void *rows) {
  return bppsa_recurrent_offset(n, rows, l % 2 * n->config.hidden);
}

/* A layer's states h (or c) after each step. */
static void *states_of(const recurrent_network *n, int64_t l, bool cells) {
  return bppsa_recurrent_offset(n, cells ? n->layers[l].c : n->layers[l].h, n->batch * n->config.hidden);
}

bppsa_status bppsa_sides_join(const recurrent_network *n, int64_t level, bool cells, void *rows) {
  const int64_t hidden = n->config.hidden;
  for (int64_t l = 2 * level; l < 2 * level + 2; ++l) {
    BPPSA_TRY(move(n, l, states_of(n, l, cells), hidden, half_of(n, l, rows), 2 * hidden, hidden, false));
  }
  return BPPSA_OK;
}

/* ---- forward ---- */

bppsa_status bppsa_sides_enter(const recurrent_network *n, int64_t l) {
  void *below = n->layers[l].below;
  const int64_t width = n->layers[l].input;
  const void *x = n->ragged.active ? n->ragged.x : n->x;
  if (l % 2 == 1) {
    return move(n, l, l == 1 ? x : n->layers[l - 1].below, width, below, width, width, false);
  }
  if (l > 0) {
    BPPSA_TRY(bppsa_sides_join(n, l / 2 - 1, false, below));
    if (bppsa_recurrent_drops(n, l)) {
      return n->backend->drop(n, l, below, below);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_sides_leave(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t end = bppsa_recurrent_layers(c), hidden = c->hidden;
  if (c->loss_all) {
    return bppsa_sides_join(n, c->layers - 1, false, n->sides.top);
  }
  for (int64_t l = end - 2; l < end; ++l) {
    void *half = half_of(n, l, n->sides.top);
    if (n->ragged.active) {
      BPPSA_TRY(n->backend->gather_ends(n, states_of(n, l, false), hidden, hidden, half, 2 * hidden));
      continue;
    }
    const void *last = bppsa_recurrent_offset(n, n->layers[l].h, c->seq_len * n->batch * hidden);
    const recurrent_rows rows = {last, half, n->batch, hidden, 2 * hidden, hidden, false, false, false};
    BPPSA_TRY(n->backend->move(n, &rows));
  }
  return BPPSA_OK;
}

/* ---- backward ---- */

bool bppsa_sides_ends(const recurrent_network *n, int64_t l) {
  return !n->config.loss_all && bppsa_recurrent_level(n, l) + 1 == n->config.layers;
}

bppsa_status bppsa_sides_split(const recurrent_network *n, int64_t l, void *rows, int64_t row) {
  const int64_t hidden = n->config.hidden;
  const void *half = half_of(n, l, n->sides.above);
  const recurrent_rows ends = {half, rows, n->batch, 2 * hidden, row, hidden, false, false, false};
  return bppsa_sides_ends(n, l) ? n->backend->move(n, &ends) : move(n, l, half, 2 * hidden, rows, row, hidden, false);
}

bppsa_status bppsa_sides_add(recurrent_network *n, int64_t l, void *rows) {
  const int64_t width = n->layers[l].input;
  BPPSA_TRY(n->backend->input_gradient(n, l, n->sides.part));
  return move(n, l, n->sides.part, width, rows, width, width, l % 2 == 0);
}

bppsa_status bppsa_sides_pass_down(recurrent_network *n, int64_t l) {
  void *above = n->sides.above;
  BPPSA_TRY(l > 1 ? bppsa_sides_add(n, l, n->sides.passed) : BPPSA_OK);
  if (l % 2 == 0) {
    n->sides.above = n->sides.passed;
    n->sides.passed = above;
    if (bppsa_recurrent_drops(n, l)) {
      BPPSA_TRY(n->backend->drop(n, l, n->sides.above, n->sides.above));
    }
  }
  return n->backend->enter_side(n, l - 1);
}
