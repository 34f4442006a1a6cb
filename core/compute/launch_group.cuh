/* Joins several launches of one kernel into one. Each of its items has its own arguments and its own range of blocks; a block finds
 * its item and its place within the item. The arguments are the launch's parameter, so an item must be small and a group holds few;
 * but nothing is copied before the launch, and a recording keeps the arguments.
 *
 *     kernel<MOST>(BPPSA_GRID_CONSTANT(launch_group<item, MOST>) g) {
 *       const launch_place at = launch_find(g);      at.x instead of blockIdx.x, at.unit instead of blockIdx.y
 *       const item &o = g.items[at.item];
 *
 * A group of one is a separate type: its arguments have fixed addresses, which instructions read without a register. An item is
 * `across` blocks for each of its `units`, mostly samples; units for which a launch has no room go to the next launch.
 */
#ifndef BPPSA_CORE_COMPUTE_LAUNCH_GROUP_CUH
#define BPPSA_CORE_COMPUTE_LAUNCH_GROUP_CUH

#include <stdint.h>

#include <type_traits>

#include "core/compute/launch.cuh"

/* GRID_CONSTANT: a parameter that a kernel reads in place, without a copy. Also the most blocks of a launch. The tests' emulation
 * defines both. */
#ifndef BPPSA_GRID_CONSTANT
#define BPPSA_GRID_CONSTANT(...) const __grid_constant__ __VA_ARGS__
#define BPPSA_MOST_BLOCKS INT32_MAX
#endif

enum { LAUNCH_PARAMETER = 4096 }; /* bytes that every GPU and driver accepts */

/* The number of items that fit into a parameter. */
template <typename item> constexpr int launch_most() {
  return (LAUNCH_PARAMETER - 16) / (int)(sizeof(item) + 2 * sizeof(uint32_t) + sizeof(int64_t));
}

template <typename item, int MOST = launch_most<item>()> struct launch_group {
  int64_t unit[MOST]; /* first unit of each item */
  item items[MOST];
  uint32_t across[MOST];
  uint32_t first[MOST + 1]; /* first block of each item, and one past the last */
  int32_t count;
};

/* How a kernel that needs few registers holds its item: in place in a group of one, otherwise as a copy. */
template <typename item, int MOST> using launch_item = typename std::conditional<MOST == 1, const item &, item>::type;

struct launch_place {
  int64_t unit;
  uint32_t x;
  int32_t item;
};

template <typename item, int MOST> __device__ inline launch_place launch_find(const launch_group<item, MOST> &g) {
  int32_t low = 0, high = MOST == 1 ? 0 : g.count - 1;
  while (low < high) { /* the last item that begins at this block or before it */
    const int32_t middle = (low + high + 1) / 2;
    if (g.first[middle] <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const uint32_t block = blockIdx.x - g.first[low], across = g.across[low];
  return {g.unit[low] + block / across, block % across, low};
}

template <typename item, int MOST> unsigned launch_blocks(const launch_group<item, MOST> &g) {
  return g.first[g.count];
}

/* If the group has items, calls launch(group, most) and empties it; most() is the MOST of its type. */
template <typename item, typename launch> void launch_flush(launch_group<item> *g, const launch &call) {
  if (g->count == 1) {
    launch_group<item, 1> one;
    one.unit[0] = g->unit[0];
    one.items[0] = g->items[0];
    one.across[0] = g->across[0];
    one.first[0] = 0;
    one.first[1] = g->first[1];
    one.count = 1;
    call(one, std::integral_constant<int, 1>());
  } else if (g->count > 1) {
    call(*g, std::integral_constant<int, launch_most<item>()>());
  }
  g->count = 0;
}

/* Adds an item of `across` blocks for each unit, at most 2^31 - 1; flushes the group whenever it is full. */
template <typename item, typename launch>
void launch_add(launch_group<item> *g, const item &o, int64_t across, int64_t units, const launch &call) {
  enum { MOST = launch_most<item>() };
  static_assert(sizeof *g <= LAUNCH_PARAMETER && (int)MOST > 1, "an item of a group is small");
  int64_t unit = 0;
  g->first[0] = 0;
  while (across > 0 && unit < units) {
    const int64_t fitting = ((int64_t)BPPSA_MOST_BLOCKS - g->first[g->count]) / across;
    if (g->count == MOST || (fitting < 1 && g->count > 0)) {
      launch_flush(g, call);
      continue;
    }
    const int64_t some = fitting < 1 ? 1 : fitting, piece = some < units - unit ? some : units - unit;
    g->items[g->count] = o;
    g->unit[g->count] = unit;
    g->across[g->count] = (uint32_t)across;
    g->first[g->count + 1] = g->first[g->count] + (uint32_t)(across * piece);
    ++g->count;
    unit += piece;
  }
}

#endif
