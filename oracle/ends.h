/* How the spread of a measured system changes projections, and which warnings follow from it.
 *
 * bppsa calibrate writes, for each number, the range in which it lies (oracle/system.h). A projection is linear in these numbers:
 * at an end of the spread each phase's time is multiplied by a factor. */
#ifndef BPPSA_ORACLE_ENDS_H
#define BPPSA_ORACLE_ENDS_H

#include "oracle/system.h"

/* Does the system say how far its numbers spread? */
bool bppsa_oracle_has_spread(const bppsa_oracle_system *system);
/* Returns how many times longer computing takes at an end of the slowdown's spread, if `processors` compute at once. */
double bppsa_oracle_slowdown_factor(const bppsa_oracle_system *system, double processors, bppsa_oracle_end end);
/* Returns the factors by which the times of an operation among p processors spread. */
bppsa_oracle_spread bppsa_oracle_operation_spread(const bppsa_oracle_system *system, int64_t p, bppsa_oracle_operation operation);

/* Writes a warning if a level's processors gain nothing: within the spread they take as long side by side as one after the other.
 * Otherwise writes "". Returns text. */
enum { BPPSA_ORACLE_WARNING = 240 };
const char *bppsa_oracle_level_warning(const bppsa_oracle_level *level, char text[BPPSA_ORACLE_WARNING]);

/* Makes a list of all levels' warnings; NULL when out of memory. */
json_t *bppsa_oracle_warnings_json(const bppsa_oracle_system *system);

#endif
