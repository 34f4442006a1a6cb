/* Product plans: arguments, the choice of a kind, the memory cap. */
#include "jacobian/product.h"

#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/product_internal.h"

bppsa_product_config bppsa_product_config_default(void) {
  return (bppsa_product_config){.kind = BPPSA_PRODUCT_AUTO, .dtype = BPPSA_F32};
}

/* ---- which kinds apply ---- */

/* Has every row at most one entry? By structure, or by looking at the rows. */
static bool is_scaling(const bppsa_csr *a) {
  const bppsa_csr_blocks *k = a->blocks;
  const bppsa_csr *m = k != NULL && k->groups == k->col_channels ? &k->positions : a;
  for (int64_t r = 0; m->row_ptr != NULL && r < m->rows; ++r) {
    if (m->row_ptr[r + 1] - m->row_ptr[r] > 1) {
      return false;
    }
  }
  return m->row_ptr != NULL;
}

static bool is_diagonal(const bppsa_csr *b) {
  const bppsa_csr_blocks *k = b->blocks;
  const bool diagonal_channels = k != NULL && k->groups == k->col_channels && k->groups == k->row_channels;
  const bppsa_csr *m = diagonal_channels ? &k->positions : b;
  bool diagonal = m->row_ptr != NULL && m->rows == m->cols && m->nnz == m->rows && is_scaling(m);
  for (int64_t r = 0; diagonal && r < m->rows; ++r) {
    diagonal = m->row_ptr[r + 1] > m->row_ptr[r] && m->col[m->row_ptr[r]] == r;
  }
  return diagonal;
}

/* ---- the kinds on a processor ---- */

static double written_seconds(const bppsa_product *p) {
  return 0.4e-9 * (double)p->pattern.nnz;
}

static double slot_seconds(const bppsa_product *p) {
  return 0.9e-9 * (double)p->pairs + 0.5e-9 * (double)p->pattern.nnz;
}

static double dense_seconds(const bppsa_product *p) {
  return 2e-11 * (double)p->pairs + 0.5e-6 * (double)p->band_count + 0.3e-9 * (double)p->pattern.nnz;
}

static double conv_seconds(const bppsa_product *p) {
  const double written = (double)p->pattern.nnz;
  return 2.2e-11 * (double)p->pairs + 60e-9 * bppsa_product_conv_calls(p) + 0.6e-9 * (written + (double)p->b->nnz);
}

static int64_t slot_bytes(const bppsa_product *p) {
  return p->widest <= UINT16_MAX + 1 ? 2 : 4;
}

static int64_t slot_index_bytes(const bppsa_product *p) {
  return slot_bytes(p) * p->pairs;
}

static int64_t band_bytes(const bppsa_product *p) {
  return (p->band_count + 1) * (int64_t)sizeof *p->bands;
}

/* The reals of scratch that a thread needs: a row of C. */
static int64_t slot_scratch(const bppsa_product *p) {
  return (p->widest + 15) / 16 * 16;
}

static int64_t slot_scratch_bytes(const bppsa_product *p) {
  return slot_scratch(p) * p->threads * (int64_t)bppsa_dtype_size(p->config.dtype);
}

static double ones_seconds(const bppsa_product *p) {
  return 0.9e-9 * (double)p->sums + 0.5e-9 * (double)p->pattern.nnz;
}

static int64_t ones_index_bytes(const bppsa_product *p) {
  return slot_bytes(p) * p->sums + 8 * (p->pattern.rows + 1);
}

