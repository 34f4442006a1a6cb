#include "python/xla_layers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "python/passes.h"
#include "recurrent/cell.h"

enum { KEPT = 64 };

typedef bppsa_xla_layer entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *list[KEPT];
static uint64_t stamps;

static void destroy_entry(entry *e) {
  if (e != NULL) {
    bppsa_layer_destroy(e->layer);
    bppsa_device_destroy(e->device);
    free(e);
  }
}

static bppsa_status fill_entry(const bppsa_xla_key *key, entry *e) {
  const bppsa_cell *cell;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  BPPSA_TRY(bppsa_python_find_cell(key->cell, &cell));
  config.seq_len = key->steps;
  config.batch = key->batch;
  config.input = key->input;
  config.hidden = key->hidden;
  config.no_bias = !key->biases;
  config.lengths = key->lengths;
  config.resets = key->resets;
  config.reset_state = key->reset_state;
  config.dtype = key->f64 ? BPPSA_F64 : BPPSA_F32;
  config.nonlinearity = key->relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  config.input_gradients = true; /* so that forward and backward have one layer, whatever gradients are wanted */
  BPPSA_TRY(bppsa_gradient_method_parse(key->method, &config.method));
  BPPSA_TRY(bppsa_forward_parse(key->forward, &config.forward.kind));
  BPPSA_TRY(bppsa_python_open_device(key->threads, (int32_t)(key->gpu - 1), NULL, &e->device));
  BPPSA_TRY(bppsa_layer_create(&config, cell, e->device, &e->layer));
  bppsa_layer_bytes(e->layer, &e->sizes);
  BPPSA_TRY(bppsa_layer_tangent_bytes(e->layer, &e->tangent, &e->second));
  BPPSA_TRY(bppsa_layer_second_tangent_bytes(e->layer, &e->third));
  e->pair = cell->pair;
  e->key = *key;
  e->users = 1;
  return BPPSA_OK;
}

/* Under the lock: the entry with that key, which then has one user more, or NULL. */
static entry *find_entry(const bppsa_xla_key *key) {
  for (int k = 0; k < KEPT; ++k) {
    if (list[k] != NULL && memcmp(&list[k]->key, key, sizeof *key) == 0) {
      list[k]->users += 1;
      list[k]->stamp = ++stamps;
      return list[k];
    }
  }
  return NULL;
}

/* Puts the entry into the list, under the lock. In a full list it takes the place of the least recently used entry that is not in
 * use, which is returned. Where all are in use the entry is not kept. */
static entry *keep_entry(entry *e) {
  int place = -1;
  for (int k = 0; k < KEPT && (place < 0 || list[place] != NULL); ++k) {
    if (list[k] == NULL || (list[k]->users == 0 && (place < 0 || list[k]->stamp < list[place]->stamp))) {
      place = k;
    }
  }
  if (place < 0) {
    return NULL;
  }
  entry *old = list[place];
  list[place] = e;
  e->kept = true;
  e->stamp = ++stamps;
  return old;
}

bppsa_status bppsa_xla_take_layer(const bppsa_xla_key *key, entry **layer) {
  (void)pthread_mutex_lock(&lock);
  entry *e = find_entry(key);
  (void)pthread_mutex_unlock(&lock);
  if (e == NULL) {
    entry *made = calloc(1, sizeof *made), *dropped = NULL;
    if (made == NULL) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "no memory for %zu bytes", sizeof *made);
    }
    const bppsa_status status = fill_entry(key, made);
    if (status != BPPSA_OK) {
      destroy_entry(made);
      return status;
    }
    (void)pthread_mutex_lock(&lock);
    e = find_entry(key); /* another thread may have made it meanwhile */
    if (e == NULL) {
      e = made;
      dropped = keep_entry(made);
    } else {
      dropped = made;
    }
    (void)pthread_mutex_unlock(&lock);
    destroy_entry(dropped);
  }
  *layer = e;
  return BPPSA_OK;
}

void bppsa_xla_give_back(entry *e) {
  (void)pthread_mutex_lock(&lock);
  e->users -= 1;
  const bool kept = e->kept;
  (void)pthread_mutex_unlock(&lock);
  if (!kept) {
    destroy_entry(e);
  }
}

int64_t bppsa_python_xla_kept(void) {
  int64_t count = 0;
  (void)pthread_mutex_lock(&lock);
  for (int k = 0; k < KEPT; ++k) {
    count += list[k] != NULL;
  }
  (void)pthread_mutex_unlock(&lock);
  return count;
}
