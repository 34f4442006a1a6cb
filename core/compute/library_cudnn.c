#include "core/compute/library_cudnn.h"

#include <stdio.h>
#include <string.h>

#include "core/compute/cudnn.h"
#include "core/compute/library.h"

static cudnn_library loaded;
static const bppsa_library_function functions[] = {CUDNN_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libcudnn.so." BPPSA_LIBRARY_TEXT(CUDNN_MAJOR), NULL, functions),
                                     {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_cudnn_load(const cudnn_library **library) {
  const char *problem = bppsa_libraries_load(&libraries);
  if (problem != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: %s, expected the library beside the program or in LD_LIBRARY_PATH", problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

void bppsa_cudnn_probe(bppsa_cudnn_report *report) {
  *report = (bppsa_cudnn_report){.built = true};
  const cudnn_library *library = NULL;
  if (bppsa_cudnn_load(&library) == BPPSA_OK) {
    report->version = (int64_t)library->cudnnGetVersion();
  } else {
    snprintf(report->detail, sizeof report->detail, "%s", libraries.problem);
  }
}

bppsa_status bppsa_cudnn_check(const cudnn_library *library, cudnnStatus_t status, const char *what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return BPPSA_OK;
  }
  char words[256] = "";
  library->cudnnGetLastErrorString(words, sizeof words);
  const int category = CUDNN_STATUS_CATEGORY((int)status);
  const bool refused = category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
  const bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return bppsa_fail(refused  ? BPPSA_ERR_UNSUPPORTED
                    : memory ? BPPSA_ERR_MEMORY
                             : BPPSA_ERR_CUDA,
                    "cuDNN: %s: %s%s%s", what, library->cudnnGetErrorString(status), words[0] != '\0' ? ": " : "", words);
}
