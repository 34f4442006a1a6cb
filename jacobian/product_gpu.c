/* Product plans for a GPU: the arrays that passes read besides values, in one allocation.
 *
 *   slots     one block for each row of C. Rows of similar width share a launch (a class), because the row's sums lie in the
 *             block's shared memory: with 7 KiB a multiprocessor holds 32 blocks, with 96 KiB two. A wider row is summed in C.
 *   dense     one block for each tile of a band's product
 *   conv      one block for each tile of one entry of S_C: C[r, x][c, z] for row channels r and column channels c is the sum, over
 *             the meetings (e, f) of x and z, of GEMMs over mid channels. It is summed in registers and written once. A's and B's
 *             values are packed first, as [e][m][r] and [f][m][c], so that neighbouring threads read neighbouring values.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory_internal.h"
#include "jacobian/product_internal.h"

enum { MOST_CONV_SAMPLES = 16 };
#define CONV_ROOM ((int64_t)32 << 20) /* bytes of packed values; as many samples as fit are packed together */

/* ---- sizes ---- */

static int64_t most_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t padded(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

static int64_t tiles_of(int64_t count, int64_t tile) {
  return (count + tile - 1) / tile;
}

/* The largest tile that is not mostly empty in a product of rows x columns. */
static int32_t tile_for(int64_t rows, int64_t columns) {
  const int64_t least = rows < columns ? rows : columns;
  return least > 32 ? 64 : least > 16 ? 32 : 16;
}

/* The row channels, column channels and depth of one GEMM in a product with channel structure, and the number of such GEMMs for an
 * entry of S_C. */
typedef struct {
  int64_t rows, columns, depth, parts;
} conv_shape;

static conv_shape shape_of(const bppsa_product *p) {
  const bppsa_csr_blocks *x = p->a->blocks, *y = p->b->blocks;
  const int64_t finest = most_of(x->groups, y->groups);
  return (conv_shape){x->row_channels / x->groups, y->col_channels / y->groups, x->col_channels / finest, finest};
}

static int64_t meetings_of(const bppsa_product *p) {
  const bppsa_csr *x = &p->a->blocks->positions, *y = &p->b->blocks->positions;
  int64_t count = 0;
  for (int64_t e = 0; e < x->nnz; ++e) {
    count += y->row_ptr[x->col[e] + 1] - y->row_ptr[x->col[e]];
  }
  return count;
}

static int64_t packed_bytes(const bppsa_product *p) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->config.dtype);
  return padded(p->a->nnz * size) + padded(p->b->nnz * size);
}

static int64_t conv_samples(const bppsa_product *p) {
  const int64_t fitting = CONV_ROOM / most_of(packed_bytes(p), 1);
  return fitting < 1 ? 1 : fitting < MOST_CONV_SAMPLES ? fitting : MOST_CONV_SAMPLES;
}

static int32_t band_tile(const bppsa_product *p) {
  int32_t tile = 16;
  for (int64_t i = 0; i < p->band_count; ++i) {
    const int32_t fitting = tile_for(p->bands[i].rows, p->bands[i].n);
    tile = fitting > tile ? fitting : tile;
  }
  return tile;
}

int32_t bppsa_product_gpu_tile(const bppsa_product *p, bppsa_product_kind kind) {
  const conv_shape s = kind == BPPSA_PRODUCT_CONV ? shape_of(p) : (conv_shape){0};
  return kind == BPPSA_PRODUCT_CONV ? tile_for(s.rows, s.columns) : kind == BPPSA_PRODUCT_DENSE ? band_tile(p) : 0;
}

int64_t bppsa_product_gpu_scratch_bytes(const bppsa_product *p, bppsa_product_kind kind) {
  return kind == BPPSA_PRODUCT_CONV ? conv_samples(p) * packed_bytes(p) : 0;
}

