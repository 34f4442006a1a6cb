#include "networks/weight_list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/number.h"

#define ORIG "_orig"
#define MASK "_mask"

enum { SUFFIX = sizeof ORIG - 1 };

/* What a tensor of the file becomes. */
typedef struct {
  bool dropped;                     /* it is the mask of another tensor */
  const bppsa_named_view *mask;     /* of NAME_orig: its NAME_mask; otherwise NULL */
  const bppsa_named_view *original; /* the tensor in the file */
} role;

/* ---- names ---- */

static int compare_names(const void *left, const void *right) {
  return strcmp((*(const role *const *)left)->original->name, (*(const role *const *)right)->original->name);
}

/* Finds the tensor whose name is the first `length` characters of stem and then the ending. */
static role *find(role *const *sorted, int64_t count, const char *stem, size_t length, const char *ending) {
  int64_t first = 0;
  while (first < count) {
    const int64_t middle = first + (count - first) / 2;
    const char *name = sorted[middle]->original->name;
    const int beginning = strncmp(stem, name, length), order = beginning != 0 ? beginning : strcmp(ending, name + length);
    if (order == 0) {
      return sorted[middle];
    }
    if (order < 0) {
      count = middle;
    } else {
      first = middle + 1;
    }
  }
  return NULL;
}

/* Checks a weight against its mask. `length` is the length of the name in front of _orig and _mask. */
static bppsa_status check_pair(const char *path, const role *orig, const role *mask, bool whole, int length) {
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  const char *name = orig->original->name;
  const bppsa_view *a = &orig->original->view, *b = &mask->original->view;
  if (whole) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: tensor '%.*s' beside '%s' and '%s', expected the weight or, as torch.nn.utils.prune writes a pruned "
                      "one, the other two",
                      path, length, name, name, mask->original->name);
  }
  if (!bppsa_view_same_shape(a, b)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: tensor '%s' has shape %s, expected %s as '%s' has", path, mask->original->name,
                      bppsa_shape_text(b->ndim, b->shape, found, sizeof found),
                      bppsa_shape_text(a->ndim, a->shape, expected, sizeof expected), name);
  }
  return bppsa_dtype_size(b->dtype) > 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: tensor '%s' is %s, expected a mask of bool, integers or reals", path,
                          mask->original->name, bppsa_view_dtype_name(b));
}

/* Finds the pairs NAME_orig and NAME_mask. */
static bppsa_status find_pairs(const char *path, int64_t count, role *roles, role *const *sorted) {
  for (int64_t i = 0; i < count; ++i) {
    const char *name = roles[i].original->name;
    const size_t size = strlen(name), length = size > SUFFIX ? size - SUFFIX : 0;
    role *mask = length > 0 && strcmp(name + length, ORIG) == 0 ? find(sorted, count, name, length, MASK) : NULL;
    if (mask != NULL) {
      BPPSA_TRY(check_pair(path, &roles[i], mask, find(sorted, count, name, length, "") != NULL, (int)length));
      roles[i].mask = mask->original;
      mask->dropped = true;
    }
  }
  return BPPSA_OK;
}

/* ---- arrays ---- */

