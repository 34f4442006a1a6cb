/* How a method's time, memory and critical path grow with T. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/bench_rnn.h"

enum { LEAST_T = 100, LEAST_POINTS = 3, MOST_POINTS = 32 };

/* The rows of one method; all numbers but the steps are logarithms to base 2. */
typedef struct {
  int64_t count;
  double length[MOST_POINTS], seconds[MOST_POINTS], memory[MOST_POINTS], steps[MOST_POINTS];
} series;

typedef struct {
  double slope, r2;
} line;

/* The least-squares line through (x, y), count >= 2, x not all equal; r2 is 1 where y does not vary. */
static line fit(int64_t count, const double *x, const double *y) {
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0;
  for (int64_t i = 0; i < count; ++i) {
    mean_x += x[i] / (double)count;
    mean_y += y[i] / (double)count;
  }
  for (int64_t i = 0; i < count; ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return (line){.slope = xy / xx, .r2 = yy > 0 ? xy * xy / (xx * yy) : 1};
}

static double number(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

static bool is_text(const json_t *row, const char *key, const char *expected) {
  const char *found = json_string_value(json_object_get(row, key));
  return found != NULL && strcmp(found, expected) == 0;
}

static void collect(const json_t *rows, int64_t batch, const char *init, const char *phase, const char *method, series *s) {
  s->count = 0;
  for (size_t i = 0; i < json_array_size(rows) && s->count < MOST_POINTS; ++i) {
    const json_t *row = json_array_get(rows, i);
    if (is_text(row, "init", init) && is_text(row, "phase", phase) && is_text(row, "method", method) &&
        json_is_number(json_object_get(row, "median_s")) && json_number_value(json_object_get(row, "reset_rate")) == 0 &&
        !json_is_true(json_object_get(row, "noisy")) && number(row, "batch") == (double)batch &&
        number(row, "seq_len") >= LEAST_T) {
      s->length[s->count] = log2(number(row, "seq_len"));
      s->seconds[s->count] = log2(number(row, "median_s"));
      s->memory[s->count] = log2(number(row, "memory_bytes"));
      s->steps[s->count++] = number(row, "critical_steps");
    }
  }
}

/* A rival's rows do not say how much memory they hold. */
static bool has_memory(const series *s) {
  for (int64_t i = 0; i < s->count; ++i) {
    if (!(s->memory[i] > 0)) { /* log2 of bytes */
      return false;
    }
  }
  return true;
}

static json_t *growth_json(const series *s, const char *init, const char *phase, const char *method) {
  const line time = fit(s->count, s->length, s->seconds);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "init", init);
  ok = ok && bppsa_json_put_text(object, "phase", phase);
  ok = ok && bppsa_json_put_text(object, "method", method);
  ok = ok && bppsa_json_put_integer(object, "points", s->count);
  ok = ok && bppsa_json_put_integer(object, "from", (int64_t)(exp2(s->length[0]) + 0.5));
  ok = ok && bppsa_json_put_integer(object, "to", (int64_t)(exp2(s->length[s->count - 1]) + 0.5));
  ok = ok && bppsa_json_put_real(object, "time_exponent", time.slope);
  ok = ok && bppsa_json_put_real(object, "time_r2", time.r2);
  if (has_memory(s)) {
    ok = ok && bppsa_json_put_real(object, "memory_exponent", fit(s->count, s->length, s->memory).slope);
  }
  if (s->steps[s->count - 1] > 0) {
    ok = ok && bppsa_json_put_real(object, "critical_steps_per_doubling", fit(s->count, s->length, s->steps).slope);
  }
  return bppsa_json_finish(object, ok);
}

static bool add_growth(const json_t *rows, int64_t batch, const char *init, const char *phase, const char *method,
                       json_t *growth) {
  series s;
  collect(rows, batch, init, phase, method, &s);
  return s.count < LEAST_POINTS || json_array_append_new(growth, growth_json(&s, init, phase, method)) == 0;
}

/* The methods of the program, and PyTorch's rows where bench/rivals added them. */
json_t *bppsa_bench_growth(const json_t *rows, int64_t batch) {
  static const char *const inits[] = {"default", "orthogonal"}, rival[] = "pytorch";
  json_t *growth = json_array();
  bool ok = growth != NULL;
  for (int i = 0; ok && i < 2; ++i) {
    ok = add_growth(rows, batch, inits[i], "forward", bppsa_bench_method_name(BPPSA_BENCH_FORWARD), growth);
    ok = ok && add_growth(rows, batch, inits[i], "forward", rival, growth);
    for (int m = BPPSA_BENCH_BP; ok && m < BPPSA_BENCH_METHODS; ++m) {
      ok = add_growth(rows, batch, inits[i], "backward", bppsa_bench_method_name((bppsa_bench_method)m), growth);
    }
    ok = ok && add_growth(rows, batch, inits[i], "backward", rival, growth);
  }
  return bppsa_json_finish(growth, ok);
}

static const bppsa_table_column columns[] = {
    {.heading = "init", .width = -10, .key = "init"},
    {.heading = "phase", .width = -8, .key = "phase"},
    {.heading = "method", .width = -8, .key = "method"},
    {.heading = "a", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "time_exponent", .digits = 2},
    {.heading = "r2", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "time_r2", .digits = 4},
    {.heading = "b", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "memory_exponent", .digits = 2, .missing = ""},
    {.heading = "products",
     .width = 11,
     .kind = BPPSA_COLUMN_REAL,
     .key = "critical_steps_per_doubling",
     .digits = 1,
     .missing = ""},
    {0}};

bppsa_status bppsa_bench_show_growth(const bppsa_output *to, const json_t *growth) {
  const json_t *first = json_array_get(growth, 0);
  if (first == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(
      bppsa_output_print(to,
                         "\nGrowth over T = %.0f .. %.0f: time as T^a and memory as T^b, by least squares over the logarithms "
                         "(1 is linear), noisy\npoints left out; products: what a doubling of T adds to the critical path\n",
                         number(first, "from"), number(first, "to")));
  BPPSA_TRY(bppsa_table_print_headings(to, columns));
  for (size_t i = 0; i < json_array_size(growth); ++i) {
    BPPSA_TRY(bppsa_table_print_row(to, columns, NULL, json_array_get(growth, i), ""));
  }
  return BPPSA_OK;
}

static const char *const growth_words[] = {"init", "phase", "method"};
static const char *const growth_numbers[] = {
    "points", "from", "to", "time_exponent", "time_r2", "memory_exponent", "critical_steps_per_doubling"};
enum { WORDS = sizeof growth_words / sizeof growth_words[0], NUMBERS = sizeof growth_numbers / sizeof growth_numbers[0] };

void bppsa_bench_growth_csv(const json_t *growth, bppsa_text *text) {
  bppsa_text_add(text, "init,phase,method,points,from,to,time_exponent,time_r2,memory_exponent,critical_steps_per_doubling\n");
  for (size_t i = 0; i < json_array_size(growth); ++i) {
    const json_t *g = json_array_get(growth, i);
    for (int w = 0; w < WORDS; ++w) {
      bppsa_text_add(text, "%s%s", w > 0 ? "," : "", json_string_value(json_object_get(g, growth_words[w])));
    }
    for (int n = 0; n < NUMBERS; ++n) {
      const json_t *value = json_object_get(g, growth_numbers[n]);
      bppsa_text_add_cells(text, 1, (double[]){json_is_number(value) ? json_number_value(value) : NAN});
    }
    bppsa_text_add(text, "\n");
  }
}

void bppsa_bench_growth_html(const json_t *growth, bppsa_text *text) {
  bppsa_text_add(text,
                 "<table>\n<tr><th>init</th><th>phase</th><th>method</th><th>points</th><th>from T</th><th>to T</th><th>time "
                 "as T^a, a</th><th>r&sup2;</th><th>memory as T^b, b</th><th>products a doubling adds to the critical "
                 "path</th></tr>\n");
  for (size_t i = 0; i < json_array_size(growth); ++i) {
    const json_t *g = json_array_get(growth, i);
    bppsa_text_add(text, "<tr>");
    for (int w = 0; w < WORDS; ++w) {
      bppsa_text_add(text, "<td>%s</td>", json_string_value(json_object_get(g, growth_words[w])));
    }
    for (int n = 0; n < NUMBERS; ++n) {
      const json_t *value = json_object_get(g, growth_numbers[n]);
      bppsa_text_add(text, json_is_number(value) ? "<td>%.4g</td>" : "<td></td>", json_number_value(value));
    }
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(text, "</table>\n");
}
