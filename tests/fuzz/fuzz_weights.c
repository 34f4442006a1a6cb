/* Readers: networks/weights.c with the networks' inference of sizes, networks/weight_list.c, networks/masks.c,
 * networks/convolutional_family.c. The parts are the header and the bytes of a safetensors file, and the text of --prefix; options:
 * which network, what is asked for, whether the file is a mask. */
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "networks/masks.h"
#include "networks/weights.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

#define NETWORK                                                                                                                  \
  "{\"input\":[1,4,4],\"layers\":[{\"name\":\"c\",\"op\":\"conv2d\",\"out\":2,\"kernel\":3},{\"name\":\"r\",\"op\":\"relu\"},"   \
  "{\"name\":\"fc\",\"op\":\"linear\",\"out\":3}]}"

/* As `bppsa prune`: masks of the file's weights. */
static void prune(const bppsa_safetensors *file, int method) {
  bppsa_weight_list list = {.count = 0};
  bppsa_masks masks = {0};
  const bppsa_prune_structure structure = {(bppsa_structure_kind)(method % BPPSA_STRUCTURES), {2, 3}};
  const bppsa_status status = bppsa_weight_list_make("w", file, BPPSA_LIST_VALUES, &list);
  if (status == BPPSA_OK && bppsa_masks_make((bppsa_prune_method)(method % BPPSA_PRUNE_METHODS), structure, 0.5, list.count,
                                             list.tensors, &masks) == BPPSA_OK) {
    bppsa_text text = {0};
    json_decref(bppsa_masks_json(&masks));
    bppsa_masks_text(&masks, &text);
    bppsa_text_free(&text);
  }
  bppsa_masks_free(&masks);
  bppsa_weight_list_free(&list);
}

static void set(const bppsa_weights_request *request, const bppsa_network *network, bppsa_network_config *config,
                const bppsa_safetensors *file) {
  bppsa_model *model = NULL;
  bppsa_device *device = NULL;
  char note[BPPSA_WEIGHTS_NOTE] = "";
  FUZZ_CHECK(bppsa_device_create("cpu", 1, &device) == BPPSA_OK);
  config->steps.seq_len = config->steps.seq_len > 0 ? 2 : 0;
  config->batch = 1;
  config->memory_limit = 8 << 20;
  config->method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP};
  if (bppsa_network_create(network, config, device, &model) == BPPSA_OK) {
    if (bppsa_weights_set(request, network, file, model, note) == BPPSA_OK) {
      for (int64_t i = 0; i < model->parameter_count; ++i) {
        const bppsa_view *value = &model->parameters[i].value;
        for (int64_t k = 0; k < bppsa_view_count(value); ++k) {
          FUZZ_CHECK(bppsa_view_get(value, k) - bppsa_view_get(value, k) == 0); /* finite */
        }
      }
    }
    bppsa_model_destroy(model);
  }
  bppsa_device_destroy(device);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  static const bppsa_dtype f32 = BPPSA_F32;
  char path[256], layers[256], *prefix = fuzz_text(&input->part[2]);
  fuzz_bytes bytes = {0};
  fuzz_add_safetensors(&bytes, &input->part[0], &input->part[1]);
  snprintf(path, sizeof path, "%s", fuzz_file("w.safetensors", bytes.data, bytes.size));
  snprintf(layers, sizeof layers, "%s", fuzz_file("n.json", NETWORK, strlen(NETWORK)));
  free(bytes.data);
  const int kind = input->options & 3;
  const bool mask = (input->options & 0x80) != 0;
  bppsa_network network = {0};
  bppsa_status status = bppsa_network_open(kind == 0 ? "rnn" : kind == 1 ? "gru" : layers, mask ? path : NULL, &network);
  if (status == BPPSA_OK) {
    bppsa_network_config config = bppsa_network_config_default(&network);
    bppsa_safetensors *file = NULL;
    const bppsa_weights_request request = {.path = path,
                                           .prefix = (input->options & 0x20) != 0 ? prefix : NULL,
                                           .propose_prefix = (input->options & 0x40) != 0,
                                           .dtype = (input->options & 0x10) != 0 ? &f32 : NULL};
    status = bppsa_weights_load(&request, &network, &config, &file);
    if (status == BPPSA_OK) {
      set(&request, &network, &config, file);
      prune(file, input->options / 16);
      bppsa_safetensors_destroy(file);
    }
    bppsa_network_close(&network);
  }
  free(prefix);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
