/* Windows of time of recurrent networks on the CPU, and the cells' passes over them.
 *
 * Sequential passes go window by window, so that what one pass writes is still in a cache when the next one reads it:
 * pre-activations in the forward pass; gradients, deltas and the weight gradients' parts in the backward pass. One thread takes a
 * run of steps that fits the first-level cache; several take as many as fit the second-level cache, and share them. Windows do
 * not change a bit. */
#include "core/compute/flush.h"
#include "core/compute/matmul.h"
#include "core/compute/pool.h"
#include "recurrent/layers_cpu.h"

bool bppsa_layers_want_first(const recurrent_network *n) {
  return n->config.input_gradients || n->config.ends.after != NULL || bppsa_back_is_part(n);
}

layers_window bppsa_layers_whole(const recurrent_network *n) {
  return (layers_window){.steps = n->config.seq_len,
                         .samples = n->batch,
                         .pre = n->pre,
                         .delta_h = n->cell->split ? n->delta_h : n->pre,
                         .g = n->g,
                         .input = bppsa_layers_want_first(n)};
}

int64_t bppsa_layers_run_rows(const recurrent_network *n) {
  enum { BYTES = 1 << 15, LEAST_ROWS = 48 };
  const int64_t row = ((n->cell->split ? 2 : 1) * n->cell->gates + 2) * n->config.hidden * layers_size_of(n),
                fitting = BYTES / row;
  const int64_t units = (fitting > LEAST_ROWS ? fitting : LEAST_ROWS) / n->batch;
  return (units > 1 ? units : 1) * n->batch;
}

int64_t bppsa_layers_window_steps(const recurrent_network *n) {
  enum { BYTES = 1 << 18, LEAST_ROWS = 1024 };
  if (n->threads == 1 && bppsa_layers_run_rows(n) < LEAST_ROWS) {
    return bppsa_layers_run_rows(n) / n->batch;
  }
  const int64_t fitting = BYTES / (n->cell->gates * n->config.hidden * layers_size_of(n)),
                rows = fitting > LEAST_ROWS ? fitting : LEAST_ROWS;
  return (rows + n->batch - 1) / n->batch;
}

void bppsa_layers_cell_block(const recurrent_network *n, bppsa_cell_fn function, int64_t l, const layers_window *w, bool injected,
                             int64_t first, int64_t samples, void *const *columns, void *diagonal) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t passed = w->row * n->config.hidden, states = passed + (n->batch - w->samples) * n->config.hidden;
  bppsa_cell_block arrays = {.steps = w->steps,
                             .batch = w->samples,
                             .hidden = n->config.hidden,
                             .first = first,
                             .samples = samples,
                             .nonlinearity = n->config.nonlinearity,
                             .w_hh = n->w_hh,
                             .w_hh_t = n->w_hh_t,
                             .w_row = bppsa_dtype_padded(n->config.dtype, n->config.hidden),
                             .w_row_t = bppsa_dtype_padded(n->config.dtype, n->cell->gates * n->config.hidden),
                             .pre = w->pre,
                             .h = bppsa_recurrent_offset(n, layer->h, states),
                             .c = bppsa_recurrent_offset(n, layer->c, states), /* NULL stays NULL */
                             .saved = bppsa_recurrent_offset(n, layer->saved, passed * n->cell->saved),
                             .g = w->g,
                             .injected = injected,
                             .input = w->input,
                             .delta_x = w->pre,
                             .delta_h = w->delta_h,
                             .columns = columns,
                             .diagonal = diagonal};
  bppsa_recurrent_give_biases(n, l, &arrays);
  const unsigned mode = bppsa_flush_begin();
  function(&arrays);
  bppsa_flush_end(mode);
}

/* One pass over a window. Samples are shared in units; a thread with several units computes as many of them at once as a single
 * thread would. */
typedef struct {
  const recurrent_network *n;
  bppsa_cell_fn function;
  int64_t layer, unit, most; /* unit, most: numbers of samples */
  const layers_window *w;
  bool injected;
} sweep_pass;

static void sweep_units(const void *context, int32_t worker, int64_t first, int64_t end) {
  const sweep_pass *p = context;
  const int64_t to = end * p->unit < p->w->samples ? end * p->unit : p->w->samples;
  (void)worker;
  for (int64_t from = first * p->unit; from < to; from += p->most) {
    bppsa_layers_cell_block(p->n, p->function, p->layer, p->w, p->injected, from, to - from < p->most ? to - from : p->most,
                            p->n->columns, p->n->diagonal);
  }
}

void bppsa_layers_sweep(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l, const layers_window *w,
                        bool injected) {
  const int64_t batch = w->samples, hidden = n->config.hidden, columns = n->cell->gates * hidden;
  const sweep_pass pass = {.n = n,
                           .function = functions[n->config.dtype == BPPSA_F64],
                           .layer = l,
                           .unit = bppsa_sample_block(batch, n->threads, columns, hidden),
                           .most = bppsa_sample_block(batch, 1, columns, hidden),
                           .w = w,
                           .injected = injected};
  bppsa_parallel_for(n->threads, (batch + pass.unit - 1) / pass.unit,
                     bppsa_loop_work(2 * (double)(w->steps * batch) * (double)columns * (double)hidden, 0), sweep_units, &pass);
}
