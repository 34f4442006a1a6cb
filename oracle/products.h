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
  BPPSA_PRODUCT_MATRICES = 0, /* of two full transposed Jacobians [H][H]: bppsa_transition_join */
  BPPSA_PRODUCT_VECTOR,       /* of such a matrix and a gradient [H]: bppsa_transition_apply */
  BPPSA_PRODUCTS
} bppsa_oracle_product;

const char *bppsa_oracle_product_name(int32_t product); /* "product", "apply"; NULL beyond the last */

/* Seconds for each sample, for each number of the result, and for each term of the sum that makes it. All 0: nobody has
 * measured. */
typedef struct {
  double sample_s, entry_s, term_s;
} bppsa_oracle_product_cost;

/* Two matrices take b (sample_s + H^2 entry_s + H^3 term_s), a matrix and a vector b (sample_s + H entry_s + H^2 term_s). b is the
 * number of samples, which a rank takes one by one. */
double bppsa_oracle_product_s(bppsa_oracle_product product, const bppsa_oracle_product_cost *cost, double hidden, double samples);
bool bppsa_oracle_product_measured(const bppsa_oracle_product_cost *cost);

/* The member "products" of a system file; NULL, where there is none, leaves the costs as they are:
 *
 *     {"product": {"sample_s": 1e-7, "entry_s": 1e-9, "term_s": 2e-11},
 *      "apply": {"sample_s": 1e-7, "entry_s": 1e-9, "term_s": 1e-10}}
 *
 * ERR_FORMAT names the member: one that is missing or not known, no number from 0 to 1e6, three zeros. */
bppsa_status bppsa_oracle_products_parse(const char *where, const json_t *object,
                                         bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]);
/* Such an object; NULL when out of memory. */
json_t *bppsa_oracle_products_json(const bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]);

#ifdef __cplusplus
}
#endif
#endif
