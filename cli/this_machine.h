/* The system this-machine of bppsa oracle: the machine at hand, as a quick calibration (calibrate/calibrate.h) finds it.
 *
 * It is measured when it is first asked for, on as many ranks as there are processors, 2 to 16, a thread each, and kept in the
 * cache (networks/cache_directory.h) as this-machine-MODEL.json, a system file like others. A file of another processor, another
 * number of ranks or another build of the program is measured anew, and so is one that cannot be read. The times of models
 * that the program does not train follow from their FLOPs and the measurement of lenet5. */
#ifndef BPPSA_CLI_THIS_MACHINE_H
#define BPPSA_CLI_THIS_MACHINE_H

#include "cli/command.h"
#include "oracle/system.h"

/* Sets the system, and the times of the model's layers where they were measured. A line on standard error says what was measured,
 * how long it took, and which file keeps it. ERR_* of bppsa_calibrate. */
bppsa_status bppsa_this_machine_open(const bppsa_cli *cli, bppsa_oracle_model *model, bppsa_oracle_system *system);

#endif
