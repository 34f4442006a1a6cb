#include "cli/ranks.h"

#include <inttypes.h>
#include <string.h>

#include "cli/setup.h"
#include "core/compute/pool.h"

/* ---- the work of a rank ---- */

static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  const bppsa_rank_job *job = context;
  bppsa_cli cli = *bppsa_rank_job_cli(job);
  FILE *nowhere = NULL;
  bppsa_option_value *threads = &cli.values[BPPSA_OPTION_THREADS];
  bppsa_option_value *device = &cli.values[BPPSA_OPTION_DEVICE];
  char gpu[BPPSA_RANK_DEVICE];
  if (device->present) { /* a command without --device computes on the processor */
    device->text = bppsa_rank_device(comm, device->text, gpu, sizeof gpu);
  }
  if (!bppsa_ranks_first(comm)) {
    nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL) {
      return bppsa_fail(BPPSA_ERR_IO, "/dev/null: cannot be opened");
    }
    cli.to.out = cli.to.err = nowhere;
  }
  bppsa_comm_at(comm, "the command line", -1);
  bppsa_status status = bppsa_job_agree(comm, bppsa_job_compare(comm, cli.argc, cli.argv));
  if (status == BPPSA_OK && !threads->given) {
    status = bppsa_job_threads(comm, bppsa_pool_cpus(), bppsa_pool_cpu_set(), &threads->integer);
  }
  status = status == BPPSA_OK ? bppsa_rank_job_work(job)(&cli, comm) : status;
  if (nowhere != NULL) {
    fclose(nowhere);
  }
  return status;
}

/* ---- all ranks ---- */

/* Lists of options by what they need: ranks, ranks that share batches, a scan, ranks that execute a schedule. */
static const bppsa_option_use of_ranks[] = {
    BPPSA_USE(SPLIT),      BPPSA_USE(TRANSPORT), BPPSA_USE(TIMEOUT), BPPSA_USE_AS(MICRO_BATCHES, rank_micro_batches),
    BPPSA_USE(GROUP_SIZE), BPPSA_USE(TRACE),     BPPSA_USE(COUNT)};
static const bppsa_option_use of_batches[] = {BPPSA_USE(REDUCTION), BPPSA_USE(REVERSE_FIRST), BPPSA_USE(COUNT)};
static const bppsa_option_use of_scans[] = {BPPSA_USE(ALGORITHM), BPPSA_USE(UP_LEVELS), BPPSA_USE(COUNT)};
static const bppsa_option_use of_chunks[] = {BPPSA_USE(CHUNKS), BPPSA_USE(COUNT)};
static const bppsa_option_use of_files[] = {BPPSA_USE_AS(MICRO_BATCHES, rank_micro_batches),
                                            BPPSA_USE(STAGES),
                                            BPPSA_USE_AS(CHUNKS, stage_chunks),
                                            BPPSA_USE(COSTS),
                                            BPPSA_SCHEDULE_USES,
                                            BPPSA_USE(COUNT)};
static const bppsa_option_use *const of_schedules = of_files + 1; /* without --micro-batches, which ranks along time take too */

bool bppsa_ranks_over_nccl(const bppsa_cli *cli) {
  const bppsa_option_value *transport = bppsa_cli_value(cli, BPPSA_OPTION_TRANSPORT);
  return transport->given && strcmp(transport->text, bppsa_comm_transport_name(BPPSA_COMM_NCCL)) == 0;
}

/* Reads --ranks, --transport and --timeout; *wanted: whether the command runs on ranks. */
static bppsa_status configure(const bppsa_cli *cli, bppsa_comm_config *config, bool *wanted) {
  const bppsa_option_value *transport = bppsa_cli_value(cli, BPPSA_OPTION_TRANSPORT),
                           *ranks = bppsa_cli_value(cli, BPPSA_OPTION_RANKS);
  const bool launched = bppsa_comm_launched();
  *config = (bppsa_comm_config){.transport = launched ? BPPSA_COMM_MPI : BPPSA_COMM_THREADS,
                                .timeout = bppsa_cli_value(cli, BPPSA_OPTION_TIMEOUT)->real};
  if (bppsa_ranks_over_nccl(cli)) {
    const char *device = bppsa_cli_value(cli, BPPSA_OPTION_DEVICE)->text;
    if (device == NULL) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "--transport: nccl carries arrays between GPUs, expected threads or mpi");
    }
    if (strncmp(device, "cuda", 4) != 0) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "--transport: nccl carries arrays between GPUs, expected --device cuda, not %s",
                        device);
    }
  } else if (transport->given) {
    BPPSA_TRY(bppsa_comm_transport_parse(transport->text, &config->transport));
  }
  config->ranks = ranks->given || (ranks->present && config->transport == BPPSA_COMM_THREADS) ? ranks->integer : 0;
  *wanted = config->ranks > 0 || config->transport == BPPSA_COMM_MPI;
  const bppsa_option_use *const lists[] = {of_ranks, of_batches, of_schedules};
  for (int i = 0; !*wanted && i < 3; ++i) {
    BPPSA_TRY(bppsa_setup_refuse(cli, lists[i], "without ranks, expected --ranks P too, or mpirun", ""));
  }
  return BPPSA_OK;
}

