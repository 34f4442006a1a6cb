/* Reader: networks/plan_cache.c, recurrent/parallel_forward_text.c, recurrent/parallel_backward_text.c, and the JSON form of
 * methods (scan/method.c). The part is plans.json. */
#include <string.h>
#include <sys/stat.h>

#include "networks/plan_cache.h"
#include "tests/fuzz/fuzz.h"

bppsa_status fuzz_run(const fuzz_input *input) {
  bppsa_gradient_method method = {.backward = BPPSA_BACKWARD_BP}, kept;
  char text[BPPSA_METHOD_TEXT];
  FUZZ_CHECK(setenv("XDG_CACHE_HOME", fuzz_path(""), 1) == 0);
  (void)mkdir(fuzz_path("bppsa"), 0777);
  (void)fuzz_file("bppsa/plans.json", input->part[0].data, input->part[0].size);
  const bool found = bppsa_plan_cache_find("key", &method);
  FUZZ_CHECK(!found || !bppsa_gradient_method_open(&method));
  if (found) { /* a method that can be written and read */
    FUZZ_CHECK(bppsa_gradient_method_parse(bppsa_gradient_method_text(&method, text, sizeof text), &kept) == BPPSA_OK);
  }
  bppsa_forward_method forward = bppsa_forward_method_default();
  FUZZ_CHECK(!bppsa_plan_cache_find_forward("key", &forward) || (forward.kind != BPPSA_FORWARD_AUTO && forward.most_work >= 0));
  bppsa_backward_method speculation = bppsa_backward_method_default();
  if (bppsa_plan_cache_find_speculation("key", &speculation)) { /* a cost that makes a plan, and its text the same cost */
    const bppsa_forward_shape shape = {.seq_len = 1000, .batch = 1, .input = 1, .hidden = 20, .gates = 1, .dtype = BPPSA_F32};
    char of_plan[BPPSA_BACKWARD_TEXT];
    bppsa_backward_plan plan;
    FUZZ_CHECK(speculation.cost.work > 0 && speculation.chunks == 0);
    FUZZ_CHECK(bppsa_backward_plan_make(&speculation, &shape, &plan) == BPPSA_OK && plan.speculative);
    FUZZ_CHECK(bppsa_backward_plan_read(bppsa_backward_plan_text(&plan, of_plan, sizeof of_plan), &speculation) == BPPSA_OK);
  }
  if (input->options % 2 != 0) { /* whatever was there, a plan that is kept is found */
    const bppsa_gradient_method chosen = {.backward = BPPSA_BACKWARD_SCAN,
                                          .scan = {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 4}};
    FUZZ_CHECK(bppsa_plan_cache_store("key", &chosen, 0.5) == BPPSA_OK);
    FUZZ_CHECK(bppsa_plan_cache_find("key", &kept));
    FUZZ_CHECK(kept.backward == BPPSA_BACKWARD_SCAN && kept.scan.algorithm == BPPSA_SCAN_CHUNKED && kept.scan.chunks == 4);
  }
  return BPPSA_OK;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {
      ("{\"format\":1,\"plans\":[{\"key\":\"other\",\"backward\":\"bp\",\"median_s\":0.1},"
       "{\"key\":\"key\",\"backward\":\"scan\",\"algorithm\":\"blelloch\",\"up_levels\":3,\"median_s\":0.25}]}"),
      "{\"format\":1,\"plans\":[{\"key\":\"key\",\"backward\":\"scan\",\"algorithm\":\"chunked\",\"chunks\":45}]}",
      "{\"format\":1,\"plans\":[{\"key\":\"key\",\"backward\":\"auto\"},{\"key\":\"key\",\"backward\":\"bp\"},7]}",
      "{\"format\":1,\"plans\":[{\"key\":\"key\",\"backward\":\"scan\",\"algorithm\":\"chunked\",\"chunks\":-1}]}",
      "{\"format\":1,\"plans\":[{\"key\":\"key\",\"forward\":\"speculative, 13 chunks, work up to 1.83\",\"median_s\":1}]}",
      "{\"format\":2,\"plans\":[]}",
      ("{\"format\":1,\"plans\":[{\"key\":\"key\",\"speculation\":\"speculative, 16 chunks, warm-up 40, 8 rounds, tolerance "
       "2.4e-07, "
       "0.000 + 0.427 path + 0.584 work up to 1\"}]}"),
      "[]"};
  return fuzz_seed_text(index, 1, texts, (int)(sizeof texts / sizeof texts[0]), seed);
}
