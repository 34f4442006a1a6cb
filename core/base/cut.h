/* How a row of things is cut into parts as evenly as possible: sizes differ by at most one, and the larger parts come first. The
 * chunks of a scan, on every device and in every schedule, and the stages of a pipeline are such parts.
 */
#ifndef BPPSA_CORE_BASE_CUT_H
#define BPPSA_CORE_BASE_CUT_H

#include <stdint.h>

#include "core/base/host_device.h"

/* The index of the first thing in a part, 0 <= part <= parts, of `count` things; count if part = parts. parts >= 1. */
static inline BPPSA_HOST_DEVICE int64_t bppsa_cut(int64_t count, int64_t parts, int64_t part) {
  const int64_t larger = count % parts;
  return part * (count / parts) + (part < larger ? part : larger);
}

/* The part that contains a thing, 0 <= thing < count. */
static inline BPPSA_HOST_DEVICE int64_t bppsa_cut_part(int64_t count, int64_t parts, int64_t thing) {
  const int64_t size = count / parts, larger = count % parts, in_larger = larger * (size + 1);
  return thing < in_larger ? thing / (size + 1) : larger + (thing - in_larger) / size;
}

#endif
