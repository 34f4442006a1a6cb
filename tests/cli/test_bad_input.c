/* Requests that are wrong: one line on standard error, exit 2, and no file made or changed. */
#include "core/compute/device_buffer.h"
#include "tests/cli/batch_files.h"

#define GRAD "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors"
#define GRAD_WITH(weights, input, labels)                                                                                        \
  "grad rnn --out G.safetensors --weights " weights " --input " input " --labels " labels " "

/* The line fails as a wrong request and makes no file; an existing result stays as it was. */
#define assert_refused(text, ...)                                                                                                \
  do {                                                                                                                           \
    write_bytes("G.safetensors", "kept", 4);                                                                                     \
    const int files_ = count_files();                                                                                            \
    assert_fails(2, text, __VA_ARGS__);                                                                                          \
    size_t size_ = 0;                                                                                                            \
    char *bytes_ = read_bytes("G.safetensors", &size_);                                                                          \
    assert_true(size_ == 4 && memcmp(bytes_, "kept", 4) == 0);                                                                   \
    free(bytes_);                                                                                                                \
    assert_int_equal(count_files(), files_);                                                                                     \
    assert_int_equal(remove("G.safetensors"), 0);                                                                                \
    assert_fails(2, text, __VA_ARGS__);                                                                                          \
    assert_false(file_exists("G.safetensors"));                                                                                  \
  } while (0)

/* One line of error that names `path` and says "byte " and a number. */
static void assert_byte(const run_result *result, const char *path) {
  long long byte = -1;
  assert_one_error(result, path);
  for (const char *at = strstr(result->err, "byte "); at != NULL && byte < 0; at = strstr(at + 1, "byte ")) {
    (void)sscanf(at, "byte %lld", &byte);
  }
  if (byte < 0) {
    fail_msg("expected 'byte ' and a number, found '%s'", result->err);
  }
}

/* The line is refused with the byte at fault, and leaves nothing behind. */
#define assert_refused_at_byte(path, ...)                                                                                        \
  do {                                                                                                                           \
    run_result refused_ = run(__VA_ARGS__);                                                                                      \
    assert_int_equal(refused_.code, 2);                                                                                          \
    assert_string_equal(refused_.out, "");                                                                                       \
    assert_byte(&refused_, path);                                                                                                \
    assert_false(file_exists("G.safetensors"));                                                                                  \
    release(&refused_);                                                                                                          \
  } while (0)

static void test_values(void **state) {
  (void)state;
  const char *const zero[] = {"--seq-len", "--batch", "--hidden", "--layers", "--samples", "--epochs", "--chunks", "--threads"};
  for (size_t i = 0; i < sizeof zero / sizeof zero[0]; ++i) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s: '0', expected a whole number", zero[i]);
    assert_fails(2, wanted, "train rnn %s 0", zero[i]);
    snprintf(wanted, sizeof wanted, "%s: '16x', expected a whole number", zero[i]);
    assert_fails(2, wanted, "train rnn %s=16x", zero[i]);
  }
  const char *const int32[] = {"--hidden", "--samples", "--batch", "--epochs"};
  for (size_t i = 0; i < sizeof int32 / sizeof int32[0]; ++i) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s: '2147483648', expected a whole number from 1 to 2147483647", int32[i]);
    assert_fails(2, wanted, "train rnn %s 2147483648", int32[i]);
  }
  assert_fails(2, "--iterations: '-1', expected a whole number, 0 or more", "train rnn --iterations -1"); /* 0: initial weights */
  assert_fails(2, "--iterations: '16x', expected a whole number", "train rnn --iterations=16x");
  assert_fails(2, "does not fit in 64 bits", "train rnn --hidden 2147483647 --iterations 1");
  assert_fails(2, "--lr: 'nan', expected a number above 0", "train rnn --lr nan");
  assert_fails(2, "--nonlinearity: 'tanhh', expected tanh or relu; did you mean tanh?", "train rnn --nonlinearity tanhh");
  assert_fails(2, "--dtype: 'f16', expected f32 or f64", "train rnn --dtype f16");
  assert_fails(2, "unknown kind, expected bitstream, npy:X,Y, irmas:DIR, instruments:DIR or cifar10:DIR",
               "train rnn --data bitsream");
}

