/* Weights that do not come as the program writes them: in the other dtype, under other names, by torch.save. */
#include "tests/cli/batch_files.h"

#include <math.h>

#define DATA "--seq-len 5 --samples 64 --seed 1"
#define GRAD "grad rnn --input X.npy --labels Y.npy --out G.safetensors"

/* ---- dtypes ---- */

static void test_widened(void **state) {
  (void)state;
  json_t *document = run_json("eval rnn --weights W.safetensors --dtype f64 " DATA " --json");
  const double wide = get_real(document, "loss");
  json_decref(document);
  document = run_json("eval rnn --weights W.safetensors " DATA " --json");
  assert_float_equal(get_real(document, "loss"), wide, 1e-6);
  json_decref(document);
  document = run_json(GRAD " --weights W.safetensors --dtype f64 --json");
  assert_string_equal(get_text(document, "dtype"), "f64");
  json_decref(document);
  document = run_json("train rnn --weights W.safetensors --dtype f64 " DATA " --iterations 2 --save-weights WIDE --json");
  assert_string_equal(get_text(json_object_get(document, "config"), "dtype"), "f64");
  json_decref(document);
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load("WIDE", &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_get(file, 0)->view.dtype, BPPSA_F64);
  bppsa_safetensors_destroy(file);
}

static void assert_notes(run_result result, const char *note) {
  char wanted[120];
  snprintf(wanted, sizeof wanted, "bppsa: note: %s\n", note);
  assert_int_equal(result.code, 0);
  assert_string_equal(result.err, wanted);
  release(&result);
}

static void test_rounded(void **state) {
  (void)state;
#define ROUNDED "f64 weights, converted to f32, which rounds them"
#define TIMED " --seq-len 3 --batch 1 --repeats 1 --quick --threads 1"
  assert_notes(run("eval rnn --weights W64.safetensors --dtype f32 " DATA), "W64.safetensors: " ROUNDED);
  assert_notes(run("train rnn --weights W64.safetensors --dtype f32 " DATA " --iterations 1"), "W64.safetensors: " ROUNDED);
  assert_notes(run(GRAD " --weights W64.safetensors --dtype f32"), "W64.safetensors: " ROUNDED);
  assert_notes(run("bench rnn --weights W64.safetensors --dtype f32" TIMED), "W64.safetensors: " ROUNDED);
  assert_notes(run("bench step --weights W64.safetensors --dtype f32" TIMED), "W64.safetensors: " ROUNDED);
  assert_notes(run("bench forward --weights W64.safetensors --dtype f32" TIMED), "W64.safetensors: " ROUNDED);
  assert_runs("bench rnn --weights W64.safetensors" TIMED);
  json_t *document = run_json("train rnn --weights W64.safetensors " DATA " --iterations 1 --json"); /* the weights' */
  assert_string_equal(get_text(json_object_get(document, "config"), "dtype"), "f64");
  json_decref(document);
}

/* Of float64 that f32 holds nothing is lost, and nothing is said; what f32 does not reach is refused. */
static void test_jacobian_of_f64(void **state) {
  (void)state;
  double values[4] = {0.5, -2, 0.1f, 3};
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 2, (int64_t[]){1, 4});
#define LINEAR "jacobian linear --weights L.npy --in-shape 4,1,1 --out linear.npz"
  assert_int_equal(bppsa_npy_save("L.npy", &view), BPPSA_OK);
  assert_runs(LINEAR);
  values[2] = 0.1;
  assert_int_equal(bppsa_npy_save("L.npy", &view), BPPSA_OK);
  assert_notes(run(LINEAR), "L.npy: " ROUNDED);
  assert_runs(LINEAR " --dtype f64");
  values[1] = 1e300;
  assert_int_equal(bppsa_npy_save("L.npy", &view), BPPSA_OK);
  assert_fails(2, "--weights: L.npy: element 1 is 1e+300, beyond f32, expected --dtype f64 or smaller values", LINEAR);
  assert_runs(LINEAR " --dtype f64");
  write_reals("one.npy", BPPSA_F32, 1, (int64_t[]){1});
  assert_notes(run("jacobian rnn --weights W64.safetensors --input one.npy --out step.npz"), "W64.safetensors: " ROUNDED);
  assert_runs("jacobian rnn --weights W64.safetensors --input one.npy --out step.npz --dtype f64");
}

