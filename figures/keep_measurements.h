/* Keeps a run's measurements in its directory while it runs. After every piece of work the run replaces the document atomically,
 * so an interrupted run loses at most one piece of work. A resumed run continues after the last piece in the document. */
#ifndef BPPSA_FIGURES_KEEP_MEASUREMENTS_H
#define BPPSA_FIGURES_KEEP_MEASUREMENTS_H

#include "figures/figure.h"

/* Checks that a run to be resumed left a document, and that this run overwrites no measurements of an interrupted one. Ignores
 * files that are not JSON. ERR_ARGUMENT. */
bppsa_status bppsa_keep_check(const bppsa_figures *figures);
/* Loads DIRECTORY/name, the document of the interrupted run, if this run resumes one. Its configuration must be this run's, and
 * its `list` must be an array. *document stays NULL if this run resumes nothing, or if the interrupted run ended before it wrote
 * the document. ERR_ARGUMENT names the setting that differs; ERR_FORMAT. */
bppsa_status bppsa_keep_resume(const bppsa_figures *figures, const char *name, const char *list, json_t **document);
/* Begins a document: takes over the object and adds "configuration" and an empty `list` to it. object: NULL means that there was
 * no memory for it. On failure the object is released. ERR_MEMORY. */
bppsa_status bppsa_keep_begin(const bppsa_figures *figures, json_t *object, const char *list, json_t **document);
/* Writes the document to DIRECTORY/name. finished: written as "finished"; true if the document has all of its measurements.
 * ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_keep_save(const bppsa_figures *figures, const char *name, json_t *document, bool finished);
/* Returns ERR_IO if the run has been told to stop. The message says after which piece it ends (`done`, for example "point 3 of
 * 15") and how to continue. */
bppsa_status bppsa_keep_check_stop(const bppsa_figures *figures, const char *done);

/* ---- parts: {"configuration", "parts": [{"name", "rows"}]}, the run's document ---- */

/* The rows of the part of this name; NULL if the document has no such part. */
const json_t *bppsa_keep_find_part(const bppsa_figures *figures, const char *name);
/* Takes over the rows of a part and writes them to the document. rows: NULL means that there was no memory for them. If the run
 * was told to stop while the rows were made, they are not kept, and the function returns ERR_IO. */
bppsa_status bppsa_keep_part(const bppsa_figures *figures, const char *name, json_t *rows);

#endif
