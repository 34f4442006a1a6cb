/* Tensors of a file as networks want them: halves, pruned weights, types that are not read. */
#include <math.h>

#include "core/base/alloc.h"
#include "networks/weights.h"
#include "tests/core/helpers.h"

#define PATH "models_weight_list.safetensors"
#define NETWORK "models_weight_list.json"

enum { HIDDEN = 2, CLASSES = 3, MOST = 12 };

static float numbers[64];
static const uint16_t halves[2][4] = {{0x3c00, 0xb800, 0x0001, 0xc000}, {0x3f80, 0xbf00, 0x0080, 0xc000}}; /* F16, BF16 */
static const double values[2][4] = {{1, -0.5, 0x1p-24, -2}, {1, -0.5, 0x1p-126, -2}};

typedef struct {
  int64_t count;
  bppsa_named_view tensors[MOST];
} content;

static void add(content *c, const char *name, const void *data, bppsa_dtype dtype, int32_t ndim, int64_t rows, int64_t cols) {
  c->tensors[c->count++] =
      (bppsa_named_view){name, bppsa_view_make((void *)(uintptr_t)data, dtype, ndim, (const int64_t[]){rows, cols})};
}

static void save(const content *c) {
  assert_int_equal(bppsa_safetensors_save(PATH, c->count, c->tensors, 0, NULL), BPPSA_OK);
}

/* An RNN's tensors without W_hh, behind `before`. */
static content rnn(void) {
  content c = {.count = 0};
  for (int i = 0; i < 64; ++i) {
    numbers[i] = (float)(i + 1) / 64;
  }
  add(&c, "rnn.weight_ih_l0", numbers, BPPSA_F32, 2, HIDDEN, 1);
  add(&c, "rnn.bias_ih_l0", numbers, BPPSA_F32, 1, HIDDEN, 0);
  add(&c, "rnn.bias_hh_l0", numbers, BPPSA_F32, 1, HIDDEN, 0);
  add(&c, "linear.weight", numbers, BPPSA_F32, 2, CLASSES, HIDDEN);
  add(&c, "linear.bias", numbers, BPPSA_F32, 1, CLASSES, 0);
  return c;
}

/* Loads the file into a model and returns the status of the last step that ran; *value: W_hh[1][0]. */
static bppsa_status set(const bppsa_weights_request *request, double *value, char *note) {
  bppsa_network network = {0};
  bppsa_safetensors *file = NULL;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&network);
  bppsa_status status = bppsa_weights_load(request, &network, &config, &file);
  if (status == BPPSA_OK) {
    config.steps.seq_len = 4;
    assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
    assert_int_equal(bppsa_network_create(&network, &config, device, &model), BPPSA_OK);
    status = bppsa_weights_set(request, &network, file, model, note);
    *value = status == BPPSA_OK ? bppsa_view_get(&model->parameters[1].value, 2) : 0;
  }
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  bppsa_safetensors_destroy(file);
  bppsa_network_close(&network);
  return status;
}

static void test_halves(void **state) {
  (void)state;
  static const bppsa_dtype f64 = BPPSA_F64, types[2] = {BPPSA_F16, BPPSA_BF16};
  static const char *const notes[2] = {"f16 weights, converted to f32", "bf16 weights, converted to f32"};
  const int64_t before = bppsa_alloc_live();
  for (int i = 0; i < 2; ++i) {
    content c = rnn();
    double value;
    char note[BPPSA_WEIGHTS_NOTE];
    add(&c, "rnn.weight_hh_l0", halves[i], types[i], 2, HIDDEN, HIDDEN);
    save(&c);
    assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, note), BPPSA_OK);
    assert_true(value == values[i][2]);
    assert_string_equal(note, notes[i]);
    assert_int_equal(set(&(bppsa_weights_request){.path = PATH, .dtype = &f64}, &value, note), BPPSA_OK);
    assert_non_null(strstr(note, "converted to f64"));
  }
  content c = rnn(); /* a half that no network asks for is no news */
  double value;
  char note[BPPSA_WEIGHTS_NOTE];
  add(&c, "rnn.weight_hh_l0", numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
  add(&c, "other", halves[0], BPPSA_F16, 1, 4, 0);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, note), BPPSA_OK);
  assert_string_equal(note, "");
  assert_int_equal(bppsa_alloc_live(), before);
}

