#include "oracle/layer_cost.h"

#include <math.h>

double bppsa_flops_s(const bppsa_oracle_query *q, double flops) {
  return flops / (q->system->peak_flops * q->system->efficiency);
}

static double roofline(const bppsa_oracle_query *q, double flops, double elements) {
  const double bandwidth = q->system->memory_bandwidth;
  return fmax(bppsa_flops_s(q, flops), bandwidth > 0 ? elements * (double)q->item_bytes / bandwidth : 0);
}

double bppsa_layer_forward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  return layer->forward_s >= 0 ? layer->forward_s : roofline(q, layer->flops, layer->x + layer->y);
}

double bppsa_layer_backward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  const double times = layer->w > 0 ? 2 : 1;
  return layer->backward_s >= 0 ? layer->backward_s : roofline(q, times * layer->flops, times * (layer->x + layer->y));
}

double bppsa_layer_update_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  const double parameters = layer->w + layer->bias;
  return layer->update_s >= 0 ? layer->update_s : roofline(q, 4 * parameters, 5 * parameters);
}

double bppsa_layer_elements(const bppsa_oracle_layer *layer, double batch, double activations, double weights) {
  return 2 * batch * (layer->x + layer->y) * activations + 2 * layer->w * weights + layer->bias;
}

bppsa_link bppsa_oracle_link(const bppsa_oracle_query *q, int64_t p, bool shared) {
  const bppsa_oracle_level *level = bppsa_oracle_system_level(q->system, p);
  return (bppsa_link){level->alpha_s, level->beta_s * (shared ? level->contention : 1)};
}

int64_t bppsa_mini_batch(const bppsa_oracle_query *q, int64_t p) {
  return q->strong ? q->batch : q->batch * p;
}

int64_t bppsa_micro_batches(const bppsa_oracle_query *q, int64_t p, int64_t mini_batch) {
  const int64_t asked = q->micro_batches > 0 ? q->micro_batches : 4 * p;
  return asked < mini_batch ? asked : mini_batch;
}
