/* The products of the scan over ranks (distributed/time/scan_ranks.h) as a system has measured them: their seconds follow from the
 * size H of the gradients and the number of samples. */
#ifndef BPPSA_ORACLE_PRODUCTS_H
#define BPPSA_ORACLE_PRODUCTS_H

#include "core/base/status.h"
#include "core/files/json.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_PRODUCT_MATRICES = 0, /* two full transposed Jacobians [H][H]: bppsa_transition_join */
  BPPSA_PRODUCT_VECTOR,       /* such a matrix times a gradient [H]: bppsa_transition_apply */
  BPPSA_PRODUCTS
} bppsa_oracle_product;

const char *bppsa_oracle_product_name(int32_t product); /* "product", "apply"; NULL beyond the last */

/* Seconds for each sample, for each number of the result, and for each term of the sums that make them. All 0: not measured. */
typedef struct {
  double sample_s, entry_s, term_s;
} bppsa_oracle_product_cost;

/* Returns the seconds of b samples, which a rank takes one by one: two matrices take b (sample_s + H^2 entry_s + H^3 term_s), a
 * matrix and a vector b (sample_s + H entry_s + H^2 term_s). */
double bppsa_oracle_product_s(bppsa_oracle_product product, const bppsa_oracle_product_cost *cost, double hidden, double samples);
bool bppsa_oracle_product_measured(const bppsa_oracle_product_cost *cost);

/* Reads the member "products" of a system file; if it is NULL (absent), the costs stay as they are:
 *
 *     {"product": {"sample_s": 1e-7, "entry_s": 1e-9, "term_s": 2e-11},
 *      "apply": {"sample_s": 1e-7, "entry_s": 1e-9, "term_s": 1e-10}}
 *
 * ERR_FORMAT names the member: it is missing, unknown, no number from 0 to 1e6, or all its three numbers are 0. */
bppsa_status bppsa_oracle_products_parse(const char *where, const json_t *object,
                                         bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]);
/* Makes such an object; NULL when out of memory. */
json_t *bppsa_oracle_products_json(const bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]);

#ifdef __cplusplus
}
#endif
#endif
