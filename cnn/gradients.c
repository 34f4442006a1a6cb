/* Where the gradients between the operators of a network are, and which weight gradients come last.
 *
 * A scan needs g_0 .. g_n one behind the other, and on a GPU each has its place. So it has in a graph, where BP adds to a gradient
 * until all readers of its tensor are done. BP of a chain on a CPU keeps only those that it still needs:
 * g_t until g_{t-1} and the weight gradient of operator t have been computed from it. Reverse first-k (ooo-backprop, Algorithm 2)
 * puts off the weight gradients of the first k layers with weights; their g_t are needed to the end of the pass, W_t being
 * computed from g_t and x_{t-1}. While g_t is computed from g_{t+1}, the pass holds
 *
 *     f_k(t) = size(g_t) + size(g_{t+1}) + Σ size(g_s) over the layers s > t + 1 that are put off
 *
 * and the most of these sums is what the gradients take. The g_t of layers that are put off form a stack that grows upwards from
 * the first real. Of the others two at a time are needed: one is at the other end, its neighbour directly above the stack. */
#include "cnn/cnn_internal.h"
#include "core/base/alloc.h"

bool bppsa_cnn_reuses(const cnn *n) {
  return n->gpu == NULL && !bppsa_cnn_is_graph(&n->network) && n->config.method.backward == BPPSA_BACKWARD_BP &&
         bppsa_device_get_kind(n->device) == BPPSA_CPU;
}

/* Reals of g_t for one sample. */
static int64_t size_of(const cnn *n, int64_t t) {
  const bppsa_cnn_live *live = &n->elements_made.live;
  return live->sizes != NULL && n->config.method.backward == BPPSA_BACKWARD_SCAN ? live->sizes[t]
                                                                                 : bppsa_cnn_size(&n->network, t);
}

/* Places all g_t one behind the other, at aligned addresses, which cuDNN prefers. */
static bppsa_status place_all(cnn *n) {
  enum { LINE = 64 };
  const bool packed = bppsa_device_get_kind(n->device) == BPPSA_CPU || n->config.method.backward == BPPSA_BACKWARD_SCAN;
  for (int64_t i = 0; i < n->elements; ++i) {
    const int64_t in = size_of(n, i);
    int64_t size;
    n->offsets[i + 1] = n->offsets[i] + (packed ? in : (in + LINE - 1) / LINE * LINE);
    if (!bppsa_mul(n->offsets[i + 1] + size_of(n, i + 1), n->config.batch, &size) || size > INT64_MAX / 64) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the gradients of %lld samples do not fit in 64 bits", n->network.layers[i].name,
                        (long long)n->config.batch);
    }
  }
  n->offsets[n->elements + 1] = n->offsets[n->elements] + size_of(n, n->elements);
  return BPPSA_OK;
}

/* Is g_t needed to the end of the pass? */
static bool stays(const cnn *n, int64_t t, int64_t delayed) {
  return t >= 1 && t <= delayed && n->layers[t - 1].weight >= 0;
}

/* Shares memory between gradients that are not needed at the same time. */
static void place_stack(cnn *n, int64_t delayed) {
  const int64_t first = n->config.input_gradients ? 0 : 1; /* the last one that a pass computes */
  int64_t stack = 0, most = 0, before = 0;                 /* before: the size of g_{t+1} if it does not stay */
  for (int64_t t = n->elements; t >= first; --t) {
    const int64_t size = size_of(n, t);
    n->offsets[t] = stack;
    stack += stays(n, t, delayed) ? size : 0;
    const int64_t passing = stays(n, t, delayed) ? 0 : size, held = stack + before + passing;
    most = held > most ? held : most;
    before = passing;
  }
  bool above = true; /* g_{t-1} is directly above the stack, or a part of it */
  for (int64_t t = first; t <= n->elements; ++t) {
    if (stays(n, t, delayed)) {
      above = true;
    } else {
      n->offsets[t] = above ? most - size_of(n, t) : n->offsets[t];
      above = !above;
    }
  }
  n->offsets[n->elements + 1] = most;
}

bppsa_status bppsa_cnn_place_gradients(cnn *n) {
  BPPSA_TRY(place_all(n)); /* the sums below are smaller */
  if (bppsa_cnn_reuses(n)) {
    place_stack(n, 0);
  }
  n->room = n->offsets[n->elements + 1];
  return BPPSA_OK;
}

/* ---- weight gradients put off ---- */

/* Returns the layer behind the next layer with weights, from layer i on; -1: only the head is left. */
static int64_t behind_next(const cnn *n, int64_t i) {
  while (i < n->elements && n->layers[i].weight < 0) {
    ++i;
  }
  return i < n->elements ? i + 1 : -1;
}

/* Puts off the weight gradients of the first k layers with weights, or of as many as `room` reals for a sample hold the output
 * gradients of. More layers never take less room. Returns their number. */
static int64_t put_off(cnn *n, int64_t k, int64_t room) {
  int64_t layers = 0;
  n->delayed = 0;
  for (int64_t next = behind_next(n, 0); layers < k && next > 0; next = behind_next(n, next)) {
    if (bppsa_cnn_reuses(n)) {
      place_stack(n, next);
    }
    if (n->offsets[n->elements + 1] > room) {
      break;
    }
    n->delayed = next;
    ++layers;
  }
  if (bppsa_cnn_reuses(n)) {
    place_stack(n, n->delayed);
  }
  return layers;
}

void bppsa_cnn_reserve_delay(cnn *n, int64_t bytes) {
  const int64_t limit = n->config.memory_limit, sample = n->config.batch * (int64_t)bppsa_dtype_size(n->config.dtype);
  (void)put_off(n, n->config.delayed, limit > 0 ? n->room + (limit - 1 - bytes) / sample : INT64_MAX);
  n->room = n->offsets[n->elements + 1];
  (void)put_off(n, 0, n->room);
}

bppsa_status bppsa_cnn_delay(bppsa_model *model, int64_t k, bppsa_delayed *delayed) {
  cnn *n = (cnn *)model;
  const int64_t layers = put_off(n, k < n->config.delayed ? k : n->config.delayed, n->room);
  int64_t first = n->layers[n->elements].weight, possible = 0;
  for (int64_t i = n->elements - 1; i >= 0; --i) {
    const bool weights = n->layers[i].weight >= 0;
    first = weights && i >= n->delayed ? n->layers[i].weight : first;
    possible += weights ? 1 : 0;
  }
  *delayed = (bppsa_delayed){.layers = layers, .parameters = n->delayed > 0 ? first : 0, .possible = possible};
  return BPPSA_OK;
}