/* Commands that make no model of the weights note what they widened, too. */
static void test_halves(void **state) {
  (void)state;
  static uint16_t one[16] = {0x3c00, 0x3800, 0xbc00};
  static const bppsa_dtype types[] = {BPPSA_F16, BPPSA_BF16};
  const int64_t square[] = {4, 4}, rows[] = {4, 1};
  write_reals("step.npy", BPPSA_F32, 1, (int64_t[]){1});
  for (int i = 0; i < 2; ++i) {
    const bppsa_named_view tensors[] = {{"rnn.weight_hh_l0", bppsa_view_make(one, types[i], 2, square)},
                                        {"rnn.weight_ih_l0", bppsa_view_make(one, types[i], 2, rows)},
                                        {"rnn.bias_ih_l0", bppsa_view_make(one, types[i], 1, rows)},
                                        {"rnn.bias_hh_l0", bppsa_view_make(one, types[i], 1, rows)},
                                        {"linear.weight", bppsa_view_make(one, types[i], 2, square)},
                                        {"linear.bias", bppsa_view_make(one, types[i], 1, rows)}};
    char says[80];
    snprintf(says, sizeof says, "half.safetensors: %s weights, converted to f32\n", i == 0 ? "f16" : "bf16");
    assert_int_equal(bppsa_safetensors_save("half.safetensors", 6, tensors, 0, NULL), BPPSA_OK);
    assert_noted(says, "prune --weights half.safetensors --fraction 0.5 --out masks.safetensors");
    assert_noted(says, "jacobian rnn --weights half.safetensors --input step.npy --out step.npz");
    assert_noted(i == 0 ? "f16 weights, converted to f64" : "bf16 weights, converted to f64",
                 "jacobian rnn --weights half.safetensors --input step.npy --out step.npz --dtype f64");
  }
  assert_notes(run("bench rnn --weights half.safetensors" TIMED), "half.safetensors: bf16 weights, converted to f32");
  const bppsa_view view = bppsa_view_make(one, BPPSA_F16, 2, square);
  assert_int_equal(bppsa_npy_save("half.npy", &view), BPPSA_OK);
  assert_noted("half.npy: f16 weights, converted to f32\n",
               "jacobian linear --weights half.npy --in-shape 4,1,1 --out linear.npz");
}

/* ---- files with other tensors ---- */

typedef struct {
  const char *from, *to; /* a tensor of W64.safetensors under another name; to NULL: left out */
} renaming;

/* W64.safetensors under other names; every tensor that no renaming mentions keeps its own. value: of element 2 of the first one, or
 * NaN. */
static void write_renamed(const char *path, size_t count, const renaming *renamings, double value) {
  bppsa_safetensors *file = NULL;
  bppsa_named_view tensors[16];
  int64_t kept = 0;
  assert_int_equal(bppsa_safetensors_load("W64.safetensors", &file), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_safetensors_count(file); ++i) {
    tensors[kept] = *bppsa_safetensors_get(file, i);
    const char *name = tensors[kept].name;
    for (size_t k = 0; k < count; ++k) {
      if (strcmp(renamings[k].from, name) == 0) {
        tensors[kept].name = renamings[k].to;
      }
    }
    kept += tensors[kept].name != NULL;
  }
  if (!isnan(value)) {
    bppsa_view_set(&tensors[0].view, 2, value);
  }
  assert_int_equal(bppsa_safetensors_save(path, kept, tensors, 0, NULL), BPPSA_OK);
  bppsa_safetensors_destroy(file);
}

#define CELL(stem)                                                                                                               \
  {"rnn.weight_ih_l0", stem "weight_ih_l0"}, {"rnn.weight_hh_l0", stem "weight_hh_l0"}, {"rnn.bias_ih_l0", stem "bias_ih_l0"}, { \
    "rnn.bias_hh_l0", stem "bias_hh_l0"                                                                                          \
  }
#define HEAD(stem)                                                                                                               \
  {"linear.weight", stem ".weight"}, {                                                                                           \
    "linear.bias", stem ".bias"                                                                                                  \
  }

static void test_too_large(void **state) {
  (void)state;
  write_renamed("LARGE", 0, NULL, 1e300);
  assert_fails(2, "LARGE: rnn.weight_ih_l0: element 2 is 1e+300, beyond f32, expected --dtype f64 or smaller weights",
               "eval rnn --weights LARGE " DATA " --dtype f32 --json");
}

/* The loss of the same weights under their own names. */
static void assert_same(const char *line) {
  json_t *own = run_json("eval rnn --weights W64.safetensors " DATA " --json"), *other = run_json("%s " DATA " --json", line);
  assert_true(json_equal(own, other));
  json_decref(own);
  json_decref(other);
}

