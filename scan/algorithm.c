/* The table of algorithms, and how each writes its plan (scan/plan.h has the notation). Chunks of different sizes share a record;
 * see bppsa_scan_level.
 *
 * Blelloch, n + 1 elements, s = 2^d. Up-level d joins a[i:i+s-1] and a[i+s:r] for i = 0, 2s, 4s, .. <= n - s:
 *   i = 0        the left operand contains the seed: a mat-vec, whose result is already y[2s];
 *   r < n        a mat-mat, whose result replaces a[r];
 *   r = n        dead: line 9 of Algorithm 1 overwrites it.
 * The middle carries y over the remaining elements, S = 2^L apart. Down-level d gives y[i+s] = a[i:i+s-1] y[i] for i = 2s, 4s, ..;
 * i = 0 is a copy in Algorithm 1, and nothing has to be done for it here.
 */
#include "scan/algorithm.h"

#include <math.h>

#include "core/base/cut.h"
#include "core/base/text.h"
#include "scan/algorithm_internal.h"

void bppsa_scan_add_record(bppsa_scan_records *to, bppsa_scan_level record) {
  if (record.count > 0 && record.length > 0) {
    record.critical = -1;
    to->records[to->count++] = record;
  }
}

/* ---- linear and Blelloch ---- */

/* ⌈log₂(n + 1)⌉ - 1, at least 0: the up-levels of a complete tree. */
static int64_t most_levels(int64_t n) {
  int64_t levels = 0;
  while (levels < 61 && ((int64_t)2 << levels) <= n) {
    ++levels;
  }
  return levels;
}

static int64_t *up_levels_of(bppsa_scan_method *method) {
  return &method->up_levels;
}

static int64_t clamp_levels(int64_t n, int64_t wanted) {
  const int64_t most = most_levels(n);
  return wanted < 0 || wanted > most ? most : wanted;
}

static bool only_candidate(const bppsa_scan_contest *contest, int64_t index, bppsa_scan_method *method) {
  (void)contest, (void)method;
  return index == 0;
}

/* 1, 2, .. up-levels; without up-levels the scan would be linear. */
static bool tree_candidate(const bppsa_scan_contest *contest, int64_t index, bppsa_scan_method *method) {
  method->up_levels = index + 1;
  return index < most_levels(contest->jacobians);
}

/* Linear is Blelloch with no up-levels. */
static void write_blelloch(int64_t n, const bppsa_scan_method *method, bppsa_scan_records *to) {
  const int32_t levels = (int32_t)method->up_levels;
  for (int32_t d = 0; d < levels; ++d) {
    const int64_t s = (int64_t)1 << d, pair = 2 * s;
    const bppsa_scan_level up = {.phase = BPPSA_PHASE_UP, .level = d, .stride = pair, .span = s, .count = 1, .length = 1};
    bppsa_scan_level vector = up, live = up, dead = up;
    vector.op = BPPSA_OP_MV;
    vector.first = s;
    bppsa_scan_add_record(to, vector);
    live.first = pair;
    live.count = n / pair - 1;
    bppsa_scan_add_record(to, live);
    dead.dead = true;
    dead.first = n / pair * pair;
    dead.count = dead.first <= n - s;
    bppsa_scan_add_record(to, dead);
  }
  const int64_t top = (int64_t)1 << levels;
  bppsa_scan_add_record(to, (bppsa_scan_level){.phase = BPPSA_PHASE_MIDDLE,
                                               .op = BPPSA_OP_MV,
                                               .level = levels,
                                               .first = top,
                                               .span = top,
                                               .count = 1,
                                               .length = n / top - 1});
  for (int32_t d = levels - 1; d >= 0; --d) {
    const int64_t s = (int64_t)1 << d;
    bppsa_scan_add_record(to, (bppsa_scan_level){.phase = BPPSA_PHASE_DOWN,
                                                 .op = BPPSA_OP_MV,
                                                 .level = 2 * levels - d,
                                                 .first = 2 * s,
                                                 .stride = 2 * s,
                                                 .span = s,
                                                 .count = (n - s) / (2 * s),
                                                 .length = 1});
  }
  to->level_count = 2 * (int64_t)levels + 1;
  to->slot_count = levels > 0 ? (n + 1) / 2 : 0;
}

