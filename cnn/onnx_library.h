/* protobuf-c, loaded at run time. Internal. */
#ifndef BPPSA_CNN_ONNX_LIBRARY_H
#define BPPSA_CNN_ONNX_LIBRARY_H

#include <protobuf-c/protobuf-c.h>

#include "core/base/status.h"

/* Loads protobuf-c at the first call. ERR_LIBRARY: it is missing; the message names the package. */
bppsa_status bppsa_onnx_library_load(void);

/* What the generated code calls, by the names that the compiler's definitions give these functions. */
ProtobufCMessage *bppsa_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *of, ProtobufCAllocator *memory, size_t size,
                                                  const uint8_t *data);
size_t bppsa_protobuf_c_message_get_packed_size(const ProtobufCMessage *message);
size_t bppsa_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out);
size_t bppsa_protobuf_c_message_pack_to_buffer(const ProtobufCMessage *message, ProtobufCBuffer *out);
void bppsa_protobuf_c_message_free_unpacked(ProtobufCMessage *message, ProtobufCAllocator *memory);

#endif
