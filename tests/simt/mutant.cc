/* Which place is broken, and which were come by (mutant.h). */
#include "tests/simt/mutant.h"

#include <cxxabi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>
#include <string>
#include <tuple>

#include "tests/simt/simt.h"

/* Of the test's library, where it has one. */
extern "C" void cmocka_set_test_filter(const char *pattern) __attribute__((weak));

namespace {

const char *const names[] = {"off", "own", "none", "every", "beside", "width", "mask"};

/* What the environment asks for, read once; at the end of the program the places are written. */
struct watcher {
  const char *places = getenv("SIMT_PLACES"), *wanted = getenv("SIMT_MUTANT"), *test = getenv("SIMT_TEST");
  std::string file, real; /* of the place that is broken */
  unsigned line = 0, column = 0;
  simt_mutant mutant = MUTANT_OFF;
  std::set<std::tuple<const char *, unsigned, unsigned, const char *, const char *>> seen; /* a place, its real and its kernel */

  watcher() {
    if (wanted != nullptr && !read(wanted)) {
      fprintf(stderr, "simt: SIMT_MUTANT=%s, expected FILE:LINE:COLUMN:REAL:own, none, every, beside, width or mask\n", wanted);
      abort();
    }
    if (test != nullptr && cmocka_set_test_filter == nullptr) {
      fprintf(stderr, "simt: SIMT_TEST=%s: this program has no tests of cmocka\n", test);
      abort();
    }
    if (test != nullptr) {
      cmocka_set_test_filter(test);
    }
  }

  /* Takes FILE:LINE:COLUMN:REAL:MUTANT apart. */
  bool read(std::string from) {
    std::string parts[4]; /* LINE, COLUMN, REAL, MUTANT */
    for (int i = 3; i >= 0; --i) {
      const size_t colon = from.rfind(':');
      if (colon == std::string::npos) {
        return false;
      }
      parts[i] = from.substr(colon + 1);
      from.resize(colon);
    }
    file = from;
    real = parts[2];
    for (int i = MUTANT_OWN; i <= MUTANT_MASK; ++i) {
      mutant = parts[3] == names[i] ? (simt_mutant)i : mutant;
    }
    return sscanf(parts[0].c_str(), "%u", &line) == 1 && sscanf(parts[1].c_str(), "%u", &column) == 1 && mutant != MUTANT_OFF;
  }

  ~watcher() {
    std::set<std::string> lines; /* a file may have several names in memory */
    for (const auto &[in, at, from, of, kernel] : seen) {
      lines.insert(std::string(in) + ":" + std::to_string(at) + ":" + std::to_string(from) + ":" + of + " " +
                   simt_plain_name(kernel));
    }
    FILE *out = places != nullptr ? fopen(places, "a") : nullptr;
    for (const std::string &text : lines) {
      if (out != nullptr) {
        fprintf(out, "%s\n", text.c_str());
      }
    }
    if (places != nullptr && (out == nullptr || fclose(out) != 0)) {
      fprintf(stderr, "simt: SIMT_PLACES=%s: cannot be written\n", places);
      _Exit(1);
    }
  }
};

watcher watch;

} // namespace

simt_mutant simt_mutant_at(const simt_place &place, const char *kernel, const char *real) {
  if (watch.places != nullptr) {
    watch.seen.insert({place.file, place.line, place.column, real, kernel});
  }
  return watch.mutant != MUTANT_OFF && place.line == watch.line && place.column == watch.column && watch.real == real &&
                 watch.file == place.file
             ? watch.mutant
             : MUTANT_OFF;
}

const char *simt_real_of(const std::type_info &kernel) {
  char *name = abi::__cxa_demangle(kernel.name(), nullptr, nullptr, nullptr);
  const bool f32 = name != nullptr && strstr(name, "float") != nullptr,
             f64 = name != nullptr && strstr(name, "double") != nullptr;
  free(name);
  return f32 && !f64 ? "f32" : f64 && !f32 ? "f64" : "any";
}
