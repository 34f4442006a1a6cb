/* Checks a cell's table: is it consistent, and does it have what a configuration needs? */
#include <string.h>

#include "recurrent/recurrent_internal.h"

bppsa_status bppsa_recurrent_check_cell(const bppsa_recurrent_config *config, const bppsa_cell *cell) {
  enum { MOST_NAME = 15 };
  if (cell->name == NULL || cell->name[0] == '\0' || strlen(cell->name) > MOST_NAME) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cell: name '%s', expected 1 .. %d characters", cell->name == NULL ? "" : cell->name,
                      MOST_NAME);
  }
  const int64_t most = cell->gates < BPPSA_CELL_MATRICES ? cell->gates : BPPSA_CELL_MATRICES;
  const struct {
    const char *name;
    int64_t value, least, most;
  } counts[] = {{"gates", cell->gates, 1, INT32_MAX},
                {"matrices", cell->matrices, 1, most},
                {"split_from", cell->split_from, 0, cell->gates},
                {"saved", cell->saved, 0, INT32_MAX}};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    if (counts[i].value < counts[i].least || counts[i].value > counts[i].most) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "cell '%s': %s is %lld, expected %lld .. %lld", cell->name, counts[i].name,
                        (long long)counts[i].value, (long long)counts[i].least, (long long)counts[i].most);
    }
  }
  if (cell->pair && !cell->diagonal) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cell '%s': a pair without a diagonal, expected e, which leads from c to c",
                      cell->name);
  }
  if (config->nonlinearity != BPPSA_NONLINEARITY_TANH && !cell->relu) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: nonlinearity %d, expected tanh: the cell has no other", cell->name,
                      (int)config->nonlinearity);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_check_entries(const recurrent_network *n) {
  const bppsa_cell *cell = n->cell;
  const int wide = n->config.dtype == BPPSA_F64;
  bool scans = false, sweeps = false;
  for (int64_t l = 0; l < bppsa_recurrent_layers(&n->config); ++l) {
    scans = scans || n->backend->runs_scan(n, n->layers[l].plan);
    sweeps = sweeps || !n->backend->runs_scan(n, n->layers[l].plan);
  }
  const struct {
    bool wanted;
    bppsa_cell_fn function;
    const char *name, *what;
  } entries[] = {{true, cell->forward[wide], "forward", "forward pass"},
                 {sweeps, cell->backward[wide], "backward", "sequential backward pass"},
                 {n->config.reset_state, cell->backward[wide], "backward", "gradients of the states in front of resets"},
                 {scans, cell->coefficients[wide], "coefficients", "factors of its Jacobian"},
                 {scans, cell->deltas[wide], "deltas", "deltas behind a scan"}};
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
    if (entries[i].wanted && entries[i].function == NULL) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s on a CPU: the cell has no %s in %s, expected an entry '%s' in its table",
                        cell->name, entries[i].what, bppsa_dtype_name(n->config.dtype), entries[i].name);
    }
  }
  return BPPSA_OK;
}
