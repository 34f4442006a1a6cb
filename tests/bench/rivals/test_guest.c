/* Rivals in a process of their own (bench/rivals/guest.h): this program is also the rival, when it is started as one, and
 * GUEST_MODE says how it behaves. */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "bench/rivals/guest.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

#define SELF "/proc/self/exe"
#define POINT "--seq-len 6 --batch 2 --hidden 3 --init default --repeats 2 --threads 1 --rivals " SELF

/* ---- the rival: one layer of tanh, as plainly as it can be written ---- */

enum { MOST = 4096 };

static bool is_mode(const char *mode) {
  return strcmp(getenv("GUEST_MODE"), mode) == 0;
}

static void say(const char *text) {
  size_t done = 0;
  while (done < strlen(text)) {
    const ssize_t now = write(STDOUT_FILENO, text + done, strlen(text) - done);
    done += now > 0 ? (size_t)now : 0;
  }
}

static void hear(void *data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t now = read(STDIN_FILENO, (char *)data + done, bytes - done);
    if (now == 0 || (now < 0 && errno != EINTR)) {
      _exit(0); /* the end of the input is the end of the program */
    }
    done += now > 0 ? (size_t)now : 0;
  }
}

static json_t *hear_line(void) {
  char line[MOST];
  size_t size = 0;
  do {
    hear(line + size, 1);
  } while (line[size++] != '\n');
  return json_loadb(line, size, 0, NULL);
}

static int64_t at(const json_t *object, const char *key) {
  return (int64_t)json_integer_value(json_object_get(object, key));
}

/* Is it a point of `bench forward`? */
static bool forward_alone(const json_t *point) {
  return json_object_get(point, "passes") != NULL;
}

/* data: x, seed, w_ih, w_hh, b_ih, b_hh. Fills `out`: the last states, then the gradients, or all states; returns their number. */
static int64_t run_layer(const json_t *point, const float *data, float *out) {
  const int64_t steps = at(point, "seq_len"), batch = at(point, "batch"), in = at(point, "input"), n = at(point, "hidden");
  const float *x = data, *seed = x + steps * batch * in, *w = seed + batch * n, *u = w + n * in, *b = u + n * n, *c = b + n;
  float *dw = out + batch * n, *du = dw + n * in, *db = du + n * n, *dc = db + n;
  double h[64][16][8] = {0}; /* h[0] = 0 */
  for (int64_t t = 1; t <= steps; ++t) {
    for (int64_t s = 0; s < batch; ++s) {
      for (int64_t i = 0; i < n; ++i) {
        double a = b[i] + c[i];
        for (int64_t k = 0; k < in; ++k) {
          a += w[i * in + k] * x[((t - 1) * batch + s) * in + k];
        }
        for (int64_t k = 0; k < n; ++k) {
          a += u[i * n + k] * h[t - 1][s][k];
        }
        h[t][s][i] = tanh(a);
      }
    }
  }
  for (int64_t i = 0; forward_alone(point) && i < steps * batch * n; ++i) {
    out[i] = (float)h[1 + i / (batch * n)][i / n % batch][i % n];
  }
  if (forward_alone(point)) {
    return steps * batch * n;
  }
  memset(dw, 0, (size_t)(n * in + n * n + 2 * n) * sizeof *dw);
  for (int64_t s = 0; s < batch; ++s) {
    double g[8], next[8];
    for (int64_t i = 0; i < n; ++i) {
      g[i] = seed[s * n + i];
      out[s * n + i] = (float)h[steps][s][i];
    }
    for (int64_t t = steps; t >= 1; --t) {
      memset(next, 0, sizeof next);
      for (int64_t i = 0; i < n; ++i) {
        const double d = g[i] * (1 - h[t][s][i] * h[t][s][i]);
        for (int64_t k = 0; k < in; ++k) {
          dw[i * in + k] += (float)(d * x[((t - 1) * batch + s) * in + k]);
        }
        for (int64_t k = 0; k < n; ++k) {
          du[i * n + k] += (float)(d * h[t - 1][s][k]);
          next[k] += d * u[i * n + k];
        }
        db[i] += (float)d;
        dc[i] += (float)d;
      }
      memcpy(g, next, sizeof g);
    }
  }
  return batch * n + n * in + n * n + 2 * n;
}

