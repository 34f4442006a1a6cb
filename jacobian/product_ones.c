/* Products of matrices that have ones beside their entries (csr.h). With A = V + U and B = W + X, where U and X hold the ones,
 *
 *     C = V W + V X + U W + U X
 *
 * V W alone multiplies. V X and U W copy entries, and add where several meet. A position that U X reaches once is a one of C; where
 * it is reached twice or more, the number of ways is an entry of C, because it is no longer a one. So C's entries are the positions
 * of V W, V X, U W, and those that U X reaches at least twice.
 *
 * Two bits for each column tell entries from ones; the columns of a row are read from the bits in order. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "jacobian/product_internal.h"

/* The entries of one row of a pattern, or of its ones. */
typedef struct {
  const int32_t *col;
  int64_t count;
} row_view;

static row_view row_of(const bppsa_csr *csr, int64_t r) {
  return csr == NULL ? (row_view){0} : (row_view){csr->col + csr->row_ptr[r], csr->row_ptr[r + 1] - csr->row_ptr[r]};
}

/* What meets in a row of C: pairs of entries; sums: additions of entries into C; met: pairs of ones. */
typedef struct {
  int64_t pairs, sums, met;
} meetings;

static meetings meetings_of(const bppsa_product *p, int64_t r) {
  const row_view entries = row_of(p->a, r), ones = row_of(p->a->ones, r);
  meetings m = {0};
  for (int64_t i = 0; i < entries.count; ++i) {
    m.pairs += row_of(p->b, entries.col[i]).count;
    m.sums += row_of(p->b->ones, entries.col[i]).count;
  }
  m.sums += m.pairs;
  for (int64_t i = 0; i < ones.count; ++i) {
    m.sums += row_of(p->b, ones.col[i]).count;
    m.met += row_of(p->b->ones, ones.col[i]).count;
  }
  return m;
}

/* ---- a row's columns ---- */

/* A thread's memory: bits for each column, all 0 between rows, and the place of each entry in its row of C. A row that reaches few
 * columns far apart reads few words, because a bit of `words` says which ones have bits. */
typedef struct {
  uint64_t *entries, *once, *twice;
  uint64_t *words; /* a bit for each word of the three */
  int32_t *place;
  int64_t least, most; /* of `words`, those that have bits */
} workspace;

static void mark(workspace *w, row_view row, uint64_t *bits) {
  for (int64_t i = 0; i < row.count; ++i) {
    const int64_t word = row.col[i] >> 6;
    bits[word] |= (uint64_t)1 << (row.col[i] & 63);
    w->words[word >> 6] |= (uint64_t)1 << (word & 63);
  }
  if (row.count > 0) {
    w->least = row.col[0] >> 12 < w->least ? row.col[0] >> 12 : w->least;
    w->most = row.col[row.count - 1] >> 12 > w->most ? row.col[row.count - 1] >> 12 : w->most;
  }
}

/* Notes columns that ones reach. */
static void mark_ones(workspace *w, row_view row) {
  for (int64_t i = 0; i < row.count; ++i) {
    const int64_t word = row.col[i] >> 6;
    w->twice[word] |= w->once[word] & (uint64_t)1 << (row.col[i] & 63);
  }
  mark(w, row, w->once);
}

static void mark_row(const bppsa_product *p, int64_t r, workspace *w) {
  const row_view entries = row_of(p->a, r), ones = row_of(p->a->ones, r);
  w->least = INT64_MAX;
  w->most = -1;
  for (int64_t i = 0; i < entries.count; ++i) {
    mark(w, row_of(p->b, entries.col[i]), w->entries);
    mark(w, row_of(p->b->ones, entries.col[i]), w->entries);
  }
  for (int64_t i = 0; i < ones.count; ++i) {
    mark(w, row_of(p->b, ones.col[i]), w->entries);
    mark_ones(w, row_of(p->b->ones, ones.col[i]));
  }
}

static int64_t write_columns(uint64_t bits, int64_t word, int64_t count, int32_t *col, int32_t *place) {
  for (; bits != 0; bits &= bits - 1, ++count) {
    const int32_t column = (int32_t)(64 * word + __builtin_ctzll(bits));
    if (col != NULL) {
      col[count] = column;
    }
    if (place != NULL) {
      place[column] = (int32_t)count;
    }
  }
  return count;
}

/* Reads the marks of a row. Writes the columns where they are wanted. */
static void read_row(workspace *w, int32_t *col, int32_t *ones_col, int64_t *entries, int64_t *ones) {
  *entries = *ones = 0;
  for (int64_t i = w->least; i <= w->most; ++i) {
    for (uint64_t bits = w->words[i]; bits != 0; bits &= bits - 1) {
      const int64_t word = 64 * i + __builtin_ctzll(bits);
      *entries = write_columns(w->entries[word] | w->twice[word], word, *entries, col, w->place);
      *ones = write_columns(w->once[word] & ~w->twice[word], word, *ones, ones_col, NULL);
    }
  }
}

