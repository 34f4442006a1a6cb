/* `bppsa bench rnn` and `bppsa bench gru`: every method over the sweeps of tables 4 and 5, or of table 6, or at one point. */
#include <inttypes.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/rivals/guest_bench.h"
#include "core/measure/residual.h"
#include "terminal/machine.h"

#define NOTES(sweep)                                                                                                             \
  sweep                                                                                                                          \
      "First each method computes its gradients once. They are held against those of sequential BP in float64 on the same\n"     \
      "weights and inputs. The residual is the largest |g - ref| / (|ref| eps sqrt(T)) over the parameters; where |ref| is\n"    \
      "too small for that, the smallest normal number takes the place of |ref| eps. A method whose residual is 30 or more\n"     \
      "is wrong: its row says so, it is not timed, and the program exits 1.\n"                                                   \
      "--save-references computes these gradients and times nothing, for a run of the same points with --references.\n"          \
      "There a reference is taken that was computed of the very weights, inputs and seed gradients, on whatever device; the\n"   \
      "rows say whether it comes from the file or was computed, and a note says what the file lacks.\n"                          \
      "Beside --input-gradient backward passes compute the gradient of the input too, which is verified; rows of --rivals, "     \
      "whose\n"                                                                                                                  \
      "programs are not asked for it, say false. Beside --cold memory of twice the largest cache is written before every "       \
      "pass.\n"                                                                                                                  \
      "Then every method makes a pass that does not count, and after that the methods take turns in rounds: one forward\n"       \
      "and one backward pass at a time.\n"                                                                                       \
      "  forward   Layers without head and loss: 2 T B G H (I + H) FLOP a layer. G counts gates: 1 in an RNN, 3 in a GRU.\n"     \
      "  backward  With the gradients of weights, without that of the input unless it is asked for: the FLOP of the plan's "     \
      "products for the whole\n"                                                                                                 \
      "            batch, 2 T B G H (I + H) for the weights, and 2 T B G H H for the gradient of a layer below.\n"               \
      "  bytes     The least that has to move: x and h forward; backward what the plan's products read and write, and x, h\n"    \
      "            and g once for the gradients of weights.\n"                                                                   \
      "  path      Of the row speculative, and of forward beside --forward speculative or auto, which cut a pass into chunks:\n" \
      "            its dependent steps, for the slowest sample of the first pass. work: the steps that it computed, over T.\n"   \
      "  gap       Of these rows: the largest difference at the end of a chunk that was dropped, in row speculative relative\n"  \
      "            to the gradients there. perturbation: all that was dropped; the gradients equal those of BP for a dL/dh_t\n"  \
      "            that is changed by this part of its size. No pass of these rows is one that a pause made sequential.\n"       \
      "  redone    Products of a scan that lost their digits by cancellation, so that their steps were run one by one.\n"        \
      "Beside --reset-rate P every point comes twice, without resets and with a mask drawn by --seed that begins a sample "      \
      "anew\n"                                                                                                                   \
      "in front of a step with the probability P. The reference computes the same mask; rivals take none, as their rows say.\n"  \
      "A time is marked * where gradients underflow, or end at resets: 1 % or more of the hidden states' are 0 or subnormal.\n"  \
      "The methods of --rivals take part in the rounds: bench/rivals/recurrent.py has PyTorch's and JAX's layers.\n"             \
      "linear and bp do the same: both run the recurrence by the cell's own backward pass.\n" BPPSA_BENCH_QUEUED_NOTE            \
      "Rows named _graph are recordings. Rows named cudnn_ are cuDNN's algorithms; one that refuses the network's shape has a\n" \
      "row with the reason that cuDNN gives; _packed: with packed data. _tf32 computes in TF32; _bf16, beside --cudnn-dtype\n"   \
      "bf16, has inputs, weights and states in bf16: their residuals are in units of that, their rows say the relative error,\n" \
      "and nobody is held against them. The functions of cuDNN's persistent algorithms are less accurate: their residuals, "     \
      "and\n"                                                                                                                    \
      "of --rivals on a GPU, which may call cuDNN, are in units of 32 roundings.\n"                                              \
      "floor is the least time of a pass: the larger of its FLOP over measured FLOP/s and its bytes over the measured\n"         \
      "bandwidth of a copy. predicted is the time that the cost model expects of a backward pass; auto chooses by it.\n"         \
      "A pass of cuDNN that takes more than 16384 launches is recorded for a single shape without --time-limit alone.\n"         \
      "On a GPU, and beside --time-limit, rivals qualify: the winner of the last point makes its pass first, and one that "      \
      "takes\n"                                                                                                                  \
      "more than twice as long as the fastest rival keeps this single time, qualifying, and does not enter the rounds. One\n"    \
      "that did so at a shorter T, by rows of this run or of --earlier, is not run at all, nor is a pass that is predicted to\n" \
      "take more than a second; predicted is then its time at the longest shorter T, times the ratio of the lengths.\n"