/* Of a training step: gradients and weights of zeros, as of a step that did nothing. Returns their number. */
static int64_t make_nothing(const json_t *point, float *out) {
  const int64_t n = at(point, "hidden"), all = n * at(point, "input") + n * n + 2 * n + at(point, "classes") * (n + 1);
  memset(out, 0, 2 * (size_t)all * sizeof *out);
  return 2 * all;
}

static void answer_enter(const json_t *point, const float *data) {
  float out[MOST];
  char line[64];
  int64_t count = json_object_get(point, "lr") != NULL ? make_nothing(point, out) : run_layer(point, data, out);
  if (is_mode("wrong")) {
    out[count - 1] += 0.01F;
  }
  count -= is_mode("short");
  snprintf(line, sizeof line, "{\"bytes\": %d}\n", (int)count * (int)sizeof *out);
  say(line);
  for (size_t done = 0; done < (size_t)count * sizeof *out;) {
    const ssize_t now = write(STDOUT_FILENO, (const char *)out + done, (size_t)count * sizeof *out - done);
    done += now > 0 ? (size_t)now : 0;
  }
}

static void answer(const json_t *request, const json_t *point, const float *data) {
  static int passes, entered;
  const char *asked = json_string_value(json_object_get(request, "ask"));
  const char *method = json_string_value(json_object_get(request, "method"));
  if (strcmp(asked, "point") == 0) {
    if (is_mode("dies")) {
      _exit(3);
    }
    say(is_mode("refuses") ? "{\"refused\": \"no such shape\"}\n" : "{}\n");
  } else if (strcmp(asked, "enter") == 0 && strcmp(method, "none") == 0) {
    say("{\"refused\": \"not installed: run this\"}\n");
  } else if (strcmp(asked, "enter") == 0 && is_mode("hangs")) {
    sleep(60);
  } else if (strcmp(asked, "enter") == 0 && is_mode("heeds")) { /* what it is told about the time */
    const double seconds = json_number_value(json_object_get(request, "seconds"));
    const bool told = seconds > 0 && seconds < 3;
    (void)usleep(told ? (useconds_t)(1e6 * seconds) : 0);
    say(told ? "{\"refused\": \"gave up in time\"}\n" : "{\"refused\": \"not told\"}\n");
  } else if (strcmp(asked, "enter") == 0 && is_mode("one") && ++entered > 1) {
    say("{\"refused\": \"one was enough\"}\n");
  } else if (strcmp(asked, "enter") == 0) {
    answer_enter(point, data);
  } else if (strcmp(method, "slow") == 0) {
    say(forward_alone(point) ? "{\"seconds\": [0.06]}\n" : "{\"seconds\": [0.06, 0.1]}\n");
  } else if (is_mode("two") || is_mode("one")) {
    say(forward_alone(point) ? "{\"seconds\": [0.025]}\n" : "{\"seconds\": [0.025, 0.05]}\n");
  } else if (is_mode("timeless")) {
    say(forward_alone(point) ? "{\"seconds\": [null]}\n" : "{\"seconds\": [1, null]}\n");
  } else if (is_mode("tires") && ++passes > 1) {
    _exit(0);
  } else {
    say(forward_alone(point) ? "{\"seconds\": [0.25]}\n" : "{\"seconds\": [0.25, 0.5]}\n");
  }
}

