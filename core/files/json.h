/* JSON through jansson, with the project's error messages.
 *
 * jansson's allocator and the seed of its hash tables belong to the whole process, so they stay as they are: jansson's own
 * memory is not core/base/alloc's, and its seed is random, which no prepared keys can make slow.
 */
#ifndef BPPSA_CORE_FILES_JSON_H
#define BPPSA_CORE_FILES_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of bytes that is parsed. The worst text of this length takes 0.7 GiB and half a second. Long lists of
 * numbers are better kept as NPY. */
#define BPPSA_JSON_LIMIT ((int64_t)8 << 20)

/* Parses `size` bytes of text; `where` names the source in messages. Duplicate keys are refused, nesting is capped by jansson.
 * ERR_FORMAT names line, column and byte, or says that the text is longer than the limit. ERR_MEMORY: less memory is free than the
 * largest value of a text of this size needs, which is 96 bytes for each byte. ERR_ARGUMENT: NULL, or a negative size. */
bppsa_status bppsa_json_parse(const char *where, const char *text, int64_t size, json_t **value);
/* As bppsa_json_parse for a text that lies at byte `offset` of its source: messages count from the source's first byte. */
bppsa_status bppsa_json_parse_at(const char *where, const char *text, int64_t size, int64_t offset, json_t **value);
/* Reads and parses a file. */
bppsa_status bppsa_json_load(const char *path, json_t **value);

/* Text of a value (owned, bppsa_free). indent 0: one line. Reals keep 17 significant digits when `digits` is 0.
 * ERR_ARGUMENT, ERR_MEMORY. */
bppsa_status bppsa_json_text(const json_t *value, int indent, int digits, char **text);

/* The text of one JSON document in one line (owned, bppsa_free). Releases the document. document: NULL means that there was no
 * memory to build it. Render before you write result files, so that running out of memory leaves no file behind. ERR_MEMORY. */
bppsa_status bppsa_json_render(json_t *document, char **text);

/* Did the system refuse memory to this thread since the last call (errno says so)? For callers that got NULL or -1 from jansson,
 * which returns these also for text that is not UTF-8. */
bool bppsa_json_out_of_memory(void);

/* What a value is, for messages: its number, "a text", "a list of 3", "null", .., "missing" where there is none (NULL). Returns
 * text or a constant. */
#define BPPSA_JSON_FOUND 40
const char *bppsa_json_found(const json_t *value, char text[BPPSA_JSON_FOUND]);

/* A real, or null where JSON has no word for it (NaN and the infinities). NULL when out of memory. */
json_t *bppsa_json_real(double value);

/* Sets object[key] and takes over the value; false when there was no memory, for the value or for the entry. */
bool bppsa_json_put(json_t *object, const char *key, json_t *value);
bool bppsa_json_put_integer(json_t *object, const char *key, int64_t value);
bool bppsa_json_put_real(json_t *object, const char *key, double value);
/* A text, in which '?' stands for bytes that are no UTF-8, as paths may have them; NULL: no memory. */
json_t *bppsa_json_string(const char *value);
bool bppsa_json_put_text(json_t *object, const char *key, const char *value);
bool bppsa_json_put_shape(json_t *object, const char *key, int32_t ndim, const int64_t *shape); /* a list of numbers */
bool bppsa_json_put_bool(json_t *object, const char *key, bool value);
/* Returns the object if ok; otherwise releases it and returns NULL. */
json_t *bppsa_json_finish(json_t *object, bool ok);

#ifdef __cplusplus
}
#endif
#endif
