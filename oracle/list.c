/* The names of models, systems and strategies, as text and as JSON. */
#include "core/files/json.h"
#include "oracle/oracle.h"

static const char *strategy_name(int64_t i) {
  const bppsa_oracle_strategy *strategy = bppsa_oracle_strategy_at(i);
  return strategy != NULL ? strategy->name : NULL;
}

static const char *strategy_summary(int64_t i) {
  return bppsa_oracle_strategy_at(i)->summary;
}

/* Is i the place after the built-in systems, where the list has the machine it runs on? */
static bool is_behind_systems(int64_t i) {
  return bppsa_oracle_system_name(i) == NULL && (i == 0 || bppsa_oracle_system_name(i - 1) != NULL);
}

static const char *system_name(int64_t i) {
  return is_behind_systems(i) ? BPPSA_ORACLE_THIS_MACHINE : bppsa_oracle_system_name(i);
}

static const char *system_summary(int64_t i) {
  return is_behind_systems(i) ? "the machine at hand, measured in seconds where no file keeps it"
                              : bppsa_oracle_system_summary(i);
}

static const struct {
  const char *title;
  const char *(*name)(int64_t i); /* returns NULL after the last */
  const char *(*summary)(int64_t i);
  const char *more; /* lines that only the text has, or "" */
} lists[] = {
    {"models", bppsa_oracle_model_name, bppsa_oracle_model_summary, "  FILE.json      a model or a network of your own\n"},
    {"systems", system_name, system_summary,
     "  FILE.json      one of your own; of this machine, measured longer, bppsa calibrate MODEL --out FILE.json writes it\n"},
    {"strategies", strategy_name, strategy_summary, ""}};
enum { LISTS = sizeof lists / sizeof lists[0] };

static json_t *entry_json(const char *name, const char *summary) {
  json_t *entry = json_object();
  const bool ok = entry != NULL && bppsa_json_put_text(entry, "name", name) && bppsa_json_put_text(entry, "summary", summary);
  return bppsa_json_finish(entry, ok);
}

static json_t *list_json(void) {
  json_t *document = json_object();
  bool ok = document != NULL;
  for (int k = 0; k < LISTS && ok; ++k) {
    json_t *list = json_array();
    ok = bppsa_json_put(document, lists[k].title, list);
    for (int64_t i = 0; ok && lists[k].name(i) != NULL; ++i) {
      ok = json_array_append_new(list, entry_json(lists[k].name(i), lists[k].summary(i))) == 0;
    }
  }
  return bppsa_json_finish(document, ok);
}

bppsa_status bppsa_oracle_list(bool json, bppsa_text *text) {
  if (json) {
    return bppsa_json_render(list_json(), &text->text);
  }
  for (int k = 0; k < LISTS; ++k) {
    bppsa_text_add(text, "%s\n", lists[k].title);
    for (int64_t i = 0; lists[k].name(i) != NULL; ++i) {
      bppsa_text_add(text, "  %-14s %s\n", lists[k].name(i), lists[k].summary(i));
    }
    bppsa_text_add(text, "%s", lists[k].more);
  }
  return bppsa_text_check(text);
}
