/* Status codes and the thread's last error.
 *
 * Every fallible function of the library returns a bppsa_status; its outputs come last and are
 * untouched on failure. bppsa_last_error() then says, in one line, what was wrong, where, and what was
 * expected. The library never prints and never exits.
 */
#ifndef BPPSA_CORE_BASE_STATUS_H
#define BPPSA_CORE_BASE_STATUS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_OK = 0,
  BPPSA_ERR_ARGUMENT,    /* a value out of its range, an unknown name */
  BPPSA_ERR_SHAPE,       /* shapes or dtypes that do not fit together */
  BPPSA_ERR_MEMORY,      /* an allocation failed, or would not fit in 64 bits */
  BPPSA_ERR_UNSUPPORTED, /* a combination that no backend implements, a device that this machine lacks */
  BPPSA_ERR_NUMERIC,     /* a non-finite value */
  BPPSA_ERR_IO,          /* the operating system refused to read, write or rename */
  BPPSA_ERR_FORMAT,      /* a file that is not what it claims to be; the message names the byte */
  BPPSA_ERR_CUDA,        /* the CUDA runtime or one of its libraries failed */
  BPPSA_ERR_COMM,        /* a transport failed or a rank died */
  BPPSA_ERR_LIBRARY      /* a shared library is missing, or is of a build that does not fit; the message names the package */
} bppsa_status;

/* The code's name without prefix: "ERR_SHAPE". Never NULL. */
const char *bppsa_status_name(bppsa_status status);

/* The message of this thread's latest failure: one line, no newline. Valid until the thread's next failure.
 * "" when nothing has failed yet. */
const char *bppsa_last_error(void);

/* Records the message (printf format, cut at 511 bytes, made printable) and returns `status`:
 *     return bppsa_fail(BPPSA_ERR_SHAPE, "h0: shape [%lld], expected [%lld]", ...);
 */
bppsa_status bppsa_fail(bppsa_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Puts the text of `format` in front of the last error, as "PREFIX: MESSAGE", and returns `status`: for callers that know the
 * file or option which a lower layer does not know. */
bppsa_status bppsa_fail_prefix(bppsa_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The status of reading a file that a user names: a file that cannot be read is a wrong request, so ERR_IO becomes ERR_ARGUMENT. */
bppsa_status bppsa_input_status(bppsa_status status);

/* Has the text a control character: a byte below 0x20, 0x7F, or in UTF-8 one of U+0080 .. U+009F (C1)? A terminal may obey such
 * characters, and a line feed ends the line, so a name from a file that has one is refused. */
bool bppsa_has_control_characters(const char *text);
/* Makes a text that quotes a file fit to be printed as valid UTF-8: replaces each byte of a control character, and each byte that
 * is no part of a UTF-8 character, by '?'. A character that was cut at the text's end is replaced too. */
void bppsa_make_printable(char *text);

/* Returns early with the status of `call` when it failed. For functions that hold nothing to release. */
#define BPPSA_TRY(call)                                                                                                          \
  do {                                                                                                                           \
    bppsa_status bppsa_try_status_ = (call);                                                                                     \
    if (bppsa_try_status_ != BPPSA_OK) {                                                                                         \
      return bppsa_try_status_;                                                                                                  \
    }                                                                                                                            \
  } while (0)

/* Refuses a call whose arguments do not fulfil `condition`: ERR_ARGUMENT, "FUNCTION: expected CONDITION". */
#define BPPSA_REQUIRE(condition)                                                                                                 \
  do {                                                                                                                           \
    if (!(condition)) {                                                                                                          \
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: expected %s", __func__, #condition);                                            \
    }                                                                                                                            \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