static size_t padded(size_t bytes) {
  return (bytes + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
}

static bool is_half(bppsa_dtype dtype) {
  return dtype == BPPSA_F16 || dtype == BPPSA_BF16;
}

/* The dtype in which a tensor is listed. */
static bppsa_dtype listed(const role *r, bppsa_list_content content) {
  const bppsa_dtype dtype = r->original->view.dtype;
  return content == BPPSA_LIST_MASKS ? BPPSA_BOOL : is_half(dtype) ? BPPSA_F32 : dtype;
}

static bool is_listed(const role *r, bppsa_list_content content) {
  return content == BPPSA_LIST_MASKS ? r->mask != NULL : !r->dropped;
}

/* Are its elements computed? A pair of integers is not: it stays in the list, and no network takes it. */
static bool is_made(const role *r, bppsa_list_content content) {
  const bppsa_dtype dtype = listed(r, content);
  return content == BPPSA_LIST_MASKS || (content == BPPSA_LIST_VALUES && (dtype == BPPSA_F32 || dtype == BPPSA_F64) &&
                                         (r->mask != NULL || is_half(r->original->view.dtype)));
}

/* Counts the bytes of a tensor's new name and of its new elements. */
static size_t new_bytes(const role *r, bppsa_list_content content) {
  const size_t name = r->mask != NULL ? padded(strlen(r->original->name) + 1) : 0;
  const size_t elements = (size_t)bppsa_view_count(&r->original->view) * bppsa_dtype_size(listed(r, content));
  return name + (is_made(r, content) ? padded(elements) : 0);
}

/* Fills a tensor's elements: its own times the mask's, or, in a list of masks, whether the mask keeps each. */
static void fill(const role *r, bppsa_list_content content, const bppsa_view *to) {
  const int64_t count = bppsa_view_count(to);
  for (int64_t i = 0; i < count; ++i) {
    double value = 0, factor = 1;
    if (content == BPPSA_LIST_MASKS) {
      ((uint8_t *)to->data)[i] = bppsa_number_set(&r->mask->view, i);
      continue;
    }
    (void)bppsa_number_real(&r->original->view, i, &value);
    (void)(r->mask == NULL || bppsa_number_real(&r->mask->view, i, &factor));
    bppsa_view_set(to, i, r->mask == NULL ? value : value * factor);
  }
}

/* Puts a tensor at the end of the list; its name and its elements come from *memory. */
static void add(const role *r, bppsa_list_content content, char **memory, bppsa_weight_list *list) {
  bppsa_named_view *to = &list->tensors[list->count];
  *to = *r->original;
  to->view.dtype = listed(r, content);
  list->origins[list->count++] = (bppsa_list_origin){.stored = r->original->view.dtype, .pruned = r->mask != NULL};
  if (r->mask != NULL) {
    const size_t size = strlen(to->name);
    memcpy(*memory, to->name, size - SUFFIX);
    to->name = *memory;
    *memory += padded(size + 1);
  }
  if (is_made(r, content)) {
    to->view = bppsa_view_make(*memory, to->view.dtype, to->view.ndim, to->view.shape);
    fill(r, content, &to->view);
    *memory += padded(bppsa_view_bytes(&to->view));
  }
}

static bppsa_status fill_list(int64_t count, const role *roles, bppsa_list_content content, bppsa_weight_list *list) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    bytes += is_listed(&roles[i], content) ? (int64_t)new_bytes(&roles[i], content) : 0;
  }
  list->tensors = bppsa_calloc(count, sizeof *list->tensors);
  list->origins = bppsa_calloc(count, sizeof *list->origins);
  list->arrays = bppsa_calloc(bytes, 1);
  if (list->tensors == NULL || list->origins == NULL || list->arrays == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  char *memory = list->arrays;
  for (int64_t i = 0; i < count; ++i) {
    if (is_listed(&roles[i], content)) {
      add(&roles[i], content, &memory, list);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_weight_list_make(const char *path, const bppsa_safetensors *file, bppsa_list_content content,
                                    bppsa_weight_list *list) {
  const int64_t count = bppsa_safetensors_count(file);
  bppsa_weight_list made = {.count = 0};
  role *roles = bppsa_calloc(count, sizeof *roles), **sorted = bppsa_calloc(count, sizeof(role *));
  bppsa_status status = roles == NULL || sorted == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    roles[i].original = bppsa_safetensors_get(file, i);
    sorted[i] = &roles[i];
  }
  if (status == BPPSA_OK) {
    qsort((void *)sorted, (size_t)count, sizeof *sorted, compare_names);
    status = find_pairs(path, count, roles, sorted);
  }
  status = status == BPPSA_OK ? fill_list(count, roles, content, &made) : status;
  bppsa_free((void *)sorted);
  bppsa_free(roles);
  if (status != BPPSA_OK) {
    bppsa_weight_list_free(&made);
    return status;
  }
  *list = made;
  return BPPSA_OK;
}

void bppsa_weight_list_free(bppsa_weight_list *list) {
  bppsa_free(list->tensors);
  bppsa_free(list->origins);
  bppsa_free(list->arrays);
  *list = (bppsa_weight_list){.count = 0};
}

static int64_t position_of(const bppsa_weight_list *list, const char *name) {
  int64_t i = 0;
  while (i < list->count && strcmp(list->tensors[i].name, name) != 0) {
    ++i;
  }
  return i < list->count ? i : -1;
}

const bppsa_view *bppsa_weight_list_find(const bppsa_weight_list *list, const char *name) {
  const int64_t at = position_of(list, name);
  return at >= 0 ? &list->tensors[at].view : NULL;
}

const bppsa_list_origin *bppsa_weight_list_origin(const bppsa_weight_list *list, const char *name) {
  const int64_t at = position_of(list, name);
  return at >= 0 ? &list->origins[at] : NULL;
}

/* Does converting to f32 change any element? */
static bool is_rounded(const bppsa_view *view, bppsa_dtype dtype) {
  const int64_t count = dtype == BPPSA_F32 && view->dtype == BPPSA_F64 ? bppsa_view_count(view) : 0;
  bool rounded = false;
  for (int64_t i = 0; i < count && !rounded; ++i) {
    const double value = bppsa_view_get(view, i);
    rounded = isfinite(value) && (double)(float)value != value;
  }
  return rounded;
}

int bppsa_weight_list_converted(bppsa_dtype stored, const bppsa_view *view, bppsa_dtype dtype, char note[BPPSA_CONVERTED_NOTE]) {
  const bool rounded = !is_half(stored) && is_rounded(view, dtype);
  note[0] = '\0';
  return is_half(stored) || rounded
             ? snprintf(note, BPPSA_CONVERTED_NOTE, "%s weights, converted to %s%s", bppsa_dtype_name(stored),
                        bppsa_dtype_name(dtype), rounded ? ", which rounds them" : "")
             : 0;
}
