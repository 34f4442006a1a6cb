#include "cli/this_machine.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "bppsa_version.h"
#include "calibrate/calibrate.h"
#include "cli/ranks.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/pool.h"
#include "core/files/file.h"
#include "networks/cache_directory.h"
#include "recurrent/recurrent.h"

enum { LEAST_RANKS = 2, MOST_RANKS = 16 };

/* The models that are measured, which the oracle knows and the program trains. Each trains so many samples at once that measuring
 * takes seconds. The first one stands for all others. */
static const struct {
  const char *name;
  int64_t batch;
} measured[] = {{"lenet5", 16}, {"vgg11", 4}, {"rnn", 16}, {"gru", 16}};

/* A measurement. It has memory of its own, because ranks that hang may outlive the command. The command and the ranks hold it. */
typedef struct {
  atomic_int holders;
  const bppsa_cli *cli; /* the command's; not for ranks */
  const char *name;     /* the name of the model that is measured */
  FILE *progress;       /* standard error, where it is a terminal; otherwise NULL */
  int64_t batch, ranks;
  char path[BPPSA_CACHE_PATH + 64]; /* the path of the file; "": there is no place for a file */
  json_t *document;                 /* owned */
} machine;

static void choose(const bppsa_cli *cli, const bppsa_oracle_model *model, machine *m) {
  const int64_t cpus = bppsa_pool_cpus();
  atomic_init(&m->holders, 1);
  m->cli = cli;
  m->progress = cli->to.err == stderr ? stderr : NULL;
  m->name = measured[0].name;
  m->batch = measured[0].batch;
  m->ranks = cpus < LEAST_RANKS ? LEAST_RANKS : cpus > MOST_RANKS ? MOST_RANKS : cpus;
  const char *asked = bppsa_cli_value(cli, BPPSA_OPTION_MODEL)->text;
  for (size_t i = 0; i < sizeof measured / sizeof measured[0]; ++i) { /* a model from a file may have the same name */
    if (strcmp(model->name, measured[i].name) == 0 && strcmp(asked, measured[i].name) == 0) {
      m->name = measured[i].name;
      m->batch = measured[i].batch;
    }
  }
}

static void find_path(machine *m, bool make) {
  char directory[BPPSA_CACHE_PATH];
  m->path[0] = '\0';
  if (bppsa_cache_directory(directory, make)) {
    snprintf(m->path, sizeof m->path, "%s/this-machine-%s.json", directory, m->name);
  }
}

/* ---- the file ---- */

static bool has_text(const json_t *object, const char *key, const char *text) {
  const char *found = json_string_value(json_object_get(object, key));
  return found != NULL && strcmp(found, text) == 0;
}

/* Is the document of this processor, this number of ranks and this build? */
static bool fits(const machine *m, const json_t *document, const char *hardware) {
  const json_t *about = json_object_get(document, "measured");
  return has_text(about, "hardware", hardware) && has_text(about, "commit", BPPSA_COMMIT) &&
         json_integer_value(json_object_get(about, "ranks")) == m->ranks;
}

/* Takes the system, and the model's times, from a document. A model whose times it lacks stays as it is. */
static bppsa_status take(const machine *m, const json_t *document, bppsa_oracle_model *model, bppsa_oracle_system *system) {
  const char *where = m->path[0] != '\0' ? m->path : BPPSA_ORACLE_THIS_MACHINE;
  BPPSA_TRY(bppsa_oracle_system_parse(where, document, system));
  const char *asked = bppsa_cli_value(m->cli, BPPSA_OPTION_MODEL)->text;
  return strcmp(asked, m->name) == 0 ? bppsa_oracle_system_times_of(where, document, model) : BPPSA_OK;
}

