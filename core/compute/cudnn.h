/* Is cuDNN installed? (core/compute/library_cudnn.h loads it.) */
#ifndef BPPSA_CORE_COMPUTE_CUDNN_H
#define BPPSA_CORE_COMPUTE_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bool built;       /* compiled with cuDNN's headers */
  int64_t version;  /* of the library that was found, 91900 = 9.19.0; 0 if none was */
  char detail[256]; /* the reason, if it was not found */
} bppsa_cudnn_report;

/* Never fails: what is missing is in the report. */
void bppsa_cudnn_probe(bppsa_cudnn_report *report);

#ifdef __cplusplus
}
#endif
#endif
