/* `bppsa bench rnn` and `bppsa bench gru`: every method over the sweeps of tables 4 and 5, or of table 6, or at one point. */
#include <inttypes.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/harness/machine.h"
#include "bench/harness/recording.h"
#include "core/clock.h"
#include "core/residual.h"

#define NOTES(sweep)                                                                                                             \
  sweep                                                                                                                          \
      "First each method computes its gradients once. They are held against those of sequential BP in float64 on the same\n"     \
      "weights and inputs. The residual is the largest |g - ref| / (|ref| eps sqrt(T)) over the parameters; where |ref| is\n"    \
      "too small for that, the smallest normal number takes the place of |ref| eps. A method whose residual is 30 or more\n"     \
      "is wrong: its row says so, it is not timed, and the program exits 1.\n"                                                   \
      "Then every method makes a pass that does not count, and after that the methods take turns in rounds: one forward\n"       \
      "and one backward pass at a time.\n"                                                                                       \
      "  forward   Layers without head and loss: 2 T B G H (I + H) FLOP a layer. G counts gates: 1 in an RNN, 3 in a GRU.\n"     \
      "  backward  With the gradients of weights, without that of the input: the FLOP of the plan's products for the whole\n"    \
      "            batch, 2 T B G H (I + H) for the weights, and 2 T B G H H for the gradient of a layer below.\n"               \
      "  bytes     The least that has to move: x and h forward; backward what the plan's products read and write, and x, h\n"    \
      "            and g once for the gradients of weights.\n"                                                                   \
      "  redone    Products of a scan that lost their digits by cancellation, so that their steps were run one by one.\n"        \
      "linear and bp do the same: both run the recurrence by the cell's own backward pass.\n" BPPSA_BENCH_QUEUED_NOTE            \
      "Rows named _graph are recordings. Rows named cudnn_ are cuDNN's algorithms; one that refuses the network's shape has a\n" \
      "row with the reason that cuDNN gives. cudnn_standard_tf32 computes in TF32, and its residuals are in units of TF32.\n"    \
      "floor is the least time of a pass: the larger of its FLOP over measured FLOP/s and its bytes over the measured\n"         \
      "bandwidth of a copy. predicted is the time that the cost model expects of a backward pass; auto chooses by it.\n"         \
      "A sweep does not record a pass of cuDNN that takes more than 16384 launches. A single shape is always recorded.\n"
#define SWEEP_LENGTHS                                                                                                            \
  "Without --seq-len, --batch, --hidden and --input: T = 10 .. 30000 at B = 16 and B = 2 .. 256 at T = 1000, H = 20.\n"
#define SWEEP_SETS                                                                                                               \
  "Without --seq-len, --batch, --hidden and --input: the shapes of the data sets S (T 259, I 38), M (T 517, I 24) and L\n"       \
  "(T 1034, I 12) that IRMAS gives, filled with noise of variance 1, at B = 16, 32 and 64, H = 20.\n"
#define CELL(id, words, functions, rate, sweep) const char bppsa_bench_notes_##id[] = NOTES(SWEEP_##sweep);
#include "models/cells.inc"

/* What a kind's sweep goes over: the lengths and the batches of tables 4 and 5, or the shapes of table 6. */
typedef enum { LENGTHS = 0, SETS } sweep_kind;

static sweep_kind sweep_of(const bppsa_network_kind *kind) {
  static const struct {
    const char *name;
    sweep_kind sweep;
  } sweeps[] = {
#define CELL(id, words, functions, rate, sweep) {#id, sweep},
#include "models/cells.inc"
  };
  size_t i = 0;
  while (i + 1 < sizeof sweeps / sizeof sweeps[0] && strcmp(sweeps[i].name, kind->name) != 0) {
    ++i;
  }
  return sweeps[i].sweep;
}

static const int64_t seq_lens[] = {10, 30, 100, 300, 1000, 3000, 10000, 30000}, batches[] = {2, 4, 8, 16, 32, 64, 128, 256};
static const int64_t quick_seq_lens[] = {10, 100, 1000, 3000}, quick_batches[] = {2, 16, 64};

