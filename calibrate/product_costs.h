/* What the products of the scan over ranks cost on this machine, fitted over sizes by the formula of oracle/products.h. */
#ifndef BPPSA_CALIBRATE_PRODUCT_COSTS_H
#define BPPSA_CALIBRATE_PRODUCT_COSTS_H

#include "core/compute/device.h"
#include "oracle/products.h"
#include "oracle/spread.h"

enum { BPPSA_PRODUCT_POINTS = 14, BPPSA_PRODUCT_SAMPLES = 16, BPPSA_PRODUCT_HIDDEN = 512 };

typedef struct {
  double hidden, samples; /* H, and the samples of a call */
  double median_s;        /* of a call */
  double low_s, high_s;   /* its spread (core/measure/rounds.h) */
  double fitted_s;        /* by the fit's cost */
} bppsa_product_point;

typedef struct {
  bppsa_oracle_product product;
  bppsa_oracle_product_cost cost;
  double residual;            /* root of the mean square of fitted / measured - 1 */
  bppsa_oracle_spread spread; /* means over the points: the ends over the medians */
  int64_t count;
  bppsa_product_point points[BPPSA_PRODUCT_POINTS];
} bppsa_product_fit;

/* Finds the cost, no part below 0, from the points' sizes and medians: least squares of relative errors. Sets cost, residual,
 * spread and the points' fitted_s. count >= 1, medians above 0. */
void bppsa_product_solve(bppsa_product_fit *fit);

/* Measures both products in f32 as a rank executes them (scan/transition.h), of H from 5 to 200, and of `hidden` too where it is
 * from 1 to BPPSA_PRODUCT_HIDDEN, for one sample and for `samples`, at most BPPSA_PRODUCT_SAMPLES of them; quick: fewer sizes and
 * rounds. The numbers of every size are held against float64 first: ERR_NUMERIC where they are wrong. ERR_MEMORY. */
bppsa_status bppsa_products_measure(const bppsa_device *device, int64_t samples, int64_t hidden, bool quick, uint64_t seed,
                                    bppsa_product_fit fits[BPPSA_PRODUCTS]);

/* The fits with their points, as a system file has them; NULL when out of memory. */
json_t *bppsa_product_fits_json(const bppsa_product_fit fits[BPPSA_PRODUCTS]);

#endif
