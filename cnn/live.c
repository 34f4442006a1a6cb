#include "cnn/live.h"

#include <string.h>

#include "cnn/blocks.h"
#include "core/base/alloc.h"

/* ---- live sets ---- */

/* The layer that reads each tensor last, size count + 1: tensor by tensor. */
static void find_last_readers(const bppsa_cnn_network *network, int64_t *last) {
  for (int64_t i = 0; i < network->count; ++i) {
    for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
      last[bppsa_cnn_input_of(network, i, k) + 1] = i;
    }
  }
}

/* Is the tensor in x_t? A layer later than t - 1 reads it, and its gradient is wanted. */
static bool is_live(const int64_t *last, int64_t t, int64_t tensor, bool input) {
  return last[tensor] >= t && (tensor > 0 || t == 0 || input);
}

/* Lists the tensors of all live sets, or only counts them where the lists are NULL. */
static bppsa_status list_tensors(const bppsa_cnn_network *network, const int64_t *last, bool input, bppsa_cnn_live *live) {
  int64_t at = 0;
  for (int64_t t = 0; t <= live->elements; ++t) {
    int64_t size = 0;
    for (int64_t tensor = 0; tensor <= t; ++tensor) {
      if (!is_live(last, t, tensor, input)) {
        continue;
      }
      if (live->tensors != NULL) {
        live->tensors[at] = (int32_t)tensor;
        live->offsets[at] = size;
      }
      size += bppsa_cnn_size(network, tensor); /* at most 2^12 tensors of 2^31 values */
      ++at;
    }
    if (size > INT32_MAX) {
      return bppsa_fail(BPPSA_ERR_SHAPE,
                        "%s: the tensors that later layers read have %lld values behind layer '%s', expected at most "
                        "2147483647",
                        network->name, (long long)size, t > 0 ? network->layers[t - 1].name : "input");
    }
    live->sizes[t] = size;
    live->ptr[t + 1] = at;
  }
  return BPPSA_OK;
}

static bppsa_status make_live(const bppsa_cnn_network *network, bool input, int64_t *last, bppsa_cnn_live *live) {
  live->sizes = bppsa_calloc(live->elements + 1, sizeof *live->sizes);
  live->ptr = bppsa_calloc(live->elements + 2, sizeof *live->ptr);
  if (live->sizes == NULL || live->ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  find_last_readers(network, last);
  BPPSA_TRY(list_tensors(network, last, input, live));
  const int64_t all = live->ptr[live->elements + 1];
  live->tensors = bppsa_calloc(all, sizeof *live->tensors);
  live->offsets = bppsa_calloc(all, sizeof *live->offsets);
  return live->tensors == NULL || live->offsets == NULL ? BPPSA_ERR_MEMORY : list_tensors(network, last, input, live);
}

bppsa_status bppsa_cnn_live_create(const bppsa_cnn_network *network, bool input, bppsa_cnn_live *live) {
  BPPSA_REQUIRE(network != NULL && live != NULL);
  bppsa_cnn_live made = {.elements = network->count - 1};
  int64_t *last = bppsa_calloc(network->count + 1, sizeof *last);
  const bppsa_status status = last == NULL ? BPPSA_ERR_MEMORY : make_live(network, input, last, &made);
  bppsa_free(last);
  if (status != BPPSA_OK) {
    bppsa_cnn_live_free(&made);
    return status;
  }
  *live = made;
  return BPPSA_OK;
}

void bppsa_cnn_live_free(bppsa_cnn_live *live) {
  if (live == NULL) {
    return;
  }
  bppsa_free(live->sizes);
  bppsa_free(live->ptr);
  bppsa_free(live->tensors);
  bppsa_free(live->offsets);
  *live = (bppsa_cnn_live){0};
}

int64_t bppsa_cnn_live_offset(const bppsa_cnn_live *live, int64_t t, int64_t tensor) {
  int64_t low = live->ptr[t], high = live->ptr[t + 1];
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (live->tensors[middle] < tensor) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < live->ptr[t + 1] && live->tensors[low] == tensor ? live->offsets[low] : -1;
}

bool bppsa_cnn_live_is_own(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t) {
  return network->layers[t - 1].node == BPPSA_CNN_OPERATOR && live->ptr[t] - live->ptr[t - 1] == 1 &&
         live->ptr[t + 1] - live->ptr[t] == 1 && live->tensors[live->ptr[t - 1]] == bppsa_cnn_input_of(network, t - 1, 0) + 1;
}

/* ---- elements ---- */

bppsa_cnn_part bppsa_cnn_part_of(const bppsa_cnn_network *network, int64_t i, int64_t k) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  const int64_t tensor = bppsa_cnn_input_of(network, i, k) + 1, plane = layer->out[1] * layer->out[2];
  bppsa_cnn_part part = {.tensor = tensor, .count = bppsa_cnn_size(network, tensor)};
  if (layer->node == BPPSA_CNN_SLICE) {
    part.from = layer->first * plane;
    part.count = layer->out[0] * plane;
  }
  for (int64_t before = 0; layer->node == BPPSA_CNN_CONCAT && before < k; ++before) {
    part.to += bppsa_cnn_size(network, bppsa_cnn_input_of(network, i, before) + 1);
  }
  return part;
}