enum { MOST_NODES = 16384 }; /* of a graph of cuDNN's in a sweep: T = 3000 is recorded, T = 10000 is not */

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick) {
  static const bppsa_bench_sweep full = {seq_lens, batches, COUNT(seq_lens), COUNT(batches), 1000, 16};
  static const bppsa_bench_sweep small = {quick_seq_lens, quick_batches, COUNT(quick_seq_lens), COUNT(quick_batches), 1000, 16};
  return quick ? &small : &full;
}

bool bppsa_bench_out_of_time(const bppsa_bench_limits *limits, bppsa_bench_tally *tally) {
  const bool over = limits->deadline > 0 && tally->rows.measured > 0 && bppsa_now() >= limits->deadline;
  tally->left_out += over;
  return over;
}

bppsa_status bppsa_bench_report_left_out(const bppsa_bench_request *request, const bppsa_bench_tally *tally, json_t *document) {
  if (request->time_limit_s == 0) {
    return BPPSA_OK;
  }
  if (!bppsa_json_put_integer(document, "points_left_out", tally->left_out)) {
    return bppsa_bench_no_room();
  }
  return request->to.json || tally->left_out == 0
             ? BPPSA_OK
             : bppsa_output_print(&request->to, "\n%" PRId64 " points left out: --time-limit was over\n", tally->left_out);
}

bppsa_status bppsa_bench_limits_of(const bppsa_bench_request *request, bppsa_bench_limits *limits) {
  *limits = (bppsa_bench_limits){
      .repeats = request->repeats, .budget_s = request->quick ? 0.4 : 2, .deadline = bppsa_bench_deadline(request)};
  return bppsa_bench_memory_limit(request, 3, &limits->memory_limit);
}

/* ---- the sweep ---- */

typedef struct {
  const bppsa_bench_settings *asked;
  const bppsa_bench_hooks *hooks;
  json_t *rows;
  bppsa_bench_tally *tally;
  bppsa_bench_limits limits;
  int64_t done, all;
} sweep_run;

static bppsa_status run_point(sweep_run *run, bppsa_bench_point point, bppsa_init init) {
  char label[120];
  bppsa_bench_result result;
  point.init = init;
  if (bppsa_bench_tally_rows(run->tally, &point, run->rows)) { /* an earlier run measured it */
    ++run->done;
    return BPPSA_OK;
  }
  if (bppsa_bench_out_of_time(&run->limits, run->tally)) {
    return BPPSA_OK;
  }
  snprintf(label, sizeof label, "point %" PRId64 " of %" PRId64 ", T %" PRId64 ", B %" PRId64 ", H %" PRId64, run->done + 1,
           run->all, point.config.seq_len, point.config.batch, point.config.hidden);
  run->limits.label = label;
  const bppsa_status status = bppsa_bench_measure(&point, &run->limits, run->asked->request.device, &result);
  bppsa_progress_clear(run->limits.line);
  BPPSA_TRY(status);
  ++run->done;
  bppsa_bench_tally_add(run->tally, &result);
  if (!bppsa_bench_append(run->rows, &point, &result)) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(run->hooks->show != NULL ? run->hooks->show(&run->asked->request.to, &point, &result) : BPPSA_OK);
  return run->hooks->after != NULL ? run->hooks->after(run->hooks->context, run->done, run->all) : BPPSA_OK;
}

static bppsa_status run_inits(sweep_run *run, bppsa_bench_point point, int64_t seq_len, int64_t batch) {
  point.config.seq_len = seq_len;
  point.config.batch = batch;
  if (!run->asked->both_inits) {
    return run_point(run, point, point.init);
  }
  BPPSA_TRY(run_point(run, point, BPPSA_INIT_DEFAULT));
  return run_point(run, point, BPPSA_INIT_ORTHOGONAL);
}

static bool is_in(int64_t value, int64_t count, const int64_t *values) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] == value) {
      return true;
    }
  }
  return false;
}

