/* What the `data` commands share. */
#ifndef BPPSA_CLI_DATA_H
#define BPPSA_CLI_DATA_H

#include "cli/command.h"
#include "core/device.h"
#include "train/data/dataset.h"

/* Writes a data set to --out-x and --out-y with progress, and says what was written, for people or as JSON. */
bppsa_status bppsa_data_write(bppsa_cli *cli, const bppsa_device *device, const bppsa_dataset *dataset, bppsa_dtype dtype);

#endif
