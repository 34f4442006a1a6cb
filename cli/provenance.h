/* Where a result comes from, with everything that is needed to compute it again. */
#ifndef BPPSA_CLI_PROVENANCE_H
#define BPPSA_CLI_PROVENANCE_H

#include "cli/command.h"

/* Members of a JSON object: version, commit, command (the words of the command line), inputs: {option, path, size_bytes,
 * file_count} for every file and directory that was read. A directory's size is the sum of the files in it; null where it cannot
 * be determined. */
bool bppsa_provenance_json(json_t *object, const bppsa_cli *cli);

#endif