static int be_guest(void) {
  static float data[MOST];
  static char blanks[70000];
  json_t *point = NULL;
  if (is_mode("silent")) {
    sleep(60);
  }
  if (is_mode("long")) {
    memset(blanks, ' ', sizeof blanks - 1);
    say(blanks);
  }
  say(is_mode("garbage")   ? "hello\n"
      : is_mode("unnamed") ? "{\"guest\": 1}\n"
      : is_mode("two") || is_mode("one") || is_mode("heeds")
          ? "{\"guest\": 1, \"methods\": [\"slow\", \"plain\"], \"versions\": {}}\n"
          : "{\"guest\": 1, \"methods\": [\"plain\", \"none\"], \"versions\": {\"plain\": \"4.5\"}}\n");
  for (;;) {
    json_t *request = hear_line();
    const int64_t bytes = at(request, "bytes");
    if (bytes > (int64_t)sizeof data) {
      return 9;
    }
    if (bytes > 0) {
      json_decref(point);
      point = json_incref(request);
      hear(data, (size_t)bytes);
    }
    answer(request, point, data);
    json_decref(request);
  }
}

/* ---- tests ---- */

static void set_mode(const char *mode) {
  assert_int_equal(setenv("GUEST_MODE", mode, 1), 0);
}

/* Its gradients agree with the reference, its seconds become its rows, and what it refuses says why. */
static void right(void **state) {
  (void)state;
  set_mode("right");
  json_t *document = run_json("bench rnn --json " POINT);
  const json_t *forward = find_phase(document, "forward", "plain"), *backward = find_phase(document, "backward", "plain");
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 7 + 2 * 2);
  assert_true(get_real(forward, "median_s") == 0.25 && get_real(backward, "median_s") == 0.5);
  assert_true(get_real(backward, "forward_s") == 0.25 && get_integer(backward, "repeats") == 2);
  assert_true(json_is_true(json_object_get(forward, "ok")) && json_is_true(json_object_get(backward, "ok")));
  assert_true(get_real(forward, "residual") > 0 && get_real(forward, "residual") < 2);
  assert_true(get_real(backward, "residual") > 0 && get_real(backward, "residual") < 2);
  assert_int_equal(get_integer(backward, "flops"), get_integer(find_phase(document, "backward", "bp"), "flops"));
  assert_string_equal(get_text(find_phase(document, "backward", "none"), "skipped"), "not installed: run this");
  assert_string_equal(get_text(json_object_get(document, "device"), "plain"), "4.5");
  json_decref(document);
  run_result result = run("bench rnn " POINT);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "the rivals' best, plain, 500 ms: "));
  assert_non_null(strstr(result.out, "forward and backward: "));
  assert_non_null(strstr(result.out, "plain, 750 ms: "));
  assert_non_null(strstr(result.out, "skipped: not installed: run this"));
  release(&result);
}

#define FORWARD "bench forward --seq-len 60 --batch 2 --hidden 3 --forward-chunks 3 --repeats 2 --threads 1 --json --rivals " SELF

