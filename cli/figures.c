/* `bppsa figures`: tables 4 and 5, figures 1, 3, 7 and 8, or of the GRU tables 3 and 6, figures 9 and 13, as CSV, SVG, PNG and
 * one page. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/figures_keep.h"
#include "cli/interrupt.h"
#include "cli/plan_draw.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/io.h"
#include "jacobian/jacobian.h"
#include "jacobian/network.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_OUT, .required = true, .metavar = "DIR", .help = "the directory of the files, made when missing"},
    {.option = BPPSA_OPTION_RESULTS},
    {.option = BPPSA_OPTION_MODEL},
    {.option = BPPSA_OPTION_CNN},
    {.option = BPPSA_OPTION_DATA,
     .fallback = "",
     .help = "what figure 13 trains on: npy:X,Y, irmas:DIR or instruments:DIR; with --cnn figure 6"},
    {.option = BPPSA_OPTION_SET},
    {.option = BPPSA_OPTION_PADDING},
    {.option = BPPSA_OPTION_VALIDATION, .fallback = "0.15", .help = "of figure 13: fraction of the samples held out"},
    {.option = BPPSA_OPTION_SEQ_LEN, .help = "one point instead of the sweep; of figure 7 too [1000]"},
    {.option = BPPSA_OPTION_BATCH, .help = "one point instead of the sweep; of figure 7 too"},
    {.option = BPPSA_OPTION_HIDDEN, .help = "one point instead of the sweep; of figure 7 too"},
    {.option = BPPSA_OPTION_ITERATIONS, .help = "of the training for figure 7 or 13 [2000, quick 200]"},
    {.option = BPPSA_OPTION_QUICK},
    {.option = BPPSA_OPTION_REPEATS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT},
    {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_RESUME, .help = "go on where an interrupted run into the same directory stopped"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] =
    "Writes table4.csv, table5.csv; figure1, figure3, figure7 and figure8 as .csv, .svg and .png (with "
    "the .gp scripts that drew them);\n"
    "results.json, what bench rnn measured; index.html, one page with everything beside the paper's "
    "numbers. gnuplot draws figures 7 and 8\n"
    "and all PNG files; without it they are left out and a line says so.\n"
    "schedules.html: the papers' timelines and tables of schedules, computed, with their .svg and .csv files.\n"
    "With --model gru, or --results of bench gru: table3.csv, table6.csv, figure9 and a page of their own; "
    "figure13 with --data.\n"
    "What is measured is kept in DIR as it goes: results.json after every point, figure7.json (figure13.json) after every repeat "
    "of the "
    "training;\n"
    "Ctrl-C ends after the point, a second one at once, and --resume with the same options goes on; without it a run is "
    "refused where an\n"
    "interrupted one's measurements are (\"finished\": false), and replaces a finished run's files.\n"
    "With --cnn: table1.csv, figure5, figure6 and figure10 and networks.html; figure 6 trains on synthetic images in DIR/cifar "
    "without --data.\n";

/* Figures 1 and 3: n of the paper's examples. Without a network all elements are an RNN's, H = 20. */
static const struct {
  const char *name, *network;
  int64_t jacobians;
} plans[] = {{"figure1", NULL, 7}, {"figure3", "vgg11", 21}};
enum { PLANS = sizeof plans / sizeof plans[0] };

/* What is made before anything is written. */
typedef struct {
  bppsa_text svg[PLANS], script[PLANS], csv[PLANS];
  bppsa_text tables[2], figure7, figure8, figure13, trained, page, growth;
  bool grows; /* there are points enough for growth.csv */
} contents;

static bppsa_status out_of_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
}

/* ---- the plans ---- */

static void plan_csv(const bppsa_scan_plan *plan, bppsa_text *text) {
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  bppsa_text_add(text, "id,level,phase,op,left,right,out,flops,critical,dead\n");
  while (bppsa_scan_plan_next(plan, &iterator, &step)) {
    char operands[3][BPPSA_OPERAND_TEXT];
    bppsa_scan_step_text(plan, &step, operands[0], operands[1], operands[2]);
    bppsa_text_add(text, "%" PRId64 ",%d,%s,%s,%s,%s,%s,%" PRId64 ",%d,%d\n", step.id, (int)step.level->level,
                   bppsa_scan_phase_name(step.level->phase), bppsa_scan_op_name(step.level->op), operands[0], operands[1],
                   operands[2], step.flops, step.critical, step.level->dead);
  }
}

/* What figure `i` is drawn of: Blelloch's scan, as a plan that is counted and never run. patterns: a network's, of `count`
 * operators. */