/* Table 6: the shapes of the features of IRMAS's three sets. */
static bppsa_status run_sets(sweep_run *run, bppsa_bench_point point, bool quick) {
  static const struct { int64_t seq_len, input; } sets[] = {{259, 38}, {517, 24}, {1034, 12}};
  static const int64_t set_batches[] = {16, 32, 64};
  const int64_t count = quick ? 1 : COUNT(set_batches);
  run->all = COUNT(sets) * count * (run->asked->both_inits ? 2 : 1);
  point.data = NULL;
  for (int64_t i = 0; i < COUNT(sets); ++i) {
    for (int64_t k = 0; k < count; ++k) {
      point.config.input = sets[i].input;
      BPPSA_TRY(run_inits(run, point, sets[i].seq_len, set_batches[k]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status run_sweep(sweep_run *run, const bppsa_bench_point *point, const bppsa_bench_sweep *sweep) {
  const bool common = is_in(sweep->seq_len, sweep->seq_len_count, sweep->seq_lens) &&
                      is_in(sweep->batch, sweep->batch_count, sweep->batches); /* the point of both sweeps is measured once */
  run->all = (sweep->seq_len_count + sweep->batch_count - common) * (run->asked->both_inits ? 2 : 1);
  for (int64_t i = 0; i < sweep->seq_len_count; ++i) {
    BPPSA_TRY(run_inits(run, *point, sweep->seq_lens[i], sweep->batch));
  }
  for (int64_t i = 0; i < sweep->batch_count; ++i) {
    if (!common || sweep->batches[i] != sweep->batch) {
      BPPSA_TRY(run_inits(run, *point, sweep->seq_len, sweep->batches[i]));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_run(const bppsa_bench_settings *asked, const bppsa_bench_hooks *hooks, json_t *rows,
                             bppsa_bench_tally *tally) {
  bppsa_progress_line line = bppsa_progress_start(asked->request.to.err);
  bppsa_bench_point point = asked->point;
  const bool quick = asked->request.quick;
  sweep_run run = {.asked = asked, .hooks = hooks, .rows = rows, .tally = tally, .all = 1};
  BPPSA_TRY(bppsa_bench_limits_of(&asked->request, &run.limits));
  run.limits.line = &line;
  run.limits.most_nodes = asked->one_point ? 0 : MOST_NODES;
  point.rivals = true;
  if (asked->one_point) {
    BPPSA_TRY(run_inits(&run, point, point.config.seq_len, point.config.batch));
  } else {
    BPPSA_TRY(sweep_of(point.kind) == SETS ? run_sets(&run, point, quick)
                                           : run_sweep(&run, &point, bppsa_bench_get_sweep(quick)));
  }
  const bppsa_status verdict = bppsa_bench_verdict(tally, run.limits.memory_limit);
  return tally->rows.measured == 0 ? verdict : BPPSA_OK; /* failed rows are shown first and are an error after that */
}

/* ---- the benchmark ---- */

static bppsa_status print_head(const bppsa_bench_settings *asked) {
  const bppsa_device *device = asked->request.device;
  const int threads = bppsa_device_get_threads(device);
  char vector[BPPSA_VECTOR_TEXT], date[BPPSA_DATE_TEXT];
  return bppsa_output_print(
      &asked->request.to,
      "%s on %s, %d thread%s, %s, %s\n"
      "forward without head and loss; backward with the weights' gradients, without the input's; x bp below 1 is faster\n",
      asked->point.kind->name, bppsa_device_get_hardware(device), threads, threads == 1 ? "" : "s",
      bppsa_machine_vector(vector, sizeof vector), bppsa_machine_date(date, sizeof date));
}

static bppsa_status measure(bppsa_bench *bench) {
  const bppsa_bench_settings *asked = bench->asked;
  const bppsa_bench_request *request = bench->request;
  const bppsa_bench_hooks hooks = {.show = request->to.json ? NULL : bppsa_bench_show_table};
  bppsa_bench_tally tally = {0};
  BPPSA_TRY(request->to.json ? BPPSA_OK : print_head(asked));
  BPPSA_TRY(bppsa_bench_run(asked, &hooks, bench->report.rows, &tally));
  bench->rows = tally.rows;
  const bool one_shape = sweep_of(asked->point.kind) == LENGTHS; /* sets differ in more than T */
  json_t *growth = one_shape ? bppsa_bench_growth(bench->report.rows, bppsa_bench_get_sweep(false)->batch) : json_array();
  if (!bppsa_json_put(bench->report.document, "growth", growth)) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(request->to.json ? BPPSA_OK : bppsa_bench_show_growth(&request->to, growth));
  return bppsa_bench_report_left_out(request, &tally, bench->report.document);
}

#define CELL(id, words, functions, rate, sweep)                                                                                  \
  const bppsa_bench_case bppsa_bench_case_##id = {.name = #id, .bound = BPPSA_RESIDUAL_BOUND, .measure = measure};
#include "models/cells.inc"