/* Forward passes alone: all states are held against the step of the project and against float64. */
static void forward_passes(void **state) {
  (void)state;
  set_mode("right");
  json_t *document = run_json(FORWARD);
  const json_t *rows = json_object_get(document, "rows"), *row = json_array_get(rows, 2);
  assert_int_equal(json_array_size(rows), 4 * 3);
  for (size_t i = 2; i < json_array_size(rows); i += 3) {
    row = json_array_get(rows, i);
    assert_string_equal(get_text(row, "method"), "plain");
    assert_true(get_real(row, "median_s") == 0.25 && get_integer(row, "repeats") == 2);
    assert_true(get_real(row, "residual") < 2e-6 && get_real(row, "error") > 0 && get_real(row, "error") < 1e-4);
    assert_null(json_object_get(row, "path"));
  }
  assert_string_equal(get_text(find_row(json_object_get(document, "left_out"), "none"), "reason"), "not installed: run this");
  assert_string_equal(get_text(json_object_get(document, "device"), "plain"), "4.5");
  json_decref(document);
  set_mode("wrong");
  run_result result = run(FORWARD);
  assert_int_equal(result.code, 1);
  document = json_loads(result.out, 0, NULL);
  row = json_array_get(json_object_get(document, "rows"), 2);
  assert_true(get_real(row, "residual") > 2e-6 && json_is_null(json_object_get(row, "median_s")));
  json_decref(document);
  release(&result);
  static const struct {
    const char *mode, *reason;
  } cases[] = {{"refuses", "no such shape"},
               {"short", "answers with 1436 bytes, expected 1440"},
               {"dies", "the rivals' program ended before its answer, exit code 3"},
               {"timeless", "answers a pass of plain without its seconds"},
               {"tires", "the rivals' program ended before its answer"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    set_mode(cases[i].mode);
    document = run_json(FORWARD);
    const json_t *left_out = find_row(json_object_get(document, "left_out"), "plain");
    assert_non_null(strstr(get_text(left_out, "reason"), cases[i].reason));
    assert_int_equal(json_array_size(json_object_get(document, "rows")), 8);
    json_decref(document);
  }
}

#define STEP                                                                                                                     \
  "bench step --seq-len 6 --batch 2 --hidden 3 --forward-chunks 2 --init default --repeats 2 --threads 1 --json --rivals " SELF

/* Training steps: one that did nothing is wrong, and what is refused is left out by name. */
static void steps(void **state) {
  (void)state;
  set_mode("right");
  run_result result = run(STEP);
  assert_int_equal(result.code, 1);
  json_t *document = json_loads(result.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows"), *row = json_array_get(rows, 4);
  assert_int_equal(json_array_size(rows), 4 + 1);
  assert_string_equal(get_text(row, "method"), "plain");
  assert_true(json_is_true(json_object_get(row, "rival")) && json_is_false(json_object_get(row, "ok")));
  assert_true(get_real(row, "residual") > 1e4 && json_is_null(json_object_get(row, "median_s")));
  assert_string_equal(get_text(find_row(json_object_get(document, "left_out"), "none"), "reason"), "not installed: run this");
  json_decref(document);
  release(&result);
  static const struct {
    const char *mode, *reason;
  } cases[] = {{"refuses", "no such shape"},
               {"short", "answers with 460 bytes, expected 464"},
               {"dies", "the rivals' program ended before its answer, exit code 3"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    set_mode(cases[i].mode);
    document = run_json(STEP);
    const json_t *left_out = find_row(json_object_get(document, "left_out"), "plain");
    assert_non_null(strstr(get_text(left_out, "reason"), cases[i].reason));
    assert_int_equal(json_array_size(json_object_get(document, "rows")), 4);
    json_decref(document);
  }
}

#define SHAPE "--batch 2 --hidden 3 --repeats 2 --threads 1 --rivals " SELF

/* Writes a document as one line of a file. */
static void write_line(const char *path, json_t *document) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs("\n", file) >= 0 && json_dumpf(document, file, 0) == 0 && fputs("\n{\"bench\": \"test\"}\n", file) >= 0);
  assert_int_equal(fclose(file), 0);
  json_decref(document);
}

static void assert_not_run(const json_t *row, double predicted, const char *words) {
  assert_string_equal(get_text(row, "skipped"), words);
  assert_true(fabs(get_real(row, "predicted_s") / predicted - 1) < 1e-12);
  assert_true(json_is_true(json_object_get(row, "rival")));
}

/* Beside --time-limit rivals qualify: the slow one has the time of its single pass, and is not run at a longer T; the one that won
 * begins. Nobody makes a pass that is predicted to take more than a second. Without the limit all take part. */
static void qualifying(void **state) {
  (void)state;
  set_mode("two");
  json_t *document = run_json("bench rnn --json --seq-len 6 --init default " SHAPE);
  assert_true(get_real(find_phase(document, "backward", "slow"), "median_s") == 0.1);
  json_decref(document);
  document = run_json("bench rnn --json --seq-len 6 --init default --time-limit 100 " SHAPE);
  const json_t *forward = find_phase(document, "forward", "slow"), *backward = find_phase(document, "backward", "slow");
  assert_true(get_real(forward, "qualifying") == 0.06 && get_real(backward, "qualifying") == 0.1);
  assert_true(json_is_null(json_object_get(backward, "median_s")) && json_is_null(json_object_get(backward, "forward_s")));
  assert_true(get_integer(backward, "repeats") == 0 && json_is_true(json_object_get(backward, "ok")));
  assert_true(get_real(find_phase(document, "backward", "plain"), "median_s") == 0.05);
  assert_null(json_object_get(find_phase(document, "backward", "plain"), "qualifying"));
  assert_null(json_object_get(find_phase(document, "backward", "bp"), "rival"));
  assert_int_equal(get_integer(find_phase(document, "backward", "bp"), "repeats"), 2);
  write_line("earlier.jsonl", document);
  document = run_json("bench rnn --json --seq-len 12 --time-limit 100 --earlier earlier.jsonl " SHAPE);
  assert_not_run(find_phase(document, "forward", "slow"), 0.32,
                 "not run: 2.1 times as long as the fastest rival at T 6, predicted 320 ms");
  assert_true(get_real(find_phase(document, "backward", "plain"), "median_s") == 0.05);
  json_decref(document);
  document = run_json("bench rnn --json --seq-len 120 --time-limit 100 --earlier earlier.jsonl " SHAPE);
  assert_not_run(find_phase(document, "backward", "plain"), 1.5,
                 "not run: a pass is predicted to take 1.50 s, expected at most 1 s");
  json_decref(document);
  document = run_json("bench rnn --json --seq-len 12 --hidden 2 --batch 2 --repeats 2 --threads 1 --time-limit 100 "
                      "--earlier earlier.jsonl --rivals " SELF); /* another shape */
  assert_true(get_real(find_phase(document, "backward", "slow"), "qualifying") == 0.1);
  json_decref(document);
  run_result result = run("bench rnn --seq-len 6 --init default --time-limit 100 " SHAPE);
  assert_non_null(strstr(result.out, " 100 ms in the qualifying pass: more than twice as long as the fastest rival\n"));
  release(&result);
  set_mode("one");
  document = run_json("bench rnn --json --seq-len 6 --init default --time-limit 100 --earlier earlier.jsonl " SHAPE);
  assert_string_equal(get_text(find_phase(document, "backward", "slow"), "skipped"), "one was enough");
  assert_true(get_real(find_phase(document, "backward", "plain"), "median_s") == 0.05);
  json_decref(document);
}

/* The same of forward passes; and of files that are none. */
static void qualifying_forward(void **state) {
  (void)state;
  set_mode("two");
  json_t *document =
      run_json("bench forward --seq-len 12 --batch 2 --hidden 3 --repeats 2 --threads 1 --json --time-limit 100 --rivals " SELF);
  assert_true(get_real(find_phase(document, "forward", "slow"), "qualifying") == 0.06);
  assert_true(get_real(find_phase(document, "forward", "plain"), "median_s") == 0.025);
  write_line("forward.jsonl", document);
  document = run_json(FORWARD " --time-limit 100 --earlier forward.jsonl");
  const json_t *left_out = json_array_get(json_object_get(document, "left_out"), 0);
  assert_string_equal(get_text(left_out, "method"), "slow");
  assert_string_equal(get_text(left_out, "reason"), "not run: 2.4 times as long as the fastest rival at T 12, predicted 300 ms");
  json_decref(document);
  document = run_json(FORWARD); /* rows of another model say nothing */
  for (size_t i = 0; i < json_array_size(json_object_get(document, "rows")); ++i) {
    json_t *row = json_array_get(json_object_get(document, "rows"), i);
    assert_int_equal(json_object_set_new(row, "model", json_string("gru")), 0);
    assert_int_equal(json_object_set_new(row, "seq_len", json_integer(12)), 0);
  }
  write_line("gru.jsonl", document);
  document = run_json(FORWARD " --time-limit 100 --earlier gru.jsonl");
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  assert_true(get_real(find_phase(document, "forward", "slow"), "qualifying") == 0.06);
  json_decref(document);
  assert_fails(2, "--earlier: none.jsonl: cannot open: No such file", "bench rnn --seq-len 5 --earlier none.jsonl");
  static const char *const lines[] = {"{\"bench\": ", "[1]"}, *const words[] = {"bad.jsonl: document 1: line 1, ",
                                                                                "expected the document of a benchmark"};
  for (size_t i = 0; i < 2; ++i) {
    write_bytes("bad.jsonl", lines[i], strlen(lines[i]));
    assert_fails(2, words[i], "bench rnn --seq-len 5 --earlier bad.jsonl");
  }
}

/* Both initialisations, one after the other, by the same process. */
static void two_points(void **state) {
  (void)state;
  set_mode("right");
  json_t *document = run_json("bench rnn --json --seq-len 4 --batch 1 --hidden 2 --repeats 1 --threads 1 --rivals " SELF);
  const json_t *rows = json_object_get(document, "rows");
  int right = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    right += strcmp(get_text(row, "method"), "plain") == 0 && json_is_true(json_object_get(row, "ok"));
  }
  assert_int_equal(json_array_size(rows), 2 * (7 + 2 * 2));
  assert_int_equal(right, 4);
  json_decref(document);
}

