/* Readers: cnn/network_json.c, the operators' shape rules behind it (jacobian/op.c), and runs/flops.c. The first part is a
 * network file; odd options: its Jacobians are counted too, within little memory; bit 1: with the values of images and labels,
 * whose headers and elements are the other parts. */
#include <string.h>

#include "cnn/network.h"
#include "runs/flops.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

static void count(const char *path, const fuzz_input *input) {
  char images[256], labels[256];
  bppsa_flops_request request = bppsa_flops_request_default();
  if ((input->options & 2) != 0) {
    fuzz_write_array(images, "x.npy", &input->part[1]);
    fuzz_write_array(labels, "y.npy", &input->part[3]);
    request.values = true;
    request.input = images;
    request.labels = labels;
  }
  bppsa_flops flops = {0};
  request.network = path;
  request.memory_limit = request.assumed_limit = 8 << 20;
  if (bppsa_flops_count(&request, &flops) == BPPSA_OK) {
    bppsa_text text = {0};
    json_decref(bppsa_flops_json(&flops));
    bppsa_flops_text(&flops, &text);
    bppsa_text_free(&text);
    bppsa_flops_free(&flops);
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  bppsa_cnn_network network = {0}, again = {0};
  const fuzz_part *part = &input->part[0];
  const bppsa_status status = bppsa_cnn_network_parse("network", (const char *)part->data, (int64_t)part->size, &network);
  char path[256];
  snprintf(path, sizeof path, "%s", fuzz_file("network.json", part->data, part->size));
  FUZZ_CHECK((bppsa_cnn_network_load(path, &again) == BPPSA_OK) == (status == BPPSA_OK));
  bppsa_cnn_network_free(&again);
  if (status != BPPSA_OK) {
    return status;
  }
  FUZZ_CHECK(network.count >= 1 && network.layers[network.count - 1].op.kind == BPPSA_OPERATOR_LINEAR);
  for (int64_t i = 0; i <= network.count; ++i) {
    FUZZ_CHECK(bppsa_cnn_size(&network, i) >= 1);
  }
  for (int64_t i = 0; i < network.count; ++i) {
    int64_t shape[4];
    FUZZ_CHECK(strlen(network.layers[i].name) > 0);
    if (bppsa_cnn_has_weights(&network.layers[i])) {
      const int32_t axes = bppsa_cnn_weight_shape(&network.layers[i], shape);
      FUZZ_CHECK(axes == (network.layers[i].op.kind == BPPSA_OPERATOR_LINEAR ? 2 : network.layers[i].line ? 3 : 4));
    }
  }
  const bool small = network.count < 64 && bppsa_cnn_size(&network, 0) < 4096;
  bppsa_cnn_network_free(&network);
  if (small && input->options % 2 != 0) {
    count(path, input);
  }
  return BPPSA_OK;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {
      ("{\"input\":[2,6,6],\"layers\":[{\"name\":\"c\",\"op\":\"conv2d\",\"out\":4,\"kernel\":[3,3],\"stride\":2,\"padding\":[1,"
       "1,"
       "1,1],"
       "\"dilation\":1,\"groups\":2,\"bias\":false},{\"name\":\"r\",\"op\":\"relu\"},{\"name\":\"p\",\"op\":\"maxpool2d\","
       "\"kernel\":2,"
       "\"ceil_mode\":true},{\"name\":\"fc\",\"op\":\"linear\",\"out\":3}]}"),
      ("{\"input\":[1,4,4],\"layers\":[{\"name\":\"a\",\"op\":\"avgpool2d\",\"kernel\":[2,2],\"padding\":1,\"exclude_pad\":true},"
       "{\"name\":\"l\",\"op\":\"leaky_relu\",\"slope\":0.1},{\"name\":\"t\",\"op\":\"tanh\"},{\"name\":\"s\",\"op\":\"sigmoid\"}"
       ","
       "{\"name\":\"g\",\"op\":\"gelu\",\"approximate\":\"tanh\"},{\"name\":\"h\",\"op\":\"hardswish\"},"
       "{\"name\":\"b\",\"op\":\"batchnorm2d\",\"eps\":0.1,\"momentum\":0.5,\"affine\":false},{\"name\":\"d\",\"op\":\"dropout\","
       "\"p\":0.1},"
       "{\"name\":\"v\",\"op\":\"adaptive_avgpool2d\",\"size\":[2,3]},{\"name\":\"w\",\"op\":\"global_avgpool\"},"
       "{\"name\":\"f\",\"op\":\"flatten\"},{\"name\":\"fc\",\"op\":\"linear\",\"out\":10}]}"),
      ("{\"input\":[1,46000,46000],\"layers\":[{\"name\":\"p\",\"op\":\"maxpool2d\",\"kernel\":2},{\"name\":\"fc\",\"op\":"
       "\"linear\","
       "\"out\":1}]}"),
      ("{\"input\":[4,1,6],\"layers\":[{\"name\":\"c\",\"op\":\"conv1d\",\"out\":4,\"kernel\":3,\"padding\":[1,2],\"groups\":2},"
       "{\"name\":\"g\",\"op\":\"groupnorm\",\"groups\":2,\"eps\":0.1},{\"name\":\"p\",\"op\":\"permute\",\"order\":[2,0,1]},"
       "{\"name\":\"n\",\"op\":\"layernorm\",\"shape\":[4,1],\"affine\":false},{\"name\":\"s\",\"op\":\"softmax\",\"axis\":1},"
       "{\"name\":\"r\",\"op\":\"reshape\",\"shape\":[2,7,2]},{\"name\":\"q\",\"op\":\"global_avgpool\"},"
       "{\"name\":\"m\",\"op\":\"mul\",\"inputs\":[\"q\",\"r\"]},{\"name\":\"fc\",\"op\":\"linear\",\"out\":2}]}"),
      "{\"input\":[1,2,2],\"layers\":[{\"name\":\"x\",\"op\":\"relu\"},{\"name\":\"x\",\"op\":\"linear\",\"out\":1}]}",
      "{\"input\":[1,2,2],\"layers\":[{\"name\":\"fc\",\"op\":\"linear\",\"out\":9223372036854775807}]}"};
  const int count = (int)(sizeof texts / sizeof texts[0]);
  if (index < count) {
    return fuzz_seed_text(index, 1, texts, count, seed);
  }
  static const float images[32] = {1, -1, 0.5f};
  static const int64_t labels[2] = {0, 2};
  fuzz_add_number(seed, 3, 1);
  fuzz_add_part_text(seed, texts[1]);
  fuzz_add_array_parts(seed, "<f4", "(2, 1, 4, 4)", images, sizeof images);
  fuzz_add_array_parts(seed, "<i8", "(2,)", labels, sizeof labels);
  return index == count;
}
