/* Public functions with arguments that exist and numbers that no caller can mean: counts below 0, sizes beyond every memory, kinds
 * that there are not, NaN. Each is answered with an error, soon, without a crash and without taking memory for
 * it. tests/headers/null_calls.c has NULL. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "audio/mfcc.h"
#include "audio/wav.h"
#include "cnn/cnn.h"
#include "cnn/prune.h"
#include "comm/comm.h"
#include "core/compute/device_buffer.h"
#include "core/files/file.h"
#include "core/files/json.h"
#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "jacobian/jacobian.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "scan/plan.h"
#include "schedule/schedule.h"
#include "tests/support/sanitized.h"
#include "train/data/dataset.h"
#include "train/log.h"
#include "train/rate.h"

static bppsa_device *device;

static const int64_t absurd[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 62};
enum { ABSURD = sizeof absurd / sizeof absurd[0], NEGATIVE = 2 }; /* the first two are below 0 */
static const double absurd_reals[] = {NAN, INFINITY, -INFINITY, -1};
enum { REALS = sizeof absurd_reals / sizeof absurd_reals[0] };

/* One function with one absurd number, n. */
typedef bppsa_status (*attempt)(int64_t n);

static bppsa_status shape_bytes(int64_t n) {
  const int64_t shape[3] = {n, 1 << 20, 1 << 20};
  int64_t count;
  size_t bytes;
  return bppsa_shape_bytes(BPPSA_F64, 3, shape, &count, &bytes);
}

static bppsa_status shape_dimensions(int64_t n) {
  const int64_t shape[1] = {1};
  int64_t count;
  size_t bytes;
  return bppsa_shape_bytes(BPPSA_F32, n < 0 ? -1 : 99, shape, &count, &bytes);
}

static bppsa_status buffer(int64_t n) {
  bppsa_buffer made = {0};
  return bppsa_buffer_create(NULL, BPPSA_F32, 1, &n, &made);
}

static bppsa_status buffer_dtype(int64_t n) {
  const int64_t one = 1;
  bppsa_buffer made = {0};
  return bppsa_buffer_create(NULL, (bppsa_dtype)(n < 0 ? 99 : 1000), 1, &one, &made);
}

static bppsa_status save_view(int64_t n) {
  static float data[4];
  int64_t shape[99] = {1};
  const bppsa_view view = bppsa_view_make(data, BPPSA_F32, n < 0 ? -5 : 99, shape);
  return bppsa_npy_save("absurd.npy", &view);
}

static bppsa_status npy_writer(int64_t n) {
  bppsa_npy_writer *writer = NULL;
  return bppsa_npy_writer_create("absurd.npy", BPPSA_F32, 1, &n, &writer);
}

static bppsa_status npy_parse(int64_t n) {
  bppsa_view view;
  return bppsa_npy_parse("text", "\x93NUMPY\x01", n, &view);
}

static bppsa_status tensors_save(int64_t n) {
  bppsa_named_view tensor = {"a", {0}};
  return bppsa_safetensors_save("absurd.safetensors", n, &tensor, 0, NULL);
}

static bppsa_status json_parse(int64_t n) {
  json_t *value = NULL;
  return bppsa_json_parse("text", "{}", n, &value);
}

static bppsa_status json_digits(int64_t n) {
  char *text = NULL;
  return bppsa_json_text(json_null(), n < 0 ? -1 : 1000, 0, &text);
}

static bppsa_status threads(int64_t n) {
  bppsa_device *made = NULL;
  return bppsa_device_create("cpu", n, &made);
}

static bppsa_status file_limit(int64_t n) {
  char *data = NULL;
  int64_t size;
  return bppsa_file_read("/proc/self/status", n, &data, &size);
}

static bppsa_status csr_rows(int64_t n) {
  bppsa_csr csr = {0};
  return bppsa_csr_create(n, 1, 0, &csr);
}

static bppsa_status csr_columns(int64_t n) {
  bppsa_csr csr = {0};
  return bppsa_csr_create(1, n, 0, &csr);
}

static bppsa_status csr_entries(int64_t n) {
  bppsa_csr csr = {0};
  return bppsa_csr_create(1, 1, n, &csr);
}

static bppsa_status csr_lies(int64_t n) {
  int64_t row_ptr[2] = {0, n};
  int32_t col[1] = {0};
  const bppsa_csr csr = {.rows = 1, .cols = 1, .nnz = 1, .row_ptr = row_ptr, .col = col};
  return bppsa_csr_check(&csr);
}

static bppsa_status op_shape(int64_t n) {
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  int64_t out[3];
  op.in[1] = n;
  return bppsa_op_shape(&op, out);
}

static bppsa_status op_stride(int64_t n) {
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_MAXPOOL2D);
  int64_t out[3];
  op.stride[0] = n < 0 ? n : 0;
  return bppsa_op_shape(&op, out);
}