/* ---- chunked ---- */

static int64_t *chunks_of(bppsa_scan_method *method) {
  return &method->chunks;
}

/* The default number of chunks, ⌊√(2n)⌉, minimises 2n/P + P. */
static int64_t clamp_chunks(int64_t n, int64_t wanted) {
  const int64_t chunks = wanted == 0 ? (int64_t)(sqrt(2.0 * (double)n) + 0.5) : wanted;
  return chunks > n && n > 0 ? n : n == 0 ? 1 : chunks;
}

/* The default number, and on a GPU also 2, 4, 8, .. below n, up to 4096; on a CPU whose times are measured also 1, 2 and 4 chunks
 * for each thread. */
static bool chunk_candidate(const bppsa_scan_contest *contest, int64_t index, bppsa_scan_method *method) {
  enum { DOUBLINGS = 12, SHARES = 3 };
  if (index == 0) {
    return true;
  }
  if (contest->device == BPPSA_CUDA) {
    method->chunks = index <= DOUBLINGS ? (int64_t)1 << index : INT64_MAX;
    return method->chunks < contest->jacobians;
  }
  method->chunks = index <= SHARES ? contest->threads * ((int64_t)1 << (index - 1)) : 0;
  return method->chunks > 0;
}

/* Makes one record of chunks 1 .. P - 2. An item has one link less than its chunk has elements. */
static bppsa_scan_level inner_chunks(int64_t n, int64_t p, bppsa_scan_phase phase, bppsa_scan_op op, int32_t level) {
  const int64_t size = n / p;
  bppsa_scan_level r = {.phase = phase, .op = op, .level = level, .first = 1 + bppsa_cut(n, p, 1), .stride = size, .span = 1};
  r.count = p - 2;
  r.longer = n % p > 1 ? n % p - 1 : 0; /* chunk 0 is one of the larger chunks */
  r.length = size - 1;
  if (size == 1) { /* a chunk of one element has nothing to join: only the larger ones remain */
    r.count = r.longer;
  }
  if (r.longer == r.count) {
    r.stride += 1;
    r.length += 1;
    r.longer = 0;
  }
  return r;
}

/* P chunks over a[1] .. a[n], cut by bppsa_cut. Chunk 0 needs no transition: its mat-vecs start at the seed and run beside the
 * other chunks' transitions. The transition of the last chunk is never used, and its last element, a[n], belongs to the input
 * phase. */
static void write_chunked(int64_t n, const bppsa_scan_method *method, bppsa_scan_records *to) {
  const int64_t p = method->chunks;
  const bppsa_scan_level mv = {.op = BPPSA_OP_MV, .stride = 1, .span = 1, .count = 1};
  bppsa_scan_level head = mv, tail = mv;
  to->level_count = 3;
  if (n < 2) {
    return;
  }
  head.phase = BPPSA_PHASE_UP;
  head.first = 1;
  head.length = p > 1 ? bppsa_cut(n, p, 1) : n - 1;
  bppsa_scan_add_record(to, head);
  if (p > 2) {
    bppsa_scan_level products = inner_chunks(n, p, BPPSA_PHASE_UP, BPPSA_OP_MM, 0), carry = mv;
    products.chain = true;
    bppsa_scan_add_record(to, products);
    to->slot_count = products.length > 0 ? products.count : 0;
    carry.phase = BPPSA_PHASE_MIDDLE;
    carry.level = 1;
    carry.first = products.first;
    carry.span = n / p;
    carry.length = p - 2;
    carry.wider = n % p > 1 ? n % p - 1 : 0;
    if (carry.wider == carry.length) {
      carry.span += 1;
      carry.wider = 0;
    }
    bppsa_scan_add_record(to, carry);
    bppsa_scan_add_record(to, inner_chunks(n, p, BPPSA_PHASE_DOWN, BPPSA_OP_MV, 2));
  }
  tail.phase = BPPSA_PHASE_DOWN;
  tail.level = 2;
  tail.first = 1 + bppsa_cut(n, p, p - 1);
  tail.count = p > 1;
  tail.length = n - tail.first;
  bppsa_scan_add_record(to, tail);
}