/* The types of wanted tensors are judged, by their names in the file. */
static void test_types(void **state) {
  (void)state;
  static const int64_t whole[4] = {1};
  content c = rnn();
  double value;
  add(&c, "rnn.weight_hh_l0", whole, BPPSA_I64, 2, HIDDEN, HIDDEN);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, NULL), BPPSA_ERR_UNSUPPORTED);
  assert_message("tensor 'rnn.weight_hh_l0' is i64, expected f32 or f64");
  static const char header[] = "{\"rnn.weight_hh_l0\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1],\"data_offsets\":[0,1]}}x";
  const uint64_t length = sizeof header - 2;
  FILE *file = fopen(PATH, "wb");
  assert_true(file != NULL && fwrite(&length, 8, 1, file) == 1 && fwrite(header, sizeof header - 1, 1, file) == 1);
  fclose(file);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, NULL), BPPSA_ERR_UNSUPPORTED);
  assert_message("tensor 'rnn.weight_hh_l0' is F8_E4M3, expected f32 or f64");
}

/* What torch.nn.utils.prune stores: NAME_orig and NAME_mask, with and without a prefix. */
static void test_pruned(void **state) {
  (void)state;
  static const float kept[4] = {1, 0, 1, 0}, gone[4] = {1, 1, 0, 1};
  static const uint8_t flags[4] = {1, 0, 1, 1};
  static const char *const names[2][2] = {{"rnn.weight_hh_l0_orig", "rnn.weight_hh_l0_mask"},
                                          {"a.rnn.weight_hh_l0_orig", "a.rnn.weight_hh_l0_mask"}};
  const int64_t before = bppsa_alloc_live();
  char note[BPPSA_WEIGHTS_NOTE];
  double value;
  for (int i = 0; i < 3; ++i) {
    content c = rnn();
    add(&c, names[0][0], numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
    add(&c, names[0][1],
        i == 0   ? (const void *)kept
        : i == 1 ? (const void *)gone
                 : flags,
        i == 2 ? BPPSA_BOOL : BPPSA_F32, 2, HIDDEN, HIDDEN);
    save(&c);
    assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, note), BPPSA_OK);
    assert_true(value == (i == 1 ? 0 : (double)numbers[2]));
    assert_string_equal(note, "");
    assert_int_equal(set(&(bppsa_weights_request){.path = PATH, .trains = true}, &value, note), BPPSA_OK);
    assert_string_equal(note, "the mask of rnn.weight_hh_l0 is applied once: training changes all weights");
  }
  static const char *const prefixed[] = {"a.rnn.weight_ih_l0", "a.rnn.bias_ih_l0", "a.rnn.bias_hh_l0", "a.linear.weight",
                                         "a.linear.bias"};
  content c = rnn();
  for (int64_t i = 0; i < c.count; ++i) {
    c.tensors[i].name = prefixed[i];
  }
  add(&c, names[1][0], numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
  add(&c, names[1][1], kept, BPPSA_F32, 2, HIDDEN, HIDDEN);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH, .prefix = "a"}, &value, NULL), BPPSA_OK);
  assert_true(value == (double)numbers[2]);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH, .propose_prefix = true}, &value, NULL), BPPSA_ERR_FORMAT);
  assert_message("did you mean --prefix a?");
  assert_int_equal(bppsa_alloc_live(), before);
}

static void test_wrong_pairs(void **state) {
  (void)state;
  double value;
  content c = rnn();
  add(&c, "rnn.weight_hh_l0_orig", numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, NULL), BPPSA_ERR_FORMAT);
  assert_message("tensor 'rnn.weight_hh_l0' is missing; the file has");
  add(&c, "rnn.weight_hh_l0_mask", numbers, BPPSA_F32, 2, HIDDEN, 1);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, NULL), BPPSA_ERR_SHAPE);
  assert_message("tensor 'rnn.weight_hh_l0_mask' has shape [2, 1], expected [2, 2] as 'rnn.weight_hh_l0_orig' has");
  c.tensors[c.count - 1].view = c.tensors[c.count - 2].view;
  add(&c, "rnn.weight_hh_l0", numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
  save(&c);
  assert_int_equal(set(&(bppsa_weights_request){.path = PATH}, &value, NULL), BPPSA_ERR_FORMAT);
  assert_message("tensor 'rnn.weight_hh_l0' beside 'rnn.weight_hh_l0_orig' and 'rnn.weight_hh_l0_mask', expected the weight or");
}

