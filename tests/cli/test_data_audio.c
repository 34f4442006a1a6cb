/* `data instruments`, `data irmas`, and training on their files. */
#include "tests/cli/run_cli.h"

#include "audio/audio.h"
#include "core/files/npy.h"
#include "tests/audio/wav_bytes.h"

#define REFUSED(text, ...) assert_fails(2, text, __VA_ARGS__)

static wav_bytes file;

static void shell(const char *command) {
  assert_int_equal(system(command), 0);
}

/* in/: 22 instruments, made once. */
static int enter_with_instruments(void **state) {
  const int status = enter_directory(state);
  assert_runs("data instruments --files 22 --seed 4 --out in");
  return status;
}

static void test_instruments(void **state) {
  (void)state;
  json_t *document = run_json("data instruments --files 3 --seed 4 --out few --threads 1 --json");
  assert_int_equal(get_integer(document, "files"), 3);
  assert_int_equal(get_integer(document, "seed"), 4);
  assert_int_equal(get_integer(document, "rate"), 44100);
  json_decref(document);
  shell("cmp few/cla/cla_000001.wav in/cla/cla_000001.wav");
  run_result result = run("data instruments --files 12 --out other --threads 2");
  assert_string_equal(result.out, "other: 12 files of 11 classes, 3 s each\n");
  release(&result);
  assert_int_equal(system("cmp -s other/cla/cla_000001.wav in/cla/cla_000001.wav") != 0, 1); /* another seed */
  shell("test $(find other -name '*.wav' | wc -l) = 12 && test $(find other -type f | wc -l) = 12 && rm -rf few other");
  REFUSED("in/cel/cel_000000.wav: is there already, expected a directory without WAV files",
          "data instruments --files 1 --out in");
  REFUSED("--files: '0', expected a whole number from 1 to 1000000", "data instruments --files 0 --out x");
  REFUSED("--out: option missing", "data instruments");
  REFUSED("--out: no/such/x: cannot write into directory 'no/such'", "data instruments --out no/such/x");
  REFUSED("'x': unexpected argument of 'data instruments'", "data instruments x");
  assert_false(file_exists("x"));
}

static void assert_shape(const char *path, bppsa_dtype dtype, int64_t n, int64_t steps, int64_t input) {
  bppsa_buffer x;
  assert_int_equal(bppsa_npy_load(path, &x), BPPSA_OK);
  assert_int_equal(x.view.dtype, dtype);
  assert_int_equal(x.view.ndim, 3);
  assert_true(x.view.shape[0] == n && x.view.shape[1] == steps && x.view.shape[2] == input);
  bppsa_buffer_free(&x);
}

static void test_features(void **state) {
  (void)state;
  assert_runs("data irmas in --out-x S.npy --out-y SY.npy");
  assert_shape("S.npy", BPPSA_F32, 22, 259, 38);
  assert_runs("data irmas --directory in --set M --padding reflect --dtype f64 --out-x M.npy --out-y MY.npy");
  assert_shape("M.npy", BPPSA_F64, 22, 517, 24);
  json_t *document = run_json("data irmas in --set L --loss all --threads 1 --out-x L.npy --out-y LY.npy --json");
  assert_int_equal(get_integer(document, "samples"), 22);
  assert_int_equal(get_integer(document, "seq_len"), 1034);
  assert_int_equal(get_integer(document, "input"), 12);
  assert_int_equal(get_integer(document, "classes"), 11);
  json_decref(document);
  assert_shape("L.npy", BPPSA_F32, 22, 1034, 12);
  bppsa_buffer labels;
  assert_int_equal(bppsa_npy_load("LY.npy", &labels), BPPSA_OK);
  assert_true(labels.view.ndim == 2 && labels.view.shape[1] == 1034 && labels.view.dtype == BPPSA_I64);
  bppsa_buffer_free(&labels);
  /* The bits do not depend on the threads. */
  assert_runs("data irmas in --threads 3 --out-x S3.npy --out-y SY3.npy");
  shell("cmp S.npy S3.npy && cmp SY.npy SY3.npy && rm -f *.npy");
}

static void test_requests(void **state) {
  (void)state;
  const int files = count_files();
  REFUSED("DIR: argument missing in 'data irmas', expected the path of a directory", "data irmas --out-x X.npy --out-y Y.npy");
  REFUSED("--out-x: option missing in 'data irmas'", "data irmas in --out-y Y.npy");
  REFUSED("'more': unexpected argument of 'data irmas'", "data irmas in more --out-x X.npy --out-y Y.npy");
  REFUSED("--set: 'XL', expected S, M or L", "data irmas in --set XL --out-x X.npy --out-y Y.npy");
  REFUSED("--padding: 'reflct', expected constant or reflect; did you mean reflect?",
          "data irmas in --padding reflct --out-x X.npy --out-y Y.npy");
  REFUSED("none: cannot list the directory: No such file or directory", "data irmas none --out-x X.npy --out-y Y.npy");
  REFUSED("in/cel: no WAV files in folders of IRMAS's classes", "data irmas in/cel --out-x X.npy --out-y Y.npy");
  REFUSED("--out-y: X.npy, the file of --out-x", "data irmas in --out-x X.npy --out-y X.npy");
  REFUSED("--set: given beside --data bitstream, expected --data irmas:DIR or instruments:DIR",
          "train rnn --set S --iterations 1");
  REFUSED("--padding: given beside --data bitstream", "train rnn --padding reflect --iterations 1");
  REFUSED("directory missing, expected instruments:DIR", "train rnn --data instruments: --iterations 1");
  REFUSED("in gives 22 samples, but 5 were asked for", "train rnn --data irmas:in --samples 5 --iterations 1");
  assert_int_equal(count_files(), files);
  run_result help = run("data irmas --help");
  assert_int_equal(help.code, 0);
  assert_non_null(strstr(help.out, "Usage: bppsa data irmas DIR [OPTION]...\n"));
  release(&help);
}

