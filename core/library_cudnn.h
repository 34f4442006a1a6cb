/* The cuDNN library, loaded when it is first needed: every function that is called, of recurrent layers and of convolutions, by
 * its own name. */
#ifndef BPPSA_CORE_LIBRARY_CUDNN_H
#define BPPSA_CORE_LIBRARY_CUDNN_H

#include <cudnn.h>

#include "core/status.h"

/* The functions that are called: a member of the table below each, and a look-up. */
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

/* The library, the same at every call. ERR_UNSUPPORTED: it is not there, or not of the version it was built for; the loader's
 * words. */
bppsa_status bppsa_cudnn_load(const cudnn_library **library);

/* ERR_UNSUPPORTED where cuDNN refuses a request, ERR_MEMORY, ERR_CUDA otherwise, in its words. */
bppsa_status bppsa_cudnn_check(const cudnn_library *library, cudnnStatus_t status, const char *what);

#endif
