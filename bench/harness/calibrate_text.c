/* The tables of what was calibrated. */
#include "bench/harness/calibrate.h"

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *words(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

static void add_layers(const json_t *times, bppsa_text *text) {
  const json_t *layers = json_object_get(times, "layers"), *layer;
  size_t l;
  if (times == NULL) {
    return;
  }
  bppsa_text_add(text, "layers of %s, %.0f samples at once: us a sample, of one update us\n%-20s %12s %12s %12s %12s %12s\n",
                 words(times, "model"), number(times, "batch"), "layer", "forward", "backward", "input grad", "weight grad",
                 "update");
  json_array_foreach(layers, l, layer) {
    bppsa_text_add(text, "%-20s %12.3f %12.3f %12.3f %12.3f %12.3f\n", words(layer, "name"), 1e6 * number(layer, "forward_s"),
                   1e6 * number(layer, "backward_s"), 1e6 * number(layer, "input_grad_s"), 1e6 * number(layer, "weight_grad_s"),
                   1e6 * number(layer, "update_s"));
  }
  json_array_foreach(layers, l, layer) {
    if (json_object_get(layer, "product_s") != NULL) {
      bppsa_text_add(
          text, "%s: a scan takes %.3f us a sample longer than BP, a product of two steps' Jacobians takes %.3f us a sample\n",
          words(layer, "name"), 1e6 * number(layer, "scan_s"), 1e6 * number(layer, "product_s"));
    }
  }
}

static void add_shares(const json_t *times, bppsa_text *text) {
  const json_t *shares = json_object_get(times, "shares"), *share;
  size_t i;
  if (json_array_size(shares) == 0) {
    return;
  }
  bppsa_text_add(text, "%-15s %6s %6s %12s %12s %12s %12s\n", "a rank's share", "parts", "ranks", "forward", "backward", "update",
                 "exchange");
  json_array_foreach(shares, i, share) {
    bppsa_text_add(text, "%-15s %6.0f %6.0f %12.3f %12.3f %12.3f %12.3f\n", words(share, "strategy"), number(share, "ways"),
                   number(share, "ranks"), 1e6 * number(share, "forward_s"), 1e6 * number(share, "backward_s"),
                   1e6 * number(share, "update_s"), 1e6 * number(share, "exchange_s"));
  }
}

static void add_fits(const json_t *fits, bppsa_text *text) {
  const json_t *fit;
  size_t i;
  char rate[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%-15s %6s %12s %14s  %s\n", "operation", "ranks", "alpha us", "bandwidth", "residual");
  json_array_foreach(fits, i, fit) {
    bppsa_text_add(text, "%-15s %6.0f %12.3f %14s  %.1f %%\n", words(fit, "operation"), number(fit, "ranks"),
                   1e6 * number(fit, "alpha_s"), bppsa_text_si(number(fit, "bandwidth"), "B/s", rate, sizeof rate),
                   100 * number(fit, "residual"));
  }
}

static void add_products(const json_t *fits, bppsa_text *text) {
  const json_t *fit;
  size_t i;
  if (fits == NULL) {
    return;
  }
  bppsa_text_add(text, "%-15s %12s %12s %12s  %s\n", "scan over ranks", "a sample us", "a number ns", "a term ns", "residual");
  json_array_foreach(fits, i, fit) {
    bppsa_text_add(text, "%-15s %12.3f %12.3f %12.4f  %.1f %%\n", words(fit, "product"), 1e6 * number(fit, "sample_s"),
                   1e9 * number(fit, "entry_s"), 1e9 * number(fit, "term_s"), 100 * number(fit, "residual"));
  }
}

static void add_slowdowns(const json_t *measured, bppsa_text *text) {
  const json_t *list = json_object_get(measured, "slowdowns"), *found;
  size_t i;
  json_array_foreach(list, i, found) {
    bppsa_text_add(text, "%.0f ranks at once compute %.2f times as long, %.2f to %.2f (%.0f rounds, %.3g %% sure)\n",
                   number(found, "ranks"), number(found, "median"), number(found, "low"), number(found, "high"),
                   number(found, "rounds"), 100 * number(found, "confidence"));
  }
}

/* How far the times of a level's operations spread. */
static void add_spread(const json_t *level, const char *name, bppsa_text *text) {
  const json_t *pair = json_object_get(json_object_get(level, "spread"), name);
  if (pair != NULL) {
    bppsa_text_add(text, "%s among %.0f ranks take %.2f to %.2f times their medians\n", name, number(level, "processors"),
                   json_number_value(json_array_get(pair, 0)), json_number_value(json_array_get(pair, 1)));
  }
}

bppsa_status bppsa_calibrate_text(const json_t *document, bppsa_text *text) {
  const json_t *measured = json_object_get(document, "measured"), *levels = json_object_get(document, "levels"), *level, *warning;
  size_t i;
  char peak[BPPSA_SI_TEXT], memory[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%s, %s, %.0f ranks over %s, %.0f threads each\n", words(document, "name"), words(measured, "date"),
                 number(measured, "ranks"), words(measured, "transport"), number(measured, "threads_of_rank"));
  const bool layers = json_object_get(document, "layer_times") != NULL;
  bppsa_text_add(text, "a rank: %s at best, of which the model %s %.1f %%; %s of memory\n",
                 bppsa_text_si(number(document, "peak_flops"), "FLOP/s", peak, sizeof peak),
                 layers ? "reaches" : "is taken to reach", 100 * number(document, "efficiency"),
                 bppsa_text_si(number(document, "memory_bytes"), "B", memory, sizeof memory));
  add_layers(json_object_get(document, "layer_times"), text);
  add_shares(json_object_get(document, "layer_times"), text);
  add_products(json_object_get(document, "product_fits"), text);
  add_fits(json_object_get(document, "fits"), text);
  add_slowdowns(measured, text);
  json_array_foreach(levels, i, level) {
    add_spread(level, "messages", text);
  }
  json_array_foreach(json_object_get(measured, "warnings"), i, warning) {
    bppsa_text_add(text, "warning: %s\n", json_string_value(warning));
  }
  return bppsa_text_check(text);
}
