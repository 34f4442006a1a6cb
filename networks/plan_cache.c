#include "networks/plan_cache.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/file.h"
#include "core/files/json.h"
#include "networks/cache_directory.h"

enum { FORMAT = 1, MOST_PLANS = 1000 };

/* Gives the plans of the file (owned), or NULL where the file cannot be used. Fails only without memory. */
static bppsa_status load_plans(const char *directory, json_t **plans) {
  char path[BPPSA_CACHE_PATH + 16];
  json_t *document = NULL;
  *plans = NULL;
  snprintf(path, sizeof path, "%s/plans.json", directory);
  const bppsa_status status = bppsa_json_load(path, &document);
  if (status != BPPSA_OK) {
    return status == BPPSA_ERR_MEMORY ? status : BPPSA_OK;
  }
  json_t *found = json_object_get(document, "plans");
  const bool good = json_integer_value(json_object_get(document, "format")) == FORMAT && json_is_array(found);
  *plans = good ? json_incref(found) : NULL;
  json_decref(document);
  return BPPSA_OK;
}

/* Returns the position of the key's latest plan, which is the last one, or -1. */
static int64_t find_key(const json_t *plans, const char *key) {
  int64_t at = (int64_t)json_array_size(plans) - 1;
  for (; at >= 0; --at) {
    const char *found = json_string_value(json_object_get(json_array_get(plans, (size_t)at), "key"));
    if (found != NULL && strcmp(found, key) == 0) {
      break;
    }
  }
  return at;
}

/* Returns the key's plan (owned), or NULL. */
static json_t *find_plan(const char *key) {
  char directory[BPPSA_CACHE_PATH];
  json_t *plans = NULL;
  if (bppsa_cache_directory(directory, false)) {
    (void)load_plans(directory, &plans);
  }
  const int64_t at = plans != NULL ? find_key(plans, key) : -1;
  json_t *plan = at >= 0 ? json_incref(json_array_get(plans, (size_t)at)) : NULL;
  json_decref(plans);
  return plan;
}

bool bppsa_plan_cache_find(const char *key, bppsa_gradient_method *method) {
  json_t *plan = find_plan(key);
  bppsa_gradient_method kept;
  const bool found = plan != NULL && bppsa_gradient_method_get(plan, &kept) && !bppsa_gradient_method_open(&kept);
  if (found) {
    *method = kept;
  }
  json_decref(plan);
  return found;
}

bool bppsa_plan_cache_find_forward(const char *key, bppsa_forward_method *method) {
  json_t *plan = find_plan(key);
  const char *text = json_string_value(json_object_get(plan, "forward"));
  bppsa_forward_method kept = *method;
  const bool found =
      text != NULL && bppsa_forward_plan_read(text, &kept) == BPPSA_OK && kept.kind != BPPSA_FORWARD_AUTO && text[0] != '\0';
  if (found) {
    *method = kept;
  }
  json_decref(plan);
  return found;
}

bool bppsa_plan_cache_find_speculation(const char *key, bppsa_backward_method *method) {
  json_t *plan = find_plan(key);
  const char *text = json_string_value(json_object_get(plan, "speculation"));
  bppsa_backward_method kept = bppsa_backward_method_default();
  const bool found = text != NULL && bppsa_backward_plan_read(text, &kept) == BPPSA_OK && kept.cost.work > 0;
  if (found) {
    method->cost = kept.cost;
  }
  json_decref(plan);
  return found;
}

/* Makes the document with the plan added: it replaces older ones under its key, and the oldest plans make room. Owns `plans`. */
static json_t *document_with(json_t *plans, json_t *plan, const char *key) {
  for (int64_t old = find_key(plans, key); old >= 0; old = find_key(plans, key)) {
    json_array_remove(plans, (size_t)old);
  }
  while (json_array_size(plans) >= MOST_PLANS) {
    json_array_remove(plans, 0);
  }
  json_t *document = json_object();
  bool ok = json_array_append_new(plans, plan) == 0 && document != NULL;
  ok = ok && bppsa_json_put_integer(document, "format", FORMAT);
  ok = ok && bppsa_json_put(document, "plans", json_incref(plans));
  json_decref(plans);
  return bppsa_json_finish(document, ok);
}

/* Stores a plan, and owns it; NULL: there was no memory for it. */
static bppsa_status store(const char *key, json_t *plan) {
  char directory[BPPSA_CACHE_PATH], path[BPPSA_CACHE_PATH + 16];
  if (!bppsa_cache_directory(directory, true)) {
    json_decref(plan);
    return bppsa_cache_directory_missing();
  }
  snprintf(path, sizeof path, "%s/plans.json", directory);
  json_t *plans = NULL;
  bppsa_status status = load_plans(directory, &plans);
  if (status != BPPSA_OK) { /* writing now would lose the plans that the file has */
    json_decref(plan);
    return status;
  }
  plans = plans != NULL ? plans : json_array();
  char *text = NULL;
  BPPSA_TRY(bppsa_json_render(document_with(plans, plan, key), &text));
  status = bppsa_file_write(path, text, strlen(text));
  bppsa_free(text);
  return status;
}

/* Completes a new plan with its key and its time; ok: its other members were added. */
static json_t *finish_plan(json_t *object, const char *key, double median_s, bool ok) {
  ok = ok && bppsa_json_put_text(object, "key", key) && bppsa_json_put_real(object, "median_s", median_s);
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_plan_cache_store(const char *key, const bppsa_gradient_method *method, double median_s) {
  json_t *object = json_object();
  return store(key, finish_plan(object, key, median_s, object != NULL && bppsa_gradient_method_put(object, method)));
}

bppsa_status bppsa_plan_cache_store_forward(const char *key, const bppsa_forward_plan *plan, double median_s) {
  char text[BPPSA_FORWARD_TEXT];
  json_t *object = json_object();
  const bool ok = object != NULL && bppsa_json_put_text(object, "forward", bppsa_forward_plan_text(plan, text, sizeof text));
  return store(key, finish_plan(object, key, median_s, ok));
}

bppsa_status bppsa_plan_cache_store_speculation(const char *key, const bppsa_backward_plan *plan, double median_s) {
  char text[BPPSA_BACKWARD_TEXT];
  json_t *object = json_object();
  const bool ok = object != NULL && bppsa_json_put_text(object, "speculation", bppsa_backward_plan_text(plan, text, sizeof text));
  return store(key, finish_plan(object, key, median_s, ok));
}