/* What a kind is, besides its routine (product.inc). find_kinds says when it applies. */
static const struct {
  const char *name;
  bool gpu; /* a GPU has it too (product_gpu.c, product_cuda.cu) */
  /* Seconds of a pass on one thread, roughly: only their order matters. Measured on a Xeon with AVX-512 (`bppsa bench product`). */
  double (*seconds)(const bppsa_product *p);
  int64_t (*index_bytes)(const bppsa_product *p);   /* of its indices in host memory; NULL: it has none */
  int64_t (*scratch_bytes)(const bppsa_product *p); /* of its scratch for all threads; NULL: it has none */
  bppsa_status (*plan)(bppsa_product *p); /* makes indices and scratch once C's pattern is complete; NULL: nothing to make */
} kinds[BPPSA_PRODUCT_KINDS] = {
    [BPPSA_PRODUCT_AUTO] = {"auto", true, NULL, NULL, NULL, NULL},
    [BPPSA_PRODUCT_IDENTITY] = {"identity", true, written_seconds, NULL, NULL, NULL},
    [BPPSA_PRODUCT_DIAGONAL] = {"diagonal", true, written_seconds, NULL, NULL, NULL},
    [BPPSA_PRODUCT_SLOTS] = {"slots", true, slot_seconds, slot_index_bytes, slot_scratch_bytes, NULL}, /* see fill */
    [BPPSA_PRODUCT_DENSE] = {"dense", true, dense_seconds, band_bytes, NULL, NULL},                    /* see find_kinds */
    [BPPSA_PRODUCT_CONV] = {"conv", true, conv_seconds, bppsa_product_conv_index_bytes, bppsa_product_conv_scratch_bytes,
                            bppsa_product_plan_conv},
    [BPPSA_PRODUCT_ONES] = {"ones", false, ones_seconds, ones_index_bytes, slot_scratch_bytes, NULL}, /* see fill */
};

const char *bppsa_product_kind_name(bppsa_product_kind kind) {
  return kinds[kind].name;
}

static double predict(const bppsa_product *p, bppsa_product_kind kind, int64_t batch) {
  return p->on_gpu ? bppsa_product_gpu_predict(p, kind, batch) : (double)batch * kinds[kind].seconds(p);
}

/* ---- bytes ---- */

static int64_t ones_bytes(const bppsa_csr *csr) {
  return csr->ones == NULL ? 0 : 8 * (csr->rows + 1) + 4 * csr->ones->nnz;
}

static int64_t csr_bytes(const bppsa_csr *csr) {
  return csr->row_ptr == NULL ? 0 : 8 * (csr->rows + 1) + 4 * csr->nnz + ones_bytes(csr);
}

/* Bytes that the plan will hold besides scratch: C's pattern, copies of the factors' patterns where they had to be expanded, and
 * the kind's indices, in host memory and on a GPU. */
static int64_t plan_bytes(const bppsa_product *p, bppsa_product_kind kind) {
  const int64_t patterns =
      8 * (p->pattern.rows + 1) + 4 * p->pattern.nnz + ones_bytes(&p->pattern) + csr_bytes(&p->own_a) + csr_bytes(&p->own_b);
  if (p->on_gpu) {
    return patterns + (kind == BPPSA_PRODUCT_DENSE ? band_bytes(p) : 0) + bppsa_product_gpu_index_bytes(p, kind);
  }
  return patterns + (kinds[kind].index_bytes != NULL ? kinds[kind].index_bytes(p) : 0);
}

/* Bytes of its scratch, for all threads. */
static int64_t scratch_bytes(const bppsa_product *p, bppsa_product_kind kind) {
  if (p->on_gpu) {
    return bppsa_product_gpu_scratch_bytes(p, kind);
  }
  return kinds[kind].scratch_bytes != NULL ? kinds[kind].scratch_bytes(p) : 0;
}

static bppsa_status check_limit(const bppsa_product *p, int64_t bytes) {
  return p->config.memory_limit > 0 && bytes > p->config.memory_limit
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "product: %lld x %lld with %lld entries needs %lld bytes, the memory limit is %lld",
                          (long long)p->pattern.rows, (long long)p->pattern.cols, (long long)p->pattern.nnz, (long long)bytes,
                          (long long)p->config.memory_limit)
             : BPPSA_OK;
}

/* ---- the pattern ---- */

static int64_t widest_row(const bppsa_csr *c) {
  int64_t widest = 0;
  for (int64_t r = 0; r < c->rows; ++r) {
    const int64_t count = c->row_ptr[r + 1] - c->row_ptr[r];
    widest = count > widest ? count : widest;
  }
  return widest;
}

/* Replaces a factor that is known by its structure alone by a copy with columns. */
static bppsa_status spell_out(bppsa_product *p, const bppsa_csr **factor, bppsa_csr *own) {
  if ((*factor)->row_ptr != NULL) {
    return BPPSA_OK;
  }
  const int64_t bytes = 4 * (*factor)->nnz + 8 * ((*factor)->rows + 1), limit = p->config.memory_limit;
  if (limit > 0 && bytes > limit - csr_bytes(&p->own_a)) { /* own_a is expanded first */
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "product: a factor with %lld entries needs %lld bytes, the memory limit is %lld",
                      (long long)(*factor)->nnz, (long long)bytes, (long long)limit);
  }
  BPPSA_TRY(bppsa_csr_copy(*factor, own));
  *factor = own;
  return bppsa_csr_expand(own, p->threads);
}