/* Has the layer entries of its own that are no ones, as mul has? */
static bool has_entries(const bppsa_cnn_layer *layer) {
  return bppsa_cnn_has_blocks(layer) || (layer->node == BPPSA_CNN_OPERATOR && !bppsa_op_is_identity(&layer->op));
}

int64_t bppsa_cnn_live_ones(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, bool *own) {
  int64_t ones = 0;
  *own = false;
  for (int64_t at = live->ptr[t - 1]; at < live->ptr[t]; ++at) {
    ones += bppsa_cnn_live_offset(live, t, live->tensors[at]) >= 0 ? bppsa_cnn_size(network, live->tensors[at]) : 0;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(network, t - 1, k);
    if (bppsa_cnn_live_offset(live, t - 1, part.tensor) >= 0) {
      *own = true;
      ones += has_entries(&network->layers[t - 1]) ? 0 : part.count;
    }
  }
  return ones;
}

/* Counts the ones of each row of one tensor, or writes their columns, behind those that the rows have already. */
typedef struct {
  bppsa_csr *csr; /* row_ptr[r + 1]: the number of ones of row r, later where its next one goes */
  bool writes;
} ones_writer;

static void put_ones(const ones_writer *to, int64_t row, int64_t col, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    if (to->writes) {
      to->csr->col[to->csr->row_ptr[row + r]++] = (int32_t)(col + r);
    } else {
      ++to->csr->row_ptr[row + r + 1];
    }
  }
}

/* The ones of permute: each value of the input goes to one place of the output. */
static void put_permuted(const ones_writer *to, const bppsa_cnn_layer *layer, int64_t row, int64_t col) {
  const int64_t *in = layer->op.in;
  int64_t strides[3];
  bppsa_cnn_permuted(layer, strides);
  for (int64_t c = 0; c < in[0]; ++c) {
    for (int64_t h = 0; h < in[1]; ++h) {
      for (int64_t w = 0; w < in[2]; ++w) {
        put_ones(to, row++, col + c * strides[0] + h * strides[1] + w * strides[2], 1);
      }
    }
  }
}

/* Goes through the ones of J_tᵀ. A value that stays live has a one in its own column of x_t. That column is in front of the new
 * tensor's columns, so its one is visited first, and the columns of a row are in order. */
static void visit_ones(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, const ones_writer *to) {
  const int64_t output = bppsa_cnn_live_offset(live, t, t);
  for (int64_t at = live->ptr[t - 1]; at < live->ptr[t]; ++at) {
    const int64_t stays = bppsa_cnn_live_offset(live, t, live->tensors[at]);
    if (stays >= 0) {
      put_ones(to, live->offsets[at], stays, bppsa_cnn_size(network, live->tensors[at]));
    }
  }
  for (int64_t k = 0; !has_entries(&network->layers[t - 1]) && k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(network, t - 1, k);
    const int64_t row = bppsa_cnn_live_offset(live, t - 1, part.tensor);
    if (row >= 0 && network->layers[t - 1].node == BPPSA_CNN_PERMUTE) {
      put_permuted(to, &network->layers[t - 1], row, output);
    } else if (row >= 0) {
      put_ones(to, row + part.from, output + part.to, part.count);
    }
  }
}

static bppsa_status add_ones(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, bppsa_csr *element) {
  bool own;
  const int64_t count = bppsa_cnn_live_ones(live, network, t, &own);
  if (count == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_csr_add_ones(element, count));
  bppsa_csr *ones = element->ones;
  visit_ones(live, network, t, &(ones_writer){ones, false});
  for (int64_t r = 0; r < ones->rows; ++r) {
    ones->row_ptr[r + 1] += ones->row_ptr[r];
  }
  visit_ones(live, network, t, &(ones_writer){ones, true}); /* leaves in row_ptr[r] where row r ends */
  memmove(ones->row_ptr + 1, ones->row_ptr, (size_t)ones->rows * sizeof *ones->row_ptr);
  ones->row_ptr[0] = 0;
  return BPPSA_OK;
}

/* Places an operator's own pattern at a row and a column of an element. */
static bppsa_status place_own(const bppsa_csr *own, int64_t row, int64_t col, bppsa_csr *element) {
  bppsa_csr made;
  if (own->row_ptr == NULL) { /* known by its structure alone */
    BPPSA_TRY(bppsa_csr_copy(own, &made));
    made.rows = element->rows;
    made.cols = element->cols;
    made.blocks->first_row = row;
    made.blocks->first_col = col;
  } else {
    BPPSA_TRY(bppsa_csr_create(element->rows, element->cols, own->nnz, &made));
    for (int64_t r = row; r < made.rows; ++r) {
      made.row_ptr[r + 1] = r - row < own->rows ? own->row_ptr[r - row + 1] : own->nnz;
    }
    for (int64_t p = 0; p < own->nnz; ++p) {
      made.col[p] = own->col[p] + (int32_t)col;
    }
  }
  *element = made;
  return BPPSA_OK;
}

