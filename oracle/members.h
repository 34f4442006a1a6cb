/* Reads members of the oracle's files: numbers within their ranges, and texts. Refuses members that a format does not have. */
#ifndef BPPSA_ORACLE_MEMBERS_H
#define BPPSA_ORACLE_MEMBERS_H

#include <stddef.h>

#include "core/base/text.h"
#include "core/files/json.h"

typedef struct {
  const char *name;
  double *value; /* unchanged if the member is absent */
  double low, high;
  bool whole; /* the number must have no fraction */
} bppsa_oracle_member;

/* Does the name mean a file? Such a name ends in .json, and nothing built in has it. */
bool bppsa_oracle_is_file(const char *name);
/* ERR_FORMAT: the document is no object, or has a member that is not in `names` (NULL-terminated); the message suggests one. */
bppsa_status bppsa_oracle_known(const char *where, const json_t *object, const char *const *names);
/* Reads a required text that fits into `size` bytes with its final 0, is not empty, and has no control characters, because
 * programs print it. ERR_FORMAT names the member. */
bppsa_status bppsa_oracle_text(const char *where, const json_t *object, const char *name, size_t size, char *text);
/* Reads optional numbers within their ranges, both ends allowed. ERR_FORMAT names the member, its value and what was expected. */
bppsa_status bppsa_oracle_numbers(const char *where, const json_t *object, size_t count, const bppsa_oracle_member *members);

#endif
