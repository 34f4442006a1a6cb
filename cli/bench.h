/* From options to the settings of a benchmark. */
#ifndef BPPSA_CLI_BENCH_H
#define BPPSA_CLI_BENCH_H

#include "bench/cases/case.h"
#include "cli/command.h"

/* The part of the settings that all benchmarks have. */
bppsa_bench_request bppsa_setup_request(const bppsa_cli *cli, const bppsa_device *device);
/* Sets the point of a recurrent network, or a sweep, for bench rnn, gru, crossover and for figures. `asked->request` must be set.
 * ERR_ARGUMENT: options that contradict each other; ERR_* of the data set. */
bppsa_status bppsa_setup_bench(const bppsa_cli *cli, bppsa_bench_settings *asked);

#endif
