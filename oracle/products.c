#include "oracle/products.h"

#include <stdio.h>

#include "oracle/members.h"

static const char *const products[] = {"product", "apply", NULL};

const char *bppsa_oracle_product_name(int32_t product) {
  return product >= 0 && product < BPPSA_PRODUCTS ? products[product] : NULL;
}

double bppsa_oracle_product_s(bppsa_oracle_product product, const bppsa_oracle_product_cost *cost, double hidden,
                              double samples) {
  const double entries = product == BPPSA_PRODUCT_MATRICES ? hidden * hidden : hidden;
  return samples * (cost->sample_s + entries * (cost->entry_s + hidden * cost->term_s));
}

bool bppsa_oracle_product_measured(const bppsa_oracle_product_cost *cost) {
  return cost->sample_s > 0 || cost->entry_s > 0 || cost->term_s > 0;
}

/* ---- files ---- */

static bppsa_status read_cost(const char *where, const json_t *object, bppsa_oracle_product_cost *cost) {
  static const char *const names[] = {"sample_s", "entry_s", "term_s", NULL};
  double seconds[3] = {-1, -1, -1};
  const bppsa_oracle_member members[] = {
      {names[0], &seconds[0], 0, 1e6, false}, {names[1], &seconds[1], 0, 1e6, false}, {names[2], &seconds[2], 0, 1e6, false}};
  BPPSA_TRY(bppsa_oracle_known(where, object, names));
  BPPSA_TRY(bppsa_oracle_numbers(where, object, 3, members));
  for (int i = 0; i < 3; ++i) {
    if (seconds[i] < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" missing, expected seconds", where, names[i]);
    }
  }
  *cost = (bppsa_oracle_product_cost){seconds[0], seconds[1], seconds[2]};
  return bppsa_oracle_product_measured(cost)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: sample_s, entry_s and term_s are 0, expected one of them above", where);
}

bppsa_status bppsa_oracle_products_parse(const char *where, const json_t *object,
                                         bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]) {
  bppsa_oracle_product_cost read[BPPSA_PRODUCTS];
  char what[200];
  if (object == NULL) {
    return BPPSA_OK;
  }
  snprintf(what, sizeof what, "%.100s: \"products\"", where);
  BPPSA_TRY(bppsa_oracle_known(what, object, products));
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    const json_t *own = json_object_get(object, products[i]);
    snprintf(what, sizeof what, "%.100s: products: \"%s\"", where, products[i]);
    BPPSA_TRY(own != NULL ? read_cost(what, own, &read[i])
                          : bppsa_fail(BPPSA_ERR_FORMAT, "%s missing, expected sample_s, entry_s and term_s", what));
  }
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    costs[i] = read[i];
  }
  return BPPSA_OK;
}

json_t *bppsa_oracle_products_json(const bppsa_oracle_product_cost costs[BPPSA_PRODUCTS]) {
  json_t *object = json_object();
  bool ok = object != NULL;
  for (int i = 0; ok && i < BPPSA_PRODUCTS; ++i) {
    json_t *own = json_object();
    ok = own != NULL && bppsa_json_put_real(own, "sample_s", costs[i].sample_s);
    ok = ok && bppsa_json_put_real(own, "entry_s", costs[i].entry_s);
    ok = bppsa_json_put(object, products[i], bppsa_json_finish(own, ok && bppsa_json_put_real(own, "term_s", costs[i].term_s)));
  }
  return bppsa_json_finish(object, ok);
}