/* Runs the job on ranks. A rank that does not return in time keeps the job, which is freed when that rank ends. */
static bppsa_status run_job(const bppsa_cli *cli, bppsa_comm_config *config, bppsa_rank_work work) {
  bppsa_rank_job *job = NULL;
  bppsa_comm_outcome outcome;
  BPPSA_TRY(bppsa_rank_job_create(cli, work, &job));
  config->ended = bppsa_rank_job_release;
  const bppsa_status status = bppsa_job_run(config, run_rank, job, &outcome);
  *cli->elsewhere = !outcome.here;
  bppsa_rank_job_close(job);
  bppsa_rank_job_release(job);
  return status;
}

bppsa_status bppsa_ranks_run(bppsa_cli *cli, bppsa_rank_work work) {
  bppsa_comm_config config;
  bool wanted = false;
  const bppsa_status status = configure(cli, &config, &wanted);
  if (status != BPPSA_OK) {
    return bppsa_ranks_refuse(cli, status);
  }
  return wanted ? run_job(cli, &config, work) : work(cli, NULL);
}

/* ---- requests that are refused before there are ranks ---- */

static bppsa_status refuse(bppsa_comm *comm, void *context) {
  const bppsa_status *status = context;
  return bppsa_job_agree(comm, *status);
}

bppsa_status bppsa_ranks_refuse(const bppsa_cli *cli, bppsa_status status) {
  bppsa_comm_transport_report transports[BPPSA_COMM_TRANSPORT_COUNT];
  if (!bppsa_options_take(cli->command->uses, BPPSA_OPTION_TRANSPORT) || !bppsa_comm_launched()) {
    return status;
  }
  char message[512];
  snprintf(message, sizeof message, "%s", bppsa_last_error());
  bppsa_comm_transports(transports);
  if (!transports[BPPSA_COMM_MPI].found) {
    return bppsa_fail(status, "%s", message);
  }
  const bppsa_comm_config config = {.transport = BPPSA_COMM_MPI, .timeout = bppsa_comm_config_default().timeout};
  (void)bppsa_fail(status, "%s", message);
  bppsa_comm_outcome outcome;
  const bppsa_status refused = bppsa_job_run(&config, refuse, &status, &outcome);
  *cli->elsewhere = !outcome.here;
  return refused;
}

/* ---- the split ---- */

/* Reads --reverse-first, a whole number or auto. */
static bppsa_status read_reverse_first(const bppsa_cli *cli, int64_t *k) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_REVERSE_FIRST);
  bppsa_option_value number;
  if (!value->present || strcmp(value->text, "auto") == 0) {
    *k = value->present ? -1 : 0;
    return BPPSA_OK;
  }
  if (bppsa_option_parse(BPPSA_OPTION_REVERSE_K, value->text, &number) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--reverse-first: '%s', expected %s", value->text,
                      bppsa_option_get(BPPSA_OPTION_REVERSE_FIRST)->expected);
  }
  *k = number.integer;
  return BPPSA_OK;
}

/* Reads --split, for a network. */
static bppsa_status read_split(const bppsa_cli *cli, const bppsa_network *network, int64_t ranks, bppsa_rank_split *split) {
  const char *text = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT)->text;
  const bppsa_status status = bppsa_rank_split_parse(text, ranks, split);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "--split");
  }
  if (split->time > 1 && network->kind->cell == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--split: %s takes images, which have no time, expected batch", network->name);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_schedule(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_schedule *schedule) {
  const bppsa_option_value *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT),
                           *micros = bppsa_cli_value(cli, BPPSA_OPTION_MICRO_BATCHES);
  bool asked = false;
  if (comm == NULL) {
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_rank_schedule_find(split->text, &asked);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "--split");
  }
  const bool one = micros->given && bppsa_comm_size(comm) == 1 && !split->given, file = bppsa_rank_schedule_is_file(split->text);
  if (!asked && !one) {
    return bppsa_setup_refuse(cli, of_schedules, "without a schedule, expected --split SCHEME of bppsa schedule --list too", "");
  }
  const char *beside = one ? "--ranks 1 --micro-batches" : split->text;
  BPPSA_TRY(bppsa_setup_refuse(cli, of_batches, "beside a schedule, expected --split batch, not ", beside));
  BPPSA_TRY(bppsa_setup_refuse(cli, of_scans,
                               "for a scan beside a schedule, which has none, expected --split batch or time, not ", beside));
  BPPSA_TRY(bppsa_setup_stage_chunks(cli)
                ? BPPSA_OK
                : bppsa_setup_refuse(
                      cli, of_chunks,
                      "for a scan beside a schedule, which has none, expected --split batch, time or interleaved, not ", beside));
  if (file) {
    BPPSA_TRY(bppsa_setup_refuse(cli, of_files, "beside a schedule's file, expected in the first row of ", beside));
  }
  *schedule = (bppsa_rank_schedule){.split = one ? "gpipe" : split->text,
                                    .one_device = one,
                                    .cut = bppsa_cli_value(cli, BPPSA_OPTION_CUT)->text,
                                    .costs = bppsa_cli_value(cli, BPPSA_OPTION_COSTS)->text,
                                    .config = bppsa_schedule_config_default()};
  schedule->config.stages = 0;
  schedule->config.micro_batches = micros->given ? micros->integer : 0;
  const bppsa_status taken = bppsa_scheme_options(cli, file ? NULL : schedule->split, &schedule->config);
  return taken == BPPSA_OK || !one ? taken : bppsa_fail_prefix(taken, "%s, which executes gpipe without --split", beside);
}