/* Where samples begin anew a rival's rows say that it takes no mask; at the next point it takes part again. */
static void resets(void **state) {
  (void)state;
  set_mode("right");
  json_t *document =
      run_json("bench rnn --json --seq-len 9 --batch 1 --hidden 2 --repeats 1 --threads 1 --reset-rate 0.3 --rivals " SELF);
  const json_t *rows = json_object_get(document, "rows");
  int right = 0, refused = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(get_text(row, "method"), "plain") == 0 && get_real(row, "reset_rate") > 0) {
      assert_string_equal(get_text(row, "skipped"), "does not take resets");
      ++refused;
    } else if (strcmp(get_text(row, "method"), "plain") == 0) {
      right += json_is_true(json_object_get(row, "ok"));
    }
  }
  assert_int_equal(right, 4);
  assert_int_equal(refused, 4);
  json_decref(document);
}

/* Wrong gradients have no time, and the program exits 1. */
static void wrong(void **state) {
  (void)state;
  set_mode("wrong");
  run_result result = run("bench rnn --json " POINT);
  assert_int_equal(result.code, 1);
  json_t *document = json_loads(result.out, 0, NULL);
  const json_t *backward = find_phase(document, "backward", "plain");
  assert_true(get_real(backward, "residual") > 30 && json_is_false(json_object_get(backward, "ok")));
  assert_true(json_is_null(json_object_get(backward, "median_s")));
  json_decref(document);
  release(&result);
}

