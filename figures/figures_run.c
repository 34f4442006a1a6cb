/* A run: checks the request, measures what the figures need, and makes the pages one after the other. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/files/path.h"
#include "figures/drawn_rows.h"
#include "figures/keep_measurements.h"
#include "figures/measured_rows.h"
#include "figures/verdict.h"
#include "train/line.h"

bppsa_status bppsa_figures_no_room(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
}

bppsa_recurrent_config bppsa_figures_config(const bppsa_figures *f) {
  const bppsa_figures_request *r = f->request;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = r->seq_len > 0 ? r->seq_len : config.seq_len;
  config.batch = r->batch > 0 ? r->batch : config.batch;
  config.hidden = r->hidden > 0 ? r->hidden : config.hidden;
  return config;
}

/* ---- before anything is measured ---- */

/* The benchmarks whose figures are drawn from results alone: the name of benchmark and run, who writes them, the check of their
 * rows. */
typedef struct {
  const char *bench, *writer;
  bppsa_status (*check)(const char *path, const json_t *rows);
} drawn_only;
static const drawn_only drawn[] = {{BPPSA_FIGURES_RANKS, "bench ranks", bppsa_ranks_rows_check},
                                   {BPPSA_FIGURES_FORWARD, "bench forward", bppsa_forward_rows_check},
                                   {BPPSA_FIGURES_STEP, "bench step", bppsa_step_rows_check},
                                   {BPPSA_FIGURES_STALENESS, "bench/scripts/spectrain.py", bppsa_staleness_rows_check},
                                   {BPPSA_FIGURES_OUT_OF_ORDER, "bench/scripts/out_of_order.py", bppsa_out_of_order_rows_check}};

/* The one of them that wrote the results; NULL: none. */
static const drawn_only *find_drawn(const bppsa_figures *f) {
  const char *bench = json_string_value(json_object_get(f->document, "bench"));
  for (size_t i = 0; bench != NULL && i < sizeof drawn / sizeof drawn[0]; ++i) {
    if (strcmp(bench, drawn[i].bench) == 0) {
      return &drawn[i];
    }
  }
  return NULL;
}

static bool is_run(const bppsa_figure_page *page, const char *name) {
  return strcmp(page->run, name) == 0;
}

static bool has_page(const char *kind) {
  for (int i = 0; i < bppsa_figure_page_count; ++i) {
    if (is_run(&bppsa_figure_pages[i], kind)) {
      return true;
    }
  }
  return false;
}

/* Refuses the results of a benchmark that has no figures, and names those that have some. */
static bppsa_status check_bench(const bppsa_figures *f, const char *path) {
  const char *bench = json_string_value(json_object_get(f->document, "bench"));
  bppsa_line line = {.length = 0};
  if (bench == NULL || bppsa_network_kind_find(bench) != NULL || find_drawn(f) != NULL) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; bppsa_network_kind_at(i) != NULL; ++i) {
    const char *name = bppsa_network_kind_at(i)->name;
    if (has_page(name)) {
      bppsa_line_add(&line, "bench %s, ", name);
    }
  }
  for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; ++i) {
    bppsa_line_add(&line, "%s%s", i == 0 ? "" : i + 1 < sizeof drawn / sizeof drawn[0] ? ", " : " or ", drawn[i].writer);
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: of bench %.40s, which has no figures, expected what %s wrote", path, bench,
                    line.text);
}

/* The ends of the names of a figure's files. */
static const char *const suffixes[] = {".csv", ".svg", ".gp", ".png", ".json"};
enum { SUFFIXES = sizeof suffixes / sizeof suffixes[0], DRAWN = SUFFIXES - 1 /* .json has kept measurements and is not drawn */ };

/* Refuses results in a file that a figure or page would overwrite. (DIR/results.json may be given: it keeps its rows.) */
static bppsa_status check_overwritten(const bppsa_figures *f, const char *results) {
  char path[BPPSA_FIGURES_PATH];
  bool same = false;
  for (int i = 0; !same && i < bppsa_figure_count; ++i) {
    for (int k = 0; !same && k < DRAWN; ++k) {
      BPPSA_TRY(bppsa_figures_path(f, bppsa_figure_table[i].name, suffixes[k], path));
      same = bppsa_path_same(results, path);
    }
  }
  for (int i = 0; !same && i < bppsa_figure_page_count; ++i) {
    BPPSA_TRY(bppsa_figures_path(f, bppsa_figure_pages[i].file, "", path));
    same = bppsa_path_same(results, path);
  }
  return same ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--results: %s: a file that --out %s may replace, expected another directory",
                           results, f->request->directory)
              : BPPSA_OK;
}

