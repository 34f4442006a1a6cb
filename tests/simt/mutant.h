/* Shuffles and votes that are broken on purpose, to see whether a test notices (tools/mutate --shuffles). A place is a call in the
 * source of a kernel. With SIMT_PLACES=FILE a program that ends well appends to FILE every place that it came by, with the reals
 * that its kernel calculates with (f32, f64; any, if it has none) and the kernel's name. With
 * SIMT_MUTANT=FILE:LINE:COLUMN:REAL:MUTANT the place of that name does otherwise in kernels of that real
 * (below). With SIMT_TEST=NAME a program runs this one of its tests alone.
 *
 *             a shuffle gives                          a vote counts
 *   own       what the thread itself gave              the thread's own voice alone
 *   none      zeros                                    nobody's yes
 *   every     what the first lane of the mask gave     a yes of everybody
 *   beside    what the wanted lane's neighbour gave    the other lanes' voices alone; a block's: all, as it should
 *   width     what it gives with half the width        -
 *   mask      nothing: its mask lacks a lane           nothing: its mask lacks a lane; a block has none
 */
#ifndef BPPSA_TESTS_SIMT_MUTANT_H
#define BPPSA_TESTS_SIMT_MUTANT_H

#include <typeinfo>

struct simt_place {
  const char *file;
  unsigned line, column;
};

/* As a default argument: where the call is. */
#ifdef __clang__
#define SIMT_HERE (simt_place{__builtin_FILE(), __builtin_LINE(), __builtin_COLUMN()})
#else
#include <source_location>
constexpr simt_place simt_here(const std::source_location &at) {
  return {at.file_name(), at.line(), at.column()};
}
#define SIMT_HERE simt_here(std::source_location::current())
#endif

enum simt_mutant { MUTANT_OFF, MUTANT_OWN, MUTANT_NONE, MUTANT_EVERY, MUTANT_BESIDE, MUTANT_WIDTH, MUTANT_MASK };

/* What the place does; kernel: that it is in; real: what that calculates with. */
simt_mutant simt_mutant_at(const simt_place &place, const char *kernel, const char *real);

/* "f32", "f64" or "any", from the type of a kernel. */
const char *simt_real_of(const std::type_info &kernel);

#endif