/* 2 for each multiplication, including those of a tile beyond the matrices' edges. */
double bppsa_product_gpu_flops(const bppsa_product *p, bppsa_product_kind kind) {
  double multiplications = kind == BPPSA_PRODUCT_IDENTITY ? 0 : (double)p->pairs;
  if (kind == BPPSA_PRODUCT_CONV) {
    const conv_shape s = shape_of(p);
    const int64_t t = tile_for(s.rows, s.columns);
    const double area = (double)(tiles_of(s.rows, t) * t) * (double)(tiles_of(s.columns, t) * t);
    multiplications = (double)meetings_of(p) * (double)(s.parts * s.depth) * area;
  } else if (kind == BPPSA_PRODUCT_DENSE) {
    const int64_t t = band_tile(p);
    multiplications = 0;
    for (int64_t i = 0; i < p->band_count; ++i) {
      const product_band *band = &p->bands[i];
      multiplications += (double)(tiles_of(band->rows, t) * t) * (double)(tiles_of(band->n, t) * t) * (double)band->k;
    }
  }
  return 2 * multiplications;
}

/* ---- the allocation ---- */

/* Takes the arrays of the allocation in order; with `base` NULL only adds up their sizes. */
typedef struct {
  char *base;
  int64_t bytes;
} layout;

static void *place(layout *l, int64_t count, size_t size) {
  void *at = l->base != NULL ? l->base + l->bytes : NULL;
  l->bytes += padded(count * (int64_t)size);
  return at;
}

static void place_indices(const bppsa_product *p, bppsa_product_kind kind, layout *l, product_gpu *g) {
  const int64_t rows = p->pattern.rows;
  if (kind == BPPSA_PRODUCT_SLOTS) {
    g->a_ptr = place(l, rows + 1, sizeof *g->a_ptr);
    g->c_ptr = place(l, rows + 1, sizeof *g->c_ptr);
    g->order = place(l, rows, sizeof *g->order);
    g->links = place(l, p->a->nnz + PRODUCT_LINKS_BEHIND, sizeof *g->links);
    g->slots = place(l, p->pairs + 1, p->widest <= UINT16_MAX + 1 ? sizeof(uint16_t) : sizeof(int32_t));
  } else if (kind == BPPSA_PRODUCT_DIAGONAL && p->right) {
    g->columns = place(l, p->a->nnz, sizeof *g->columns);
  } else if (kind == BPPSA_PRODUCT_DIAGONAL) {
    g->c_ptr = place(l, rows + 1, sizeof *g->c_ptr);
    g->scales = place(l, rows, sizeof *g->scales);
  } else if (kind == BPPSA_PRODUCT_DENSE) {
    g->bands = place(l, p->band_count, sizeof *g->bands);
    g->tile_ptr = place(l, p->band_count + 1, sizeof *g->tile_ptr);
  } else if (kind == BPPSA_PRODUCT_CONV) {
    g->a_ptr = place(l, p->a->blocks->positions.rows + 1, sizeof *g->a_ptr);
    g->b_ptr = place(l, p->b->blocks->positions.rows + 1, sizeof *g->b_ptr);
    g->places = place(l, p->pattern.blocks->positions.nnz + 1, sizeof *g->places);
    g->meetings = place(l, meetings_of(p), sizeof *g->meetings);
  }
}

int64_t bppsa_product_gpu_index_bytes(const bppsa_product *p, bppsa_product_kind kind) {
  layout sum = {NULL, 0};
  product_gpu none = {0};
  place_indices(p, kind, &sum, &none);
  return sum.bytes;
}

static void place_scratch(const bppsa_product *p, layout *l, product_gpu *g) {
  const size_t size = bppsa_dtype_size(p->config.dtype);
  g->samples = conv_samples(p);
  g->left_reals = padded(p->a->nnz * (int64_t)size) / (int64_t)size;
  g->right_reals = padded(p->b->nnz * (int64_t)size) / (int64_t)size;
  g->left = place(l, g->samples * g->left_reals, size);
  g->right = place(l, g->samples * g->right_reals, size);
}

static bppsa_status put(const product_gpu *g, void *to, const void *from, int64_t count, size_t size) {
  return count == 0 ? BPPSA_OK : bppsa_cuda_put(g->index, g->stream, to, from, count * (int64_t)size);
}

/* ---- slots ---- */

