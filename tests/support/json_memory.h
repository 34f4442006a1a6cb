/* Makes jansson's allocations fail, for tests.
 *
 * The library leaves jansson's process-wide allocator alone, but a test program may choose one. After count_json_memory()
 * jansson's allocations count like those of core/base/alloc and fail with them, so a walk over failing allocations covers every
 * allocation by which a document is built and written. Allocations of jansson's parser neither count nor fail: the parser ends
 * the program when memory runs out, so the library asks for the memory before it parses.
 */
#ifndef BPPSA_TESTS_SUPPORT_JSON_MEMORY_H
#define BPPSA_TESTS_SUPPORT_JSON_MEMORY_H

void count_json_memory(void);

#endif