static bppsa_status load_results(bppsa_figures *f, const char *path) {
  BPPSA_TRY(check_overwritten(f, path));
  BPPSA_TRY(bppsa_input_status(bppsa_json_load(path, &f->document)));
  BPPSA_TRY(check_bench(f, path));
  const json_t *rows = bppsa_figures_rows(f);
  if (!json_is_array(rows)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: no array \"rows\", expected a document of bench rnn", path);
  }
  BPPSA_TRY(bppsa_measured_check_rows("--results", path, rows));
  const drawn_only *only = find_drawn(f);
  return only != NULL ? only->check(path, rows) : bppsa_measured_check("--results", path, rows);
}

/* Returns the first figure, of this kind or (NULL) of any, that is made of a data set of the user's; NULL: there is none. */
static const bppsa_figure *figure_of_data(const char *kind) {
  for (int i = 0; i < bppsa_figure_count; ++i) {
    const bppsa_figure *figure = &bppsa_figure_table[i];
    if (figure->without_data != NULL && (kind == NULL || is_run(&bppsa_figure_pages[figure->page], kind))) {
      return figure;
    }
  }
  return NULL;
}

/* Refuses a data set if the figures of this kind use none. */
static bppsa_status check_data(const bppsa_figures *f) {
  const bppsa_figure *other = figure_of_data(NULL);
  if (f->request->data.spec == NULL || figure_of_data(f->kind->name) != NULL) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "--data: given for the %s, whose figures train on bitstream, expected --model %s",
                    f->kind->name, other != NULL ? bppsa_figure_pages[other->page].run : "of another network");
}

/* Finds out which kind of network the results are from. */
static bppsa_status check_kind(bppsa_figures *f) {
  const bppsa_figures_request *r = f->request;
  const char *bench = json_string_value(json_object_get(f->document, "bench"));
  if (find_drawn(f) != NULL) {
    return r->kind_given || r->data.spec != NULL
               ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --results of bench %s, which hold all that is drawn",
                            r->kind_given ? "--model" : "--data", bench)
               : BPPSA_OK;
  }
  const bppsa_network_kind *kind = bench != NULL ? bppsa_network_kind_find(bench) : NULL;
  if (kind != NULL && kind != f->kind && r->kind_given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--model: %s, but --results are of bench %s, expected one network", f->kind->name,
                      bench);
  }
  f->kind = kind != NULL ? kind : f->kind;
  return check_data(f);
}

static bool is_of_run(const bppsa_figures *f, const bppsa_figure_page *page) {
  const drawn_only *only = find_drawn(f);
  return is_run(page, f->request->cnn ? "cnn" : only != NULL ? only->bench : f->kind->name);
}

static bppsa_status find_page(bppsa_figures *f) {
  for (int i = 0; f->page == NULL && i < bppsa_figure_page_count; ++i) {
    f->page = is_of_run(f, &bppsa_figure_pages[i]) ? &bppsa_figure_pages[i] : NULL;
  }
  if (f->page != NULL) {
    return BPPSA_OK;
  }
  bppsa_line line = {.length = 0};
  for (int64_t i = 0; bppsa_network_kind_at(i) != NULL; ++i) {
    const char *name = bppsa_network_kind_at(i)->name;
    if (has_page(name)) {
      bppsa_line_add(&line, "%s%s", line.length > 0 ? " or " : "", name);
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "figures: model %s has none, expected %s", f->kind->name, line.text);
}

static bppsa_status check_output(const bppsa_figures *f, const char *name, const char *suffix) {
  char path[BPPSA_FIGURES_PATH];
  BPPSA_TRY(bppsa_figures_path(f, name, suffix, path));
  const bppsa_status status = bppsa_path_check_file(path);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--out");
}

/* Proves before the work begins that each file of the run can be made or replaced: no directory, pipe or dangling link has its
 * name. */
static bppsa_status check_outputs(const bppsa_figures *f) {
  for (int i = 0; i < bppsa_figure_page_count; ++i) {
    const bppsa_figure_page *page = &bppsa_figure_pages[i];
    if (is_of_run(f, page)) {
      BPPSA_TRY(check_output(f, page->file, ""));
      BPPSA_TRY(page->kept != NULL ? check_output(f, page->kept, "") : BPPSA_OK);
    }
  }
  if (f->request->cnn && f->request->data.spec == NULL) { /* the images of figure 6 are made there */
    char path[BPPSA_FIGURES_PATH];
    struct stat found;
    BPPSA_TRY(bppsa_figures_path(f, "cifar", "", path));
    const bppsa_status status = lstat(path, &found) == 0 ? bppsa_path_check_folder(path) : BPPSA_OK;
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--out"));
  }
  for (int i = 0; i < bppsa_figure_count; ++i) {
    const bppsa_figure *figure = &bppsa_figure_table[i];
    const int count = !is_of_run(f, &bppsa_figure_pages[figure->page]) ? 0 : figure->kept ? SUFFIXES : DRAWN;
    for (int k = 0; k < count; ++k) {
      BPPSA_TRY(check_output(f, figure->name, suffixes[k]));
    }
  }
  return BPPSA_OK;
}

/* Makes the directory and proves its files, so that one that cannot be written is found before the work starts. */
static bppsa_status make_directory(const bppsa_figures *f) {
  const char *directory = f->request->directory;
  if (bppsa_io_mkdir(directory) != 0 && errno != EEXIST) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: %s: cannot be made (%s), expected a directory", directory, strerror(errno));
  }
  return check_outputs(f);
}

