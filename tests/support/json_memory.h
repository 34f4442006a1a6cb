/* jansson's memory, for tests that make allocations fail.
 *
 * The library leaves jansson's process-wide allocator alone. A test program is its own host and may choose one: after
 * count_json_memory() what jansson allocates counts as core/base/alloc's and fails with it, so that the walks over failing
 * allocations go through every allocation as a document is built and written. What its parser allocates neither counts nor fails:
 * the parser ends the program when memory runs out, which is why the library asks for the memory before it parses.
 */
#ifndef BPPSA_TESTS_SUPPORT_JSON_MEMORY_H
#define BPPSA_TESTS_SUPPORT_JSON_MEMORY_H

void count_json_memory(void);

#endif
