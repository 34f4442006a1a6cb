/* What a launch that begins early may not see: memory that the kernel in front of it has changed. */
#include <string.h>

#include <algorithm>
#include <vector>

#include "tests/simt/simt.h"

namespace {

enum { WORD = 4 };

/* Bytes of the GPU's memory, and a copy. */
struct kept {
  char *data;
  std::vector<char> bytes;
  bool same() const {
    return memcmp(data, bytes.data(), bytes.size()) == 0;
  }
};

std::vector<kept> before, seen; /* in front of the kernel; what a launch's first cluster sees until it waits */
std::vector<kept> changed;      /* runs of words that differ from `before`, as the kernel left them */

/* Adds the runs of words in which a block differs from what it was. */
void find_changes(const kept &k) {
  const size_t size = k.bytes.size();
  bool joins = false; /* the word in front differs too */
  for (size_t at = 0; at < size; at += WORD) {
    const size_t count = std::min((size_t)WORD, size - at);
    const bool differs = memcmp(k.data + at, k.bytes.data() + at, count) != 0;
    if (differs && !joins) {
      changed.push_back({k.data + at, {}});
    }
    if (differs) {
      changed.back().bytes.insert(changed.back().bytes.end(), k.data + at, k.data + at + count);
    }
    joins = differs;
  }
}

} // namespace

void simt_before(const std::map<void *, size_t> &blocks) {
  before.clear();
  for (const auto &block : blocks) {
    char *const data = (char *)block.first;
    before.push_back({data, std::vector<char>(data, data + block.second)});
  }
}

void simt_hide(bool first) {
  if (first) {
    changed.clear();
    for (const kept &k : before) {
      if (!k.same()) {
        find_changes(k);
      }
    }
  }
  for (kept &k : changed) { /* earlier clusters of the launch may have written there since */
    memcpy(k.bytes.data(), k.data, k.bytes.size());
    memset(k.data, 0xff, k.bytes.size());
  }
  if (first) {
    seen = before;
    for (kept &k : seen) {
      memcpy(k.bytes.data(), k.data, k.bytes.size());
    }
  }
}

bool simt_reveal(bool first) {
  const bool same = !first || std::all_of(seen.begin(), seen.end(), [](const kept &k) { return k.same(); });
  for (const kept &k : changed) {
    memcpy(k.data, k.bytes.data(), k.bytes.size());
  }
  return same;
}