/* The class of a row, by the shared memory that its sums take. */
static int class_of(int64_t bytes) {
  static const int64_t most[PRODUCT_CLASSES - 1] = {7 << 10, 14 << 10, 28 << 10, 56 << 10, PRODUCT_WIDEST_SHARED};
  int c = 0;
  while (c < PRODUCT_CLASSES - 1 && bytes > most[c]) {
    ++c;
  }
  return c;
}

/* Sorts the rows that have entries into `order`, class by class. A block gets so many threads that an average row of B takes two
 * rounds. */
static void sort_rows(bppsa_product *p, const product_link *links, int32_t *order) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->config.dtype);
  int64_t placed = 0;
  for (int c = 0; c < PRODUCT_CLASSES; ++c) {
    product_class made = {.first = placed, .number = c};
    int64_t entries = 0, pairs = 0;
    for (int64_t r = 0; r < p->pattern.rows; ++r) {
      const int64_t width = p->pattern.row_ptr[r + 1] - p->pattern.row_ptr[r];
      if (width == 0 || class_of(width * size) != c) {
        continue;
      }
      order[placed++] = (int32_t)r;
      made.width = most_of(width, made.width);
      entries += p->a->row_ptr[r + 1] - p->a->row_ptr[r];
      pairs += links[p->a->row_ptr[r + 1]].pair - links[p->a->row_ptr[r]].pair;
    }
    made.rows = placed - made.first;
    for (made.threads = 32; made.threads < 512 && 2 * made.threads * entries < pairs;) {
      made.threads *= 2;
    }
    if (made.rows > 0) {
      p->gpu.classes[p->gpu.class_count++] = made;
    }
  }
}

static bppsa_status put_slots(bppsa_product *p) {
  product_gpu *g = &p->gpu;
  product_link *links = bppsa_calloc(p->a->nnz + PRODUCT_LINKS_BEHIND, sizeof *links);
  int32_t *order = bppsa_alloc((size_t)(p->pattern.rows + 1) * sizeof *order);
  bppsa_status status = links == NULL || order == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    int64_t pair = 0;
    for (int64_t i = 0; i < p->a->nnz; ++i) {
      const int64_t k = p->a->col[i], count = p->b->row_ptr[k + 1] - p->b->row_ptr[k];
      links[i] = (product_link){count > 0 ? p->b->row_ptr[k] : 0, pair};
      pair += count;
    }
    for (int64_t i = p->a->nnz; i < p->a->nnz + PRODUCT_LINKS_BEHIND; ++i) {
      links[i] = (product_link){0, pair};
    }
    sort_rows(p, links, order);
    status = put(g, g->links, links, p->a->nnz + PRODUCT_LINKS_BEHIND, sizeof *links);
  }
  status = status == BPPSA_OK ? put(g, g->order, order, p->pattern.rows, sizeof *order) : status;
  status = status == BPPSA_OK ? put(g, g->a_ptr, p->a->row_ptr, p->a->rows + 1, sizeof *g->a_ptr) : status;
  status = status == BPPSA_OK ? put(g, g->c_ptr, p->pattern.row_ptr, p->pattern.rows + 1, sizeof *g->c_ptr) : status;
  if (status == BPPSA_OK && p->slots16 != NULL) {
    status = put(g, g->slots, p->slots16, p->pairs, sizeof *p->slots16);
  } else if (status == BPPSA_OK) {
    status = put(g, g->slots, p->slots32, p->pairs, sizeof *p->slots32);
  }
  bppsa_free(links);
  bppsa_free(order);
  return status;
}

/* ---- diagonal, dense ---- */

static bppsa_status put_scales(const bppsa_product *p) {
  const product_gpu *g = &p->gpu;
  if (p->right) {
    return put(g, g->columns, p->a->col, p->a->nnz, sizeof *g->columns);
  }
  product_scale *scales = bppsa_calloc(p->pattern.rows + 1, sizeof *scales);
  if (scales == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r < p->pattern.rows; ++r) {
    const int64_t from = p->a->row_ptr[r];
    if (p->a->row_ptr[r + 1] > from) {
      scales[r] = (product_scale){from, p->b->row_ptr[p->a->col[from]]};
    }
  }
  bppsa_status status = put(g, g->scales, scales, p->pattern.rows, sizeof *scales);
  status = status == BPPSA_OK ? put(g, g->c_ptr, p->pattern.row_ptr, p->pattern.rows + 1, sizeof *g->c_ptr) : status;
  bppsa_free(scales);
  return status;
}

