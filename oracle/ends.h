/* What the spread of a measured system makes of projections, and what it warns of.
 *
 * bppsa calibrate writes between which two numbers each of them lies (oracle/system.h). A projection is linear in them: at an end
 * of the spread each phase takes a factor of its time. */
#ifndef BPPSA_ORACLE_ENDS_H
#define BPPSA_ORACLE_ENDS_H

#include "oracle/system.h"

/* Does the system say how far its numbers spread? */
bool bppsa_oracle_has_spread(const bppsa_oracle_system *system);
/* How many times longer computing takes at an end of the slowdown's spread, while `processors` compute at once. */
double bppsa_oracle_slowdown_factor(const bppsa_oracle_system *system, double processors, bppsa_oracle_end end);
/* The factors of an operation's times among p processors. */
bppsa_oracle_spread bppsa_oracle_operation_spread(const bppsa_oracle_system *system, int64_t p, bppsa_oracle_operation operation);

/* A sentence about a level whose processors compute as long side by side as one after the other, within the spread, so that they
 * gain nothing; "" about others. Returns text. */
enum { BPPSA_ORACLE_WARNING = 240 };
const char *bppsa_oracle_level_warning(const bppsa_oracle_level *level, char text[BPPSA_ORACLE_WARNING]);

/* These sentences of all levels, a list of texts; NULL when out of memory. */
json_t *bppsa_oracle_warnings_json(const bppsa_oracle_system *system);

#endif