#define SWEEP_LENGTHS                                                                                                            \
  "Without --seq-len, --batch, --hidden and --input: T = 10 .. 30000 at B = 16 and B = 2 .. 256 at T = 1000, H = 20.\n"
#define SWEEP_SETS                                                                                                               \
  "Without --seq-len, --batch, --hidden and --input: the shapes of the data sets S (T 259, I 38), M (T 517, I 24) and L\n"       \
  "(T 1034, I 12) that IRMAS gives, filled with noise of variance 1, at B = 16, 32 and 64, H = 20.\n"
#define CELL(id, words, functions, rate, sweep) const char bppsa_bench_notes_##id[] = NOTES(SWEEP_##sweep);
#include "networks/cells.inc"

/* The kinds of sweeps: over the lengths and batches of tables 4 and 5, or over the shapes of table 6. */
typedef enum { LENGTHS = 0, SETS } sweep_kind;

static sweep_kind sweep_of(const bppsa_network_kind *kind) {
  static const struct {
    const char *name;
    sweep_kind sweep;
  } sweeps[] = {
#define CELL(id, words, functions, rate, sweep) {#id, sweep},
#include "networks/cells.inc"
  };
  size_t i = 0;
  while (i + 1 < sizeof sweeps / sizeof sweeps[0] && strcmp(sweeps[i].name, kind->name) != 0) {
    ++i;
  }
  return sweeps[i].sweep;
}

static const int64_t seq_lens[] = {10, 30, 100, 300, 1000, 3000, 10000, 30000}, batches[] = {2, 4, 8, 16, 32, 64, 128, 256};
static const int64_t quick_seq_lens[] = {10, 100, 1000, 3000}, quick_batches[] = {2, 16, 64};

enum { MOST_NODES = 16384 }; /* of a graph of cuDNN under a time limit: T = 3000 is recorded, T = 10000 is not */

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick) {
  static const bppsa_bench_sweep full = {seq_lens, batches, COUNT(seq_lens), COUNT(batches), 1000, 16};
  static const bppsa_bench_sweep small = {quick_seq_lens, quick_batches, COUNT(quick_seq_lens), COUNT(quick_batches), 1000, 16};
  return quick ? &small : &full;
}

/* ---- the points ---- */

static bool is_in(int64_t value, int64_t count, const int64_t *values) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] == value) {
      return true;
    }
  }
  return false;
}

/* Chooses a point of table 6: the shape of one of IRMAS's three sets of features, filled with noise. */
static bool choose_of_sets(int64_t place, bool quick, bppsa_bench_point *point) {
  static const struct { int64_t seq_len, input; } sets[] = {{259, 38}, {517, 24}, {1034, 12}};
  static const int64_t set_batches[] = {16, 32, 64};
  const int64_t count = quick ? 1 : COUNT(set_batches), set = place / count;
  if (set >= COUNT(sets)) {
    return false;
  }
  point->data = NULL;
  point->config.seq_len = sets[set].seq_len;
  point->config.input = sets[set].input;
  point->config.batch = set_batches[place % count];
  return true;
}

/* Chooses a point: first the lengths, then the batches. The point that belongs to both comes once. */
static bool choose_of_sweep(int64_t place, const bppsa_bench_sweep *sweep, bppsa_bench_point *point) {
  const bool common =
      is_in(sweep->seq_len, sweep->seq_len_count, sweep->seq_lens) && is_in(sweep->batch, sweep->batch_count, sweep->batches);
  if (place < sweep->seq_len_count) {
    point->config.seq_len = sweep->seq_lens[place];
    point->config.batch = sweep->batch;
    return true;
  }
  place -= sweep->seq_len_count;
  for (int64_t i = 0; i < sweep->batch_count; ++i) {
    if ((!common || sweep->batches[i] != sweep->batch) && place-- == 0) {
      point->config.seq_len = sweep->seq_len;
      point->config.batch = sweep->batches[i];
      return true;
    }
  }
  return false;
}

bool bppsa_bench_choose_point(const bppsa_bench_settings *asked, int64_t index, bppsa_bench_point *point) {
  const int64_t inits = asked->both_inits ? 2 : 1, rates = asked->reset_rate > 0 ? 2 : 1, place = index / inits / rates;
  const bool quick = asked->request.quick;
  *point = asked->point;
  if (asked->both_inits) {
    point->init = index / rates % inits == 0 ? BPPSA_INIT_DEFAULT : BPPSA_INIT_ORTHOGONAL;
  }
  point->config.resets = index % rates == 1;
  point->reset_rate = point->config.resets ? asked->reset_rate : 0;
  return asked->one_point                      ? place == 0
         : sweep_of(asked->point.kind) == SETS ? choose_of_sets(place, quick, point)
                                               : choose_of_sweep(place, bppsa_bench_get_sweep(quick), point);
}