static bppsa_status put_bands(bppsa_product *p) {
  product_gpu *g = &p->gpu;
  int64_t *tile_ptr = bppsa_calloc(p->band_count + 1, sizeof *tile_ptr);
  if (tile_ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  g->tile = bppsa_product_gpu_tile(p, BPPSA_PRODUCT_DENSE);
  for (int64_t i = 0; i < p->band_count; ++i) {
    tile_ptr[i + 1] = tile_ptr[i] + tiles_of(p->bands[i].rows, g->tile) * tiles_of(p->bands[i].n, g->tile);
  }
  g->tiles = tile_ptr[p->band_count];
  bppsa_status status = put(g, g->bands, p->bands, p->band_count, sizeof *g->bands);
  status = status == BPPSA_OK ? put(g, g->tile_ptr, tile_ptr, p->band_count + 1, sizeof *tile_ptr) : status;
  bppsa_free(tile_ptr);
  return status;
}

/* ---- channel structure ---- */

/* The place of column z among the columns in row x of S. */
static int64_t entry_of(const bppsa_csr *s, int64_t x, int32_t z) {
  int64_t low = s->row_ptr[x], high = s->row_ptr[x + 1] - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (s->col[middle] < z) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Lists the meetings of every entry of S_C: first counts them, then writes them in the order of S_A's entries. */
static void meet(const bppsa_product *p, product_place *places, product_meeting *meetings) {
  const bppsa_csr *sa = &p->a->blocks->positions, *sb = &p->b->blocks->positions, *sc = &p->pattern.blocks->positions;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t x = 0; x < sa->rows; ++x) {
      for (int64_t e = sa->row_ptr[x]; e < sa->row_ptr[x + 1]; ++e) {
        for (int64_t f = sb->row_ptr[sa->col[e]]; f < sb->row_ptr[sa->col[e] + 1]; ++f) {
          product_place *at = &places[entry_of(sc, x, sb->col[f])];
          if (pass == 1) {
            meetings[at->first] = (product_meeting){(int32_t)e, (int32_t)f};
          }
          ++at->first;
        }
      }
    }
    /* pass 0 turns counts into the beginnings of the lists; pass 1 has advanced each beginning to the next one, so they move back
     * */
    int64_t first = 0, before = 0;
    for (int64_t q = 0; q <= sc->nnz; ++q) {
      const int64_t found = places[q].first;
      places[q].first = pass == 0 ? first : before;
      first += found;
      before = found;
    }
  }
}

static bppsa_status put_conv(bppsa_product *p) {
  product_gpu *g = &p->gpu;
  const bppsa_csr *sa = &p->a->blocks->positions, *sb = &p->b->blocks->positions, *sc = &p->pattern.blocks->positions;
  const int64_t count = meetings_of(p);
  product_place *places = bppsa_calloc(sc->nnz + 1, sizeof *places);
  product_meeting *meetings = bppsa_alloc((size_t)(count + 1) * sizeof *meetings);
  bppsa_status status = places == NULL || meetings == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    meet(p, places, meetings);
    for (int64_t x = 0; x < sc->rows; ++x) {
      for (int64_t q = sc->row_ptr[x]; q < sc->row_ptr[x + 1]; ++q) {
        places[q].start = (int32_t)sc->row_ptr[x];
        places[q].positions = (int32_t)(sc->row_ptr[x + 1] - sc->row_ptr[x]);
      }
    }
    status = put(g, g->places, places, sc->nnz + 1, sizeof *places);
  }
  status = status == BPPSA_OK ? put(g, g->meetings, meetings, count, sizeof *meetings) : status;
  status = status == BPPSA_OK ? put(g, g->a_ptr, sa->row_ptr, sa->rows + 1, sizeof *g->a_ptr) : status;
  status = status == BPPSA_OK ? put(g, g->b_ptr, sb->row_ptr, sb->rows + 1, sizeof *g->b_ptr) : status;
  bppsa_free(places);
  bppsa_free(meetings);
  const conv_shape s = shape_of(p);
  g->tile = bppsa_product_gpu_tile(p, BPPSA_PRODUCT_CONV);
  g->tiles = s.parts * tiles_of(s.rows, g->tile) * tiles_of(s.columns, g->tile);
  return status;
}