static bppsa_status prepare(bppsa_figures *f) {
  const bppsa_figures_request *r = f->request;
  f->files = json_array();
  if (f->files == NULL) {
    return bppsa_figures_no_room();
  }
  if (!r->cnn) {
    BPPSA_TRY(r->results != NULL ? load_results(f, r->results) : BPPSA_OK);
    BPPSA_TRY(check_kind(f));
  }
  BPPSA_TRY(find_page(f));
  BPPSA_TRY(bppsa_keep_check(f));
  return make_directory(f);
}

/* ---- measurements ---- */

static bppsa_status keep_point(void *context, int64_t done, int64_t all) {
  const bppsa_figures *f = context;
  char text[64];
  snprintf(text, sizeof text, "point %" PRId64 " of %" PRId64, done, all);
  BPPSA_TRY(bppsa_keep_save(f, f->page->kept, f->document, false));
  return bppsa_keep_check_stop(f, text);
}

/* The settings of the benchmark: the sweep for this kind of network, or one point. */
static bppsa_bench_settings settings_of(const bppsa_figures *f) {
  const bppsa_figures_request *r = f->request;
  bppsa_bench_settings asked = {.request = {.to = r->to,
                                            .device = r->device,
                                            .quick = r->quick,
                                            .repeats = r->repeats,
                                            .memory_limit = r->memory_limit,
                                            .seed = r->seed}};
  asked.point = (bppsa_bench_point){.kind = f->kind, .config = bppsa_figures_config(f), .seed = r->seed, .data = "bitstream"};
  asked.point.config.method.scan = (bppsa_scan_method){asked.point.config.method.scan.algorithm, -1, 0};
  asked.one_point = r->seq_len > 0 || r->batch > 0 || r->hidden > 0;
  asked.both_inits = !asked.one_point;
  return asked;
}

/* Measures the rows that the document does not have yet. */
static bppsa_status measure_rows(bppsa_figures *f) {
  const bppsa_bench_keeper keeper = {.rows = json_object_get(f->document, f->page->list), .after = keep_point, .context = f};
  const bppsa_bench_settings asked = settings_of(f);
  BPPSA_TRY(bppsa_measured_check_rows("--resume", f->page->kept, bppsa_figures_rows(f)));
  BPPSA_TRY(bppsa_measured_check("--resume", f->page->kept, bppsa_figures_rows(f)));
  return bppsa_bench_drive_rows(bppsa_bench_case_find(f->kind->name), &asked.request, &asked, &keeper, &f->measured);
}

/* Opens or begins the document. A benchmark's document has a description of the benchmark; in a document of parts
 * (keep_measurements.h) each figure adds its own measurements. */
static bppsa_status open_document(bppsa_figures *f) {
  const bppsa_figure_page *page = f->page;
  BPPSA_TRY(bppsa_keep_resume(f, page->kept, page->list, &f->document));
  if (f->document == NULL) {
    json_t *object = f->request->cnn ? json_object() : bppsa_bench_document(f->kind->name, f->request->device);
    BPPSA_TRY(bppsa_keep_begin(f, object, page->list, &f->document));
  }
  return f->request->cnn ? BPPSA_OK : measure_rows(f);
}

/* ---- pages ---- */

/* The figures of a page, which are consecutive rows of the table. */
static const bppsa_figure *figures_of(const bppsa_figure_page *page, int *count) {
  const bppsa_figure *first = NULL;
  *count = 0;
  for (int i = 0; i < bppsa_figure_count; ++i) {
    if (&bppsa_figure_pages[bppsa_figure_table[i].page] == page) {
      first = first == NULL ? &bppsa_figure_table[i] : first;
      ++*count;
    }
  }
  return first;
}

static bppsa_status make_data(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  if (!bppsa_figure_has_data(f, figure)) {
    bppsa_text_add(&made->html, "%s", figure->without_data);
  } else {
    BPPSA_TRY(figure->data(f, figure, made));
  }
  bppsa_text *const texts[] = {&made->csv, &made->svg, &made->script, &made->html, &made->caption};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    BPPSA_TRY(bppsa_text_check(texts[i]));
  }
  return BPPSA_OK;
}

