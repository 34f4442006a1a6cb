#include "cli/train_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bppsa_version.h"
#include "cli/train_checkpoint.h"
#include "core/alloc.h"
#include "core/io.h"

enum { PARTS = 3, KEY_TEXT = 160, NAME_TEXT = 32, PATH_TEXT = 4200, MOST_PRODUCTS = 1 << 16 };

static const char *const parts[PARTS] = {"row_ptr", "col", "slots"};

/* What was kept: arrays borrow from the file. */
typedef struct {
  bppsa_safetensors *file;
  int64_t count;
  bppsa_product_arrays *known;
} kept_plan;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *path_of(const bppsa_train_run *run, char *path) {
  snprintf(path, PATH_TEXT, "%.4095s/%s", run->train.checkpoint, BPPSA_PLAN_FILE);
  return path;
}

/* Everything the products depend on, besides the scan's levels. */
static void make_key(const bppsa_train_run *run, char *key) {
  char identity[32];
  snprintf(key, KEY_TEXT, "bppsa %s %s|%s|%s", BPPSA_VERSION, BPPSA_COMMIT,
           bppsa_network_identity(&run->network, identity, sizeof identity), bppsa_dtype_name(run->config.dtype));
}

/* The algorithm that was asked for, as text. */
static void make_request(const bppsa_train_run *run, char *text, size_t size) {
  const bppsa_recurrent_config *c = &run->config;
  const bppsa_option_value *limit = bppsa_cli_value(run->cli, BPPSA_OPTION_MEMORY_LIMIT);
  if (c->algorithm == BPPSA_SCAN_AUTO) {
    snprintf(text, size, "auto, B %" PRId64 ", memory limit %" PRId64, c->batch, limit->given ? limit->integer : 0);
  } else if (c->algorithm == BPPSA_SCAN_BLELLOCH) {
    snprintf(text, size, "blelloch %" PRId64, c->up_levels);
  } else {
    snprintf(text, size, "%s", bppsa_scan_algorithm_name(c->algorithm));
  }
}

/* ---- what was kept ---- */

static bppsa_view *part_of(bppsa_product_arrays *arrays, int part) {
  return part == 0 ? &arrays->row_ptr : part == 1 ? &arrays->col : &arrays->slots;
}

/* "12.col" into the list; other names are nothing of a plan. */
static bppsa_status take_tensor(kept_plan *kept, const bppsa_named_view *tensor) {
  char *end;
  const long index = strtol(tensor->name, &end, 10);
  for (int part = 0; end != tensor->name && *end == '.' && part < PARTS; ++part) {
    if (strcmp(end + 1, parts[part]) != 0 || index < 0 || index >= kept->count) {
      continue;
    }
    *part_of(&kept->known[index], part) = tensor->view;
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "tensor '%.40s', expected a product's row_ptr, col or slots", tensor->name);
}

static bppsa_status take_tensors(kept_plan *kept) {
  const char *products = bppsa_safetensors_metadata(kept->file, "products");
  kept->count = products != NULL ? strtoll(products, NULL, 10) : 0;
  if (kept->count < 0 || kept->count > MOST_PRODUCTS) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%" PRId64 " products, expected at most %d", kept->count, MOST_PRODUCTS);
  }
  kept->known = bppsa_calloc(kept->count, sizeof *kept->known);
  if (kept->known == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < bppsa_safetensors_count(kept->file); ++i) {
    BPPSA_TRY(take_tensor(kept, bppsa_safetensors_get(kept->file, i)));
  }
  return BPPSA_OK;
}

static void release(kept_plan *kept) {
  bppsa_safetensors_destroy(kept->file);
  bppsa_free(kept->known);
  *kept = (kept_plan){0};
}

/* The kept plan where it is of this network and of the algorithm asked for; nothing where it is not. */
static bppsa_status load(const bppsa_train_run *run, kept_plan *kept, bppsa_recurrent_config *config) {
  char path[PATH_TEXT], key[KEY_TEXT], request[64];
  struct stat info;
  if (stat(path_of(run, path), &info) != 0 && errno == ENOENT) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_safetensors_load(path, &kept->file));
  make_key(run, key);
  make_request(run, request, sizeof request);
  const char *network = bppsa_safetensors_metadata(kept->file, "network");
  const char *asked = bppsa_safetensors_metadata(kept->file, "asked");
  const char *gradients = bppsa_safetensors_metadata(kept->file, "gradients");
  if (network == NULL || asked == NULL || gradients == NULL || strcmp(network, key) != 0 ||
      (strcmp(asked, request) != 0 && strcmp(gradients, request) != 0)) {
    release(kept);
    return BPPSA_OK;
  }
  bppsa_train_checkpoint_parse(gradients, config);
  const bppsa_status status = take_tensors(kept);
  return status == BPPSA_OK || status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(status, "%s", path);
}

