/* Copies into arrays that exceed the caches and are not read again soon. The stores bypass the caches, so that the caches need not
 * read the lines first and keep what they hold. */
#ifndef BPPSA_CORE_COMPUTE_STREAM_H
#define BPPSA_CORE_COMPUTE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define BPPSA_STREAM_BYTES ((int64_t)8 << 20) /* arrays of more bytes exceed the caches */

/* Copies `bytes` bytes; with `stream`, and if they are many enough, past the caches. bppsa_stream_end must follow before another
 * thread reads them. */
static inline void bppsa_stream_copy(void *to, const void *from, size_t bytes, bool stream) {
#if defined(__x86_64__)
  char *t = to;
  const char *f = from;
  if (stream && bytes >= 256) {
    const size_t head = (size_t)(-(uintptr_t)t & 15);
    memcpy(t, f, head);
    size_t at = head;
    for (; at + 16 <= bytes; at += 16) {
      _mm_stream_si128((__m128i *)(void *)(t + at), _mm_loadu_si128((const __m128i *)(const void *)(f + at)));
    }
    memcpy(t + at, f + at, bytes - at);
    return;
  }
#else
  (void)stream;
#endif
  memcpy(to, from, bytes);
}

static inline void bppsa_stream_end(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

#endif
