/* The tables of what was calibrated. */
#include "calibrate/calibrate.h"
#include "core/base/decimal.h"

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *words(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

/* ---- times with their spreads ---- */

typedef struct {
  const char *head, *key;
} column;

/* "-5+12%": the time `key` lies 5 % above the low end of its spread and 12 % below the high end; "" if the spread is not known. */
enum { SPREAD_TEXT = 32 };
static const char *spread_text(const json_t *object, const char *key, char text[SPREAD_TEXT]) {
  const json_t *pair = json_object_get(json_object_get(object, "spread"), key);
  const double middle = number(object, key);
  text[0] = '\0';
  if (pair != NULL && middle > 0) {
    const double low = json_number_value(json_array_get(pair, 0)), high = json_number_value(json_array_get(pair, 1));
    bppsa_print(text, SPREAD_TEXT, "-%.0f+%.0f%%", 100 * (1 - low / middle), 100 * (high / middle - 1));
  }
  return text;
}

static void add_heads(const column *columns, size_t count, bppsa_text *text) {
  for (size_t i = 0; i < count; ++i) {
    bppsa_text_add(text, " %11s %9s", columns[i].head, "spread");
  }
  bppsa_text_add(text, "\n");
}

/* The times of an object in microseconds. */
static void add_times(const json_t *object, const column *columns, size_t count, bppsa_text *text) {
  char spread[SPREAD_TEXT];
  for (size_t i = 0; i < count; ++i) {
    bppsa_text_add(text, " %11.3f %9s", 1e6 * number(object, columns[i].key), spread_text(object, columns[i].key, spread));
  }
  bppsa_text_add(text, "\n");
}

static void add_layers(const json_t *times, bppsa_text *text) {
  static const column columns[] = {{"forward", "forward_s"},
                                   {"backward", "backward_s"},
                                   {"input grad", "input_grad_s"},
                                   {"weight grad", "weight_grad_s"},
                                   {"update", "update_s"}};
  enum { COLUMNS = sizeof columns / sizeof columns[0] };
  const json_t *layers = json_object_get(times, "layers"), *layer;
  char scan[SPREAD_TEXT], product[SPREAD_TEXT];
  size_t l;
  if (times == NULL) {
    return;
  }
  bppsa_text_add(text, "layers of %s, %.0f samples at once: us a sample, of one update us\n%-20s", words(times, "model"),
                 number(times, "batch"), "layer");
  add_heads(columns, COLUMNS, text);
  json_array_foreach(layers, l, layer) {
    bppsa_text_add(text, "%-20s", words(layer, "name"));
    add_times(layer, columns, COLUMNS, text);
  }
  json_array_foreach(layers, l, layer) {
    if (json_object_get(layer, "product_s") != NULL) {
      (void)spread_text(layer, "scan_s", scan);
      (void)spread_text(layer, "product_s", product);
      bppsa_text_add(text,
                     "%s: a scan takes %.3f us a sample%s%s longer than BP, a product of two steps' Jacobians takes %.3f us a "
                     "sample%s%s\n",
                     words(layer, "name"), 1e6 * number(layer, "scan_s"), scan[0] != '\0' ? " " : "", scan,
                     1e6 * number(layer, "product_s"), product[0] != '\0' ? " " : "", product);
    }
  }
}

static void add_shares(const json_t *times, bppsa_text *text) {
  static const column columns[] = {
      {"forward", "forward_s"}, {"backward", "backward_s"}, {"update", "update_s"}, {"exchange", "exchange_s"}};
  enum { COLUMNS = sizeof columns / sizeof columns[0] };
  const json_t *shares = json_object_get(times, "shares"), *share;
  size_t i;
  if (json_array_size(shares) == 0) {
    return;
  }
  bppsa_text_add(text, "%-15s %6s %6s", "a rank's share", "parts", "ranks");
  add_heads(columns, COLUMNS, text);
  json_array_foreach(shares, i, share) {
    bppsa_text_add(text, "%-15s %6.0f %6.0f", words(share, "strategy"), number(share, "ways"), number(share, "ranks"));
    add_times(share, columns, COLUMNS, text);
  }
}

/* ---- fits and slowdowns ---- */

/* "0.95..1.20", the factors of a fit's times; "" where they are not known. */
static const char *factors_text(const json_t *pair, char text[SPREAD_TEXT]) {
  text[0] = '\0';
  if (pair != NULL) {
    bppsa_print(text, SPREAD_TEXT, "%.2f..%.2f", json_number_value(json_array_get(pair, 0)),
                json_number_value(json_array_get(pair, 1)));
  }
  return text;
}

static void add_fits(const json_t *fits, bppsa_text *text) {
  const json_t *fit;
  size_t i;
  char rate[BPPSA_SI_TEXT], spread[SPREAD_TEXT];
  bppsa_text_add(text, "%-15s %6s %12s %14s  %8s  %s\n", "operation", "ranks", "alpha us", "bandwidth", "residual", "spread");
  json_array_foreach(fits, i, fit) {
    bppsa_text_add(text, "%-15s %6.0f %12.3f %14s  %6.1f %%  %s\n", words(fit, "operation"), number(fit, "ranks"),
                   1e6 * number(fit, "alpha_s"), bppsa_text_si(number(fit, "bandwidth"), "B/s", rate, sizeof rate),
                   100 * number(fit, "residual"), factors_text(json_object_get(fit, "spread"), spread));
  }
}

static void add_products(const json_t *fits, bppsa_text *text) {
  const json_t *fit;
  size_t i;
  char spread[SPREAD_TEXT];
  if (fits == NULL) {
    return;
  }
  bppsa_text_add(text, "%-15s %12s %12s %12s  %8s  %s\n", "scan over ranks", "a sample us", "a number ns", "a term ns",
                 "residual", "spread");
  json_array_foreach(fits, i, fit) {
    bppsa_text_add(text, "%-15s %12.3f %12.3f %12.4f  %6.1f %%  %s\n", words(fit, "product"), 1e6 * number(fit, "sample_s"),
                   1e9 * number(fit, "entry_s"), 1e9 * number(fit, "term_s"), 100 * number(fit, "residual"),
                   factors_text(json_object_get(fit, "spread"), spread));
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

/* Adds lines with the range of the rounds' times: for passes through all layers, and for each level's operations. */
static void add_spreads(const json_t *document, bppsa_text *text) {
  const json_t *pair = json_object_get(json_object_get(document, "spread"), "layers"), *level;
  size_t i;
  if (pair != NULL) {
    bppsa_text_add(text, "passes through all layers take %.2f to %.2f times their medians\n",
                   json_number_value(json_array_get(pair, 0)), json_number_value(json_array_get(pair, 1)));
  }
  json_array_foreach(json_object_get(document, "levels"), i, level) {
    pair = json_object_get(json_object_get(level, "spread"), "messages");
    if (pair != NULL) {
      bppsa_text_add(text, "messages among %.0f ranks take %.2f to %.2f times their medians\n", number(level, "processors"),
                     json_number_value(json_array_get(pair, 0)), json_number_value(json_array_get(pair, 1)));
    }
  }
}

bppsa_status bppsa_calibrate_text(const json_t *document, bppsa_text *text) {
  const json_t *measured = json_object_get(document, "measured"), *warning;
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
  add_spreads(document, text);
  json_array_foreach(json_object_get(measured, "warnings"), i, warning) {
    bppsa_text_add(text, "warning: %s\n", json_string_value(warning));
  }
  return bppsa_text_check(text);
}