/* Damaged files: one line that names the file and how many were good, exit 2, and nothing is written. */
static void test_bad_files(void **state) {
  (void)state;
  static const struct {
    size_t at;
    uint64_t value;
    int bytes;
    const char *text;
  } lies[] = {
      {4, 4294770687, 4, "bad/org/x.wav: byte 4: the RIFF header announces 4294770687 bytes after it, but the file has 40036"},
      {40, 4294770687, 4, "bad/org/x.wav: byte 40: the chunk 'data' announces 4294770687 bytes, but 40000 are left"},
      {22, 0, 2, "bad/org/x.wav: byte 22: 0 channels, expected 1 or 2"}};
  shell("mkdir -p bad/org bad/pia && cp in/pia/*.wav bad/pia");
  const int files = count_files();
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; ++i) {
    wav_sawtooth(&file, 2, 44100, 10000);
    wav_patch(&file, lies[i].at, lies[i].value, lies[i].bytes);
    assert_true(wav_save(&file, "bad/org/x.wav"));
    REFUSED(lies[i].text, "data irmas bad --out-x X.npy --out-y Y.npy");
    REFUSED("; 2 of 3 files are good", "train rnn --data irmas:bad --batch 2 --iterations 1 --set L");
  }
  file.size = 20000; /* truncated */
  wav_patch(&file, 22, 2, 2);
  assert_true(wav_save(&file, "bad/org/x.wav"));
  REFUSED("bad/org/x.wav: byte 4: the RIFF header announces 40036 bytes after it, but the file has 19992",
          "data irmas bad --out-x X.npy --out-y Y.npy");
  wav_open(&file, 3, 2, 44100, 32);
  for (int i = 0; i < 20000; ++i) {
    wav_put(&file, i == 7001 ? 0x7FC00000 : 0x3E000000, 4); /* not a number */
  }
  wav_close(&file);
  assert_true(wav_save(&file, "bad/org/x.wav"));
  REFUSED("bad/org/x.wav: frame 3500, channel 1: the sample is nan, expected a finite value; 2 of 3 files are good",
          "data irmas bad --out-x X.npy --out-y Y.npy");
  assert_int_equal(count_files(), files);
  shell("rm -r bad");
}

/* From WAV files straight to weights, and from the NPY files of the same order: the same losses. */
static void test_training(void **state) {
  (void)state;
  const char *settings = "--set L --seed 2 --batch 4 --hidden 4 --iterations 3 --threads 2 --json";
  assert_runs("data irmas in --set L --seed 2 --out-x X.npy --out-y Y.npy");
  json_t *wav = run_json("train rnn --data instruments:in %s --save-weights W.safetensors", settings);
  json_t *npy = run_json("train rnn --data npy:X.npy,Y.npy --seed 2 --batch 4 --hidden 4 --iterations 3 --threads 1 --json");
  const json_t *wav_rows = json_object_get(wav, "rows"), *npy_rows = json_object_get(npy, "rows");
  assert_int_equal(json_array_size(wav_rows), 3);
  for (size_t i = 0; i < 3; ++i) {
    assert_true(get_real(json_array_get(wav_rows, i), "loss") == get_real(json_array_get(npy_rows, i), "loss"));
  }
  json_decref(wav);
  json_decref(npy);
  json_t *held_out = run_json("eval rnn --weights W.safetensors --data irmas:in --set L --seed 2 --validation 0.5 --json");
  assert_int_equal(get_integer(held_out, "samples"), 11);
  json_decref(held_out);
  REFUSED("weights for input size 12, expected 38", "eval rnn --weights W.safetensors --data irmas:in");
  shell("rm -f *.npy *.safetensors");
}

/* Every allocation of the program in turn: exit 1 or 0, one line, nothing left alive (run checks that) and no file half written. */
static void test_memory(void **state) {
  (void)state;
  shell("mkdir -p one/pia && cp in/pia/pia_000006.wav one/pia");
  int code = 1;
  for (int64_t call = 1; code != 0; call += call < 60 ? 1 : 7) {
    bppsa_alloc_fail_at(call);
    run_result result = run("data irmas one --set L --threads 1 --out-x X.npy --out-y Y.npy");
    bppsa_alloc_fail_at(0);
    code = result.code;
    assert_true(code == 0 || code == 1);
    if (code != 0) {
      assert_one_error(&result, "");
      assert_false(file_exists("Y.npy"));
    }
    release(&result);
    assert_true(call < 2000);
  }
  shell("rm -rf one *.npy");
}

/* Without the libraries, the commands that read audio name the packages that provide them. */
static void test_unsupported(void **state) {
  (void)state;
  REFUSED("libsndfile1-dev, libsamplerate0-dev and libavutil-dev", "data irmas in --out-x X.npy --out-y Y.npy");
}

int main(void) {
  const struct CMUnitTest without[] = {cmocka_unit_test(test_instruments), cmocka_unit_test(test_unsupported)};
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_instruments), cmocka_unit_test(test_features),
                                     cmocka_unit_test(test_requests),    cmocka_unit_test(test_bad_files),
                                     cmocka_unit_test(test_training),    cmocka_unit_test(test_memory)};
  return bppsa_audio_check() == BPPSA_OK ? cmocka_run_group_tests(tests, enter_with_instruments, leave_directory)
                                         : cmocka_run_group_tests(without, enter_with_instruments, leave_directory);
}