/* ---- plans ---- */

/* Checks the number of blocks in the first extent of a launch, and what kernels number with 32 bits: rows, positions, terms. */
static bppsa_status check_blocks(const bppsa_product *p) {
  int64_t blocks = p->pattern.rows;
  if (p->info.kind == BPPSA_PRODUCT_CONV) {
    const conv_shape s = shape_of(p);
    const int64_t t = tile_for(s.rows, s.columns), each = s.parts * tiles_of(s.rows, t) * tiles_of(s.columns, t);
    const int64_t packing = tiles_of(s.rows, 32) * tiles_of(bppsa_product_widest(p->a), 32);
    blocks = most_of(each * most_of(p->pattern.blocks->positions.nnz, 1), p->b->rows);
    blocks = most_of(blocks, p->a->blocks->groups * packing * p->a->blocks->positions.rows);
    /* numbered with 32 bits, and so are */
    blocks = most_of(blocks, most_of(p->a->blocks->positions.nnz, p->b->blocks->positions.nnz));
    blocks = most_of(blocks, bppsa_product_widest(p->a)); /* the terms of a sum, at most */
  } else if (p->info.kind == BPPSA_PRODUCT_DENSE) {
    const int64_t t = band_tile(p);
    int64_t tiles = 0;
    for (int64_t i = 0; i < p->band_count; ++i) {
      tiles += tiles_of(p->bands[i].rows, t) * tiles_of(p->bands[i].n, t);
    }
    blocks = most_of(blocks, tiles);
  }
  return blocks <= INT32_MAX
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                          "product on a GPU: %lld blocks or terms for %lld x %lld of kind %s, expected fewer than 2^31",
                          (long long)blocks, (long long)p->pattern.rows, (long long)p->pattern.cols,
                          bppsa_product_kind_name(p->info.kind));
}

bppsa_status bppsa_product_gpu_plan(bppsa_product *p) {
  product_gpu *g = &p->gpu;
  const bppsa_product_kind kind = p->info.kind;
  const int64_t bytes = bppsa_product_gpu_index_bytes(p, kind) + bppsa_product_gpu_scratch_bytes(p, kind);
  BPPSA_TRY(check_blocks(p));
  BPPSA_TRY(bppsa_product_cuda_prepare(p));
  if (kind == BPPSA_PRODUCT_IDENTITY) {
    return BPPSA_OK;
  }
  const bppsa_status had = bppsa_cuda_alloc(g->index, bytes, &g->memory);
  if (had != BPPSA_OK) {
    return bppsa_fail_prefix(had, "product %lld x %lld, kind %s", (long long)p->pattern.rows, (long long)p->pattern.cols,
                             bppsa_product_kind_name(kind));
  }
  layout real = {g->memory, 0};
  place_indices(p, kind, &real, g);
  if (kind == BPPSA_PRODUCT_CONV) {
    place_scratch(p, &real, g);
    return put_conv(p);
  }
  if (kind == BPPSA_PRODUCT_DENSE) {
    return put_bands(p);
  }
  if (kind == BPPSA_PRODUCT_DIAGONAL) {
    return put_scales(p);
  }
  const bppsa_status status = put_slots(p);
  bppsa_free(p->slots16);
  bppsa_free(p->slots32);
  p->slots16 = NULL;
  p->slots32 = NULL;
  return status;
}

void bppsa_product_gpu_free(bppsa_product *p) {
  if (p->gpu.memory != NULL) {
    bppsa_cuda_free(p->gpu.index, p->gpu.memory);
  }
}