static void test_prefix(void **state) {
  (void)state;
  write_renamed("A", 4, (renaming[]){CELL("encoder.rnn.")}, (double)NAN);
  assert_same("eval rnn --weights A --prefix encoder.rnn"); /* the head's name is its own */
  write_renamed("B", 6, (renaming[]){CELL("encoder.rnn."), HEAD("encoder.linear")}, (double)NAN);
  assert_same("eval rnn --weights B --prefix encoder");
  write_renamed("C", 6, (renaming[]){CELL("net.lstm_like."), HEAD("fc")}, (double)NAN);
  assert_same("eval rnn --weights C --prefix net.lstm_like,fc");
  write_renamed("D", 6, (renaming[]){CELL(""), HEAD("head")}, (double)NAN);
  assert_same("eval rnn --weights D --prefix .,head");
  assert_runs(GRAD " --weights C --prefix net.lstm_like,fc");
  assert_runs("train rnn --weights A --prefix=encoder.rnn " DATA " --iterations 1 --save-weights OWN");
  assert_runs("eval rnn --weights OWN " DATA); /* under their own names again */
}

static void test_missing(void **state) {
  (void)state;
  write_renamed("E", 2, (renaming[]){HEAD("fc")}, (double)NAN);
  assert_fails(
      2,
      "E: tensor 'linear.weight' is missing, expected a head: a linear layer [C, H] from the last hidden state; did you mean "
      "--prefix rnn,fc?; the file has rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0, fc.weight, fc.bias",
      "eval rnn --weights E " DATA);
  write_renamed("F", 4, (renaming[]){CELL("encoder.rnn.")}, (double)NAN);
  assert_fails(2, "F: tensor 'rnn.weight_hh_l0' is missing; did you mean --prefix encoder.rnn?; the file has encoder.rnn.weight",
               "eval rnn --weights F " DATA);
  assert_fails(2, "tensor 'rnn.weight_hh_l0' is missing; did you mean --prefix encoder.rnn?; the file has encoder",
               "eval rnn --weights F --prefix decoder " DATA);
  assert_fails(2, "--prefix: given without --weights", "train rnn --prefix encoder " DATA " --iterations 1");
  assert_fails(2, "--prefix: 'a,', expected P or P,HEAD", "eval rnn --weights F --prefix a, " DATA);
  assert_fails(2, "--prefix: 'a,b' names a head of lenet5, expected P alone",
               "eval lenet5 --weights F --prefix a,b --data npy:X.npy,Y.npy");
}

/* The message of a command that fails says --prefix `wanted`, and with it the command finds every tensor. */
static void assert_proposed(const char *path, const char *given, const char *wanted) {
  char says[100], line[200];
  snprintf(says, sizeof says, "is missing; did you mean --prefix %s?; the file has ", wanted);
  if (strstr(given, "head") != NULL) {
    snprintf(says, sizeof says, "from the last hidden state; did you mean --prefix %s?; the file has ", wanted);
    given += strlen("head");
  }
  assert_fails(2, says, "eval rnn --weights %s %s " DATA, path, given);
  snprintf(line, sizeof line, "eval rnn --weights %s --prefix %s", path, wanted);
  assert_same(line);
}

/* The --prefix that a message proposes finds the cell and the head. */
static void test_proposed(void **state) {
  (void)state;
  write_renamed("P1", 6, (renaming[]){CELL("encoder.rnn."), HEAD("encoder.linear")}, (double)NAN);
  assert_proposed("P1", "", "encoder");
  assert_proposed("P1", "head--prefix encoder.rnn", "encoder");
  write_renamed("P2", 6, (renaming[]){CELL("net.cell."), HEAD("fc")}, (double)NAN);
  assert_proposed("P2", "", "net.cell,fc");
  assert_proposed("P2", "head--prefix net.cell", "net.cell,fc");
  write_renamed("P3", 6, (renaming[]){CELL(""), HEAD("head")}, (double)NAN);
  assert_proposed("P3", "", ".,head");
  write_renamed("P4", 4, (renaming[]){CELL("")}, (double)NAN);
  assert_proposed("P4", "", ".");
  write_renamed("P5", 2, (renaming[]){HEAD("fc")}, (double)NAN);
  assert_proposed("P5", "head", "rnn,fc");
  write_renamed("P6", 0, NULL, (double)NAN);
  assert_proposed("P6", "--prefix net", "rnn");
}