static bppsa_status draw_plan(int i, int64_t count, const bppsa_csr *const *patterns, const bppsa_device *device, contents *c) {
  char png[32];
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.jacobians = count;
  config.element = patterns != NULL ? BPPSA_ELEMENT_CSR : BPPSA_ELEMENT_RECURRENT;
  config.method = (bppsa_scan_method){BPPSA_SCAN_BLELLOCH, -1, 0};
  config.dim = patterns != NULL ? 0 : 20;
  config.patterns = patterns;
  config.planner = patterns != NULL ? device : NULL;
  config.symbolic = patterns != NULL;
  snprintf(png, sizeof png, "%s.png", plans[i].name);
  BPPSA_TRY(bppsa_scan_plan_create(&config, &plan));
  bppsa_status status = bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan}, &c->svg[i]);
  status = status == BPPSA_OK ? bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan, .png = png}, &c->script[i]) : status;
  plan_csv(plan, &c->csv[i]);
  bppsa_scan_plan_destroy(plan);
  return status;
}

static bppsa_status draw_network(int i, const bppsa_device *device, contents *c) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS] = {NULL};
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  int64_t count = 0;
  bppsa_status status = bppsa_network_table(plans[i].network, ops, &count);
  for (int64_t t = 0; status == BPPSA_OK && t < count; ++t) {
    status = bppsa_jacobian_create(&ops[t].op, NULL, true, device, &jacobians[t]);
    patterns[t] = status == BPPSA_OK ? bppsa_jacobian_pattern(jacobians[t]) : NULL;
  }
  status = status == BPPSA_OK ? draw_plan(i, count, patterns, device, c) : status;
  for (int64_t t = 0; t < count; ++t) {
    bppsa_jacobian_destroy(jacobians[t]);
  }
  return status;
}

static bppsa_status draw_plans(const bppsa_device *device, contents *c) {
  for (int i = 0; i < PLANS; ++i) {
    BPPSA_TRY(plans[i].network != NULL ? draw_network(i, device, c) : draw_plan(i, plans[i].jacobians, NULL, device, c));
  }
  return BPPSA_OK;
}

/* ---- measurements ---- */

/* A row as much as the tables need of it. */
static bool is_row(const json_t *row) {
  return json_is_integer(json_object_get(row, "seq_len")) && json_is_integer(json_object_get(row, "batch")) &&
         json_is_string(json_object_get(row, "method")) && json_is_string(json_object_get(row, "phase"));
}

static bppsa_status check_rows(const char *option, const char *path, const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    if (!is_row(json_array_get(rows, i))) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: row %zu lacks seq_len, batch, method or phase, expected a row of bench rnn",
                        option, path, i);
    }
  }
  return BPPSA_OK;
}

static bppsa_status load_results(bppsa_figures *f, const char *path) {
  BPPSA_TRY(bppsa_cli_input(bppsa_json_load(path, &f->document)));
  const json_t *rows = json_object_get(f->document, "rows");
  if (!json_is_array(rows)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: no array \"rows\", expected a document of bench rnn", path);
  }
  return check_rows("--results", path, rows);
}

static const char results_name[] = "results.json";

static bppsa_status keep_point(void *context, int64_t done, int64_t all) {
  const bppsa_figures *f = context;
  char text[64];
  snprintf(text, sizeof text, "point %" PRId64 " of %" PRId64, done, all);
  BPPSA_TRY(bppsa_figures_keep(f, results_name, f->document, false));
  return bppsa_figures_check_interrupt(f, text);
}

/* The sweep, or what is left of it. */
static bppsa_status measure(bppsa_figures *f, const bppsa_device *device, bppsa_bench_tally *tally) {
  const bppsa_bench_hooks hooks = {.after = keep_point, .context = f};
  BPPSA_TRY(bppsa_figures_resume(f, results_name, "rows", &f->document));
  if (f->document == NULL) {
    f->document = bppsa_bench_document(f->kind->name, device);
    if (f->document == NULL || !bppsa_json_put(f->document, "configuration", json_incref(f->configuration)) ||
        !bppsa_json_put(f->document, "rows", json_array())) {
      return out_of_memory();
    }
  }
  BPPSA_TRY(check_rows("--resume", results_name, json_object_get(f->document, "rows")));
  bppsa_cli sweep = *f->cli;
  sweep.values[BPPSA_OPTION_DATA] = (bppsa_option_value){.given = false}; /* figure 13's */
  return bppsa_bench_run(&sweep, device, &hooks, json_object_get(f->document, "rows"), tally);
}