/* A network of operators keeps the masks of pruned weights; --mask takes them from such a file too. */
static void test_masks(void **state) {
  (void)state;
  static const float mask[8] = {1, 0, 1, 1, 0, 1, 1, 1};
  static const char text[] = "{\"input\": [1, 2, 2], \"layers\": [{\"name\": \"a\", \"op\": \"linear\", \"out\": 2}, "
                             "{\"name\": \"b\", \"op\": \"linear\", \"out\": 2}]}";
  const int64_t before = bppsa_alloc_live();
  content c = {.count = 0};
  put_file(NETWORK, text, sizeof text - 1);
  add(&c, "a.weight_orig", numbers, BPPSA_F32, 2, 2, 4);
  add(&c, "a.weight_mask", mask, BPPSA_F32, 2, 2, 4);
  add(&c, "a.bias", numbers, BPPSA_F32, 1, 2, 0);
  add(&c, "b.weight", numbers, BPPSA_F32, 2, 2, 2);
  add(&c, "b.bias", numbers, BPPSA_F32, 1, 2, 0);
  add(&c, "z.weight_orig", numbers, BPPSA_F32, 1, 2, 0); /* of another network */
  add(&c, "z.weight_mask", numbers, BPPSA_F32, 1, 2, 0);
  save(&c);
  const bppsa_weights_request request = {.path = PATH};
  char identities[2][64];
  bppsa_network network = {0};
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_network_open(NETWORK, NULL, &network), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&network);
  assert_int_equal(bppsa_weights_load(&request, &network, &config, &file), BPPSA_OK);
  assert_int_equal(network.mask_count, 1);
  assert_string_equal(network.masks[0].name, "a.weight");
  assert_int_equal(network.masks[0].view.dtype, BPPSA_BOOL);
  assert_memory_equal(network.masks[0].view.data, "\1\0\1\1\0\1\1\1", 8);
  bppsa_network_identity(&network, identities[0], sizeof identities[0]);
  bppsa_safetensors_destroy(file);
  bppsa_network_close(&network);
  c.count = 5;
  save(&c);
  assert_int_equal(bppsa_network_open(NETWORK, PATH, &network), BPPSA_OK);
  assert_int_equal(network.mask_count, 1);
  bppsa_network_identity(&network, identities[1], sizeof identities[1]);
  assert_string_equal(identities[0], identities[1]);
  bppsa_network_close(&network);
  assert_int_equal(bppsa_alloc_live(), before);
}

/* Every allocation of a list fails once. */
static void test_memory(void **state) {
  (void)state;
  content c = rnn();
  bppsa_safetensors *file = NULL;
  bppsa_weight_list list = {.count = 0};
  add(&c, "rnn.weight_hh_l0_orig", halves[0], BPPSA_F16, 2, HIDDEN, HIDDEN);
  add(&c, "rnn.weight_hh_l0_mask", numbers, BPPSA_F32, 2, HIDDEN, HIDDEN);
  save(&c);
  assert_int_equal(bppsa_safetensors_load(PATH, &file), BPPSA_OK);
  const int64_t before = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t failing = 0;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_alloc_fail_at(++failing);
    status = bppsa_weight_list_make(PATH, file, BPPSA_LIST_VALUES, &list);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (list.count == 0 && bppsa_alloc_live() == before));
  }
  assert_true(status == BPPSA_OK && failing > 4 && list.count == 6);
  assert_true(bppsa_weight_list_origin(&list, "rnn.weight_hh_l0")->pruned);
  assert_int_equal(bppsa_weight_list_origin(&list, "rnn.weight_hh_l0")->stored, BPPSA_F16);
  assert_true(bppsa_view_get(bppsa_weight_list_find(&list, "rnn.weight_hh_l0"), 1) == -0.5 * (double)numbers[1]);
  assert_null(bppsa_weight_list_find(&list, "rnn.weight_hh_l0_mask"));
  bppsa_weight_list_free(&list);
  assert_int_equal(bppsa_alloc_live(), before);
  bppsa_safetensors_destroy(file);
  remove(PATH);
  remove(NETWORK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_halves), cmocka_unit_test(test_types),
                                     cmocka_unit_test(test_pruned), cmocka_unit_test(test_wrong_pairs),
                                     cmocka_unit_test(test_masks),  cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