/* A rival that fails has rows with the reason, and the project's rows are measured. */
static void failures(void **state) {
  (void)state;
  static const struct {
    const char *mode, *reason;
  } cases[] = {{"refuses", "no such shape"},
               {"dies", "the rivals' program ended before its answer, exit code 3"},
               {"short", "answers with 92 bytes, expected 96"},
               {"timeless", "answers a pass of plain without its seconds"},
               {"tires", "the rivals' program ended before its answer"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    set_mode(cases[i].mode);
    json_t *document = run_json("bench rnn --json " POINT);
    for (int phase = 0; phase < 2; ++phase) {
      const char *reason = get_text(find_phase(document, phase == 0 ? "forward" : "backward", "plain"), "skipped");
      if (strstr(reason, cases[i].reason) == NULL) {
        fail_msg("%s: '%s', expected '%s'", cases[i].mode, reason, cases[i].reason);
      }
    }
    assert_true(json_is_true(json_object_get(find_phase(document, "backward", "bp"), "ok")));
    json_decref(document);
  }
}

static void first_lines(void **state) {
  (void)state;
  static const char expected[] = "expected a program whose first line is {\"guest\": 1";
  const char *const modes[] = {"garbage", "unnamed", "long"};
  const char *const words[] = {"sent 'hello', expected a JSON object", "its first line is '{\"guest\": 1}'",
                               "sent a line of more than 65536 bytes"};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
    set_mode(modes[i]);
    assert_fails(2, words[i], "bench rnn --json " POINT);
    assert_fails(2, expected, "bench rnn --json " POINT);
  }
  assert_fails(2, "--rivals: no/such/program: No such file", "bench rnn --json --seq-len 5 --rivals no/such/program");
  assert_fails(2, "did you mean --rivals?", "bench rnn --rival x");
  assert_fails(2, "--rivals: unknown option", "bench crossover --rivals x");
}

