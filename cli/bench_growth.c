/* How a method's time, memory and critical path grow with T. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench.h"

enum { LEAST_T = 100, LEAST_POINTS = 3, MOST_POINTS = 32 };

/* The rows of one method, as logarithms to base 2 but for the steps. */
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
        json_is_number(json_object_get(row, "median_s")) && number(row, "batch") == (double)batch &&
        number(row, "seq_len") >= LEAST_T) {
      s->length[s->count] = log2(number(row, "seq_len"));
      s->seconds[s->count] = log2(number(row, "median_s"));
      s->memory[s->count] = log2(number(row, "memory_bytes"));
      s->steps[s->count++] = number(row, "critical_steps");
    }
  }
}

static json_t *growth_json(const series *s, const char *init, const char *phase, const char *method) {
  const line time = fit(s->count, s->length, s->seconds), memory = fit(s->count, s->length, s->memory);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "init", init);
  ok = ok && bppsa_json_put_text(object, "phase", phase);
  ok = ok && bppsa_json_put_text(object, "method", method);
  ok = ok && bppsa_json_put_integer(object, "points", s->count);
  ok = ok && bppsa_json_put_integer(object, "from", (int64_t)(exp2(s->length[0]) + 0.5));
  ok = ok && bppsa_json_put_integer(object, "to", (int64_t)(exp2(s->length[s->count - 1]) + 0.5));
  ok = ok && bppsa_json_put_real(object, "time_exponent", time.slope);
  ok = ok && bppsa_json_put_real(object, "time_r2", time.r2);
  ok = ok && bppsa_json_put_real(object, "memory_exponent", memory.slope);
  if (s->steps[s->count - 1] > 0) {
    ok = ok && bppsa_json_put_real(object, "critical_steps_per_doubling", fit(s->count, s->length, s->steps).slope);
  }
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_bench_growth(const json_t *rows, int64_t batch) {
  static const char *const inits[] = {"default", "orthogonal"};
  json_t *growth = json_array();
  bool ok = growth != NULL;
  for (int i = 0; i < 2; ++i) {
    for (int m = 0; ok && m < BPPSA_BENCH_METHODS; ++m) {
      const char *method = bppsa_bench_method_name((bppsa_bench_method)m);
      const char *phase = m == BPPSA_BENCH_FORWARD ? "forward" : "backward";
      series s;
      collect(rows, batch, inits[i], phase, method, &s);
      if (s.count >= LEAST_POINTS) {
        ok = json_array_append_new(growth, growth_json(&s, inits[i], phase, method)) == 0;
      }
    }
  }
  return bppsa_json_finish(growth, ok);
}

bppsa_status bppsa_bench_show_growth(bppsa_cli *cli, const json_t *growth) {
  if (json_array_size(growth) == 0) {
    return BPPSA_OK;
  }
  const json_t *first = json_array_get(growth, 0);
  BPPSA_TRY(bppsa_cli_print(cli,
                            "\nGrowth over T = %.0f .. %.0f: time as T^a and memory as T^b, by least squares over the logarithms "
                            "(1 is linear);\nproducts: what a doubling of T adds to the critical path\n"
                            "  init        method          a      r2       b   products\n",
                            number(first, "from"), number(first, "to")));
  for (size_t i = 0; i < json_array_size(growth); ++i) {
    const json_t *g = json_array_get(growth, i);
    const json_t *steps = json_object_get(g, "critical_steps_per_doubling");
    char text[24] = "";
    if (steps != NULL) {
      snprintf(text, sizeof text, "%11.1f", json_number_value(steps));
    }
    BPPSA_TRY(bppsa_cli_print(cli, "  %-12s%-10s%7.2f%8.4f%8.2f%s\n", json_string_value(json_object_get(g, "init")),
                              json_string_value(json_object_get(g, "method")), number(g, "time_exponent"), number(g, "time_r2"),
                              number(g, "memory_exponent"), text));
  }
  return BPPSA_OK;
}