static bppsa_status op_kernel(int64_t n) {
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  bppsa_op_size size;
  op.kernel[1] = n;
  return bppsa_op_count(&op, &size);
}

static bppsa_status jacobian(int64_t n) {
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  bppsa_jacobian *made = NULL;
  op.padding[0] = n;
  return bppsa_jacobian_create(&op, NULL, false, device, &made);
}

static bppsa_status scan_length(int64_t n) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.dim = 4;
  config.jacobians = n;
  return bppsa_scan_plan_create(&config, &plan);
}

static bppsa_status scan_dim(int64_t n) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.jacobians = 4;
  config.dim = n;
  return bppsa_scan_plan_create(&config, &plan);
}

static bppsa_status scan_batch(int64_t n) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.jacobians = config.dim = 4;
  config.batch = n;
  return bppsa_scan_plan_create(&config, &plan);
}

static bppsa_status scan_element(int64_t n) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.element = (bppsa_element)(n < 0 ? 77 : 99);
  return bppsa_scan_plan_create(&config, &plan);
}

static bppsa_status recurrent_with(size_t offset, int64_t n) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  memcpy((char *)&config + offset, &n, sizeof n);
  return bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model);
}

#define RECURRENT(field)                                                                                                         \
  static bppsa_status recurrent_##field(int64_t n) {                                                                             \
    return recurrent_with(offsetof(bppsa_recurrent_config, field), n);                                                           \
  }
RECURRENT(seq_len)
RECURRENT(batch)
RECURRENT(input)
RECURRENT(hidden)
RECURRENT(layers)
RECURRENT(classes)

static bppsa_status cnn_batch(int64_t n) {
  bppsa_cnn_network network = {0};
  bppsa_cnn_config config = bppsa_cnn_config_default();
  bppsa_model *model = NULL;
  config.batch = n;
  const bppsa_status found = bppsa_cnn_network_builtin("lenet5", &network);
  const bppsa_status status = found == BPPSA_OK ? bppsa_cnn_create(&network, &config, device, &model) : BPPSA_OK;
  bppsa_cnn_network_free(&network);
  return status;
}

static bppsa_status samples(int64_t n) {
  bppsa_dataset_options options = bppsa_dataset_options_default();
  bppsa_dataset *set = NULL;
  options.samples = n;
  return bppsa_dataset_create("bitstream", &options, &set);
}

static bppsa_status steps(int64_t n) {
  bppsa_dataset_options options = bppsa_dataset_options_default();
  bppsa_dataset *set = NULL;
  options.seq_len = n;
  return bppsa_dataset_create("bitstream", &options, &set);
}

static bppsa_status split(int64_t n) {
  bppsa_split made;
  return n < 0 ? bppsa_split_make(n, 0.5, &made) : bppsa_split_make(4, (double)n, &made);
}

static bppsa_status ranks(int64_t n) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = n;
  return bppsa_comm_run(&config, (bppsa_comm_body)(void (*)(void))abort, NULL, NULL);
}

static bppsa_status stages(int64_t n) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  config.stages = n;
  return bppsa_schedule_create("1f1b", &config, &list);
}

static bppsa_status micro_batches(int64_t n) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  config.micro_batches = n;
  return bppsa_schedule_create("gpipe", &config, &list);
}

static bppsa_status mfcc(int64_t n) {
  bppsa_mfcc_plan *plan = NULL;
  return bppsa_mfcc_plan_create(&bppsa_mfcc_sets[0], n, BPPSA_PADDING_CONSTANT, &plan);
}

static bppsa_status wav(int64_t n) {
  static const int16_t silence[2];
  return bppsa_wav_write("absurd.wav", n, silence);
}

static bppsa_status log_position(int64_t n) {
  const bppsa_log_position position = {n < 0 ? 1 : n, UINT32_MAX};
  bppsa_log *log = NULL;
  return bppsa_log_continue("absurd.jsonl", &position, &log);
}

typedef struct {
  const char *name;
  attempt call;
} number_case;