static void clear_row(workspace *w) {
  for (int64_t i = w->least; i <= w->most; ++i) {
    for (uint64_t bits = w->words[i]; bits != 0; bits &= bits - 1) {
      const int64_t word = 64 * i + __builtin_ctzll(bits);
      w->entries[word] = w->once[word] = w->twice[word] = 0;
    }
    w->words[i] = 0;
  }
}

static void free_workspaces(workspace *spaces, int32_t threads) {
  for (int32_t t = 0; spaces != NULL && t < threads; ++t) {
    bppsa_free(spaces[t].entries);
    bppsa_free(spaces[t].once);
    bppsa_free(spaces[t].twice);
    bppsa_free(spaces[t].words);
    bppsa_free(spaces[t].place);
  }
  bppsa_free(spaces);
}

static workspace *make_workspaces(const bppsa_product *p) {
  const int64_t words = p->b->cols / 64 + 1;
  workspace *spaces = bppsa_calloc(p->threads, sizeof *spaces);
  for (int32_t t = 0; spaces != NULL && t < p->threads; ++t) {
    workspace *w = &spaces[t];
    w->entries = bppsa_calloc(words, sizeof *w->entries);
    w->once = bppsa_calloc(words, sizeof *w->once);
    w->twice = bppsa_calloc(words, sizeof *w->twice);
    w->words = bppsa_calloc(words / 64 + 1, sizeof *w->words);
    w->place = bppsa_calloc(p->b->cols, sizeof *w->place);
    if (w->entries == NULL || w->once == NULL || w->twice == NULL || w->words == NULL || w->place == NULL) {
      free_workspaces(spaces, p->threads);
      return NULL;
    }
  }
  return spaces;
}

/* ---- counting ---- */

typedef struct {
  bppsa_product *p;
  workspace *spaces;
} row_job;

static void count_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const row_job *job = context;
  bppsa_csr *c = &job->p->pattern;
  for (int64_t r = first; r < end; ++r) {
    mark_row(job->p, r, &job->spaces[worker]);
    read_row(&job->spaces[worker], NULL, NULL, &c->row_ptr[r + 1], &c->ones->row_ptr[r + 1]);
    clear_row(&job->spaces[worker]);
  }
}

/* Adds up what meets in all rows, and cuts the rows into tasks of about equal sums. ERR_MEMORY: beyond 64 bits. */
static bppsa_status cut_rows(bppsa_product *p, double *work) {
  enum { TASKS = 256 };
  int64_t all = 0, sums = 0, before = 0, from = 0;
  for (int64_t r = 0; r < p->a->rows; ++r) {
    const meetings m = meetings_of(p, r);
    if (all > INT64_MAX / 16 - m.sums - m.met) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "product: more than 2^59 matching pairs");
    }
    p->pairs += m.pairs;
    p->sums += m.sums;
    all += m.sums + m.met;
  }
  *work = bppsa_loop_work(0, 4 * sizeof(int32_t) * (double)all);
  const int64_t goal = (p->sums + p->a->rows) / TASKS + 1;
  p->tasks = bppsa_calloc(TASKS + 1, sizeof *p->tasks);
  if (p->tasks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r < p->a->rows; ++r) {
    sums += meetings_of(p, r).sums;
    if (sums - before + (r + 1 - from) >= goal || r + 1 == p->a->rows) {
      p->tasks[p->task_count++] = (product_task){from, r + 1 - from, before};
      from = r + 1;
      before = sums;
    }
  }
  return BPPSA_OK;
}

static void free_ones(bppsa_csr *csr) {
  bppsa_csr_free(csr->ones);
  bppsa_free(csr->ones);
  csr->ones = NULL;
}