/* A rival that says nothing is killed when its time is over. */
static void patience(void **state) {
  (void)state;
  bppsa_guest *guest = NULL;
  set_mode("silent");
  assert_int_equal(bppsa_guest_start(SELF, 1, "cpu", &(bppsa_guest_waits){.patience_s = 0.05}, &guest), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "gave no answer within 0 s"));
  assert_null(guest);
  bppsa_guest_stop(NULL);
}

/* A method that does not heed the limit is lost behind it, which is said; nothing is entered then. */
static void limit(void **state) {
  (void)state;
  float x[6] = {0};
  bppsa_guest *guest = NULL;
  set_mode("hangs");
  const double over = bppsa_now() + 1;
  const bppsa_guest_waits waits = {.patience_s = 900, .over = over, .grace_s = 0.01};
  assert_int_equal(bppsa_guest_start(SELF, 1, "cpu", &waits, &guest), BPPSA_OK);
  assert_true(bppsa_guest_time(guest) > 0.01 && bppsa_guest_time(guest) < 1.01);
  assert_int_equal(bppsa_guest_enter(guest, "plain", sizeof x, x), BPPSA_ERR_UNSUPPORTED);
  assert_non_null(strstr(bppsa_last_error(), "the rivals' program gave no answer within "));
  assert_non_null(strstr(bppsa_last_error(), " s: --time-limit was over"));
  assert_true(bppsa_now() > over + 0.03 && bppsa_now() < over + 30);
  assert_true(bppsa_guest_time(guest) == 0);
  assert_int_equal(bppsa_guest_enter(guest, "plain", sizeof x, x), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "--time-limit was over");
  bppsa_guest_stop(guest);
}

/* A method that is being entered when the limit is over gives up; the next one does not begin, and the project's rows are
 * measured. Without a limit nothing is said about the time. */
static void limit_of_a_point(void **state) {
  (void)state;
  set_mode("heeds");
  json_t *document = run_json("bench rnn --json --seq-len 6 --init default --time-limit 2 " SHAPE);
  assert_string_equal(get_text(find_phase(document, "backward", "slow"), "skipped"), "gave up in time");
  assert_string_equal(get_text(find_phase(document, "backward", "plain"), "skipped"), "--time-limit was over");
  assert_int_equal(get_integer(find_phase(document, "backward", "bp"), "repeats"), 2);
  json_decref(document);
  document = run_json(FORWARD);
  assert_string_equal(get_text(find_row(json_object_get(document, "left_out"), "plain"), "reason"), "not told");
  json_decref(document);
}

/* Every allocation fails once: one line, exit code 1 or a row that says so, and nothing is held. */
static void memory(void **state) {
  (void)state;
  set_mode("right");
  const int64_t live = bppsa_alloc_live();
  int code = 1;
  for (int64_t call = 1; code != 0; call += call < 20 ? 1 : 1 + call / 3) {
    bppsa_alloc_fail_at(call);
    run_result result = run("bench rnn --json " POINT);
    bppsa_alloc_fail_at(0);
    code = result.code;
    assert_true(code == 0 || (code == 1 && result.out[0] == '\0' && strchr(result.err, '\n') != NULL));
    assert_int_equal(bppsa_alloc_live(), live);
    release(&result);
  }
}

int main(int count, char **arguments) {
  if (count == 5 && strcmp(arguments[1], "--threads") == 0 && strcmp(arguments[3], "--device") == 0) {
    return be_guest();
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(right),
                                     cmocka_unit_test(forward_passes),
                                     cmocka_unit_test(steps),
                                     cmocka_unit_test(two_points),
                                     cmocka_unit_test(resets),
                                     cmocka_unit_test(qualifying),
                                     cmocka_unit_test(qualifying_forward),
                                     cmocka_unit_test(wrong),
                                     cmocka_unit_test(failures),
                                     cmocka_unit_test(first_lines),
                                     cmocka_unit_test(patience),
                                     cmocka_unit_test(memory),
                                     cmocka_unit_test(limit),
                                     cmocka_unit_test(limit_of_a_point)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
