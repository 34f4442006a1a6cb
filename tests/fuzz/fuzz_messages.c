/* Reader: what a rank reads from another one in a pipeline, distributed/pipeline/pipeline_messages.c: the header in front of every
 * message. Each part is the header of one; it is compared for every message of the list, and only the one that is expected passes.
 * Even options: the headers are made right first, and then the part is laid over them by exclusive or, so that single bits
 * differ. */
#include <string.h>

#include "cnn/chain.h"
#include "core/base/alloc.h"
#include "distributed/pipeline/pipeline_executor.h"
#include "tests/fuzz/fuzz.h"

static const char network_text[] =
    "{\"input\": [1, 2, 1], \"layers\": [{\"name\": \"a\", \"op\": \"linear\", \"out\": 2}, {\"name\": \"b\", \"op\": \"relu\"}, "
    "{\"name\": \"c\", \"op\": \"linear\", \"out\": 2}]}";

enum { WORDS = PIPELINE_HEADER / 8 };

/* The header that RECV `id` expects for its micro-batch, found word by word: no other one passes. */
static void expected_header(const bppsa_pipeline *p, int64_t id, int64_t micro, int64_t header[WORDS]) {
  const bppsa_schedule *list = p->plan.list;
  const bppsa_schedule_op *send = &list->ops[pipeline_partner_of(&p->plan, id)], *source = &list->ops[list->deps[send->deps]];
  const bool gradients = source->kind != BPPSA_KIND_F;
  bool reads = false;
  for (int64_t layer = source->layer; layer < source->layer + source->layers; ++layer) {
    reads = reads || p->plan.chain->layer[layer].parameters > 0;
  }
  memset(header, 0, PIPELINE_HEADER);
  header[0] = gradients ? PIPELINE_GRADIENTS : PIPELINE_VALUES;
  header[1] = gradients ? send->layer : send->layer + send->layers;
  header[2] = micro;
  header[3] = p->plan.micro[micro].update;
  header[4] = reads ? source->weight_version : -1;
}

/* Returns whether one of the headers is that of a message. */
static bool compare(const bppsa_pipeline *p, const fuzz_input *input, int64_t id, int64_t micro) {
  int64_t expected[WORDS], header[WORDS];
  bool found = false;
  expected_header(p, id, micro, expected);
  for (int i = 0; i < input->count; ++i) {
    const size_t size = input->part[i].size < sizeof header ? input->part[i].size : sizeof header;
    memset(header, 0, sizeof header);
    memcpy(header, input->part[i].data, size);
    for (int k = 0; input->options % 2 == 0 && k < WORDS; ++k) {
      header[k] ^= expected[k];
    }
    const bool passes = bppsa_pipeline_check_header(p, id, micro, header) == BPPSA_OK;
    FUZZ_CHECK(passes == (memcmp(header, expected, sizeof header) == 0));
    found = found || passes;
  }
  return found;
}

static bppsa_status compare_all(const bppsa_pipeline *p, const fuzz_input *input) {
  bool found = false;
  for (int64_t id = 0; id < p->plan.list->count; ++id) {
    const bppsa_schedule_op *op = &p->plan.list->ops[id];
    const pipeline_span span = pipeline_span_of(&p->plan, op);
    for (int64_t micro = span.first; op->kind == BPPSA_KIND_RECV && micro < span.end; ++micro) {
      found = compare(p, input, id, micro) || found;
    }
  }
  return found ? BPPSA_OK : bppsa_fail(BPPSA_ERR_COMM, "no header of a message");
}

static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  const fuzz_input *input = context;
  bppsa_cnn_network network = {.count = 0};
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_schedule *list = NULL;
  bppsa_pipeline *p = NULL;
  float weights[8] = {0};
  bppsa_view views[8];
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = config.micro_batches = 2;
  config.layers = 3;
  config.window = BPPSA_WINDOW_ITERATION;
  FUZZ_CHECK(bppsa_cnn_network_parse("n", network_text, (int64_t)strlen(network_text), &network) == BPPSA_OK);
  FUZZ_CHECK(bppsa_device_create("cpu", 1, &device) == BPPSA_OK);
  FUZZ_CHECK(bppsa_cnn_chain_create(&network, 1, BPPSA_F32, device, &chain) == BPPSA_OK);
  FUZZ_CHECK(bppsa_schedule_create(input->options % 4 < 2 ? "gpipe" : "pipedream", &config, &list) == BPPSA_OK);
  for (int64_t i = 0; i < chain->parameter_count; ++i) {
    views[i] = chain->parameters[i].value;
    views[i].data = weights;
  }
  const bppsa_pipeline_config settings = {.schedule = list, .samples = 1, .optimizer = bppsa_optimizer_config_default()};
  FUZZ_CHECK(bppsa_pipeline_create(comm, chain, &settings, views, &p) == BPPSA_OK);
  const bppsa_status status = compare_all(p, input);
  bppsa_pipeline_destroy(p);
  bppsa_schedule_destroy(list);
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  bppsa_cnn_network_free(&network);
  return status;
}

bppsa_status fuzz_run(const fuzz_input *input) {
  const bppsa_comm_config comm = {.ranks = 1, .timeout = 5};
  fuzz_input copy = *input;
  return bppsa_comm_run(&comm, run_rank, &copy, NULL);
}

/* Headers of the first messages of both kinds, as they are, and no difference from every header. */
bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const int64_t headers[2][WORDS] = {{PIPELINE_VALUES, 2, 0, 0, 0}, {PIPELINE_GRADIENTS, 2, 1, 0, 0}};
  static const int64_t nothing[WORDS] = {0}, bit[WORDS] = {[4] = 1};
  if (index >= 4) {
    return false;
  }
  fuzz_add_number(seed, (uint64_t)index, 1);
  fuzz_add_part(seed, index % 2 != 0 ? headers[0] : nothing, sizeof nothing);
  fuzz_add_part(seed, index % 2 != 0 ? headers[1] : bit, sizeof bit);
  return true;
}