static bool has_ones(const bppsa_product *p) {
  return p->a->ones != NULL || p->b->ones != NULL;
}

/* Counts the pairs and C's entries, and finds C's structure or its row_ptr. Allocates nothing of C's size, unless C is a factor
 * with ones. */
static bppsa_status count(bppsa_product *p, bool *known) {
  if (has_ones(p)) {
    BPPSA_TRY(spell_out(p, &p->a, &p->own_a));
    BPPSA_TRY(spell_out(p, &p->b, &p->own_b));
    return bppsa_product_ones_count(p);
  }
  BPPSA_TRY(bppsa_product_blocks(p->a, p->b, &p->pattern, &p->pairs, known));
  if (*known) {
    return BPPSA_OK;
  }
  BPPSA_TRY(spell_out(p, &p->a, &p->own_a));
  BPPSA_TRY(spell_out(p, &p->b, &p->own_b));
  BPPSA_TRY(bppsa_product_count_pairs(p->a, p->b, &p->pairs));
  p->pattern.rows = p->a->rows;
  p->pattern.cols = p->b->cols;
  const bool slots = p->config.kind == BPPSA_PRODUCT_SLOTS && !p->config.symbolic;
  /* a lower bound, before anything larger is made */
  BPPSA_TRY(check_limit(p, plan_bytes(p, BPPSA_PRODUCT_DIAGONAL) + (slots ? 2 * p->pairs : 0)));
  p->pattern.row_ptr = bppsa_calloc(p->a->rows + 1, sizeof *p->pattern.row_ptr);
  if (p->pattern.row_ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_product_count_rows(p->a, p->b, p->threads, p->pattern.row_ptr));
  p->pattern.nnz = p->pattern.row_ptr[p->pattern.rows];
  return BPPSA_OK;
}

/* Finds the kinds that apply; identity and diagonal exclude the others. */
static bppsa_status find_kinds(bppsa_product *p, bool known, bool applies[BPPSA_PRODUCT_KINDS]) {
  applies[BPPSA_PRODUCT_IDENTITY] = p->a->identity || p->b->identity;
  if (has_ones(p)) {
    applies[BPPSA_PRODUCT_ONES] = !applies[BPPSA_PRODUCT_IDENTITY];
    return BPPSA_OK;
  }
  p->right = !is_scaling(p->a);
  applies[BPPSA_PRODUCT_DIAGONAL] = !p->right || is_diagonal(p->b);
  applies[BPPSA_PRODUCT_SLOTS] = (p->a->row_ptr != NULL && p->b->row_ptr != NULL) || p->config.symbolic;
  applies[BPPSA_PRODUCT_CONV] = known;
  return p->config.symbolic || applies[BPPSA_PRODUCT_IDENTITY] || applies[BPPSA_PRODUCT_DIAGONAL]
             ? BPPSA_OK
             : bppsa_product_find_bands(p, &applies[BPPSA_PRODUCT_DENSE]);
}

static bppsa_status choose(bppsa_product *p, bool applies[BPPSA_PRODUCT_KINDS]) {
  for (int k = 0; k < BPPSA_PRODUCT_KINDS; ++k) {
    applies[k] = applies[k] && (kinds[k].gpu || !p->on_gpu);
  }
  bppsa_product_kind best = p->config.kind;
  if (best == BPPSA_PRODUCT_AUTO) {
    best = applies[BPPSA_PRODUCT_IDENTITY] ? BPPSA_PRODUCT_IDENTITY : BPPSA_PRODUCT_DIAGONAL;
    for (int k = BPPSA_PRODUCT_SLOTS; !applies[best] && k < BPPSA_PRODUCT_KINDS; ++k) {
      best = applies[k] ? (bppsa_product_kind)k : best;
    }
    for (int k = BPPSA_PRODUCT_SLOTS; best >= BPPSA_PRODUCT_SLOTS && k < BPPSA_PRODUCT_KINDS; ++k) {
      if (applies[k] && predict(p, (bppsa_product_kind)k, 1) < predict(p, best, 1)) {
        best = (bppsa_product_kind)k;
      }
    }
  }
  if (!applies[best]) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product: kind %s does not apply to these patterns, expected %s or auto",
                      kinds[best].name, has_ones(p) ? "ones" : "slots");
  }
  p->info.kind = best;
  return BPPSA_OK;
}

