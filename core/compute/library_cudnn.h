/* The cuDNN library, loaded when it is first needed, with every function that recurrent layers and convolutions call. */
#ifndef BPPSA_CORE_COMPUTE_LIBRARY_CUDNN_H
#define BPPSA_CORE_COMPUTE_LIBRARY_CUDNN_H

#include <cudnn.h>

#include "core/base/status.h"

/* The functions that are called: each becomes a member of the table below, and is looked up by its name. */
#define CUDNN_COMMON_FUNCTIONS(with)                                                                                             \
  with(cudnnGetVersion) with(cudnnGetErrorString) with(cudnnGetLastErrorString) with(cudnnCreate) with(cudnnDestroy)             \
      with(cudnnSetStream) with(cudnnCreateTensorDescriptor) with(cudnnDestroyTensorDescriptor)
#define CUDNN_RNN_FUNCTIONS(with)                                                                                                \
  with(cudnnCreateDropoutDescriptor) with(cudnnDestroyDropoutDescriptor) with(cudnnSetDropoutDescriptor)                         \
      with(cudnnSetTensorNdDescriptor) with(cudnnGetTensorNdDescriptor) with(cudnnCreateRNNDescriptor)                           \
          with(cudnnDestroyRNNDescriptor) with(cudnnSetRNNDescriptor_v8) with(cudnnCreateRNNDataDescriptor)                      \
              with(cudnnDestroyRNNDataDescriptor) with(cudnnSetRNNDataDescriptor) with(cudnnBuildRNNDynamic)                     \
                  with(cudnnGetRNNTempSpaceSizes) with(cudnnGetRNNWeightSpaceSize) with(cudnnGetRNNWeightParams)                 \
                      with(cudnnRNNForward) with(cudnnRNNBackwardData_v8) with(cudnnRNNBackwardWeights_v8)
#define CUDNN_CONVOLUTION_FUNCTIONS(with)                                                                                        \
  with(cudnnSetTensor4dDescriptor) with(cudnnCreateFilterDescriptor) with(cudnnDestroyFilterDescriptor)                          \
      with(cudnnSetFilter4dDescriptor) with(cudnnCreateConvolutionDescriptor) with(cudnnDestroyConvolutionDescriptor)            \
          with(cudnnSetConvolution2dDescriptor) with(cudnnSetConvolutionGroupCount) with(cudnnSetConvolutionMathType)            \
              with(cudnnGetConvolutionForwardAlgorithm_v7) with(cudnnGetConvolutionBackwardDataAlgorithm_v7)                     \
                  with(cudnnGetConvolutionBackwardFilterAlgorithm_v7) with(cudnnGetConvolutionForwardWorkspaceSize)              \
                      with(cudnnGetConvolutionBackwardDataWorkspaceSize) with(cudnnGetConvolutionBackwardFilterWorkspaceSize)    \
                          with(cudnnConvolutionForward) with(cudnnConvolutionBackwardData) with(cudnnConvolutionBackwardFilter)  \
                              with(cudnnConvolutionBackwardBias) with(cudnnAddTensor)
#define CUDNN_FUNCTIONS(with) CUDNN_COMMON_FUNCTIONS(with) CUDNN_RNN_FUNCTIONS(with) CUDNN_CONVOLUTION_FUNCTIONS(with)

#define CUDNN_MEMBER(function) __typeof__(function) *function;
typedef struct {
  CUDNN_FUNCTIONS(CUDNN_MEMBER)
} cudnn_library;

/* Returns the library, the same at every call. ERR_UNSUPPORTED: it is missing, or not of the version for which the program was
 * built; the message quotes the loader. */
bppsa_status bppsa_cudnn_load(const cudnn_library **library);

/* ERR_UNSUPPORTED if cuDNN refuses a request, otherwise ERR_MEMORY or ERR_CUDA; the message quotes cuDNN. */
bppsa_status bppsa_cudnn_check(const cudnn_library *library, cudnnStatus_t status, const char *what);

#endif
