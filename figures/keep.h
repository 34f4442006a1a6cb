/* What a run measures, kept in its directory as it goes: after every piece of work the document is written anew, atomically, so
 * that an interrupted run loses one piece at most, and a resumed one goes on behind the last one that is there. */
#ifndef BPPSA_FIGURES_KEEP_H
#define BPPSA_FIGURES_KEEP_H

#include "figures/figure.h"

/* What is to be resumed is there, and nothing that an interrupted run measured is overwritten by this one. A file that is no JSON
 * is nothing that was kept. ERR_ARGUMENT. */
bppsa_status bppsa_keep_check(const bppsa_figures *figures);
/* Opens DIRECTORY/name: where the run resumes, the document that an interrupted one left, whose configuration must be the same
 * and whose `list` must be an array; otherwise, and where that run ended before it had any, *document stays NULL. ERR_ARGUMENT
 * names what differs; ERR_FORMAT. */
bppsa_status bppsa_keep_resume(const bppsa_figures *figures, const char *name, const char *list, json_t **document);
/* Begins a document, an object that this takes over (NULL: it found no memory), with "configuration" and an empty `list`. On
 * failure it is released. ERR_MEMORY. */
bppsa_status bppsa_keep_begin(const bppsa_figures *figures, json_t *object, const char *list, json_t **document);
/* Writes the document as DIRECTORY/name, with "finished": whether all is in it that the run measures for it. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_keep_save(const bppsa_figures *figures, const char *name, json_t *document, bool finished);
/* ERR_IO once the run is to stop: it ends after `done` ("point 3 of 15"), and the message says how to go on. */
bppsa_status bppsa_keep_check_stop(const bppsa_figures *figures, const char *done);

/* ---- parts: {"configuration", "parts": [{"name", "rows"}]}, the run's document ---- */

/* The rows of a part that is there; NULL otherwise. */
const json_t *bppsa_keep_find_part(const bppsa_figures *figures, const char *name);
/* Keeps the rows (taken over; NULL: there was no memory) unless the run was told to stop while they were made: then it ends,
 * ERR_IO. */
bppsa_status bppsa_keep_part(const bppsa_figures *figures, const char *name, json_t *rows);

#endif
