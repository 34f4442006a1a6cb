/* What `figures` measures, kept in its directory as it goes: after every piece of work the document is written anew, atomically,
 * so that an interrupted run loses one piece at most, and --resume goes on behind the last one that is there. */
#ifndef BPPSA_CLI_FIGURES_KEEP_H
#define BPPSA_CLI_FIGURES_KEEP_H

#include "cli/figures.h"

/* Everything that decides what is measured, option by option, with the program's version and the machine; also in the documents
 * as "configuration". Threads as they came out. NULL when out of memory. */
json_t *bppsa_figures_configuration(const bppsa_cli *cli, const bppsa_device *device);
/* With --resume, the document that an interrupted run left as DIRECTORY/name: its configuration must be the same, and `list` must
 * be an array in it. *document stays NULL (and the status OK) without --resume, and where the run ended before it had any.
 * ERR_ARGUMENT names what differs; ERR_FORMAT. */
bppsa_status bppsa_figures_resume(const bppsa_figures *figures, const char *name, const char *list, json_t **document);
/* Without --resume: ERR_ARGUMENT where DIRECTORY/name says that its run has not finished. A new run would overwrite what that
 * one measured. A file that is no JSON is nothing that was kept. */
bppsa_status bppsa_figures_check_overwrite(const bppsa_figures *figures, const char *name);
/* Writes the document as DIRECTORY/name, with "finished": whether all is in it that the run measures for it. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_figures_keep(const bppsa_figures *figures, const char *name, json_t *document, bool finished);
/* ERR_IO once a signal has come: the run ends after `done` ("point 3 of 15"), and the message says how to go on. */
bppsa_status bppsa_figures_check_interrupt(const bppsa_figures *figures, const char *done);

#endif