static void test_train(void **state) {
  (void)state;
  const char *train = "train rnn --seq-len 5 --samples 32 --iterations 1";
  const int files = count_files();
  assert_fails(2, "--batch: 33, more than the 32 training samples", "%s --batch 33", train);
  assert_fails(2, "--batch: 16, more than the 8 training samples", "%s --validation 0.75", train);
  assert_fails(2, "leaves none for validation", "%s --validation 0.001", train);
  assert_fails(2, "--iterations: given beside --epochs", "%s --epochs 1", train);
  assert_fails(2, "--momentum: given beside --optimizer adam", "%s --momentum 0.9", train);
  assert_fails(2, "--algorithm: an option of the scan beside --backward bp", "%s --backward bp --algorithm linear", train);
  assert_fails(2, "--init: given beside --weights", "%s --init orthogonal --weights W.safetensors", train);
  assert_fails(2, "--hidden: 5 contradicts the weights in W.safetensors, expected 4", "%s --hidden 5 --weights W.safetensors",
               train);
  assert_fails(2, "missing/F.safetensors: cannot write into directory 'missing'", "%s --save-weights missing/F.safetensors",
               train);
  assert_fails(2, "--log: missing/l: cannot write into directory", "%s --log missing/l", train);
  assert_fails(2, "--log: /dev/null: not a regular file", "%s --log /dev/null", train);
  assert_fails(2, "--save-weights: .: not a regular file", "%s --save-weights .", train);
  assert_fails(2, "--save-weights: same, the file of --log", "%s --save-weights same --log same", train);
  assert_fails(2, "--log: ./W.safetensors, the file of --weights", "%s --weights W.safetensors --log ./W.safetensors", train);
  assert_fails(2, "none.npy", "train rnn --data npy:none.npy,Y.npy");
  assert_fails(2, "Y.npy: shape [3] disagrees with the inputs' 7 samples of 3 steps, expected [7]",
               "train rnn --data npy:X.npy,Y.npy --batch 1"); /* N = 7 and N = 3 */
  assert_fails(2, "bitstream takes nothing after a colon, expected bitstream alone", "train rnn --data bitstream:5");
  assert_int_equal(count_files(), files);
}

/* Data that a run reads must not be a file it writes. */
static void test_train_data(void **state) {
  (void)state;
  const char *train = "train rnn --data npy:DX.npy,DY.npy --hidden 4 --iterations 1";
  assert_runs("data bitstream --seq-len 5 --samples 32 --out-x DX.npy --out-y DY.npy");
  assert_int_equal(symlink(".", "here"), 0);
  const int files = count_files();
  size_t x_size = 0, y_size = 0;
  char *x = read_bytes("DX.npy", &x_size), *y = read_bytes("DY.npy", &y_size);
  assert_fails(2, "--save-weights: DX.npy, the file of --data", "%s --save-weights DX.npy", train);
  assert_fails(2, "--save-weights: here/DY.npy, the file of --data", "%s --save-weights here/DY.npy", train);
  assert_fails(2, "--log: ./DX.npy, the file of --data", "%s --log ./DX.npy", train);
  assert_fails(2, "--log: DY.npy, the file of --data", "%s --log DY.npy", train);
  assert_fails(2, "--checkpoint: DX.npy: not a directory", "%s --checkpoint DX.npy", train);
  assert_fails(2, "--checkpoint: DY.npy: not a directory", "%s --checkpoint DY.npy", train);
  assert_fails(2, "--log: W.safetensors, the file of --weights", "%s --weights W.safetensors --log W.safetensors", train);
  assert_fails(2, "but 33 were asked for, expected the file's number or none", "%s --samples 33", train);
  size_t x_after = 0, y_after = 0;
  char *x_kept = read_bytes("DX.npy", &x_after), *y_kept = read_bytes("DY.npy", &y_after);
  assert_true(x_after == x_size && memcmp(x, x_kept, x_size) == 0);
  assert_true(y_after == y_size && memcmp(y, y_kept, y_size) == 0);
  free(x);
  free(y);
  free(x_kept);
  free(y_kept);
  assert_int_equal(count_files(), files);
  assert_int_equal(mkdir("c", 0777), 0);
  assert_fails(2, "--save-weights: c/checkpoint.safetensors, the file of --checkpoint",
               "%s --checkpoint c --save-weights c/checkpoint.safetensors", train);
  assert_fails(2, "--log: c/checkpoint.previous.safetensors, the file of --checkpoint",
               "%s --checkpoint ./c --log c/checkpoint.previous.safetensors", train);
  assert_int_equal(rmdir("c"), 0); /* empty still */
  assert_int_equal(remove("here"), 0);
}

