/* Reader: core/files/json.c. The part is a text. Odd options: what was read is written and read again. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/json.h"
#include "tests/fuzz/fuzz.h"

bppsa_status fuzz_run(const fuzz_input *input) {
  json_t *value = NULL, *again = NULL;
  char *text = NULL;
  const bppsa_status status = bppsa_json_parse("text", (const char *)input->part[0].data, (int64_t)input->part[0].size, &value);
  FUZZ_CHECK((status == BPPSA_OK) == (value != NULL));
  if (value != NULL && input->options % 2 != 0) {
    FUZZ_CHECK(bppsa_json_text(value, input->options / 2 % 4, 0, &text) == BPPSA_OK);
    FUZZ_CHECK(bppsa_json_parse("again", text, (int64_t)strlen(text), &again) == BPPSA_OK);
    FUZZ_CHECK(json_equal(value, again));
    json_decref(again);
    bppsa_free(text);
  }
  json_decref(value);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {"{\"a\":[1,-2.5e-3,true,false,null,\"x\\u00e9\\n\"],\"b\":{}}",
                                      "[[[[1]],[]]]",
                                      "{\"a\":1,\"a\":2}",
                                      "[9223372036854775808]",
                                      "[1e999]",
                                      "\"\\ud834\\udd1e\"",
                                      "[\"\\u0000\"]",
                                      "7"};
  return fuzz_seed_text(index, 1, texts, (int)(sizeof texts / sizeof texts[0]), seed);
}