/* ---- keeping ---- */

typedef struct {
  int64_t count;
  bppsa_named_view *tensors;
  char (*names)[NAME_TEXT];
} tensor_list;

static int64_t add_product(tensor_list *list, int64_t count, int64_t index, bppsa_product_arrays *arrays) {
  for (int part = 0; arrays->slots.data != NULL && part < PARTS; ++part, ++count) {
    if (list->tensors != NULL) {
      snprintf(list->names[count], NAME_TEXT, "%" PRId64 ".%s", index, parts[part]);
      list->tensors[count] = (bppsa_named_view){list->names[count], *part_of(arrays, part)};
    }
  }
  return count;
}

/* The arrays of all products; *products of them. */
static bppsa_status list_tensors(const bppsa_scan_plan *plan, tensor_list *list, int64_t *products) {
  for (int pass = 0; pass < 2; ++pass) { /* count, then list */
    bppsa_product_arrays arrays;
    int64_t index = 0;
    list->count = 0;
    for (; bppsa_scan_plan_product(plan, index, &arrays); ++index) {
      list->count = add_product(list, list->count, index, &arrays);
    }
    *products = index;
    if (pass == 0) {
      list->tensors = bppsa_calloc(list->count, sizeof *list->tensors);
      list->names = bppsa_calloc(list->count, sizeof *list->names);
      BPPSA_TRY(list->tensors == NULL || list->names == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
    }
  }
  return BPPSA_OK;
}

static bppsa_status save(const bppsa_train_run *run, const char *asked) {
  const bppsa_scan_plan *plan = bppsa_cnn_plan(run->model);
  char path[PATH_TEXT], key[KEY_TEXT], gradients[BPPSA_RUN_FIELD_TEXT], products[24];
  tensor_list list = {0};
  int64_t count = 0;
  if (bppsa_io_mkdir(run->train.checkpoint) != 0 && errno != EEXIST) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot make the directory (%s)", run->train.checkpoint, strerror(errno));
  }
  bppsa_status status = list_tensors(plan, &list, &count);
  if (status == BPPSA_OK) {
    make_key(run, key);
    snprintf(products, sizeof products, "%" PRId64, count);
    const bppsa_metadata metadata[] = {{"network", key},
                                       {"asked", asked},
                                       {"gradients", bppsa_train_checkpoint_text(plan, gradients, sizeof gradients)},
                                       {"products", products}};
    status = bppsa_safetensors_save(path_of(run, path), list.count, list.tensors, sizeof metadata / sizeof metadata[0], metadata);
  }
  bppsa_free(list.tensors);
  bppsa_free(list.names);
  return status;
}

/* ---- creation ---- */

/* From the kept plan; run->model stays NULL where there is none that can be used. */
static bppsa_status create_kept(bppsa_train_run *run) {
  kept_plan kept = {0};
  bppsa_recurrent_config config = run->config;
  bppsa_status status = load(run, &kept, &config);
  if (status == BPPSA_OK && kept.file != NULL) {
    run->network.known_count = kept.count;
    run->network.known = kept.known;
    status = bppsa_network_create(&run->network, &config, run->device, &run->model);
    run->network.known_count = 0;
    run->network.known = NULL;
    if (status == BPPSA_OK) {
      run->config = config;
      run->chosen = run->chosen == BPPSA_CHOSEN_BY_ESTIMATE ? BPPSA_CHOSEN_BY_CHECKPOINT : run->chosen;
    }
  }
  release(&kept);
  if (status != BPPSA_OK && status != BPPSA_ERR_MEMORY) {
    fprintf(run->cli->err, "bppsa: note: the kept plan cannot be used and is made anew: %s\n", bppsa_last_error());
    return BPPSA_OK;
  }
  return status;
}

bppsa_status bppsa_train_plan_create(bppsa_train_run *run) {
  const bool cached = bppsa_cli_value(run->cli, BPPSA_OPTION_CACHE_PLAN)->given;
  const double start = now();
  char asked[64];
  if (cached && run->train.checkpoint == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--cache-plan: given without --checkpoint, expected --checkpoint DIR too");
  }
  if (cached && run->config.backward == BPPSA_BACKWARD_BP) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--cache-plan: given beside --backward bp, expected --backward scan");
  }
  if (cached && bppsa_device_get_kind(run->device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--cache-plan: plans of %s are in its memory alone, expected --device cpu",
                      bppsa_device_get_name(run->device));
  }
  make_request(run, asked, sizeof asked);
  if (cached) {
    BPPSA_TRY(create_kept(run));
    run->plan_kept = run->model != NULL;
  }
  if (run->model == NULL) {
    BPPSA_TRY(bppsa_network_create(&run->network, &run->config, run->device, &run->model));
  }
  run->plan_s = now() - start;
  return cached && !run->plan_kept ? save(run, asked) : BPPSA_OK;
}
