/* The part of cuDNN's interface that the library calls, for the stand-in in this folder (stand_in.c). */
#ifndef BPPSA_TESTS_SIMT_CUDNN_CUDNN_H
#define BPPSA_TESTS_SIMT_CUDNN_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#define CUDNN_DIM_MAX 8
#define CUDNN_STATUS_CATEGORY(status) ((status) / 1000 * 1000)
#define CUDNN_RNN_PADDED_IO_DISABLED 0u
#define CUDNN_RNN_PADDED_IO_ENABLED 1u

typedef enum {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
} cudnnStatus_t;
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum {
  CUDNN_DEFAULT_MATH = 0,
  CUDNN_TENSOR_OP_MATH,
  CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
  CUDNN_FMA_MATH
} cudnnMathType_t;
typedef enum {
  CUDNN_RNN_ALGO_STANDARD = 0,
  CUDNN_RNN_ALGO_PERSIST_STATIC,
  CUDNN_RNN_ALGO_PERSIST_DYNAMIC,
  CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H
} cudnnRNNAlgo_t;
typedef enum { CUDNN_RNN_RELU = 0, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU } cudnnRNNMode_t;
typedef enum { CUDNN_RNN_DOUBLE_BIAS = 2 } cudnnRNNBiasMode_t;
typedef enum { CUDNN_UNIDIRECTIONAL = 0 } cudnnDirectionMode_t;
typedef enum { CUDNN_LINEAR_INPUT = 0 } cudnnRNNInputMode_t;
typedef enum { CUDNN_FWD_MODE_TRAINING = 1 } cudnnForwardMode_t;
typedef enum { CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1 } cudnnRNNDataLayout_t;
typedef enum { CUDNN_WGRAD_MODE_ADD = 0 } cudnnWgradMode_t;

typedef enum { CUDNN_TENSOR_NCHW = 0 } cudnnTensorFormat_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION } cudnnConvolutionMode_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC } cudnnDeterminism_t;
typedef enum { CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8 } cudnnConvolutionFwdAlgo_t;
typedef enum { CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6 } cudnnConvolutionBwdDataAlgo_t;
typedef enum { CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7 } cudnnConvolutionBwdFilterAlgo_t;

#define CUDNN_STAND_IN_CHOICE(name, type)                                                                                        \
  typedef struct {                                                                                                               \
    type algo;                                                                                                                   \
    cudnnStatus_t status;                                                                                                        \
    float time;                                                                                                                  \
    size_t memory;                                                                                                               \
    cudnnDeterminism_t determinism;                                                                                              \
    cudnnMathType_t mathType;                                                                                                    \
  } name;
CUDNN_STAND_IN_CHOICE(cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t)
CUDNN_STAND_IN_CHOICE(cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t)
CUDNN_STAND_IN_CHOICE(cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t)

typedef struct stand_in *cudnnHandle_t, *cudnnDropoutDescriptor_t, *cudnnRNNDescriptor_t, *cudnnRNNDataDescriptor_t,
    *cudnnTensorDescriptor_t, *cudnnFilterDescriptor_t, *cudnnConvolutionDescriptor_t;

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t size);
cudnnStatus_t cudnnCreate(cudnnHandle_t *made);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *made);
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout);
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate, void *states,
                                        size_t bytes, unsigned long long seed);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *made);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dims, const int extents[],
                                         const int strides[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int most, cudnnDataType_t *type, int *dims,
                                         int extents[], int strides[]);
cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *made);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode,
                                       cudnnDataType_t type, cudnnDataType_t precision, cudnnMathType_t math, int32_t input,
                                       int32_t hidden, int32_t projection, int32_t layers, cudnnDropoutDescriptor_t dropout,
                                       uint32_t flags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *made);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type, cudnnRNNDataLayout_t layout,
                                        int steps, int batch, int width, const int lengths[], void *fill);
cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int batch);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *bytes);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,
                                      const void *weights, int32_t linear, cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x_shape, const void *x, cudnnRNNDataDescriptor_t y_shape, void *y,
                              cudnnTensorDescriptor_t h_shape, const void *hx, void *hy, cudnnTensorDescriptor_t c_shape,
                              const void *cx, void *cy, size_t weight_bytes, const void *weights, size_t work_bytes, void *work,
                              size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
                                      cudnnRNNDataDescriptor_t y_shape, const void *y, const void *dy,
                                      cudnnRNNDataDescriptor_t x_shape, void *dx, cudnnTensorDescriptor_t h_shape, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t c_shape, const void *cx,
                                      const void *dcy, void *dcx, size_t weight_bytes, const void *weights, size_t work_bytes,
                                      void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode,
                                         const int32_t lengths[], cudnnRNNDataDescriptor_t x_shape, const void *x,
                                         cudnnTensorDescriptor_t h_shape, const void *hx, cudnnRNNDataDescriptor_t y_shape,
                                         const void *y, size_t weight_bytes, void *gradients, size_t work_bytes, void *work,
                                         size_t reserve_bytes, void *reserve);

/* ---- convolutions ---- */

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *made);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t format, int k,
                                         int c, int h, int w);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *made);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t type);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int most, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *choices);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, const int most, int *count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *choices);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, const int most, int *count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *choices);
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algo,
                                                      size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algo,
                                                           size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_shape,
                                      const void *x, const cudnnFilterDescriptor_t w_shape, const void *w,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo, void *work,
                                      size_t work_bytes, const void *beta, const cudnnTensorDescriptor_t y_shape, void *y);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t w_shape,
                                           const void *w, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo,
                                           void *work, size_t work_bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx_shape, void *dx);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_shape,
                                             const void *x, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                             const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdFilterAlgo_t algo,
                                             void *work, size_t work_bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dw_shape, void *dw);
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t dy_shape,
                                           const void *dy, const void *beta, const cudnnTensorDescriptor_t db_shape, void *db);
cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t b_shape, const void *b,
                             const void *beta, const cudnnTensorDescriptor_t y_shape, void *y);

#endif
