/* `bppsa calibrate`: measures this machine for `bppsa oracle`. */
#include "calibrate/calibrate.h"

#include <string.h>

#include "cli/ranks.h"
#include "cli/setup.h"
#include "core/base/alloc.h"
#include "core/files/rescue.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_MODEL,
     .meaning = &bppsa_meaning_any_model,
     .operand = true,
     .help = "lenet5, vgg11, rnn, gru, lstm or a network's file [lenet5]"},
    BPPSA_USE(LAYERS),
    BPPSA_USE(HIDDEN),
    {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"},
    {.option = BPPSA_OPTION_INPUT, .meaning = &bppsa_meaning_input_size, .fallback = "1", .help = "features of a step"},
    {.option = BPPSA_OPTION_OUT, .required = true, .metavar = "SYSTEM.json", .help = "where the system file goes"},
    {.option = BPPSA_OPTION_RANKS, .fallback = "2", .help = "ranks that exchange messages; levels of 2, 4, .. are measured"},
    BPPSA_USE(TRANSPORT),
    {.option = BPPSA_OPTION_DEVICE, .help = "cuda: of GPUs, only what they exchange, with --transport nccl"},
    BPPSA_USE(TIMEOUT),
    {.option = BPPSA_OPTION_BATCH, .fallback = "16", .help = "samples that a rank computes at once"},
    {.option = BPPSA_OPTION_QUICK, .help = "fewer sizes and passes"},
    {.option = BPPSA_OPTION_SEED, .help = "of weights and inputs"},
    {.option = BPPSA_OPTION_THREADS, .help = "of a rank [the processors, shared by the ranks]"},
    {.option = BPPSA_OPTION_SAVE_COSTS,
     .help = "what the layers, messages and sums cost, for schedule --costs and train --costs"},
    BPPSA_USES_END};

static const char notes[] =
    "Measures the time of the model's layers, of messages and of collective operations by their sizes, and how much ranks slow "
    "each\n"
    "other down. bppsa oracle MODEL SYSTEM.json then projects with these numbers. Under mpirun the ranks are those of MPI.\n"
    "Every measured number comes with its spread: between which two it lies. Rounds of the slowdown end when that is known "
    "within\n"
    "a tenth, or after 120 s of all measurements.\n"
    "The oracle's rnn and gru have T 1000, H 20, one layer and one feature; times of other sizes are for people and "
    "--save-costs.\n";

static bppsa_status write_document(const bppsa_cli *cli, json_t *document, const char *costs) {
  bppsa_text shown = {0};
  char *file = NULL;
  bppsa_status status = bppsa_json_text(document, 1, 0, &file);
  if (status == BPPSA_OK) {
    status = cli->to.json ? bppsa_json_render(json_incref(document), &shown.text) : bppsa_calibrate_text(document, &shown);
  }
  if (status == BPPSA_OK) {
    const bppsa_result_text system = {file, strlen(file)}, of_layers = {costs, costs != NULL ? strlen(costs) : 0};
    const bppsa_result_file files[] = {{bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text, bppsa_save_text, &system},
                                       {bppsa_cli_value(cli, BPPSA_OPTION_SAVE_COSTS)->text, bppsa_save_text, &of_layers}};
    status = bppsa_save_results(2, files);
  }
  bppsa_free(file);
  return bppsa_setup_finish(cli, status, &shown);
}

/* Refuses sizes where no recurrent network is measured. */
static bppsa_status check_sizes(const bppsa_cli *cli, const char *model, bool nccl) {
  static const bppsa_option sizes[] = {BPPSA_OPTION_LAYERS, BPPSA_OPTION_HIDDEN, BPPSA_OPTION_SEQ_LEN, BPPSA_OPTION_INPUT};
  const bppsa_network_kind *kind = bppsa_network_kind_find(model);
  const bool steps = kind != NULL && kind->family->steps;
  for (size_t i = 0; (!steps || nccl) && i < sizeof sizes / sizeof sizes[0]; ++i) {
    if (bppsa_cli_given(cli, sizes[i])) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside %s, expected %s", bppsa_option_get(sizes[i])->name,
                        steps ? "--transport nccl, which measures no layers" : model,
                        steps ? "threads or mpi" : "a recurrent network");
    }
  }
  return BPPSA_OK;
}

static bppsa_status work(bppsa_cli *cli, bppsa_comm *comm) {
  const bppsa_option_value *model = bppsa_cli_value(cli, BPPSA_OPTION_MODEL);
  bppsa_device *device = NULL;
  json_t *document = NULL;
  char *costs = NULL;
  const bool wanted = bppsa_cli_value(cli, BPPSA_OPTION_SAVE_COSTS)->given, nccl = bppsa_ranks_over_nccl(cli);
  if (wanted && nccl) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--save-costs: given beside --transport nccl, which measures no layers, expected threads or mpi");
  }
  const char *name = model->given ? model->text : "lenet5";
  BPPSA_TRY(check_sizes(cli, name, nccl));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  const bppsa_calibrate_request request = {.model = name,
                                           .batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer,
                                           .seq_len = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->integer,
                                           .hidden = bppsa_cli_value(cli, BPPSA_OPTION_HIDDEN)->integer,
                                           .layers = bppsa_cli_value(cli, BPPSA_OPTION_LAYERS)->integer,
                                           .input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->integer,
                                           .quick = bppsa_cli_value(cli, BPPSA_OPTION_QUICK)->given,
                                           .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer,
                                           .err = cli->to.err,
                                           .device = device,
                                           .costs = wanted ? &costs : NULL,
                                           .nccl = nccl};
  bppsa_status status = bppsa_calibrate(comm, &request, &document);
  bppsa_device_destroy(device);
  status = status == BPPSA_OK && bppsa_ranks_first(comm) ? write_document(cli, document, costs) : status;
  bppsa_free(costs);
  json_decref(document);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  return bppsa_ranks_run(cli, work);
}

const bppsa_command bppsa_command_calibrate = {.verb = "calibrate",
                                               .summary = "Measures this machine for bppsa oracle",
                                               .example = "calibrate lenet5 --out here.json --ranks 2",
                                               .notes = notes,
                                               .uses = uses,
                                               .run = run};
