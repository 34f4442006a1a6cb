/* Files that tests of convolutional networks start from: weights, a batch, a network. */
#ifndef BPPSA_TESTS_CLI_CNN_FILES_H
#define BPPSA_TESTS_CLI_CNN_FILES_H

#include <math.h>

#include "cnn/cnn.h"
#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "tests/cli/run_cli.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

#define SMALL_NETWORK                                                                                                            \
  "{\"input\": [2, 6, 5], \"layers\": ["                                                                                         \
  "{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 3], \"padding\": [1, 1, 1, 1], \"groups\": 2},"             \
  "{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": [2, 2], \"stride\": [1, 1]},"       \
  "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"linear\", \"out\": 7, \"bias\": false},"                  \
  "{\"name\": \"t\", \"op\": \"tanh\"}, {\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}"

static inline void put_text(const char *path, const char *text) {
  put_file(path, text, strlen(text));
}

/* Writes a network's initial weights to a file. The network may be a file. */
static inline void put_weights(const char *path, const char *name, bppsa_dtype dtype, uint64_t seed) {
  bppsa_cnn_network network;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  assert_int_equal(strstr(name, ".json") != NULL ? bppsa_cnn_network_load(name, &network)
                                                 : bppsa_cnn_network_builtin(name, &network),
                   BPPSA_OK);
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  config.dtype = dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_OK);
  bppsa_cnn_init(model, seed);
  bppsa_named_view tensors[64];
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_safetensors_save(path, model->parameter_count, tensors, 0, NULL), BPPSA_OK);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  bppsa_cnn_network_free(&network);
}

/* Every operator that a network file knows, grouped and dilated convolutions among them. */
#define ALL_OPERATORS                                                                                                            \
  "{\"input\": [4, 12, 12], \"layers\": ["                                                                                       \
  "{\"name\": \"c1\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 3], \"padding\": [1, 1, 1, 1], \"groups\": 2},"            \
  "{\"name\": \"a1\", \"op\": \"leaky_relu\"}, {\"name\": \"p1\", \"op\": \"maxpool2d\", \"kernel\": [3, 3], \"stride\": [2, "   \
  "2]},"                                                                                                                         \
  "{\"name\": \"c2\", \"op\": \"conv2d\", \"out\": 5, \"kernel\": [2, 2], \"dilation\": [2, 2]},"                                \
  "{\"name\": \"a2\", \"op\": \"sigmoid\"}, {\"name\": \"p2\", \"op\": \"avgpool2d\", \"kernel\": [2, 2], \"stride\": [1, 1]},"  \
  "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l1\", \"op\": \"linear\", \"out\": 7}, {\"name\": \"a3\", \"op\": "      \
  "\"tanh\"},"                                                                                                                   \
  "{\"name\": \"l2\", \"op\": \"linear\", \"out\": 6}, {\"name\": \"a4\", \"op\": \"relu\"},"                                    \
  "{\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}"

/* The operators that came later. */
#define LATER_OPERATORS                                                                                                          \
  "{\"input\": [4, 12, 12], \"layers\": [{\"name\": \"n1\", \"op\": \"batchnorm2d\"},"                                           \
  "{\"name\": \"c1\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"groups\": 4}, {\"name\": \"a1\", \"op\": \"relu6\"},"     \
  "{\"name\": \"n2\", \"op\": \"batchnorm2d\", \"affine\": false}, {\"name\": \"a2\", \"op\": \"hardswish\"},"                   \
  "{\"name\": \"c2\", \"op\": \"conv2d\", \"out\": 5, \"kernel\": 2}, {\"name\": \"a3\", \"op\": \"gelu\"}, {\"name\": \"d\", "  \
  "\"op\": "                                                                                                                     \
  "\"dropout\"}, {\"name\": \"p1\", \"op\": \"adaptive_avgpool2d\", \"size\": [4, 5]}, {\"name\": \"a4\", \"op\": \"silu\"},"    \
  "{\"name\": \"a5\", \"op\": \"hardsigmoid\"}, {\"name\": \"p2\", \"op\": \"global_avgpool\"}, {\"name\": \"h\", \"op\": "      \
  "\"linear\", \"out\": 3}]}"

/* Writes a batch of random images [b,c,h,w], and labels below `classes`. */
static inline void put_images(const char *x_path, const char *y_path, const int64_t shape[4], int64_t classes) {
  const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  double *values = uniform(3, count, 2);
  float *x = rounded(BPPSA_F32, values, count);
  int64_t *labels = bppsa_calloc(shape[0], sizeof *labels);
  for (int64_t b = 0; b < shape[0]; ++b) {
    labels[b] = (3 * b + 1) % classes;
  }
  const bppsa_view x_view = bppsa_view_make(x, BPPSA_F32, 4, shape), y_view = bppsa_view_make(labels, BPPSA_I64, 1, shape);
  assert_int_equal(bppsa_npy_save(x_path, &x_view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save(y_path, &y_view), BPPSA_OK);
  bppsa_free(values);
  bppsa_free(x);
  bppsa_free(labels);
}

/* Returns ‖a - b‖ / ‖b‖ over all tensors of two files, which have the same names and shapes. */
static inline double file_difference(const char *a_path, const char *b_path) {
  bppsa_safetensors *a = NULL, *b = NULL;
  double difference = 0, norm = 0;
  assert_int_equal(bppsa_safetensors_load(a_path, &a), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(b_path, &b), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(a), bppsa_safetensors_count(b));
  for (int64_t i = 0; i < bppsa_safetensors_count(a); ++i) {
    const bppsa_named_view *x = bppsa_safetensors_get(a, i);
    const bppsa_view *y = bppsa_safetensors_find(b, x->name);
    assert_non_null(y);
    assert_true(bppsa_view_same_shape(&x->view, y));
    for (int64_t k = 0; k < bppsa_view_count(y); ++k) {
      const double d = bppsa_view_get(&x->view, k) - bppsa_view_get(y, k);
      difference += d * d;
      norm += bppsa_view_get(y, k) * bppsa_view_get(y, k);
    }
  }
  bppsa_safetensors_destroy(a);
  bppsa_safetensors_destroy(b);
  return sqrt(norm > 0 ? difference / norm : difference);
}

#endif
