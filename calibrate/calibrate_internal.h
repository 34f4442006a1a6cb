/* What a calibration has measured, and what it measures with. Internal. */
#ifndef BPPSA_CALIBRATE_CALIBRATE_INTERNAL_H
#define BPPSA_CALIBRATE_CALIBRATE_INTERNAL_H

#include "calibrate/calibrate.h"
#include "calibrate/measured_model.h"
#include "calibrate/product_costs.h"
#include "calibrate/slowdown.h"
#include "networks/named_network.h"
#include "terminal/progress.h"

enum { BPPSA_CALIBRATE_PROBES = 2, BPPSA_CALIBRATE_FITS = BPPSA_ORACLE_MOST_LEVELS * BPPSA_OPERATIONS };

typedef struct {
  bppsa_comm *world;
  bppsa_comm *links; /* what is measured; over NCCL another one than world */
  const bppsa_calibrate_request *request;
  bppsa_network network;
  bppsa_network_config config;
  bppsa_model *weights; /* has the weights with which the chain is measured */
  bppsa_chain *chain;
  bppsa_chain_noise *noise;
  bppsa_chain_costs costs; /* of the layers on one rank */
  bppsa_view *values;
  bppsa_oracle_model model;
  bppsa_oracle_system system;
  bppsa_oracle_share shares[BPPSA_ORACLE_MOST_SHARES];
  int64_t share_count;
  bppsa_link_fit fits[BPPSA_CALIBRATE_FITS];
  int64_t fit_count;
  bppsa_product_fit products[BPPSA_PRODUCTS];        /* rank 0 */
  double start;                                      /* of all */
  int64_t repeats;                                   /* of a pass while its slowdown is measured */
  bppsa_chain_probe *probes[BPPSA_CALIBRATE_PROBES]; /* a rank that computes alone, and all ranks of a level at once */
  bppsa_slowdown slowdowns[BPPSA_ORACLE_MOST_LEVELS];
  bppsa_progress_line progress;
} bppsa_calibration;

/* The document of the system file, on rank 0. ERR_MEMORY. */
bppsa_status bppsa_calibration_document(const bppsa_calibration *s, json_t **document);

#endif