/* No prefix is proposed where none would help. */
static void test_none_proposed(void **state) {
  (void)state;
  write_renamed("N1", 6, (renaming[]){CELL("net.cell."), {"linear.weight", "fc.weight"}, {"linear.bias", NULL}}, (double)NAN);
  assert_fails(2, "N1: tensor 'rnn.weight_hh_l0' is missing; the file has net.cell", "eval rnn --weights N1 " DATA);
  write_renamed("N2", 2, (renaming[]){{"linear.weight", NULL}, {"linear.bias", "fc.bias"}}, (double)NAN);
  assert_fails(2, "from the last hidden state; the file has rnn.weight_ih_l0", "eval rnn --weights N2 " DATA);
  write_renamed("N3", 6, (renaming[]){CELL("net.cell."), HEAD("a,b")}, (double)NAN); /* a name that --prefix cannot say */
  assert_fails(2, "N3: tensor 'rnn.weight_hh_l0' is missing; the file has net.cell", "eval rnn --weights N3 " DATA);
}

/* ---- torch.save ---- */

/* The built-in data follow the weights: their features, and as many of the ten classes as they have. */
static void test_bitstream_of_weights(void **state) {
  (void)state;
#define FEW "few.safetensors: weights for 2 classes: the data are the bitstream's first 2 of 10"
  static float numbers[4] = {0.5f, -0.25f, 0.125f, 1};
  const int64_t square[] = {2, 2}, wide[] = {2, 2}, rows[] = {2};
  const bppsa_named_view tensors[] = {{"rnn.weight_hh_l0", bppsa_view_make(numbers, BPPSA_F32, 2, square)},
                                      {"rnn.weight_ih_l0", bppsa_view_make(numbers, BPPSA_F32, 2, wide)},
                                      {"rnn.bias_ih_l0", bppsa_view_make(numbers, BPPSA_F32, 1, rows)},
                                      {"rnn.bias_hh_l0", bppsa_view_make(numbers, BPPSA_F32, 1, rows)},
                                      {"linear.weight", bppsa_view_make(numbers, BPPSA_F32, 2, square)},
                                      {"linear.bias", bppsa_view_make(numbers, BPPSA_F32, 1, rows)}};
  assert_int_equal(bppsa_safetensors_save("few.safetensors", 6, tensors, 0, NULL), BPPSA_OK);
  assert_notes(run("eval rnn --weights few.safetensors " DATA " --out few.npz"), FEW);
  assert_notes(run("train rnn --weights few.safetensors --epochs 2 --ranks 2 " DATA), FEW);
  assert_fails(2, "few.safetensors: weights for input size 2, expected 1 as in the data",
               "eval rnn --weights few.safetensors --input 1 " DATA);
  json_t *document = run_noted_json("eval rnn --weights few.safetensors --json --seq-len 300 --samples 600 --seed 3");
  assert_in_range((int)(1000 * get_real(document, "loss")), 300, 1500); /* log 2 is what guessing gives */
  json_decref(document);
}

static void test_torch(void **state) {
  (void)state;
  static const char zip[] = "PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a\0\0\0M/data.pklFB\x14",
                    legacy[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02",
                    other[] = "PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0data.npyFB\x14";
  const char *says = "M.pt: byte 0: a file of torch.save, expected safetensors; in Python: import torch, safetensors.torch; "
                     "safetensors.torch.save_file(torch.load('M.pt', map_location='cpu'), 'W.safetensors')";
  write_bytes("M.pt", zip, sizeof zip - 1);
  assert_fails(2, says, "eval rnn --weights M.pt " DATA);
  write_bytes("M.pt", legacy, sizeof legacy - 1);
  assert_fails(2, says, "train rnn --weights M.pt --iterations 1 " DATA);
  assert_fails(2, "a file of torch.save", "prune --weights M.pt --fraction 0.5 --out P.safetensors");
  write_bytes("M.pt", other, sizeof other - 1);
  assert_fails(
      2, "M.pt: byte 0: 'PK\\x03\\x04\\x00\\x00\\x08\\x08', expected the length of a safetensors header, which begins with '{'",
      "eval rnn --weights M.pt " DATA);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_widened),
                                     cmocka_unit_test(test_rounded),
                                     cmocka_unit_test(test_jacobian_of_f64),
                                     cmocka_unit_test(test_halves),
                                     cmocka_unit_test(test_too_large),
                                     cmocka_unit_test(test_prefix),
                                     cmocka_unit_test(test_missing),
                                     cmocka_unit_test(test_proposed),
                                     cmocka_unit_test(test_none_proposed),
                                     cmocka_unit_test(test_bitstream_of_weights),
                                     cmocka_unit_test(test_torch)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}
