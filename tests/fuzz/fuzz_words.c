/* Readers of words: methods (scan/method.c), devices, dtypes, transports, optimisers, rates, operators, schemes, data sets,
 * forward passes (recurrent/parallel_forward.c), plans of backward passes (recurrent/parallel_backward.c), splits
 * (distributed/job.c), numbers of processors (oracle/system.c). The part is the word. What is read is written and read again
 * where it has a text form. */
#include <string.h>

#include "comm/comm.h"
#include "core/base/text.h"
#include "core/compute/device.h"
#include "distributed/job.h"
#include "jacobian/op.h"
#include "networks/network_kinds.h"
#include "oracle/system.h"
#include "recurrent/parallel_backward.h"
#include "scan/method.h"
#include "schedule/schedule.h"
#include "tests/fuzz/fuzz.h"
#include "train/data/dataset.h"
#include "train/optimizer.h"
#include "train/rate.h"

static void plans(const char *text) {
  char again[BPPSA_BACKWARD_TEXT];
  bppsa_backward_method found = bppsa_backward_method_default(), same = found;
  if (bppsa_backward_plan_read(text, &found) == BPPSA_OK && found.chunks > 0) {
    const bool adapts = found.warm_up < 0;
    const bppsa_backward_plan plan = {.speculative = true,
                                      .chunks = found.chunks,
                                      .warm_up = adapts ? 40 : found.warm_up,
                                      .rounds = found.chunks / 2,
                                      .accept = found.tolerance,
                                      .stop = found.tolerance,
                                      .adapts = adapts,
                                      .scan_chunks = found.scan_chunks,
                                      .cost = found.cost};
    FUZZ_CHECK(bppsa_backward_plan_read(bppsa_backward_plan_text(&plan, again, sizeof again), &same) == BPPSA_OK);
    FUZZ_CHECK(same.chunks == found.chunks && same.warm_up == found.warm_up && same.tolerance == found.tolerance &&
               same.scan_chunks == found.scan_chunks);
  }
}

static bppsa_status methods(const char *text) {
  char again[BPPSA_METHOD_TEXT];
  bppsa_scan_method scan, scan_again;
  bppsa_gradient_method method, method_again;
  if (bppsa_scan_method_parse(text, &scan) == BPPSA_OK) {
    FUZZ_CHECK(bppsa_scan_method_parse(bppsa_scan_method_text(&scan, again, sizeof again), &scan_again) == BPPSA_OK);
    FUZZ_CHECK(scan_again.algorithm == scan.algorithm && scan_again.up_levels == scan.up_levels &&
               scan_again.chunks == scan.chunks);
    FUZZ_CHECK(strlen(bppsa_scan_method_words(&scan, again, sizeof again)) > 0);
  }
  plans(text);
  const bppsa_status status = bppsa_gradient_method_parse(text, &method);
  if (status == BPPSA_OK) {
    FUZZ_CHECK(bppsa_gradient_method_parse(bppsa_gradient_method_text(&method, again, sizeof again), &method_again) == BPPSA_OK);
    FUZZ_CHECK(method_again.backward == method.backward);
    FUZZ_CHECK(strlen(bppsa_gradient_method_words(&method, again, sizeof again)) > 0);
  }
  return status;
}

static bppsa_status splits(const char *text) {
  char again[64];
  bppsa_rank_split split, same;
  bppsa_oracle_system system;
  int64_t first = 0, last = 0;
  const bppsa_status status = bppsa_rank_split_parse(text, 0, &split);
  if (status == BPPSA_OK && split.time * split.batch > 0) {
    const int64_t ranks = split.time * split.batch;
    FUZZ_CHECK(bppsa_rank_split_parse(bppsa_rank_split_text(&split, again, sizeof again), ranks, &same) == BPPSA_OK);
    FUZZ_CHECK(same.time * same.batch == ranks);
  }
  FUZZ_CHECK(bppsa_oracle_system_open(bppsa_oracle_system_name(0), &system) == BPPSA_OK);
  const bppsa_status processors = bppsa_oracle_processors_parse(text, &system, &first, &last);
  FUZZ_CHECK(processors != BPPSA_OK ||
             (llabs(first) < (int64_t)1e18 && llabs(last) < (int64_t)1e18)); /* who asks looks at the range */
  return processors == BPPSA_OK ? BPPSA_OK : status;
}