/* Takes the system and the model's times from the file. Returns false if there is no file, or if it is not good. */
static bool reuse(const machine *m, const bppsa_device *device, bppsa_oracle_model *model, bppsa_oracle_system *system) {
  char hardware[BPPSA_ORACLE_NAME];
  json_t *document = NULL;
  bppsa_calibrate_name(device, hardware);
  if (m->path[0] == '\0' || bppsa_json_load(m->path, &document) != BPPSA_OK) {
    return false;
  }
  const char *date = json_string_value(json_object_get(json_object_get(document, "measured"), "date"));
  const bool good = date != NULL && !bppsa_has_control_characters(date) && fits(m, document, hardware) &&
                    take(m, document, model, system) == BPPSA_OK;
  if (good) {
    bppsa_output_note(&m->cli->to, "%s: measured %s, kept in %s, which may be deleted to measure again",
                      BPPSA_ORACLE_THIS_MACHINE, date, m->path);
  }
  json_decref(document);
  return good;
}

/* ---- the measurement ---- */

static bppsa_status calibrate(bppsa_comm *world, void *context) {
  machine *m = context;
  const bppsa_recurrent_config size = bppsa_recurrent_config_default();
  const bool first = bppsa_ranks_first(world);
  bppsa_device *device = NULL;
  json_t *document = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_calibrate_request request = {.model = m->name,
                                           .batch = m->batch,
                                           .seq_len = size.seq_len,
                                           .hidden = size.hidden,
                                           .layers = size.layers,
                                           .input = size.input,
                                           .quick = true,
                                           .err = first ? m->progress : NULL,
                                           .device = device};
  const bppsa_status status = bppsa_calibrate(world, &request, &document);
  bppsa_device_destroy(device);
  if (first) {
    m->document = document;
  }
  return status;
}

static bppsa_status keep(machine *m) {
  char *text = NULL;
  find_path(m, true);
  if (m->path[0] == '\0') {
    return bppsa_cache_directory_missing();
  }
  BPPSA_TRY(bppsa_json_text(m->document, 1, 0, &text));
  const bppsa_status status = bppsa_file_write(m->path, text, strlen(text));
  bppsa_free(text);
  return status;
}

static void release(void *context) {
  machine *m = context;
  if (atomic_fetch_sub(&m->holders, 1) == 1) {
    json_decref(m->document);
    bppsa_free(m);
  }
}

static bppsa_status measure(machine *m) {
  char time[BPPSA_SI_TEXT];
  const double start = bppsa_now();
  bppsa_comm_config config = bppsa_comm_config_default();
  bppsa_comm_outcome outcome;
  config.ranks = m->ranks;
  config.ended = release;
  atomic_fetch_add(&m->holders, 1);
  BPPSA_TRY(bppsa_job_run(&config, calibrate, m, &outcome));
  bppsa_text_si(bppsa_now() - start, "s", time, sizeof time);
  const bool kept = keep(m) == BPPSA_OK;
  bppsa_output_note(&m->cli->to, "%s: layers of %s, products, and what %" PRId64 " ranks exchange measured in %s; %s%s",
                    BPPSA_ORACLE_THIS_MACHINE, m->name, m->ranks, time,
                    kept ? "kept in " : "not kept: ", kept ? m->path : bppsa_last_error());
  return BPPSA_OK;
}

static bppsa_status open_machine(machine *m, bppsa_oracle_model *model, bppsa_oracle_system *system) {
  bppsa_device *device = NULL;
  find_path(m, false);
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bool known = reuse(m, device, model, system);
  bppsa_device_destroy(device);
  if (known) {
    return BPPSA_OK;
  }
  BPPSA_TRY(measure(m));
  return take(m, m->document, model, system);
}

bppsa_status bppsa_this_machine_open(const bppsa_cli *cli, bppsa_oracle_model *model, bppsa_oracle_system *system) {
  machine *m = bppsa_calloc(1, sizeof *m);
  if (m == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  choose(cli, model, m);
  const bppsa_status status = open_machine(m, model, system);
  release(m);
  return status;
}