/* ---- the table ---- */

static const bppsa_scan_algorithm_row rows[BPPSA_SCAN_ALGORITHMS] = {
    [BPPSA_SCAN_AUTO] = {.name = "auto", .runs = {true, true}, .sparse = true},
    [BPPSA_SCAN_LINEAR] = {.name = "linear",
                           .candidate = only_candidate,
                           .write = write_blelloch,
                           .slot_rule = BPPSA_SLOT_TREE,
                           .runs = {true, true},
                           .sparse = true,
                           .bp = true,
                           .fusion = BPPSA_FUSION_WALK},
    [BPPSA_SCAN_BLELLOCH] = {.name = "blelloch",
                             .number = "up_levels",
                             .unit = "up-level",
                             .number_of = up_levels_of,
                             .clamp = clamp_levels,
                             .candidate = tree_candidate,
                             .write = write_blelloch,
                             .slot_rule = BPPSA_SLOT_TREE,
                             .runs = {true, true},
                             .sparse = true,
                             .joins = true},
    [BPPSA_SCAN_CHUNKED] = {.name = "chunked",
                            .number = "chunks",
                            .unit = "chunk",
                            .least = 1,
                            .number_of = chunks_of,
                            .clamp = clamp_chunks,
                            .candidate = chunk_candidate,
                            .write = write_chunked,
                            .slot_rule = BPPSA_SLOT_CHUNKS,
                            .runs = {true, true},
                            .fusion = BPPSA_FUSION_CHUNKS}};

const bppsa_scan_algorithm_row *bppsa_scan_algorithm_find(bppsa_scan_algorithm algorithm) {
  return (unsigned)algorithm < BPPSA_SCAN_ALGORITHMS && rows[algorithm].name != NULL ? &rows[algorithm] : NULL;
}

static const char *listed(const void *context, int32_t index) {
  (void)context;
  return index < BPPSA_SCAN_ALGORITHMS ? rows[index].name : NULL;
}

bppsa_status bppsa_scan_algorithm_check(bppsa_scan_algorithm algorithm, bppsa_device_kind device) {
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(algorithm);
  if (row == NULL) {
    char names[160];
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: unknown algorithm %d, expected %s", (int)algorithm,
                      bppsa_text_choices(listed, NULL, names, sizeof names));
  }
  return row->runs[device] ? BPPSA_OK
                           : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: %s does not run on device %s", row->name,
                                        device == BPPSA_CPU ? "cpu" : "cuda");
}

bppsa_scan_method bppsa_scan_method_of(bppsa_scan_algorithm algorithm) {
  return (bppsa_scan_method){.algorithm = algorithm, .up_levels = -1};
}

bppsa_scan_method bppsa_scan_method_clamp(const bppsa_scan_method *method, int64_t jacobians) {
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(method->algorithm);
  bppsa_scan_method from = *method, found = {.algorithm = method->algorithm};
  if (row != NULL && row->number_of != NULL) {
    *row->number_of(&found) = row->clamp(jacobians, *row->number_of(&from));
  }
  return found;
}

const char *bppsa_scan_algorithm_name(bppsa_scan_algorithm algorithm) {
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(algorithm);
  return row != NULL ? row->name : "unknown";
}

bool bppsa_scan_algorithm_is_bp(bppsa_scan_algorithm algorithm) {
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(algorithm);
  return row != NULL && row->bp;
}

bool bppsa_scan_algorithm_candidate(const bppsa_scan_contest *contest, bool sparse, int64_t index, bppsa_scan_method *method) {
  for (int a = 0; index >= 0 && a < BPPSA_SCAN_ALGORITHMS; ++a) {
    const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find((bppsa_scan_algorithm)a);
    const bool takes = row != NULL && row->candidate != NULL && row->runs[contest->device] && (row->sparse || !sparse);
    bppsa_scan_method found = bppsa_scan_method_of((bppsa_scan_algorithm)a);
    for (int64_t own = 0; takes && row->candidate(contest, own, &found); ++own) {
      if (index-- == 0) {
        *method = found;
        return true;
      }
    }
  }
  return false;
}
