/* What graphs do on any device. */
#ifndef BPPSA_TESTS_CNN_GRAPH_CHECKS_H
#define BPPSA_TESTS_CNN_GRAPH_CHECKS_H

#include "tests/cnn/graphs.h"

enum { GRAPH_BATCH = 3 };

/* Masked weights have no gradient and no entry; BP and scans agree with BP on the host. */
static inline void check_graph_masks(const bppsa_device *device, const bppsa_device *host) {
  problem p;
  make_problem(graph_network(5, false), GRAPH_BATCH, BPPSA_F64, 4000, &p);
  bppsa_cnn_config config = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
  int64_t shape[4];
  uint8_t kept[512];
  bppsa_model *model = make_model(&p, &config, host);
  assert_int_equal(bppsa_cnn_weight_shape(&p.network.layers[0], shape), 4);
  const int64_t count = bppsa_view_count(&model->parameters[0].value);
  assert_in_range(count, 1, sizeof kept);
  for (int64_t k = 0; k < count; ++k) {
    kept[k] = k % 3 != 0;
  }
  const bppsa_named_view mask = {model->parameters[0].name, bppsa_view_make(kept, BPPSA_BOOL, 4, shape)};
  config.mask_count = 1;
  config.masks = &mask;
  result bp = compute(&p, &config, host);
  for (int64_t levels = -1; levels < 3; ++levels) {
    config.method =
        config_of(&p, BPPSA_F64, levels < 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, levels < 0 ? 0 : levels).method;
    result got = compute(&p, &config, device);
    compare(&p, BPPSA_F64, &got, &bp, (int)levels);
    for (int64_t k = 0; k < count; ++k) {
      assert_true(kept[k] != 0 || got.values[0][k] == 0);
    }
    free_result(&got);
  }
  free_result(&bp);
  bppsa_model_destroy(model);
  free_problem(&p);
}

/* A model that lives long gives the same gradients in every pass, whatever batch came before. */
static inline void check_graph_passes_again(const bppsa_device *device, int networks) {
  for (int which = 0; which < 2 * networks; ++which) {
    problem p;
    make_problem(graph_network((uint64_t)(which / 2), false), GRAPH_BATCH, BPPSA_F64, 3000, &p);
    const bppsa_cnn_config config = config_of(&p, BPPSA_F64, which % 2 == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, 2);
    result first = compute(&p, &config, device);
    bppsa_model *model = make_model(&p, &config, device);
    inputs in = put_inputs(&p, BPPSA_F64, device);
    for (int pass = 0; pass < 4; ++pass) {
      bppsa_view logits;
      inputs fewer = in;
      fewer.x.shape[0] = fewer.seed.shape[0] = pass % 2 == 0 ? GRAPH_BATCH : 1;
      run_model(model, &fewer, &logits);
      result got = take_result(&p, model, device, &logits, true);
      for (int64_t i = 0; pass % 2 == 0 && i <= p.count; ++i) {
        assert_memory_equal(got.values[i], first.values[i], (size_t)got.count[i] * sizeof(double));
      }
      free_result(&got);
    }
    bppsa_model_destroy(model);
    drop_inputs(&in);
    free_result(&first);
    free_problem(&p);
  }
}

#endif
