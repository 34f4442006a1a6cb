/* Which place is broken, and which were come by (mutant.h). */
#include "tests/simt/mutant.h"

#include <cxxabi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>
#include <string>

#include "tests/simt/simt.h"

namespace {

const char *const names[] = {"off", "own", "none", "every", "beside", "width", "mask"};

/* What the environment asks for, read once; at the end of the program the places are written. */
struct watcher {
  const char *places = getenv("SIMT_PLACES"), *wanted = getenv("SIMT_MUTANT");
  std::string broken; /* "FILE:LINE:COLUMN:REAL" */
  simt_mutant mutant = MUTANT_OFF;
  std::set<std::string> seen;

  watcher() {
    const char *colon = wanted != nullptr ? strrchr(wanted, ':') : nullptr;
    for (int i = MUTANT_OWN; colon != nullptr && i <= MUTANT_MASK; ++i) {
      if (strcmp(colon + 1, names[i]) == 0) {
        broken.assign(wanted, colon);
        mutant = (simt_mutant)i;
      }
    }
    if (wanted != nullptr && mutant == MUTANT_OFF) {
      fprintf(stderr, "simt: SIMT_MUTANT=%s, expected FILE:LINE:COLUMN:REAL:own, none, every, beside, width or mask\n", wanted);
      abort();
    }
  }

  ~watcher() {
    FILE *file = places != nullptr ? fopen(places, "a") : nullptr;
    for (const std::string &place : seen) {
      if (file != nullptr) {
        fprintf(file, "%s\n", place.c_str());
      }
    }
    if (places != nullptr && (file == nullptr || fclose(file) != 0)) {
      fprintf(stderr, "simt: SIMT_PLACES=%s: cannot be written\n", places);
      _Exit(1);
    }
  }
};

watcher watch;

} // namespace

simt_mutant simt_mutant_at(const simt_place &place, const char *kernel, const char *real) {
  if (watch.places == nullptr && watch.mutant == MUTANT_OFF) {
    return MUTANT_OFF;
  }
  const std::string name =
      std::string(place.file) + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ":" + real;
  if (watch.places != nullptr) {
    watch.seen.insert(name + " " + simt_plain_name(kernel));
  }
  return name == watch.broken ? watch.mutant : MUTANT_OFF;
}

const char *simt_real_of(const std::type_info &kernel) {
  char *name = abi::__cxa_demangle(kernel.name(), nullptr, nullptr, nullptr);
  const bool f32 = name != nullptr && strstr(name, "float") != nullptr,
             f64 = name != nullptr && strstr(name, "double") != nullptr;
  free(name);
  return f32 && !f64 ? "f32" : f64 && !f32 ? "f64" : "any";
}