/* ---- files ---- */

static bppsa_status make_contents(bppsa_figures *f, const bppsa_device *device, contents *c) {
  const json_t *rows = json_object_get(f->document, "rows");
  bppsa_progress_line line = bppsa_progress_start(f->cli->err);
  BPPSA_TRY(draw_plans(device, c));
  BPPSA_TRY(bppsa_figures_train(f, device, &line, &c->figure7, &c->trained));
  bppsa_figures_table_csv(rows, 4, &c->tables[0]);
  bppsa_figures_table_csv(rows, 5, &c->tables[1]);
  bppsa_figures_figure8_csv(rows, &c->figure8);
  json_t *growth = bppsa_figures_growth(f);
  if (growth == NULL) {
    return out_of_memory();
  }
  c->grows = json_array_size(growth) > 0;
  bppsa_bench_growth_csv(growth, &c->growth);
  json_decref(growth);
  return bppsa_text_check(&c->trained);
}

static bppsa_status write_copy(bppsa_figures *f, const char *name, const char *words) {
  bppsa_text copy = {0};
  bppsa_text_add(&copy, "%s", words);
  const bppsa_status status = bppsa_figures_write(f, name, &copy);
  bppsa_text_free(&copy);
  return status;
}

static bppsa_status write_plan(bppsa_figures *f, const contents *c, int i) {
  char name[32];
  snprintf(name, sizeof name, "%s.csv", plans[i].name);
  BPPSA_TRY(bppsa_figures_write(f, name, &c->csv[i]));
  snprintf(name, sizeof name, "%s.svg", plans[i].name);
  BPPSA_TRY(bppsa_figures_write(f, name, &c->svg[i]));
  snprintf(name, sizeof name, "%s.gp", plans[i].name);
  BPPSA_TRY(bppsa_figures_write(f, name, &c->script[i]));
  return bppsa_figures_plot(f, plans[i].name, "png");
}

static bppsa_status write_plot(bppsa_figures *f, const char *name, const bppsa_text *csv, const char *script) {
  char file[32];
  snprintf(file, sizeof file, "%s.csv", name);
  BPPSA_TRY(bppsa_figures_write(f, file, csv));
  snprintf(file, sizeof file, "%s.gp", name);
  BPPSA_TRY(write_copy(f, file, script));
  BPPSA_TRY(bppsa_figures_plot(f, name, "svg"));
  return bppsa_figures_plot(f, name, "png");
}

static bppsa_status write_all(bppsa_figures *f, contents *c) {
  BPPSA_TRY(bppsa_figures_write(f, "table4.csv", &c->tables[0]));
  BPPSA_TRY(bppsa_figures_write(f, "table5.csv", &c->tables[1]));
  BPPSA_TRY(c->grows ? bppsa_figures_write(f, "growth.csv", &c->growth) : BPPSA_OK);
  for (int i = 0; i < PLANS; ++i) {
    BPPSA_TRY(write_plan(f, c, i));
  }
  BPPSA_TRY(write_plot(f, "figure7", &c->figure7, bppsa_figure7_script));
  BPPSA_TRY(write_plot(f, "figure8", &c->figure8, bppsa_figure8_script));
  BPPSA_TRY(bppsa_figures_page(f, c->svg, c->trained.text, &c->page));
  return bppsa_figures_write(f, "index.html", &c->page);
}

/* What bench gru measured has tables and figures of its own. */
static bool is_gru(const bppsa_figures *f) {
  return strcmp(f->kind->name, "gru") == 0;
}

static bppsa_status make_gru(bppsa_figures *f, const bppsa_device *device, contents *c) {
  const json_t *rows = json_object_get(f->document, "rows");
  if (f->data != NULL) {
    bppsa_progress_line line = bppsa_progress_start(f->cli->err);
    BPPSA_TRY(bppsa_figures_train(f, device, &line, &c->figure13, &c->trained));
    BPPSA_TRY(bppsa_text_check(&c->trained));
  }
  BPPSA_TRY(bppsa_figures_table3_csv(&c->tables[1]));
  bppsa_figures_table6_csv(rows, &c->tables[0]);
  bppsa_figures_figure9_csv(rows, &c->figure7);
  BPPSA_TRY(bppsa_text_check(&c->tables[0]));
  BPPSA_TRY(bppsa_figures_write(f, "table3.csv", &c->tables[1]));
  BPPSA_TRY(bppsa_figures_write(f, "table6.csv", &c->tables[0]));
  BPPSA_TRY(write_plot(f, "figure9", &c->figure7, bppsa_figure9_script));
  if (f->data != NULL) {
    BPPSA_TRY(write_plot(f, "figure13", &c->figure13, bppsa_figure13_script));
  }
  BPPSA_TRY(bppsa_figures_gru_page(f, c->trained.text, &c->page));
  return bppsa_figures_write(f, "index.html", &c->page);
}