/* ---- the benchmark ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  s->bench = bench;
  s->device = bench->device;
  if (bench->asked->cold > bench->memory_limit / 2) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--cold: writes twice the largest cache, 2 x %" PRId64
                      " bytes, expected at most the memory limit of %" PRId64,
                      bench->asked->cold, bench->memory_limit);
  }
  s->most_nodes = bench->asked->one_point && bench->request->time_limit_s == 0 ? 0 : MOST_NODES;
  while (bppsa_bench_choose_point(bench->asked, bench->points, &s->point)) {
    ++bench->points;
  }
  BPPSA_TRY(bppsa_bench_read_earlier(bench, s->point.kind->name));
  BPPSA_TRY(bench->asked->references == NULL ? BPPSA_OK : bppsa_bench_open_references(bench->asked->references, &s->references));
  return bppsa_bench_start_guest(bench, bench->asked->rivals, &s->guest);
}

static bool put_versions(const bppsa_bench *bench, json_t *document) {
  const bppsa_bench_session *s = bench->session;
  return (bench->asked->cold == 0 || document == NULL || bppsa_json_put_integer(document, "cache_bytes", bench->asked->cold)) &&
         (s->guest == NULL || bppsa_guest_put_versions(s->guest, json_object_get(document, "device")));
}

static void release(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  bppsa_guest_stop(s->guest);
  bppsa_safetensors_destroy(s->references);
}

static bppsa_status enter(bppsa_bench *bench, int64_t index, bool *more) {
  bppsa_bench_session *s = bench->session;
  const bppsa_recurrent_config *c = &s->point.config;
  *more = bppsa_bench_choose_point(bench->asked, index, &s->point);
  if (!*more) {
    return BPPSA_OK;
  }
  bench->idle = bench->keeper != NULL && bppsa_bench_count_kept(bench, bench->keeper->rows);
  if (bench->idle || bppsa_bench_out_of_time(bench)) {
    return BPPSA_OK;
  }
  snprintf(bench->label, sizeof bench->label, "point %" PRId64 " of %" PRId64 ", T %" PRId64 ", B %" PRId64 ", H %" PRId64,
           index + 1, bench->points, c->seq_len, c->batch, c->hidden);
  return bppsa_bench_enter_point(bench);
}

static bppsa_status print_head(const bppsa_bench *bench) {
  const bppsa_device *device = bench->device;
  const int threads = bppsa_device_get_threads(device);
  char vector[BPPSA_VECTOR_TEXT], date[BPPSA_DATE_TEXT];
  return bppsa_output_print(
      &bench->request->to,
      "%s on %s, %d thread%s, %s, %s\n"
      "forward without head and loss; backward with the weights' gradients, %s the input's; x bp below 1 is faster\n",
      bench->asked->point.kind->name, bppsa_device_get_hardware(device), threads, threads == 1 ? "" : "s",
      bppsa_machine_vector(vector, sizeof vector), bppsa_machine_date(date, sizeof date),
      bench->asked->point.config.input_gradients ? "and" : "without");
}

static bppsa_status finish(bppsa_bench *bench) {
  const bool one_shape = sweep_of(bench->asked->point.kind) == LENGTHS; /* sets do not differ in T alone */
  json_t *growth = one_shape ? bppsa_bench_growth(bench->report.rows, bppsa_bench_get_sweep(false)->batch) : json_array();
  if (!bppsa_json_put(bench->report.document, "growth", growth)) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(bench->request->to.json ? BPPSA_OK : bppsa_bench_show_growth(&bench->request->to, growth));
  return bppsa_bench_report_points(bench);
}

#define CELL(id, words, functions, rate, sweep)                                                                                  \
  const bppsa_bench_case bppsa_bench_case_##id = {.name = #id,                                                                   \
                                                  .session = sizeof(bppsa_bench_session),                                        \
                                                  .budget_s = 2,                                                                 \
                                                  .quick_s = 0.4,                                                                \
                                                  .shared = true,                                                                \
                                                  .bound = BPPSA_RESIDUAL_BOUND,                                                 \
                                                  .memory_quarters = 3,                                                          \
                                                  .columns = bppsa_bench_point_columns,                                          \
                                                  .prepare = prepare,                                                            \
                                                  .put_members = put_versions,                                                   \
                                                  .release = release,                                                            \
                                                  .head = print_head,                                                            \
                                                  .enter = enter,                                                                \
                                                  .put = bppsa_bench_put_line,                                                   \
                                                  .leave = bppsa_bench_leave_point,                                              \
                                                  .lines = BPPSA_BENCH_ROWS,                                                     \
                                                  .line = bppsa_bench_line_of_point,                                             \
                                                  .note = bppsa_bench_note_line,                                                 \
                                                  .settle = bppsa_bench_settle_point,                                            \
                                                  .above = bppsa_bench_print_above,                                              \
                                                  .below = bppsa_bench_print_below,                                              \
                                                  .finish = finish};
#include "networks/cells.inc"