/* Two new files under one name, spelled differently. */
static void test_spellings(void **state) {
  (void)state;
  assert_int_equal(mkdir("s", 0777), 0);
  assert_int_equal(symlink("s", "t"), 0);
  const char *const same[][2] = {
      {"N.npy", "./N.npy"}, {"s/N.npy", "t/N.npy"}, {"s/N.npy", "s//../t/N.npy"}, {"./s/N.npy", "s/N.npy"}};
  const int files = count_files();
  for (size_t i = 0; i < sizeof same / sizeof same[0]; ++i) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "--out-y: %s, the file of --out-x", same[i][1]);
    assert_fails(2, wanted, "data bitstream --seq-len 5 --samples 4 --out-x %s --out-y %s", same[i][0], same[i][1]);
    snprintf(wanted, sizeof wanted, "--save-weights: %s, the file of --log", same[i][1]);
    assert_fails(2, wanted, "train rnn --seq-len 5 --samples 32 --iterations 1 --log %s --save-weights %s", same[i][0],
                 same[i][1]);
  }
  assert_int_equal(count_files(), files);
  assert_int_equal(rmdir("s"), 0); /* empty still */
  assert_int_equal(mkdir("s", 0777), 0);
  assert_runs("data bitstream --seq-len 5 --samples 4 --out-x N.npy --out-y s/N.npy"); /* one name in two directories */
  assert_int_equal(system("rm -r N.npy s t"), 0);
}

static void test_eval(void **state) {
  (void)state;
  assert_fails(2, "--weights: option missing", "eval rnn");
  assert_fails(2, "none.safetensors", "eval rnn --weights none.safetensors");
  assert_runs("eval rnn --weights W.safetensors --dtype f64 --seq-len 5 --samples 32"); /* converted: test_weights.c */
  assert_fails(2, "--layers: 1 contradicts", "eval rnn --weights W2.safetensors --layers 1");
  assert_fails(2, "--nonlinearity: tanh contradicts the weights in W2.safetensors, expected relu",
               "eval rnn --weights W2.safetensors --nonlinearity tanh");
  write_reals("X2.npy", BPPSA_F32, 3, (int64_t[]){6, 5, 2});
  write_labels("Y2.npy", 1, (int64_t[]){6}, -1, 0);
  assert_fails(2, "W.safetensors: weights for input size 1, expected 2",
               "eval rnn --weights W.safetensors --data npy:X2.npy,Y2.npy");
  write_reals("X1.npy", BPPSA_F32, 3, (int64_t[]){6, 5, 1});
  write_labels("Y1.npy", 1, (int64_t[]){6}, 0, 10);
  assert_fails(2, "W.safetensors: weights for 10 classes, expected at least 11",
               "eval rnn --weights W.safetensors --data npy:X1.npy,Y1.npy");
}