/* A signal ends a run between two figures. */
static bppsa_status check_stop(const bppsa_figures *f) {
  const bppsa_figures_request *r = f->request;
  return r->results == NULL ? bppsa_keep_check_stop(f, "the last point")
         : r->stop == NULL || !r->stop(r->stop_context)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_IO, "stopped by %s before all figures in %s were drawn", r->stop_name(r->stop_context),
                          r->directory);
}

/* Makes all data of a page before it writes the first file. */
static bppsa_status make_figures(bppsa_figures *f, const bppsa_figure_page *page, int count, const bppsa_figure *rows,
                                 bppsa_figure_content *contents) {
  bppsa_text text = {0};
  for (int i = 0; i < count; ++i) {
    BPPSA_TRY(check_stop(f));
    BPPSA_TRY(make_data(f, &rows[i], &contents[i]));
  }
  for (int i = 0; i < count; ++i) {
    BPPSA_TRY(check_stop(f));
    BPPSA_TRY(bppsa_figure_write(f, &rows[i], &contents[i]));
  }
  bppsa_status status = bppsa_figures_add_page(f, page, count, rows, contents, &text);
  status = status == BPPSA_OK ? bppsa_figures_write(f, page->file, "", &text) : status;
  bppsa_text_free(&text);
  return status;
}

static bppsa_status make_page(bppsa_figures *f, const bppsa_figure_page *page) {
  int count;
  const bppsa_figure *rows = figures_of(page, &count);
  bppsa_figure_content *contents = bppsa_calloc(count, sizeof *contents);
  const bppsa_status status = contents != NULL ? make_figures(f, page, count, rows, contents) : BPPSA_ERR_MEMORY;
  for (int i = 0; contents != NULL && i < count; ++i) {
    bppsa_text *const texts[] = {&contents[i].csv, &contents[i].svg, &contents[i].script, &contents[i].html,
                                 &contents[i].caption};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; ++k) {
      bppsa_text_free(texts[k]);
    }
  }
  bppsa_free(contents);
  return status;
}

/* ---- the end ---- */

/* Marks the document as finished. This comes last, because a run that is interrupted while it draws has not finished. A benchmark's
 * document is one of the run's files; if the request gave one, it is copied without its "finished". */
static bppsa_status finish_document(bppsa_figures *f) {
  if (f->request->cnn) {
    return bppsa_keep_save(f, f->page->kept, f->document, true);
  }
  if (f->request->results == NULL) {
    BPPSA_TRY(bppsa_keep_save(f, f->page->kept, f->document, true));
    return bppsa_figures_list(f, f->page->kept, "");
  }
  char *text = NULL;
  (void)json_object_del(f->document, "finished");
  BPPSA_TRY(bppsa_json_render(json_incref(f->document), &text));
  const bppsa_text copy = {.text = text, .size = strlen(text)};
  const bppsa_status status = bppsa_figures_write(f, f->page->kept, "", &copy);
  bppsa_free(text);
  return status;
}

static bppsa_status run(bppsa_figures *f, bppsa_figures_result *result) {
  bppsa_text verdict = {0};
  BPPSA_TRY(prepare(f));
  BPPSA_TRY(f->document == NULL ? open_document(f) : BPPSA_OK);
  for (int i = 0; i < bppsa_figure_page_count; ++i) {
    BPPSA_TRY(is_of_run(f, &bppsa_figure_pages[i]) ? make_page(f, &bppsa_figure_pages[i]) : BPPSA_OK);
  }
  BPPSA_TRY(finish_document(f));
  if (!f->request->cnn && find_drawn(f) == NULL) {
    bppsa_figures_verdict(f->document, &verdict);
  }
  const bppsa_status status = bppsa_text_check(&verdict);
  if (status != BPPSA_OK) {
    bppsa_text_free(&verdict);
    return status;
  }
  *result = (bppsa_figures_result){
      .files = json_incref(f->files), .page = f->page->file, .gnuplot = f->gnuplot, .verdict = verdict, .measured = f->measured};
  return BPPSA_OK;
}

bppsa_status bppsa_figures_run(const bppsa_figures_request *request, bppsa_figures_result *result) {
  bppsa_figures f = {.request = request, .kind = request->kind, .gnuplot = true};
  const bppsa_status status = run(&f, result);
  json_decref(f.document);
  json_decref(f.files);
  return status;
}

void bppsa_figures_result_free(bppsa_figures_result *result) {
  json_decref(result->files);
  bppsa_text_free(&result->verdict);
  *result = (bppsa_figures_result){0};
}
