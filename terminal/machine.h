/* The machine a measurement was made on, in words. */
#ifndef BPPSA_TERMINAL_MACHINE_H
#define BPPSA_TERMINAL_MACHINE_H

#include "core/compute/device.h"
#include "core/files/json.h"

/* "sse4.2 avx avx2 fma": what matters to the library's loops and to BLAS; "" when unknown. Returns text. */
const char *bppsa_machine_vector(char *text, size_t size);
#define BPPSA_VECTOR_TEXT 160

/* Now, in UTC: "2026-01-31T12:00:00Z". Returns text. */
const char *bppsa_machine_date(char *text, size_t size);
#define BPPSA_DATE_TEXT 24

/* Bytes this process can still take without swapping: what the kernel calls available, and no more than its control
 * group may hold. */
int64_t bppsa_machine_memory(void);

/* {"name","hardware","threads","vector","blas"}; NULL when out of memory. */
json_t *bppsa_machine_json(const bppsa_device *device);

#endif
