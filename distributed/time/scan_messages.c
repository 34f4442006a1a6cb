#include "distributed/time/scan_messages.h"

#include "core/base/alloc.h"
#include "distributed/time/scan_ranks_internal.h"

/* The messages so far, and for each rank the latest round in which it has sent or received one. */
typedef struct {
  bppsa_scan_message *messages;
  int64_t count;
  int32_t *latest;
} list;

static void add(list *l, int32_t from, int32_t to, int32_t first, int32_t count) {
  const int32_t round = l->latest[from] + 1;
  l->messages[l->count++] = (bppsa_scan_message){round, from, to, first, count};
  l->latest[from] = round;
  l->latest[to] = round > l->latest[to] ? round : l->latest[to];
}

/* The tree of scan_ranks_methods.c: on the way up the first half of a node sends its product, or the gradient behind it if it
 * begins at rank 0; on the way down the node's last rank sends the gradient in front of the node back. */
static void add_tree(list *l, int32_t ranks) {
  int32_t levels = 0;
  ranks_node n;
  for (; (int64_t)1 << levels < ranks; ++levels) {
    for (int32_t begin = 0; begin < ranks && ranks_node_of(begin, ranks, levels, &n); begin = n.end) {
      add(l, n.mid - 1, n.end - 1, begin == 0 ? n.mid : begin, begin == 0 ? 0 : n.mid - begin);
    }
  }
  for (int32_t level = levels - 1; level >= 0; --level) {
    for (int32_t begin = 0; begin < ranks && ranks_node_of(begin, ranks, level, &n); begin = n.end) {
      if (begin > 0) {
        add(l, n.end - 1, n.mid - 1, begin, 0);
      }
    }
  }
}

/* Messages of a round keep their order. */
static void sort(const list *l) {
  for (int64_t i = 1; i < l->count; ++i) {
    const bppsa_scan_message moved = l->messages[i];
    int64_t at = i;
    for (; at > 0 && l->messages[at - 1].round > moved.round; --at) {
      l->messages[at] = l->messages[at - 1];
    }
    l->messages[at] = moved;
  }
}

bppsa_status bppsa_ranks_scan_messages(bppsa_scan_algorithm algorithm, int32_t ranks, bppsa_scan_message *messages,
                                       int64_t *count) {
  BPPSA_REQUIRE(ranks >= 1 && messages != NULL && count != NULL);
  if (ranks_method_find(algorithm) == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "messages of ranks: %s, expected linear, chunked or blelloch",
                      bppsa_scan_algorithm_name(algorithm));
  }
  list l = {.messages = messages, .latest = bppsa_calloc(ranks, sizeof *l.latest)};
  if (l.latest == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int32_t r = 0; algorithm != BPPSA_SCAN_BLELLOCH && r + 1 < ranks; ++r) {
    add(&l, r, r + 1, r + 1, 0);
  }
  if (algorithm == BPPSA_SCAN_BLELLOCH) {
    add_tree(&l, ranks);
    sort(&l);
  }
  bppsa_free(l.latest);
  *count = l.count;
  return BPPSA_OK;
}