static bppsa_reduction reduction_of(const bppsa_cli *cli) {
  return bppsa_cli_value(cli, BPPSA_OPTION_REDUCTION)->choice == 1 ? BPPSA_REDUCTION_LIBRARY : BPPSA_REDUCTION_ORDERED;
}

bppsa_status bppsa_ranks_layers(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_layers *layers) {
  static const bppsa_option_use others[] = {BPPSA_USE(REVERSE_FIRST), BPPSA_USE_AS(MICRO_BATCHES, rank_micro_batches),
                                            BPPSA_USE(COUNT)};
  const char *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT)->text;
  const bppsa_option_value *group = bppsa_cli_value(cli, BPPSA_OPTION_GROUP_SIZE);
  if (comm == NULL) {
    return BPPSA_OK;
  }
  bppsa_rank_layers_find(split, layers);
  if (group->given && !layers->groups) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--group: given beside --split %s, expected --split data+spatial or data+filter",
                      split);
  }
  layers->config.group = group->given ? group->integer : 0;
  layers->config.reduction = reduction_of(cli);
  return layers->split == NULL
             ? BPPSA_OK
             : bppsa_setup_refuse(cli, others, "beside ranks that share layers, expected --split batch, not ", split);
}

bppsa_status bppsa_ranks_split(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, bppsa_rank_split *split) {
  const bppsa_option_value *ranks = bppsa_cli_value(cli, BPPSA_OPTION_RANKS);
  *split = (bppsa_rank_split){0};
  if (!ranks->given) {
    return bppsa_cli_given(cli, BPPSA_OPTION_SPLIT)
               ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--split: given without --ranks, expected --ranks P too")
               : BPPSA_OK;
  }
  BPPSA_TRY(read_split(cli, network, ranks->integer, split));
  return bppsa_rank_network_check(split, batch, "a batch");
}

bppsa_status bppsa_ranks_setup(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, const char *what,
                               int64_t at_once, bppsa_rank_network *ranks, bppsa_network_config *config) {
  if (ranks->comm == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(read_split(cli, network, bppsa_comm_size(ranks->comm), &ranks->split));
  BPPSA_TRY(bppsa_rank_network_check(&ranks->split, batch, what));
  if (ranks->split.time > 1 && ranks->split.batch == 1 && reduction_of(cli) == BPPSA_REDUCTION_LIBRARY) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--reduction: library beside ranks that share time alone, which add up in their order, "
                                          "expected --split batch, or time:P,batch:Q");
  }
  ranks->nccl = bppsa_ranks_over_nccl(cli);
  ranks->parallel = bppsa_data_parallel_config_default();
  ranks->parallel.batch = batch;
  ranks->parallel.reduction = reduction_of(cli);
  BPPSA_TRY(read_reverse_first(cli, &ranks->parallel.reverse_first));
  config->delayed = ranks->parallel.reverse_first < 0 ? INT64_MAX : ranks->parallel.reverse_first;
  config->batch = at_once > 0 ? at_once : bppsa_rank_network_samples(ranks);
  BPPSA_TRY(bppsa_rank_network_forward(ranks, at_once > 0 ? at_once : batch, config));
  const bppsa_option_value *micros = bppsa_cli_value(cli, BPPSA_OPTION_MICRO_BATCHES);
  ranks->micro_batches = micros->integer;
  return bppsa_rank_network_check_micro_batches(ranks, micros->given, bppsa_options_take(cli->command->uses, BPPSA_OPTION_STAGES),
                                                config->batch);
}
