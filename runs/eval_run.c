#include "runs/eval_run.h"

#include <string.h>

#include "distributed/evaluate.h"

void bppsa_eval_run_free(bppsa_eval_run *run) {
  bppsa_outputs_abort(run->out);
  bppsa_model_destroy(run->model);
  bppsa_rank_network_free(&run->on);
  bppsa_dataset_destroy(run->dataset);
  bppsa_device_destroy(run->device);
  bppsa_safetensors_destroy(run->file);
  bppsa_network_close(&run->network);
  *run = (bppsa_eval_run){0};
}

bppsa_status bppsa_eval_run_check_out(const char *out, bool states) {
  static const char suffix[] = ".npz";
  if (states && out == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--states: given without --out, expected --out P.npz too");
  }
  const size_t length = out != NULL ? strlen(out) : 0, end = strlen(suffix);
  return out == NULL || (length >= end && strcmp(out + length - end, suffix) == 0)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: '%s', expected a name that ends in %s", out, suffix);
}

bppsa_status bppsa_eval_run_fit(bppsa_eval_run *run, const char *weights, double validation) {
  bppsa_network_config *c = &run->config;
  BPPSA_TRY(bppsa_dataset_split(run->dataset, validation, &run->split));
  BPPSA_TRY(bppsa_network_fit(&run->network, weights, run->dataset, c));
  const bool held_out = run->split.validation > 0;
  run->first = held_out ? run->split.train : 0;
  run->count = held_out ? run->split.validation : run->split.train;
  c->batch = c->batch < run->count ? c->batch : run->count;
  c->method.backward = BPPSA_BACKWARD_BP; /* a backward pass, which this run has not, would need workspace for a scan */
  return BPPSA_OK;
}

bppsa_status bppsa_eval_run_compute(bppsa_eval_run *run, const char *out, bool states, bppsa_evaluation *result) {
  const bppsa_rank_network *on = &run->on;
  if (on->comm != NULL) {
    bppsa_comm_at(on->comm, "the evaluation", -1);
    if (run->dataset->streams) {
      return bppsa_data_parallel_evaluate_streams(bppsa_rank_network_among(on), &on->parallel, run->model, run->dataset,
                                                  run->device, run->first, run->count, run->config.batch, result);
    }
    return bppsa_ranks_evaluate(bppsa_rank_network_among(on), &on->parallel, run->model, run->dataset, run->device, run->first,
                                run->count, run->config.batch, result);
  }
  if (out != NULL) {
    BPPSA_TRY(bppsa_outputs_open(out, states, &run->network, &run->config, run->dataset, run->device, run->model, run->count,
                                 &run->out));
  }
  const bppsa_evaluation_sink sink = {bppsa_outputs_add, run->out};
  return bppsa_evaluate_each(run->model, run->dataset, run->device, run->first, run->count, run->config.batch,
                             out != NULL ? &sink : NULL, result);
}