/* The blocks of the inputs that are live, in the order of the live set. */
static bppsa_status place_blocks(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, bppsa_csr *element) {
  const int64_t col = bppsa_cnn_live_offset(live, t, t);
  int64_t count = 0;
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const bool there = bppsa_cnn_live_offset(live, t - 1, bppsa_cnn_input_of(network, t - 1, k) + 1) >= 0;
    count += there ? bppsa_cnn_block_entries(network, t - 1, k) : 0;
  }
  BPPSA_TRY(bppsa_csr_create(element->rows, element->cols, count, element));
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const int64_t tensor = bppsa_cnn_input_of(network, t - 1, k) + 1, row = bppsa_cnn_live_offset(live, t - 1, tensor);
    for (int64_t r = 0; row >= 0 && r < bppsa_cnn_size(network, tensor); ++r) {
      element->row_ptr[row + r + 1] = bppsa_cnn_block_row(network, t - 1, k, r, col, NULL);
    }
  }
  for (int64_t r = 0; r < element->rows; ++r) {
    element->row_ptr[r + 1] += element->row_ptr[r];
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const int64_t tensor = bppsa_cnn_input_of(network, t - 1, k) + 1, row = bppsa_cnn_live_offset(live, t - 1, tensor);
    for (int64_t r = 0; row >= 0 && r < bppsa_cnn_size(network, tensor); ++r) {
      (void)bppsa_cnn_block_row(network, t - 1, k, r, col, element->col + element->row_ptr[row + r]);
    }
  }
  return BPPSA_OK;
}

static bppsa_status place_entries(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, const bppsa_csr *own,
                                  bppsa_csr *element) {
  const bppsa_cnn_layer *layer = &network->layers[t - 1];
  const int64_t row = bppsa_cnn_live_offset(live, t - 1, bppsa_cnn_input_of(network, t - 1, 0) + 1);
  if (bppsa_cnn_has_blocks(layer)) {
    return place_blocks(live, network, t, element);
  }
  return has_entries(layer) && row >= 0 ? place_own(own, row, bppsa_cnn_live_offset(live, t, t), element)
                                        : bppsa_csr_create(element->rows, element->cols, 0, element);
}

/* Is the matrix, which has no entries but ones, the identity? */
static bool is_identity(const bppsa_csr *csr) {
  const bppsa_csr *ones = csr->ones;
  bool identity = csr->nnz == 0 && csr->rows == csr->cols && ones != NULL && ones->nnz == csr->rows;
  for (int64_t r = 0; identity && r < csr->rows; ++r) {
    identity = ones->row_ptr[r + 1] == r + 1 && ones->col[r] == r;
  }
  return identity;
}

static bppsa_status make_element(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, const bppsa_csr *own,
                                 bppsa_csr *made) {
  bppsa_csr element = {.rows = live->sizes[t - 1], .cols = live->sizes[t]};
  BPPSA_TRY(place_entries(live, network, t, own, &element));
  const bppsa_status status = add_ones(live, network, t, &element);
  if (status != BPPSA_OK) {
    bppsa_csr_free(&element);
    return status;
  }
  if (is_identity(&element)) { /* in the form that an operator's identity has, which scans do not even copy */
    bppsa_csr *ones = element.ones;
    element.ones = NULL;
    bppsa_csr_free(&element);
    element = *ones;
    element.identity = true;
    bppsa_free(ones);
  }
  *made = element;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_elements_create(const bppsa_cnn_network *network, bool input, bppsa_cnn_elements *elements) {
  BPPSA_REQUIRE(network != NULL && elements != NULL);
  bppsa_cnn_elements made = {.patterns = bppsa_calloc(network->count, sizeof *made.patterns),
                             .made = bppsa_calloc(network->count, sizeof *made.made)};
  const bppsa_status status =
      made.patterns == NULL || made.made == NULL ? BPPSA_ERR_MEMORY : bppsa_cnn_live_create(network, input, &made.live);
  if (status != BPPSA_OK) {
    bppsa_cnn_elements_free(&made);
    return status;
  }
  *elements = made;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_elements_set(const bppsa_cnn_network *network, int64_t t, const bppsa_csr *own,
                                    bppsa_cnn_elements *elements) {
  BPPSA_REQUIRE(network != NULL && elements != NULL && t >= 1 && t <= elements->live.elements);
  bppsa_csr_free(&elements->made[t - 1]);
  if (bppsa_cnn_live_is_own(&elements->live, network, t)) {
    elements->patterns[t - 1] = own;
    return BPPSA_OK;
  }
  elements->patterns[t - 1] = &elements->made[t - 1];
  return make_element(&elements->live, network, t, own, &elements->made[t - 1]);
}

void bppsa_cnn_elements_free(bppsa_cnn_elements *elements) {
  if (elements == NULL) {
    return;
  }
  for (int64_t t = 0; elements->made != NULL && t < elements->live.elements; ++t) {
    bppsa_csr_free(&elements->made[t]);
  }
  bppsa_free((void *)elements->patterns);
  bppsa_free(elements->made);
  bppsa_cnn_live_free(&elements->live);
  *elements = (bppsa_cnn_elements){0};
}