#define RNN(p)                                                                                                                   \
  "\"" p "weight_ih_l0\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"                                            \
  "\"" p "weight_hh_l0\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"                                           \
  "\"" p "bias_ih_l0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},"                                              \
  "\"" p "bias_hh_l0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]},"
#define HEAD(p)                                                                                                                  \
  "\"" p "weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[40,64]},"                                                \
  "\"" p "bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[64,76]}}"
#define GRU                                                                                                                      \
  "{\"gru.weight_ih_l0\":{\"dtype\":\"F64\",\"shape\":[3,1],\"data_offsets\":[0,24]},\"gru.weight_hh_l0\":{\"dtype\":\"F64\","   \
  "\"shape\":[3,1],\"data_offsets\":[24,48]},\"gru.bias_ih_l0\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[48,72]},"     \
  "\"gru.bias_hh_l0\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[72,96]},\"linear.weight\":{\"dtype\":\"F64\","          \
  "\"shape\":"                                                                                                                   \
  "[2,1],\"data_offsets\":[96,112]},\"linear.bias\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[112,128]}}"
#define CNN(t, w, a, b)                                                                                                          \
  "{\"c.weight\":{\"dtype\":\"" t "\",\"shape\":[2,1,3,3],\"data_offsets\":[0," a "]},\"fc.weight\":{\"dtype\":\"" t             \
  "\",\"shape\":[3,8],\"data_offsets\":[" a "," b "]}" w "}"
#define PRUNED(o, m)                                                                                                             \
  "{\"c.weight_orig\":{\"dtype\":\"" o "\",\"shape\":[2,1,3,3],\"data_offsets\":[0,36]},\"c.weight_mask\":{\"dtype\":\"" m       \
  "\",\"shape\":[2,1,3,3],\"data_offsets\":[36,54]},\"fc.weight\":{\"dtype\":\"F16\",\"shape\":[3,8],\"data_offsets\":["         \
  "54,102]},\"c.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[102,110]},\"fc.bias\":{\"dtype\":\"F32\","             \
  "\"shape\":[3],\"data_offsets\":[110,122]}}"
#define BIASES                                                                                                                   \
  ",\"c.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[168,176]},\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[3],"       \
  "\"data_offsets\":[176,188]}"
  static const struct {
    uint8_t options;
    const char *header, *prefix;
    size_t size;
  } seeds[] = {
      {0x00, "{" RNN("rnn.") HEAD("linear."), "", 76},
      {0x30, "{\"__metadata__\":{\"nonlinearity\":\"relu\",\"loss\":\"all\"}," RNN("net.") HEAD("net.linear."), "net", 76},
      {0x30, "{" RNN("a.rnn.") HEAD("top."), "a.rnn,top", 76},
      {0x42, "{" RNN("a.rnn.") HEAD("top."), "", 76},
      {0x60, "{" RNN("a.rnn.") HEAD("top."), "b", 76},
      {0x40, "{" RNN("a.rnn.") HEAD("top."), "", 76},
      {0x01, GRU, "", 128},
      {0x31, GRU, ".", 128},
      {0x02, CNN("F32", BIASES, "72", "168"), "", 188},
      {0x80, CNN("BOOL", "", "18", "42"), "", 42},
      {0x82, CNN("BOOL", "", "18", "42"), "", 42},
      {0x02, PRUNED("F16", "U8"), "", 122},
      {0x82, PRUNED("BF16", "I8"), "", 122},
      {0x02, PRUNED("C8", "F4"), "", 122},
  };
  static const uint8_t data[256] = {0, 0, 0x80, 0x3f, 1, 1, 1, 0};
  if (index >= (int)(sizeof seeds / sizeof seeds[0])) {
    return false;
  }
  fuzz_add_number(seed, seeds[index].options, 1);
  fuzz_add_part_text(seed, seeds[index].header);
  fuzz_add_part(seed, data, seeds[index].size);
  fuzz_add_part_text(seed, seeds[index].prefix);
  return true;
}
