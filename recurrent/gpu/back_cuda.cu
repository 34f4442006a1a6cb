/* The parallel backward pass of a recurrent network on a GPU: its memory, and what the GPU says of it. */
#include <string.h>

#include "recurrent/gpu/layers.cuh"

enum { MOST_CLUSTER = 16 /* blocks of a wide layer's chunk */ };

bool bppsa_gpu_back_runs(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  return n->back.plan.speculative && !(c->speculation.exact_inputs && c->input_gradients && !c->loss_all);
}

bppsa_backward_scanned bppsa_gpu_back_scan(const recurrent_network *n) {
  const bppsa_backward_scanned bp = {n->config.seq_len, n->config.seq_len};
  const int64_t chunks = n->back.plan.scan_chunks;
  return chunks > 1 ? bppsa_backward_scan_of(n->config.seq_len, chunks, bppsa_recurrent_state_size(n)) : bp;
}

back_shape bppsa_gpu_back_shape(const recurrent_network *n, int64_t batch) {
  const bppsa_backward_plan &plan = n->back.plan;
  return n->config.hidden > CHUNK_HIDDEN
             ? back_wide_shape_of(plan.chunks, batch, plan.rounds, n->gpu->multiprocessors, n->gpu->most_back)
             : back_shape_of(plan.chunks, batch, n->gpu->multiprocessors, n->gpu->most_back, n->gpu->back_teams);
}

bppsa_status bppsa_gpu_back_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  back_memory &m = n->gpu->back;
  const int64_t chunks = n->back.plan.chunks, batch = n->config.batch, state = bppsa_recurrent_state_size(n);
  const bool wide = n->config.hidden > CHUNK_HIDDEN;
  const int most = MOST_BLOCKS / (wide ? MOST_CLUSTER : 1);
  int64_t items, size;
  if (!bppsa_gpu_back_runs(n)) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(chunks, batch, &items) || items > most || !bppsa_mul(items, (int64_t)sizeof(back_chunk), &size)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "backward pass on a GPU: %lld chunks of %lld samples, expected at most %d in all",
                      (long long)chunks, (long long)batch, most);
  }
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks + 1, 1, state, &m.probes, bytes)); /* and zeros */
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks, batch, state, &m.starts, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks, batch, state, &m.ends[0], bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks, batch, state, &m.ends[1], bytes));
  BPPSA_TRY(visit(&m.found, size, bytes));
  BPPSA_TRY(visit(&m.paths, batch * (int64_t)sizeof(int64_t), bytes));
  BPPSA_TRY(n->back.plan.scan_chunks > 1 ? visit(&m.fallen, (1 + batch) * (int64_t)sizeof(int), bytes) : BPPSA_OK);
  BPPSA_TRY(wide ? visit(&m.kept, 2 * batch * (int64_t)sizeof(back_kept), bytes) : BPPSA_OK);
  return visit(&m.report, sizeof(back_report), bytes);
}

int64_t bppsa_gpu_back_vectors(const recurrent_network *n) {
  return (n->back.plan.chunks + 1) * bppsa_recurrent_state_size(n) * size_of(n);
}

void bppsa_gpu_back_draw(const recurrent_network *n, void *vectors) {
  const int64_t chunks = n->back.plan.chunks, bytes = bppsa_recurrent_state_size(n) * size_of(n);
  memset(vectors, 0, (size_t)((chunks + 1) * bytes));
  for (int64_t p = 0; p < chunks; ++p) {
    bppsa_back_draw(n, p, (char *)vectors + p * bytes);
  }
}

/* The report is 0. The vectors that walk through silent chunks stay the same as long as the network exists. */
bppsa_status bppsa_gpu_back_clear(const recurrent_network *n) {
  const recurrent_gpu *gpu = n->gpu;
  if (!bppsa_gpu_back_runs(n)) {
    return BPPSA_OK;
  }
  void *vectors = bppsa_alloc((size_t)bppsa_gpu_back_vectors(n));
  if (vectors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_gpu_back_draw(n, vectors);
  bppsa_status status = bppsa_cuda_put(gpu->index, gpu->stream, gpu->back.probes, vectors, bppsa_gpu_back_vectors(n));
  bppsa_free(vectors);
  return status == BPPSA_OK ? bppsa_cuda_clear(gpu->index, gpu->stream, gpu->back.report, sizeof(back_report)) : status;
}

/* Reads the report of the latest pass. */
bppsa_status bppsa_gpu_back_look(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  back_report r = {};
  if (!bppsa_gpu_back_runs(n)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_get(n->gpu->index, n->gpu->stream, &r, n->gpu->back.report, sizeof r));
  b->state = r.state;
  if (b->stats.passes == 0 || r.speculated == 0) { /* before the first pass; BP, or the scan in its place */
    const int64_t passes = b->stats.passes, possible = b->stats.possible, steps = n->config.seq_len;
    const bppsa_backward_scanned scan = bppsa_gpu_back_scan(n);
    b->stats = {};
    b->stats.passes = passes;
    b->stats.possible = possible;
    b->stats.path = possible / steps * scan.path;
    b->stats.work = passes > 0 ? (double)scan.steps / (double)steps : 0;
    return BPPSA_OK;
  }
  b->stats.speculated = true;
  b->stats.given_up = r.given_up > 0;
  b->stats.scanned = r.given_up > 0 && b->plan.scan_chunks > 1;
  b->stats.path = r.path;
  b->stats.work = (double)r.steps / (double)r.rows;
  b->stats.rounds = r.rounds;
  b->stats.mended = r.mended;
  b->stats.gap = r.gap;
  b->stats.perturbation = r.perturbation;
  return BPPSA_OK;
}

/* Writes the state, which begins the report. */
bppsa_status bppsa_gpu_back_tell(recurrent_network *n) {
  return bppsa_gpu_back_runs(n)
             ? bppsa_cuda_put(n->gpu->index, n->gpu->stream, n->gpu->back.report, &n->back.state, sizeof n->back.state)
             : BPPSA_OK;
}
