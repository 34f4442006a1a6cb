/* Does a sanitizer slow this program down, or the counting of statements (make coverage)? Tests of long runs then make them
 * shorter, and bounds of time are wider. */
#ifndef BPPSA_TESTS_SUPPORT_SANITIZED_H
#define BPPSA_TESTS_SUPPORT_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZER 1
#endif
#endif
#if defined(SANITIZER) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(BPPSA_COVERAGE)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
