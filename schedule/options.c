/* The table of options that only some schemes take. */
#include <string.h>

#include "core/files/json.h"
#include "schedule/request.h"
#include "schedule/schedule_internal.h"

static const struct {
  const char *name;
  unsigned takes;
  bool one; /* every scheme accepts the value 1, which changes nothing */
} options[] = {{"stages", TAKES_STAGES, true},
               {"width", TAKES_STAGES, true},
               {"micro-batches", TAKES_MICRO_BATCHES, true},
               {"iterations", TAKES_MICRO_BATCHES, true},
               {"skip-first-input-grad", TAKES_GRADIENTS, false},
               {"chunks", TAKES_CHUNKS, true},
               {"replicas", TAKES_REPLICAS, false},
               {"doubling", TAKES_REPLICAS, false},
               {"halving", TAKES_REPLICAS, false},
               {"reverse-k", TAKES_REVERSE, false},
               {"elements", TAKES_ELEMENTS, false},
               {"cut", TAKES_CUT, false},
               {"split-backward", TAKES_SPLIT, false},
               {"recompute", TAKES_RECOMPUTE, false},
               {"sync", TAKES_SYNC, false}};
enum { OPTIONS = sizeof options / sizeof options[0] };

bool bppsa_schedule_takes(const bppsa_schedule_scheme *scheme, const char *option) {
  bool takes = false;
  for (int i = 0; i < OPTIONS; ++i) {
    takes = takes || ((scheme->takes & options[i].takes) != 0 && strcmp(options[i].name, option) == 0);
  }
  return takes;
}

/* Appends the schemes that take it: "interleaved", or "all but multi-stream" if most schemes do. */
static void add_takers(unsigned takes, bppsa_text *text) {
  int64_t count = 0, takers = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    takers += (schemes[i].takes & takes) != 0;
  }
  const bool most = 2 * takers > count;
  const char *before = most ? "all but " : "";
  for (int64_t i = 0; i < count; ++i) {
    if (((schemes[i].takes & takes) != 0) != most) {
      bppsa_text_add(text, "%s%s", before, schemes[i].id);
      before = ", ";
    }
  }
}

/* Does one of the schemes take the option, or is one unknown? Another function refuses an unknown scheme. */
static bool one_takes(const char *schemes, unsigned takes) {
  int64_t count = 0;
  const bppsa_schedule_scheme *all = bppsa_schedule_schemes(&count);
  for (const char *at = schemes; *at != '\0';) {
    const size_t length = strcspn(at, ",");
    const bppsa_schedule_scheme *found = NULL;
    for (int64_t i = 0; i < count; ++i) {
      found = strlen(all[i].id) == length && strncmp(all[i].id, at, length) == 0 ? &all[i] : found;
    }
    if (found == NULL || (found->takes & takes) != 0) {
      return true;
    }
    at += length + (at[length] == ',');
  }
  return false;
}

bppsa_status bppsa_schedule_check_option(const char *schemes, const char *option, int64_t value) {
  BPPSA_REQUIRE(schemes != NULL && option != NULL);
  for (int i = 0; i < OPTIONS; ++i) {
    if (strcmp(options[i].name, option) == 0 && !(options[i].one && value == 1) && !one_takes(schemes, options[i].takes)) {
      bppsa_text takers = {0};
      add_takers(options[i].takes, &takers);
      bppsa_status status = bppsa_text_check(&takers);
      status = status == BPPSA_OK ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--%s: given for %s, expected a scheme that takes it: %s",
                                               option, schemes, takers.text)
                                  : status;
      bppsa_text_free(&takers);
      return status;
    }
  }
  return BPPSA_OK;
}

void bppsa_schedule_options_text(bppsa_text *text) {
  for (int i = 0; i < OPTIONS; ++i) {
    bppsa_text_add(text, "--%-23s ", options[i].name);
    add_takers(options[i].takes, text);
    bppsa_text_add(text, "\n");
  }
}

json_t *bppsa_schedule_options_json(const bppsa_schedule_scheme *scheme) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int i = 0; ok && i < OPTIONS; ++i) {
    ok = (scheme->takes & options[i].takes) == 0 || json_array_append_new(array, json_string(options[i].name)) == 0;
  }
  return bppsa_json_finish(array, ok);
}
