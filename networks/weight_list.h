/* The tensors of a file of weights as networks want them. Halves (F16, BF16) are read as f32, which holds all their numbers. A
 * weight that torch.nn.utils.prune has pruned is stored as NAME_orig and NAME_mask: it is read as the tensor NAME, their product.
 * Tensors that no network asks for stay as they are. */
#ifndef BPPSA_NETWORKS_WEIGHT_LIST_H
#define BPPSA_NETWORKS_WEIGHT_LIST_H

#include "core/files/safetensors.h"

typedef enum {
  BPPSA_LIST_SHAPES, /* names, shapes and types; the elements must not be read */
  BPPSA_LIST_VALUES, /* the same, and the elements */
  BPPSA_LIST_MASKS   /* only the masks of pruned weights, as bool under the weights' names */
} bppsa_list_content;

/* How a tensor got into the list. */
typedef struct {
  bppsa_dtype stored; /* its type in the file: BPPSA_F16 or BPPSA_BF16 where it was widened */
  bool pruned;
} bppsa_list_origin;

typedef struct {
  int64_t count;
  bppsa_named_view *tensors;  /* size count */
  bppsa_list_origin *origins; /* size count */
  void *arrays;               /* memory of computed elements and new names */
} bppsa_weight_list;

/* Makes the list of a file that was loaded from `path`; unchanged tensors are borrowed from it. ERR_FORMAT: the file has NAME
 * beside NAME_orig and NAME_mask; ERR_SHAPE: a mask has another shape than its weight; ERR_MEMORY. */
bppsa_status bppsa_weight_list_make(const char *path, const bppsa_safetensors *file, bppsa_list_content content,
                                    bppsa_weight_list *list);
void bppsa_weight_list_free(bppsa_weight_list *list); /* a zeroed one is legal */
/* Finds the tensor of that name, or NULL, and how it got into the list. */
const bppsa_view *bppsa_weight_list_find(const bppsa_weight_list *list, const char *name);
const bppsa_list_origin *bppsa_weight_list_origin(const bppsa_weight_list *list, const char *name);
/* Writes "f16 weights, converted to f32" where the stored weights are halves, or lose digits in dtype; otherwise "". view: the
 * weights, of f32 or f64, or halves, whose elements are not read. Returns the length. */
#define BPPSA_CONVERTED_NOTE 64
int bppsa_weight_list_converted(bppsa_dtype stored, const bppsa_view *view, bppsa_dtype dtype, char note[BPPSA_CONVERTED_NOTE]);

#endif
