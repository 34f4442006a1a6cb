/* Shared by the parts of the stand-in: its only kind of object, and its messages. */
#ifndef BPPSA_TESTS_SIMT_CUDNN_STAND_IN_H
#define BPPSA_TESTS_SIMT_CUDNN_STAND_IN_H

#include <cudnn.h>

struct stand_in {
  cudaStream_t stream;              /* handle */
  cudnnDataType_t type;             /* the rest: descriptors */
  int dims, extents[CUDNN_DIM_MAX]; /* tensor, filter */
  int steps, batch, width;          /* data */
  int padded;                       /* data, layers */
  cudnnRNNAlgo_t algorithm;         /* layers */
  cudnnRNNMode_t mode;
  int input, hidden, layers, gates;
  int pad[2], stride[2], dilation[2], groups; /* convolution */
  cudnnMathType_t math;
};

/* Keeps the words for cudnnGetLastErrorString; returns the status, or BAD_PARAM if an argument is wrong. */
cudnnStatus_t stand_in_answer(cudnnStatus_t status, const char *words);
cudnnStatus_t stand_in_check(int fine, const char *words);

#endif