static void test_grad(void **state) {
  (void)state;
  assert_runs(GRAD); /* what the rest varies is good */
  write_labels("bad.npy", 1, (int64_t[]){B}, 1, 10);
  assert_refused("bad.npy: label 10 at [1], expected 0 .. 9", GRAD_WITH("W.safetensors", "X.npy", "bad.npy"));
  write_labels("bad.npy", 1, (int64_t[]){B}, 2, -1);
  assert_refused("bad.npy: label -1 at [2], expected 0 .. 9", GRAD_WITH("W.safetensors", "X.npy", "bad.npy"));
  write_labels("bad.npy", 2, (int64_t[]){T, B}, 2 * B + 1, INT64_MAX);
  assert_refused("at [2, 1], expected 0 .. 9", GRAD_WITH("W.safetensors", "X.npy", "bad.npy") "--loss all");
  assert_refused("Y.npy: shape [3], expected [T, B] = [7, 3]", GRAD " --loss all");
  assert_refused("YT.npy: shape [7, 3], expected [B] = [3]", GRAD_WITH("W.safetensors", "X.npy", "YT.npy"));
  assert_refused("X.npy: dtype f64, expected i64", GRAD_WITH("W.safetensors", "X.npy", "X.npy"));
  assert_refused("Y.npy: shape [3], expected [T, B, I]", GRAD_WITH("W.safetensors", "Y.npy", "Y.npy"));
  write_reals("bad.npy", BPPSA_F32, 3, (int64_t[]){T, B, 2});
  assert_refused("bad.npy: shape [7, 3, 2], expected [T, B, I]", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  write_reals("bad.npy", BPPSA_F32, 2, (int64_t[]){T, B});
  assert_refused("bad.npy: shape [7, 3], expected [T, B, I]", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  write_reals("bad.npy", BPPSA_F32, 3, (int64_t[]){0, B, 1});
  assert_refused("bad.npy: shape [0, 3, 1], expected [T, B, I]", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  write_reals("bad.npy", BPPSA_F32, 3, (int64_t[]){2, B, H});
  assert_refused("bad.npy: shape [2, 3, 4], expected [L, B, H] = [1, 3, 4]", GRAD " --h0 bad.npy");
  assert_refused("--hidden: 20 contradicts the weights in W.safetensors, expected 4", GRAD " --hidden 20");
  assert_refused("--layers: 2 contradicts", GRAD " --layers 2");
  assert_refused("none.npy", GRAD_WITH("W.safetensors", "none.npy", "Y.npy"));
  assert_refused("Y.npy", GRAD_WITH("Y.npy", "X.npy", "Y.npy"));
  assert_refused("--up-levels: given beside --algorithm linear", GRAD " --algorithm linear --up-levels 1");
  assert_fails(2, "--out: W.safetensors, the file of --weights", GRAD " --out W.safetensors");
  assert_fails(2, "--out: ./X.npy, the file of --input", GRAD " --out ./X.npy");
  assert_fails(2, "--out: missing/G: cannot write into directory 'missing'", GRAD " --out missing/G");
}

static void test_not_finite(void **state) {
  (void)state;
  bppsa_buffer x;
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F64, 3, (int64_t[]){T, B, 1}, &x), BPPSA_OK);
  bppsa_view_set(&x.view, 5, 1e300);
  assert_int_equal(bppsa_npy_save("bad.npy", &x.view), BPPSA_OK);
  assert_refused("bad.npy: element 5 is not finite in f32, expected finite values: 1e+300 at [1, 2, 0]",
                 GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  assert_runs(GRAD_WITH("W64.safetensors", "bad.npy", "Y.npy")); /* saturated, but finite in f64 */
  assert_int_equal(remove("G.safetensors"), 0);
  write_labels("Y7.npy", 1, (int64_t[]){T}, -1, 0);
  const int files = count_files();
  assert_fails(2, "bad.npy: value 1e+300 at [1, 2, 0] is beyond f32, expected finite values",
               "train rnn --data npy:bad.npy,Y7.npy --batch 2 --log L --checkpoint d --save-weights S");
  assert_fails(2, "bad.npy: value 1e+300 at [1, 2, 0] is beyond f32",
               "eval rnn --weights W.safetensors --data npy:bad.npy,Y7.npy");
  assert_fails(2, "bad.npy: value 1e+300 at [1, 2, 0] is beyond f32",
               "train rnn --data npy:X.npy,bad.npy --loss mse-all --batch 2");
  assert_int_equal(count_files(), files);
  assert_runs("train rnn --data npy:bad.npy,Y7.npy --batch 2 --dtype f64 --iterations 1");
  bppsa_buffer_free(&x);
}

/* A valid file cut anywhere is refused, and so is one with bytes added. */
static void cut_everywhere(const char *path, const char *line) {
  size_t size = 0;
  char *bytes = read_bytes(path, &size);
  for (size_t length = 0; length < size; length += length < 600 ? 1 : 61) {
    write_bytes("cut", bytes, length);
    assert_refused_at_byte("cut: ", "%s", line);
  }
  bytes[size] = 'x'; /* read_bytes has room for it */
  write_bytes("cut", bytes, size + 1);
  assert_refused_at_byte("cut: ", "%s", line);
  free(bytes);
}

static void test_truncated(void **state) {
  (void)state;
  cut_everywhere("W.safetensors", GRAD_WITH("cut", "X.npy", "Y.npy"));
  cut_everywhere("X.npy", GRAD_WITH("W.safetensors", "cut", "Y.npy"));
  cut_everywhere("Y.npy", GRAD_WITH("W.safetensors", "X.npy", "cut"));
}

/* 8 bytes of length, header, `data` zero bytes. */
static void write_safetensors(const char *path, const char *header, uint64_t length, size_t data) {
  char bytes[2048] = {0};
  for (int i = 0; i < 8; ++i) {
    bytes[i] = (char)(length >> 8 * i & 255);
  }
  const size_t text = strlen(header);
  assert_true(8 + text + data <= sizeof bytes);
  memcpy(bytes + 8, header, text);
  write_bytes(path, bytes, 8 + text + data);
}

static void test_lying_safetensors(void **state) {
  (void)state;
  const char *const headers[] = {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\","
                                 "\"shape\":[2],\"data_offsets\":[4,12]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\","
                                 "\"shape\":[1],\"data_offsets\":[12,16]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1152921504606846976]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
                                 "{\"a\":{\"dtype\":99,\"shape\":[4],\"data_offsets\":[0,16]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"a\":{\"dtype\":\"F32\","
                                 "\"shape\":[4],\"data_offsets\":[0,16]}}",
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}",
                                 "[1,2,3]",
                                 "{",
                                 "not JSON"};
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; ++i) {
    write_safetensors("bad", headers[i], strlen(headers[i]), 16);
    assert_refused_at_byte("bad: ", GRAD_WITH("bad", "X.npy", "Y.npy"));
  }
  write_safetensors("bad", "{}", (uint64_t)1 << 60, 16);
  assert_refused("1152921504606846976", GRAD_WITH("bad", "X.npy", "Y.npy"));
  write_safetensors("bad", "{}", UINT64_MAX, 16);
  assert_refused_at_byte("bad: ", GRAD_WITH("bad", "X.npy", "Y.npy"));
  write_safetensors("bad", "{}", 2, 0);
  assert_refused("rnn.weight_hh_l0", GRAD_WITH("bad", "X.npy", "Y.npy"));
  write_bytes("bad", "", 0);
  assert_refused_at_byte("bad: byte 0: ", GRAD_WITH("bad", "X.npy", "Y.npy"));
}