/* Last of all: a run that ends while it draws has not finished. --results are copied without what they say of their own end. */
static bppsa_status finish_results(bppsa_figures *f) {
  if (!bppsa_cli_value(f->cli, BPPSA_OPTION_RESULTS)->given) {
    BPPSA_TRY(bppsa_figures_keep(f, results_name, f->document, true));
    return json_array_append_new(f->files, json_string(results_name)) == 0 ? BPPSA_OK : out_of_memory();
  }
  char *text = NULL;
  (void)json_object_del(f->document, "finished");
  BPPSA_TRY(bppsa_cli_render(json_incref(f->document), &text));
  const bppsa_status status = write_copy(f, results_name, text);
  bppsa_free(text);
  return status;
}

static json_t *files_json(const bppsa_figures *f) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "out", f->directory);
  ok = ok && bppsa_json_put_bool(object, "gnuplot", f->gnuplot);
  ok = ok && bppsa_json_put(object, "files", json_incref(f->files));
  return bppsa_json_finish(object, ok);
}

/* How many files there are, the page among them, and what gnuplot would have drawn. */
static bppsa_status print_count(const bppsa_figures *f, const char *page) {
  BPPSA_TRY(bppsa_cli_print(f->cli, "%zu files in %s; begin with %s/%s\n", json_array_size(f->files), f->directory, f->directory,
                            page));
  return f->gnuplot ? BPPSA_OK
                    : bppsa_cli_print(f->cli, "gnuplot is not installed (package gnuplot-nox): figures that are plotted are CSV "
                                              "only, and there are no PNG files of them\n");
}

static bppsa_status print_files(const bppsa_figures *f) {
  bppsa_text verdict = {0};
  bppsa_figures_verdict(f->document, &verdict);
  bppsa_status status = bppsa_text_check(&verdict);
  if (status == BPPSA_OK) {
    status = bppsa_cli_print(f->cli, "%s\n\n", verdict.text);
  }
  bppsa_text_free(&verdict);
  return status == BPPSA_OK ? print_count(f, "index.html") : status;
}

/* ---- the command ---- */

/* Makes the directory, and a file in it that goes again: what cannot be written is known before the work starts. */
static bppsa_status make_directory(const bppsa_figures *f) {
  char path[PATH_MAX];
  bppsa_file_writer *writer = NULL;
  BPPSA_TRY(bppsa_cli_check_directory(f->cli, BPPSA_OPTION_OUT));
  if (bppsa_io_mkdir(f->directory) != 0 && errno != EEXIST) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: %s: cannot be made (%s), expected a directory", f->directory, strerror(errno));
  }
  const int length = snprintf(path, sizeof path, "%s/%s", f->directory, results_name);
  if (length < 0 || (size_t)length >= sizeof path) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: a path of %d characters, expected at most %zu", length, sizeof path - 1);
  }
  const bppsa_status status = bppsa_file_writer_create(path, &writer);
  bppsa_file_writer_abort(writer);
  return bppsa_cli_input(status);
}

/* With --resume: an earlier run left something. */
static bppsa_status check_resume(const bppsa_figures *f) {
  static const char *const names[] = {results_name, "figure7.json", "figure13.json", "networks.json"};
  bool found = !bppsa_cli_value(f->cli, BPPSA_OPTION_RESUME)->given;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", f->directory, names[i]);
    found = found || access(path, F_OK) == 0;
  }
  return found ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "--resume: %s: nothing is kept there, expected what an interrupted figures left",
                            f->directory);
}

/* Nothing that an interrupted run measured is overwritten by this one. */
static bppsa_status check_overwrite(const bppsa_figures *f) {
  char curves[32];
  if (bppsa_cli_value(f->cli, BPPSA_OPTION_CNN)->given) {
    return bppsa_figures_check_overwrite(f, "networks.json");
  }
  snprintf(curves, sizeof curves, "%s.json", f->curves);
  BPPSA_TRY(bppsa_figures_check_overwrite(f, results_name));
  return is_gru(f) && f->data == NULL ? BPPSA_OK : bppsa_figures_check_overwrite(f, curves);
}