/* ---- creation ---- */

static bppsa_status plan_slots(bppsa_product *p) {
  if (slot_bytes(p) == 2) {
    p->slots16 = bppsa_alloc((size_t)p->pairs * sizeof *p->slots16);
  } else {
    p->slots32 = bppsa_alloc((size_t)p->pairs * sizeof *p->slots32);
  }
  if (p->slots16 == NULL && p->slots32 == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  if (p->on_gpu) {
    return BPPSA_OK;
  }
  p->scratch_reals = slot_scratch(p);
  p->scratch = bppsa_alloc((size_t)(p->scratch_reals * p->threads) * bppsa_dtype_size(p->config.dtype));
  return p->scratch == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* Makes the columns and the kind's indices. */
static bppsa_status fill(bppsa_product *p, bool known) {
  const bool slots = p->info.kind == BPPSA_PRODUCT_SLOTS;
  BPPSA_TRY(check_limit(p, plan_bytes(p, p->info.kind) + scratch_bytes(p, p->info.kind)));
  if (p->info.kind == BPPSA_PRODUCT_ONES) {
    return bppsa_product_ones_fill(p, true);
  }
  if (known) {
    BPPSA_TRY(bppsa_csr_expand(&p->pattern, p->threads));
  }
  BPPSA_TRY(bppsa_product_cut(p));
  if (slots) {
    BPPSA_TRY(plan_slots(p));
  }
  const bool columns = p->pattern.col == NULL;
  if (columns) {
    p->pattern.col = bppsa_alloc((size_t)p->pattern.nnz * sizeof *p->pattern.col);
    BPPSA_TRY(p->pattern.col == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  }
  if (columns || slots) {
    BPPSA_TRY(bppsa_product_fill_rows(p, slots));
  }
  if (p->on_gpu) {
    return bppsa_product_gpu_plan(p);
  }
  return kinds[p->info.kind].plan != NULL ? kinds[p->info.kind].plan(p) : BPPSA_OK;
}

/* Writes C's columns alone. */
static bppsa_status fill_columns(bppsa_product *p) {
  BPPSA_TRY(bppsa_product_cut(p));
  p->pattern.col = bppsa_alloc((size_t)p->pattern.nnz * sizeof *p->pattern.col);
  return p->pattern.col == NULL ? BPPSA_ERR_MEMORY : bppsa_product_fill_rows(p, false);
}

static bppsa_status plan(bppsa_product *p) {
  bool known = false, applies[BPPSA_PRODUCT_KINDS] = {false};
  BPPSA_TRY(count(p, &known));
  if (!p->config.symbolic) { /* passes read row offsets and columns, which a factor known by its blocks alone lacks */
    BPPSA_TRY(spell_out(p, &p->a, &p->own_a));
    BPPSA_TRY(spell_out(p, &p->b, &p->own_b));
  }
  p->pattern.identity = p->a->identity && p->b->identity;
  p->widest = known ? bppsa_product_widest(&p->pattern) : widest_row(&p->pattern);
  BPPSA_TRY(find_kinds(p, known, applies));
  BPPSA_TRY(choose(p, applies));
  if (!p->config.symbolic) {
    BPPSA_TRY(fill(p, known));
  } else if (p->pattern.col == NULL && p->pattern.row_ptr != NULL) { /* a later product looks at its columns */
    BPPSA_TRY(check_limit(p, plan_bytes(p, BPPSA_PRODUCT_DIAGONAL)));
    BPPSA_TRY(has_ones(p) ? bppsa_product_ones_fill(p, false) : fill_columns(p));
  }
  const bool identity = p->info.kind == BPPSA_PRODUCT_IDENTITY;
  p->info.nnz = p->pattern.nnz;
  p->info.pair_flops = identity ? 0 : 2 * p->pairs;
  p->info.executed_flops = p->info.pair_flops;
  if (p->on_gpu && !p->config.symbolic) {
    const double executed = bppsa_product_gpu_flops(p, p->info.kind);
    p->info.executed_flops = executed < 0x1p62 ? (int64_t)executed : INT64_MAX / 2;
  }
  p->info.workspace_bytes = p->config.symbolic ? 0 : scratch_bytes(p, p->info.kind);
  p->info.plan_bytes = plan_bytes(p, p->info.kind);
  p->info.seconds = identity ? 0 : predict(p, p->info.kind, 1);
  return BPPSA_OK;
}

bppsa_status bppsa_product_create(const bppsa_csr *a, const bppsa_csr *b, const bppsa_product_config *config,
                                  const bppsa_device *device, bppsa_product **product) {
  BPPSA_REQUIRE(a != NULL && b != NULL && config != NULL && product != NULL);
  if (a->cols != b->rows) {
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "product: %lld x %lld times %lld x %lld, expected as many rows on the right as columns on the left",
                      (long long)a->rows, (long long)a->cols, (long long)b->rows, (long long)b->cols);
  }
  if ((unsigned)config->kind >= BPPSA_PRODUCT_KINDS || config->memory_limit < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "product: unknown kind %d or a negative memory limit", (int)config->kind);
  }
  if (config->dtype != BPPSA_F32 && config->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product: dtype %s, expected f32 or f64", bppsa_dtype_name(config->dtype));
  }
  if ((a->ones != NULL || b->ones != NULL) && bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product: ones beside entries on a GPU, expected a processor");
  }
  bppsa_product *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->a = a;
  p->b = b;
  p->config = *config;
  p->threads = bppsa_device_get_threads(device);
  p->on_gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  p->gpu.index = bppsa_device_get_index(device);
  p->gpu.stream = bppsa_device_get_stream(device);
  const bppsa_status status = plan(p);
  if (status != BPPSA_OK) {
    bppsa_product_destroy(p);
    return status;
  }
  *product = p;
  return BPPSA_OK;
}

void bppsa_product_destroy(bppsa_product *p) {
  if (p == NULL) {
    return;
  }
  bppsa_product_gpu_free(p);
  bppsa_csr_free(&p->pattern);
  bppsa_csr_free(&p->own_a);
  bppsa_csr_free(&p->own_b);
  bppsa_free(p->tasks);
  bppsa_free(p->slots16);
  bppsa_free(p->slots32);
  bppsa_free(p->twice_ptr);
  bppsa_free(p->twice);
  bppsa_free(p->bands);
  bppsa_free(p->run_ptr);
  bppsa_free(p->runs);
  bppsa_free(p->packed);
  bppsa_free(p->scratch);
  bppsa_free(p);
}

const bppsa_csr *bppsa_product_pattern(const bppsa_product *p) {
  return &p->pattern;
}

const bppsa_product_info *bppsa_product_get_info(const bppsa_product *p) {
  return &p->info;
}

double bppsa_product_seconds(const bppsa_product *p, int64_t batch) {
  return p->info.kind == BPPSA_PRODUCT_IDENTITY ? 0 : predict(p, p->info.kind, batch);
}

bppsa_status bppsa_product_execute(bppsa_product *p, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c) {
  BPPSA_REQUIRE(p != NULL);
  return bppsa_product_queue(&(bppsa_product_pass){p, a, b, c}, 1, batch, p->gpu.stream);
}

static bppsa_status check_pass(const bppsa_product *p, const bppsa_product *first) {
  if (p->config.symbolic) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "product: a symbolic plan, expected one with values");
  }
  return p->config.dtype == first->config.dtype && p->on_gpu == first->on_gpu && p->gpu.index == first->gpu.index
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "product: plans of differing dtypes or devices, expected one dtype and one device");
}

bppsa_status bppsa_product_queue(const bppsa_product_pass *passes, int64_t count, int64_t batch, void *stream) {
  BPPSA_REQUIRE(passes != NULL);
  if (batch < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "product: a negative batch, expected 0 or more samples");
  }
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(check_pass(passes[i].product, passes[0].product));
  }
  if (count > 0 && passes[0].product->on_gpu) {
    return bppsa_product_cuda_run(passes, count, batch, stream);
  }
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_product_pass *w = &passes[i];
    const int64_t samples = w->a.stride == 0 && w->b.stride == 0 ? batch > 0 : batch;
    (w->product->config.dtype == BPPSA_F32 ? bppsa_product_run_f32 : bppsa_product_run_f64)(w->product, samples, w->a, w->b,
                                                                                            w->c);
  }
  return BPPSA_OK;
}
