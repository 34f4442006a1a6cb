/* Reader: runs/gradients.c: the batch of `bppsa grad`. The parts are headers and elements of the input, the labels or targets,
 * and the initial state; options: the loss or none, the network, the dtype. The gradients are then computed. */
#include <string.h>

#include "runs/gradients.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

#define NETWORK "{\"input\":[1,2,2],\"layers\":[{\"name\":\"r\",\"op\":\"relu\"},{\"name\":\"fc\",\"op\":\"linear\",\"out\":3}]}"

static void compute(bppsa_gradients *g) {
  g->config.input_gradients = true;
  g->config.memory_limit = 8 << 20;
  g->config.method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_SCAN, .scan = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH)};
  if (bppsa_network_create(&g->network, &g->config, g->device, &g->model) != BPPSA_OK ||
      bppsa_network_init(&g->network, g->model, BPPSA_INIT_DEFAULT, 1) != BPPSA_OK) {
    return;
  }
  if (bppsa_gradients_compute(g) == BPPSA_OK) {
    FUZZ_CHECK(g->objective.kind == BPPSA_LOSS_NONE ? g->loss != g->loss : g->loss - g->loss == 0);
    json_decref(bppsa_gradients_json(g));
    FUZZ_CHECK(bppsa_gradients_save(g, fuzz_path("g.safetensors")) == BPPSA_OK);
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char x[256], y[256], h0[256], layers[256];
  bppsa_gradients g = {0};
  const bool recurrent = (input->options & 8) == 0, state = recurrent && input->count > 4;
  fuzz_write_array(x, "x.npy", &input->part[0]);
  fuzz_write_array(y, "y.npy", &input->part[2]);
  fuzz_write_array(h0, "h0.npy", &input->part[4]);
  snprintf(layers, sizeof layers, "%s", fuzz_file("n.json", NETWORK, strlen(NETWORK)));
  bppsa_status status = bppsa_network_open(recurrent ? "rnn" : layers, NULL, &g.network);
  FUZZ_CHECK(status == BPPSA_OK);
  FUZZ_CHECK(bppsa_device_create("cpu", 1, &g.device) == BPPSA_OK);
  g.config = bppsa_network_config_default(&g.network);
  g.config.loss_all = recurrent && (input->options & 1) != 0;
  static const bppsa_loss_kind kinds[2][2] = {{BPPSA_LOSS_CROSS_ENTROPY, BPPSA_LOSS_SQUARED},
                                              {BPPSA_LOSS_NONE, BPPSA_LOSS_BINARY}};
  g.objective.kind = kinds[recurrent && (input->options & 32) != 0][(input->options & 2) != 0];
  g.config.steps.no_head = g.objective.kind == BPPSA_LOSS_NONE;
  g.objective.ignores = g.objective.kind == BPPSA_LOSS_CROSS_ENTROPY && (input->options & 4) != 0;
  g.objective.ignored = -100;
  g.config.dtype = (input->options & 16) != 0 ? BPPSA_F64 : BPPSA_F32;
  if (recurrent) {
    g.config.input = 1;
    g.config.steps.hidden = 2;
    g.config.classes = 3;
    g.config.steps.layers = 1;
  }
  const bppsa_gradients_files files = {.input = x, .labels = y, .grad_output = y, .h0 = state ? h0 : NULL};
  status = bppsa_gradients_load(&files, &g);
  if (status == BPPSA_OK) {
    compute(&g);
  }
  bppsa_gradients_free(&g);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const struct {
    uint8_t options;
    const char *types[3], *shapes[3];
    size_t sizes[3];
  } seeds[] = {
      {0x00, {"<f4", "<i8", "<f4"}, {"(3, 2, 1)", "(2,)", "(1, 2, 2)"}, {24, 16, 16}},
      {0x11, {"<f8", "<i8", "<f8"}, {"(3, 2, 1)", "(3, 2)", "(1, 2, 2)"}, {48, 48, 32}},
      {0x02, {"<f4", "<f4", NULL}, {"(3, 2, 1)", "(2, 3)", NULL}, {24, 24, 0}},
      {0x03, {"<f4", "<f8", NULL}, {"(2, 1, 1)", "(2, 1, 3)", NULL}, {8, 48, 0}},
      {0x04, {"<f4", "<i8", NULL}, {"(3, 2, 1)", "(2,)", NULL}, {24, 16, 0}},
      {0x08, {"<f4", "<i8", NULL}, {"(2, 1, 2, 2)", "(2,)", NULL}, {32, 16, 0}},
      {0x0a, {"<f4", "<f4", NULL}, {"(1, 1, 2, 2)", "(1, 3)", NULL}, {16, 12, 0}},
      {0x00, {"<f4", "<i8", NULL}, {"(2, 3, 1)", "(2,)", NULL}, {24, 16, 0}},
      {0x20, {"<f4", "<f4", NULL}, {"(2, 1, 1)", "(2, 1, 2)", NULL}, {8, 16, 0}},
      {0x22, {"<f4", "<f4", NULL}, {"(3, 2, 1)", "(2, 3)", NULL}, {24, 24, 0}},
  };
  static const uint8_t elements[64] = {0, 0, 0, 0, 0, 0, 0, 0, 1};
  if (index >= (int)(sizeof seeds / sizeof seeds[0])) {
    return false;
  }
  fuzz_add_number(seed, seeds[index].options, 1);
  for (int i = 0; i < 3 && seeds[index].types[i] != NULL; ++i) {
    fuzz_add_array_parts(seed, seeds[index].types[i], seeds[index].shapes[i], elements, seeds[index].sizes[i]);
  }
  return true;
}