static bppsa_status setup(bppsa_cli *cli, bppsa_figures *f) {
  const bppsa_option_value *iterations = bppsa_cli_value(cli, BPPSA_OPTION_ITERATIONS);
  f->cli = cli;
  f->directory = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  f->gnuplot = true;
  f->config = bppsa_recurrent_config_default();
  BPPSA_TRY(bppsa_setup_config(cli, &f->config));
  f->iterations = iterations->given ? iterations->integer : bppsa_cli_value(cli, BPPSA_OPTION_QUICK)->given ? 200 : 2000;
  f->seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  f->kind = bppsa_network_kind_of(cli);
  f->data = bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text;
  f->validation = f->data != NULL ? bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real : 0;
  f->files = json_array();
  if (f->files == NULL) {
    return out_of_memory();
  }
  BPPSA_TRY(bppsa_cli_check_directory(cli, BPPSA_OPTION_OUT));
  return check_resume(f);
}

/* Of which network the results are, and whether the data set is any of its figures' business. */
static bppsa_status check_data(bppsa_figures *f) {
  const char *bench = json_string_value(json_object_get(f->document, "bench"));
  const bppsa_network_kind *kind = bench != NULL ? bppsa_network_kind_find(bench) : NULL;
  if (kind != NULL && kind != f->kind && bppsa_cli_value(f->cli, BPPSA_OPTION_MODEL)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--model: %s, but --results are of bench %s, expected one network", f->kind->name,
                      bench);
  }
  f->kind = kind != NULL ? kind : f->kind;
  f->curves = is_gru(f) ? "figure13" : "figure7";
  return f->data == NULL || is_gru(f)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--data: given for the rnn, whose figure 7 trains on bitstream, expected --model gru");
}

/* All that can be wrong is found before anything is measured. */
static bppsa_status prepare(bppsa_figures *f, bppsa_device **device) {
  const bppsa_option_value *results = bppsa_cli_value(f->cli, BPPSA_OPTION_RESULTS);
  BPPSA_TRY(bppsa_setup_device(f->cli, device));
  f->configuration = bppsa_figures_configuration(f->cli, *device);
  if (f->configuration == NULL) {
    return out_of_memory();
  }
  if (!bppsa_cli_value(f->cli, BPPSA_OPTION_CNN)->given) {
    BPPSA_TRY(results->given ? load_results(f, results->text) : BPPSA_OK);
    BPPSA_TRY(check_data(f));
  }
  BPPSA_TRY(check_overwrite(f));
  return make_directory(f);
}

static bppsa_status make(bppsa_figures *f, bppsa_device **device, contents *c) {
  bppsa_bench_tally tally = {0};
  BPPSA_TRY(prepare(f, device));
  if (bppsa_cli_value(f->cli, BPPSA_OPTION_CNN)->given) {
    BPPSA_TRY(bppsa_figures_cnn(f));
    return f->cli->json ? bppsa_cli_print_json(f->cli, files_json(f)) : print_count(f, "networks.html");
  }
  BPPSA_TRY(f->document == NULL ? measure(f, *device, &tally) : BPPSA_OK);
  if (is_gru(f)) {
    BPPSA_TRY(make_gru(f, *device, c));
  } else {
    BPPSA_TRY(make_contents(f, *device, c));
    BPPSA_TRY(write_all(f, c));
    BPPSA_TRY(bppsa_figures_schedules(f));
  }
  BPPSA_TRY(finish_results(f));
  BPPSA_TRY(f->cli->json ? bppsa_cli_print_json(f->cli, files_json(f)) : print_files(f));
  return tally.measured > 0 ? bppsa_bench_verdict(&tally, 0) : BPPSA_OK;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_figures f = {0};
  bppsa_device *device = NULL;
  contents c = {0};
  bppsa_json_start();
  bppsa_status status = setup(cli, &f);
  if (status == BPPSA_OK) {
    bppsa_interrupt_catch();
    status = make(&f, &device, &c);
    bppsa_interrupt_release();
  }
  bppsa_text *const texts[] = {&c.svg[0],    &c.svg[1],  &c.script[0], &c.script[1], &c.csv[0],  &c.csv[1], &c.tables[0],
                               &c.tables[1], &c.figure7, &c.figure8,   &c.figure13,  &c.trained, &c.page,   &c.growth};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    bppsa_text_free(texts[i]);
  }
  json_decref(f.document);
  json_decref(f.files);
  json_decref(f.configuration);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_figures = {
    .verb = "figures",
    .summary = "Regenerates the tables and figures of training RNNs and GRUs, beside the paper's numbers",
    .example = "figures --quick --out figures",
    .notes = notes,
    .uses = uses,
    .run = run};