static bppsa_status names(const char *text) {
  bppsa_device_kind kind;
  bppsa_dtype dtype;
  bppsa_comm_transport transport;
  bppsa_optimizer_kind optimizer;
  bppsa_rate_kind rate;
  bppsa_operator operator;
  int32_t index = 0;
  bppsa_status status = bppsa_device_parse(text, &kind, &index);
  FUZZ_CHECK(status != BPPSA_OK || index >= 0);
  status = bppsa_dtype_parse(text, &dtype) == BPPSA_OK ? BPPSA_OK : status;
  status = bppsa_comm_transport_parse(text, &transport) == BPPSA_OK ? BPPSA_OK : status;
  status = bppsa_optimizer_parse(text, &optimizer) == BPPSA_OK ? BPPSA_OK : status;
  status = bppsa_rate_parse(text, &rate) == BPPSA_OK ? BPPSA_OK : status;
  status = bppsa_operator_parse(text, &operator) == BPPSA_OK ? BPPSA_OK : status;
  bppsa_forward_kind forward;
  status = bppsa_forward_parse(text, &forward) == BPPSA_OK ? BPPSA_OK : status;
  status = splits(text) == BPPSA_OK ? BPPSA_OK : status;
  (void)bppsa_schedule_find(text);
  (void)bppsa_network_kind_find(text);
  return status;
}

static bppsa_status others(const char *text) {
  static const char *const known[] = {"linear", "blelloch", "chunked", "auto", "--seq-len", NULL};
  char hint[96], real[BPPSA_REAL_TEXT], *end = NULL;
  bppsa_text escaped = {0};
  bppsa_dataset *dataset = NULL;
  bppsa_dataset_options options = {.samples = 2, .seq_len = 2};
  (void)bppsa_suggestion(text, known, hint, sizeof hint);
  bppsa_text_add_escaped(&escaped, text);
  bppsa_text_free(&escaped);
  const double value = strtod(text, &end);
  if (end != text && value == value) { /* the shortest text reads back as the number */
    FUZZ_CHECK(strtod(bppsa_real_text(value, real), NULL) == value);
  }
  const bppsa_status status = bppsa_dataset_create(text, &options, &dataset);
  bppsa_dataset_destroy(dataset);
  return status;
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char *text = fuzz_text(&input->part[0]);
  const bppsa_status status = input->options % 3 == 0 ? methods(text) : input->options % 3 == 1 ? names(text) : others(text);
  free(text);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {"auto",
                                      "bp",
                                      "scan",
                                      "linear",
                                      "blelloch 3",
                                      "chunked 45",
                                      "blelloch 9223372036854775808",
                                      "cpu",
                                      "cuda:3",
                                      "f32",
                                      "threads",
                                      "adam",
                                      "cosine",
                                      "conv2d",
                                      "1f1b",
                                      "net.json",
                                      "bitstream",
                                      "npy:x,y",
                                      "cifar10:none",
                                      "irmas:none",
                                      "blellohc",
                                      "-1.25e-300",
                                      "<&\">",
                                      "time:2,batch:3",
                                      "batch:1,time:1",
                                      "4..1024",
                                      "64",
                                      "speculative",
                                      "speculative, 13 chunks, warm-up 40, 6 rounds, tolerance 2.4e-07"};
  const int count = (int)(sizeof texts / sizeof texts[0]);
  return index < 3 * count && fuzz_seed_text(index % count, (uint8_t)(index / count), texts, count, seed);
}