/* A version 1.0 file with this header text and `data` zero bytes. */
static void write_npy(const char *path, const char *header, size_t data) {
  char bytes[512] = "\x93NUMPY\x01";
  const size_t text = strlen(header);
  bytes[8] = (char)(text & 255);
  bytes[9] = (char)(text >> 8);
  assert_true(10 + text + data <= sizeof bytes);
  memcpy(bytes + 10, header, text);
  write_bytes(path, bytes, 10 + text + data);
}

static void test_lying_npy(void **state) {
  (void)state;
  const char *const headers[] = {"{'descr': '<f8', 'fortran_order': False, 'shape': (-7, 3, 1), }\n",
                                 "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 16), }\n",
                                 "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 1, 1), }\n",
                                 "{'descr': '<f8', 'fortran_order': False, 'shape': (7, 300, 1), }\n",
                                 "{'descr': '<f8', 'fortran_order': False, 'shape': (7, 3, 1), ",
                                 "{'descr': '<f8', 'shape': (7, 3, 1), }\n",
                                 "{'descr': '<f8', 'fortran_order': False, 'shape': 7, }\n",
                                 "nonsense\n"};
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; ++i) {
    write_npy("bad.npy", headers[i], 7 * 3 * 8);
    assert_refused_at_byte("bad.npy: ", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  }
  write_bytes("bad.npy", "", 0);
  assert_refused_at_byte("bad.npy: byte 0: ", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  const char *const unsupported[] = {"{'descr': '|O', 'fortran_order': False, 'shape': (7, 3, 1), }\n",
                                     "{'descr': '<c8', 'fortran_order': False, 'shape': (7, 3, 1), }\n",
                                     "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (7, 3, 1), }\n"};
  for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; ++i) {
    write_npy("bad.npy", unsupported[i], 7 * 3 * 8);
    assert_refused("bad.npy: ", GRAD_WITH("W.safetensors", "bad.npy", "Y.npy"));
  }
  const char *const good[] = {"{'descr': '<f8', 'fortran_order': False, 'shape': (7, 3, 1), }\n", /* what was varied */
                              "{'descr': '<f8', 'fortran_order': True, 'shape': (7, 3, 1), }\n",
                              "{'descr': '>f8', 'fortran_order': False, 'shape': (7, 3, 1), }\n"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    write_npy("good.npy", good[i], 7 * 3 * 8);
    assert_runs(GRAD_WITH("W.safetensors", "good.npy", "Y.npy"));
  }
  assert_int_equal(remove("G.safetensors"), 0);
}

static void test_data(void **state) {
  (void)state;
  const int files = count_files();
  assert_fails(2, "--out-y: option missing", "data bitstream --out-x A.npy");
  assert_fails(2, "--out-y: A.npy, the file of --out-x", "data bitstream --out-x A.npy --out-y A.npy");
  assert_fails(2, "--out-y: missing/B.npy: cannot write", "data bitstream --out-x A.npy --out-y missing/B.npy");
  assert_fails(2, "--samples: '0'", "data bitstream --samples 0 --out-x A.npy --out-y B.npy");
  assert_int_equal(count_files(), files);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),     cmocka_unit_test(test_train),     cmocka_unit_test(test_train_data),
      cmocka_unit_test(test_spellings),  cmocka_unit_test(test_eval),      cmocka_unit_test(test_grad),
      cmocka_unit_test(test_not_finite), cmocka_unit_test(test_truncated), cmocka_unit_test(test_lying_safetensors),
      cmocka_unit_test(test_lying_npy),  cmocka_unit_test(test_data)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}