bppsa_status bppsa_product_ones_count(bppsa_product *p) {
  double work = 0;
  bppsa_csr *c = &p->pattern;
  if (p->a->identity || p->b->identity) { /* C is the other factor */
    const bppsa_csr *other = p->a->identity ? p->b : p->a;
    p->pairs = other->nnz;
    return bppsa_csr_copy(other, c);
  }
  BPPSA_TRY(cut_rows(p, &work));
  *c = (bppsa_csr){.rows = p->a->rows, .cols = p->b->cols};
  c->row_ptr = bppsa_calloc(c->rows + 1, sizeof *c->row_ptr);
  BPPSA_TRY(c->row_ptr == NULL ? BPPSA_ERR_MEMORY : bppsa_csr_add_ones(c, 0));
  row_job job = {p, make_workspaces(p)};
  if (job.spaces == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_parallel_for(p->threads, c->rows, work, count_rows, &job);
  free_workspaces(job.spaces, p->threads);
  for (int64_t r = 0; r < c->rows; ++r) {
    c->row_ptr[r + 1] += c->row_ptr[r];
    c->ones->row_ptr[r + 1] += c->ones->row_ptr[r];
  }
  c->nnz = c->row_ptr[c->rows];
  c->ones->nnz = c->ones->row_ptr[c->rows];
  if (c->ones->nnz == 0) {
    free_ones(c);
  }
  return BPPSA_OK;
}

/* ---- columns and slots ---- */

static int64_t put_slots(bppsa_product *p, const workspace *w, row_view row, int64_t at) {
  for (int64_t i = 0; i < row.count; ++i, ++at) {
    if (p->slots16 != NULL) {
      p->slots16[at] = (uint16_t)w->place[row.col[i]];
    } else {
      p->slots32[at] = w->place[row.col[i]];
    }
  }
  return at;
}

/* Writes the slots of a row in the order in which a pass adds. */
static int64_t put_row(bppsa_product *p, int64_t r, const workspace *w, int64_t at) {
  const row_view entries = row_of(p->a, r), ones = row_of(p->a->ones, r);
  for (int64_t i = 0; i < entries.count; ++i) {
    at = put_slots(p, w, row_of(p->b, entries.col[i]), at);
    at = put_slots(p, w, row_of(p->b->ones, entries.col[i]), at);
  }
  for (int64_t i = 0; i < ones.count; ++i) {
    at = put_slots(p, w, row_of(p->b, ones.col[i]), at);
  }
  return at;
}

/* Lists the slots of a row that several ones reach, one for each of them; places NULL: only counts them. */
static int64_t list_twice(const bppsa_product *p, int64_t r, const workspace *w, int32_t *places) {
  const row_view ones = row_of(p->a->ones, r);
  int64_t count = 0;
  for (int64_t i = 0; i < ones.count; ++i) {
    const row_view row = row_of(p->b->ones, ones.col[i]);
    for (int64_t k = 0; k < row.count; ++k) {
      if ((w->twice[row.col[k] >> 6] >> (row.col[k] & 63) & 1) != 0) {
        if (places != NULL) {
          places[count] = w->place[row.col[k]];
        }
        ++count;
      }
    }
  }
  return count;
}

static void fill_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const row_job *job = context;
  bppsa_product *p = job->p;
  workspace *w = &job->spaces[worker];
  const bppsa_csr *c = &p->pattern;
  for (const product_task *t = &p->tasks[first]; t < &p->tasks[end]; ++t) {
    int64_t at = t->pair, entries, ones;
    for (int64_t r = t->row; r < t->row + t->rows; ++r) {
      mark_row(p, r, w);
      read_row(w, c->col + c->row_ptr[r], c->ones != NULL ? c->ones->col + c->ones->row_ptr[r] : NULL, &entries, &ones);
      if (p->slots16 != NULL || p->slots32 != NULL) {
        at = put_row(p, r, w, at);
      }
      if (p->twice != NULL) {
        list_twice(p, r, w, p->twice + p->twice_ptr[r]);
      } else if (p->twice_ptr != NULL) {
        p->twice_ptr[r + 1] = list_twice(p, r, w, NULL);
      }
      clear_row(w);
    }
  }
}

/* Allocates what fill_rows writes: slots of all sums, and row offsets of ones that meet. */
static bppsa_status reserve(bppsa_product *p) {
  if (p->widest <= UINT16_MAX + 1) {
    p->slots16 = bppsa_alloc((size_t)p->sums * sizeof *p->slots16);
  } else {
    p->slots32 = bppsa_alloc((size_t)p->sums * sizeof *p->slots32);
  }
  p->twice_ptr = bppsa_calloc(p->a->rows + 1, sizeof *p->twice_ptr);
  p->scratch_reals = (p->widest + 15) / 16 * 16;
  p->scratch = bppsa_alloc((size_t)(p->scratch_reals * p->threads) * bppsa_dtype_size(p->config.dtype));
  const bool slots = p->slots16 != NULL || p->slots32 != NULL;
  return !slots || p->twice_ptr == NULL || p->scratch == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

bppsa_status bppsa_product_ones_fill(bppsa_product *p, bool slots) {
  bppsa_csr *c = &p->pattern;
  c->col = bppsa_alloc((size_t)c->nnz * sizeof *c->col);
  BPPSA_TRY(c->col == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  if (c->ones != NULL) {
    bppsa_free(c->ones->col);
    c->ones->col = bppsa_alloc((size_t)c->ones->nnz * sizeof *c->ones->col);
    BPPSA_TRY(c->ones->col == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  }
  BPPSA_TRY(slots ? reserve(p) : BPPSA_OK);
  row_job job = {p, make_workspaces(p)};
  if (job.spaces == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const double work = bppsa_loop_work(0, 4 * sizeof(int32_t) * (double)p->sums);
  bppsa_parallel_for(p->threads, p->task_count, work, fill_rows, &job);
  for (int64_t r = 0; slots && r < c->rows; ++r) {
    p->twice_ptr[r + 1] += p->twice_ptr[r];
  }
  bppsa_status status = BPPSA_OK;
  if (slots && p->twice_ptr[c->rows] > 0) { /* rare: two ways of identities to one place */
    p->twice = bppsa_alloc((size_t)p->twice_ptr[c->rows] * sizeof *p->twice);
    status = p->twice == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
    if (status == BPPSA_OK) {
      bppsa_parallel_for(p->threads, p->task_count, work, fill_rows, &job);
    }
  }
  free_workspaces(job.spaces, p->threads);
  return status;
}
