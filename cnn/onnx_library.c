/* protobuf-c, loaded when an ONNX file is first read. What protoc-c has generated from onnx.proto calls the functions of this file
 * in the place of the library's (cnn/CMakeLists.txt), so that no program is linked with it. */
#include "cnn/onnx_library.h"

#include "core/compute/library.h"

/* with(type, name, parameters, arguments) for every function that the generated code calls and that returns something. */
#define FUNCTIONS(with)                                                                                                          \
  with(ProtobufCMessage *, protobuf_c_message_unpack,                                                                            \
       (const ProtobufCMessageDescriptor *of, ProtobufCAllocator *memory, size_t size, const uint8_t *data),                     \
       (of, memory, size, data)) with(size_t, protobuf_c_message_get_packed_size, (const ProtobufCMessage *message), (message))  \
      with(size_t, protobuf_c_message_pack, (const ProtobufCMessage *message, uint8_t *out), (message, out)) with(               \
          size_t, protobuf_c_message_pack_to_buffer, (const ProtobufCMessage *message, ProtobufCBuffer *out), (message, out))

#define MEMBER(type, name, parameters, arguments) __typeof__(&name) name;
static struct {
  FUNCTIONS(MEMBER)
  __typeof__(&protobuf_c_message_free_unpacked) protobuf_c_message_free_unpacked;
} loaded;

#define LOOK_UP(type, name, parameters, arguments) BPPSA_LIBRARY_FUNCTION(name)
static const bppsa_library_function functions[] = {FUNCTIONS(LOOK_UP) BPPSA_LIBRARY_FUNCTION(protobuf_c_message_free_unpacked)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libprotobuf-c.so.1", "libprotobuf-c1", functions), {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_onnx_library_load(void) {
  const char *problem = bppsa_libraries_load(&libraries);
  return problem == NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_LIBRARY, "ONNX: %s", problem);
}

#define STAND_IN(type, name, parameters, arguments)                                                                              \
  type bppsa_##name parameters {                                                                                                 \
    return bppsa_libraries_load(&libraries) == NULL ? loaded.name arguments : (type)0;                                           \
  }
FUNCTIONS(STAND_IN)

void bppsa_protobuf_c_message_free_unpacked(ProtobufCMessage *message, ProtobufCAllocator *memory) {
  if (bppsa_libraries_load(&libraries) == NULL) {
    loaded.protobuf_c_message_free_unpacked(message, memory);
  }
}
