/* The range in which a measured number lies: the member "spread" of system files. */
#ifndef BPPSA_ORACLE_SPREAD_H
#define BPPSA_ORACLE_SPREAD_H

#include "core/files/json.h"

/* A measured number lies between these two. */
typedef struct {
  double low, high; /* high 0: not known */
} bppsa_oracle_spread;

/* The ends of a spread, and the number that was measured. */
typedef enum { BPPSA_END_LOW = -1, BPPSA_END_MIDDLE = 0, BPPSA_END_HIGH = 1 } bppsa_oracle_end;

bool bppsa_oracle_spread_known(bppsa_oracle_spread spread);
/* Returns the number at an end; `middle` if the spread is not known. */
double bppsa_oracle_spread_at(bppsa_oracle_spread spread, double middle, bppsa_oracle_end end);

/* Returns the spread as factors of `middle`; not known if nothing was measured, or 0. */
bppsa_oracle_spread bppsa_oracle_spread_factors(bppsa_oracle_spread spread, double middle);
/* Returns the smallest spread that holds both; one that is not known adds nothing. */
bppsa_oracle_spread bppsa_oracle_spread_join(bppsa_oracle_spread a, bppsa_oracle_spread b);

/* A member of "spread": two numbers, the smaller first, with `middle` between them. They are above 0; seconds may be 0. */
typedef struct {
  const char *name;
  double middle;
  bppsa_oracle_spread *spread;
  bool seconds;
} bppsa_oracle_spread_member;
enum { BPPSA_ORACLE_MOST_SPREADS = 8 /* most members of a "spread" */ };

/* Reads the members of the object's "spread"; absent members leave their spreads unchanged. ERR_FORMAT names what is wrong. */
bppsa_status bppsa_oracle_spread_parse(const char *where, const json_t *object, size_t count,
                                       const bppsa_oracle_spread_member *members);
/* Makes [low, high]; NULL when out of memory. */
json_t *bppsa_oracle_spread_json(bppsa_oracle_spread spread);
/* Puts "spread" with the members that are known into the object; false when out of memory. */
bool bppsa_oracle_spread_put(json_t *object, size_t count, const bppsa_oracle_spread_member *members);

#endif