static const number_case numbers[] = {{"shape_bytes", shape_bytes},
                                      {"shape_bytes, dimensions", shape_dimensions},
                                      {"buffer_create", buffer},
                                      {"buffer_create, dtype", buffer_dtype},
                                      {"npy_save", save_view},
                                      {"npy_writer_create", npy_writer},
                                      {"json_parse", json_parse},
                                      {"json_text", json_digits},
                                      {"device_create", threads},
                                      {"csr_create, rows", csr_rows},
                                      {"csr_create, columns", csr_columns},
                                      {"csr_create, entries", csr_entries},
                                      {"csr_check", csr_lies},
                                      {"op_shape, height", op_shape},
                                      {"op_shape, stride", op_stride},
                                      {"op_count, kernel", op_kernel},
                                      {"jacobian_create, padding", jacobian},
                                      {"scan_plan_create, jacobians", scan_length},
                                      {"scan_plan_create, dim", scan_dim},
                                      {"scan_plan_create, batch", scan_batch},
                                      {"scan_plan_create, element", scan_element},
                                      {"recurrent_create, seq_len", recurrent_seq_len},
                                      {"recurrent_create, batch", recurrent_batch},
                                      {"recurrent_create, input", recurrent_input},
                                      {"recurrent_create, hidden", recurrent_hidden},
                                      {"recurrent_create, layers", recurrent_layers},
                                      {"recurrent_create, classes", recurrent_classes},
                                      {"cnn_create, batch", cnn_batch},
                                      {"dataset_create, samples", samples},
                                      {"dataset_create, seq_len", steps},
                                      {"split_make", split},
                                      {"comm_run, ranks", ranks},
                                      {"schedule_create, stages", stages},
                                      {"schedule_create, micro_batches", micro_batches},
                                      {"mfcc_plan_create", mfcc},
                                      {"wav_write", wav},
                                      {"log_continue", log_position}};

/* Of these only numbers below 0 are absurd: above, the caller would lie about an array, or the size may be meant. */
static const number_case negatives[] = {{"npy_parse", npy_parse}, {"safetensors_save", tensors_save}, {"file_read", file_limit}};

static bppsa_status rate(double x) {
  bppsa_rate_config config = bppsa_rate_config_default();
  config.kind = BPPSA_RATE_STEP;
  config.gamma = x;
  return bppsa_rate_check(&config, 0.1);
}

static bppsa_status save_tensor(double x) {
  const int64_t shape[99] = {1};
  const bppsa_named_view tensor = {"a", bppsa_view_make(NULL, BPPSA_F32, isnan(x) ? 99 : -1, shape)};
  return bppsa_safetensors_save("absurd.safetensors", 1, &tensor, 0, NULL);
}

static bppsa_status fraction(double x) {
  bppsa_split made;
  return bppsa_split_make(10, x, &made);
}

static bppsa_status timeout(double x) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.timeout = x;
  return bppsa_comm_run(&config, (bppsa_comm_body)(void (*)(void))abort, NULL, NULL);
}

static bppsa_status prune(double x) {
  static float data[4];
  static uint8_t mask[4];
  uint8_t *masks[1] = {mask};
  const int64_t shape[2] = {2, 2};
  const bppsa_named_view weight = {"w", bppsa_view_make(data, BPPSA_F32, 2, shape)};
  return bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, x, 1, &weight, masks, NULL);
}

static const struct {
  const char *name;
  bppsa_status (*call)(double x);
} reals[] = {{"rate_check, gamma", rate},
             {"safetensors_save, view", save_tensor},
             {"split_make, fraction", fraction},
             {"comm_run, timeout", timeout},
             {"prune, fraction", prune}};

/* What a child process ends with. */
static int answer(bppsa_status status) {
  const bool good = status != BPPSA_OK && bppsa_last_error()[0] != '\0';
  if (!good) {
    fprintf(stderr, "status %s, message \"%s\"\n", bppsa_status_name(status), bppsa_last_error());
  }
  return good ? 0 : 1;
}

/* In a process of its own, which may take 60 s of time and, without a sanitizer, 4 GiB of addresses. */
static bool survives(const char *name, int64_t i, attempt call, bppsa_status (*of_real)(double)) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
#if !ADDRESS_SANITIZED && !THREAD_SANITIZED
    (void)setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)4 << 30, (rlim_t)4 << 30});
#endif
    (void)alarm(60);
    _exit(answer(call != NULL ? call(absurd[i]) : of_real(absurd_reals[i])));
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!good) {
    print_message("%s, number %d: %s %d\n", name, (int)i, WIFEXITED(status) ? "exit code" : "signal",
                  WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  }
  return good;
}

static int count_bad(const number_case *cases, size_t count, int64_t attempts) {
  int bad = 0;
  for (size_t f = 0; f < count; ++f) {
    for (int64_t i = 0; i < attempts; ++i) {
      bad += !survives(cases[f].name, i, cases[f].call, NULL);
    }
  }
  return bad;
}

static void test_numbers(void **state) {
  (void)state;
  assert_int_equal(count_bad(numbers, sizeof numbers / sizeof numbers[0], ABSURD), 0);
  assert_int_equal(count_bad(negatives, sizeof negatives / sizeof negatives[0], NEGATIVE), 0);
}

static void test_reals(void **state) {
  (void)state;
  int bad = 0;
  for (size_t f = 0; f < sizeof reals / sizeof reals[0]; ++f) {
    for (int64_t i = 0; i < REALS; ++i) {
      bad += !survives(reals[f].name, i, NULL, reals[f].call);
    }
  }
  assert_int_equal(bad, 0);
}

int main(void) {
  if (bppsa_device_create("cpu", 1, &device) != BPPSA_OK) {
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_reals)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}
