/* What the program uses of cuSPARSE's interface, for the stand-in of this folder: names and values as its documentation gives
 * them. */
#ifndef BPPSA_TESTS_SIMT_CUSPARSE_H
#define BPPSA_TESTS_SIMT_CUSPARSE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#define CUSPARSE_VER_MAJOR 12

typedef struct stand_in *cusparseHandle_t;
typedef struct stand_in_matrix *cusparseSpMatDescr_t;
typedef const struct stand_in_matrix *cusparseConstSpMatDescr_t;
typedef struct stand_in_product *cusparseSpGEMMDescr_t;
typedef enum {
  CUSPARSE_STATUS_SUCCESS = 0,
  CUSPARSE_STATUS_ALLOC_FAILED = 2,
  CUSPARSE_STATUS_INVALID_VALUE = 3,
  CUSPARSE_STATUS_NOT_SUPPORTED = 10,
  CUSPARSE_STATUS_INSUFFICIENT_RESOURCES = 11
} cusparseStatus_t;
typedef enum { CUSPARSE_OPERATION_NON_TRANSPOSE = 0 } cusparseOperation_t;
typedef enum { CUSPARSE_INDEX_32I = 2 } cusparseIndexType_t;
typedef enum { CUSPARSE_INDEX_BASE_ZERO = 0 } cusparseIndexBase_t;
typedef enum { CUSPARSE_SPGEMM_DEFAULT = 0 } cusparseSpGEMMAlg_t;
typedef enum { CUDA_R_32F = 0 } cudaDataType;

const char *cusparseGetErrorString(cusparseStatus_t status);
cusparseStatus_t cusparseCreate(cusparseHandle_t *handle);
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle);
cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream);
cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *matrix, int64_t rows, int64_t cols, int64_t nnz, void *offsets,
                                   void *columns, void *values, cusparseIndexType_t offset_type, cusparseIndexType_t column_type,
                                   cusparseIndexBase_t base, cudaDataType type);
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix);
cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t matrix, int64_t *rows, int64_t *cols, int64_t *nnz);
cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t matrix, void *offsets, void *columns, void *values);
cusparseStatus_t cusparseSpGEMM_createDescr(cusparseSpGEMMDescr_t *product);
cusparseStatus_t cusparseSpGEMM_destroyDescr(cusparseSpGEMMDescr_t product);

/* Parameters of a product: handle, operations, α, A, B, β, C, type, algorithm. */
#define STAND_IN_PRODUCT                                                                                                         \
  cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, const void *alpha, cusparseConstSpMatDescr_t a,   \
      cusparseConstSpMatDescr_t b, const void *beta, cusparseSpMatDescr_t c, cudaDataType type, cusparseSpGEMMAlg_t algorithm,   \
      cusparseSpGEMMDescr_t product
cusparseStatus_t cusparseSpGEMM_workEstimation(STAND_IN_PRODUCT, size_t *size, void *buffer);
cusparseStatus_t cusparseSpGEMM_compute(STAND_IN_PRODUCT, size_t *size, void *buffer);
cusparseStatus_t cusparseSpGEMM_copy(STAND_IN_PRODUCT);
cusparseStatus_t cusparseSpGEMMreuse_compute(STAND_IN_PRODUCT);

/* Parameters of its structure. */
#define STAND_IN_STRUCTURE                                                                                                       \
  cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, cusparseConstSpMatDescr_t a,                      \
      cusparseConstSpMatDescr_t b, cusparseSpMatDescr_t c, cusparseSpGEMMAlg_t algorithm, cusparseSpGEMMDescr_t product
cusparseStatus_t cusparseSpGEMMreuse_workEstimation(STAND_IN_STRUCTURE, size_t *size, void *buffer);
cusparseStatus_t cusparseSpGEMMreuse_nnz(STAND_IN_STRUCTURE, size_t *size2, void *buffer2, size_t *size3, void *buffer3,
                                         size_t *size4, void *buffer4);
cusparseStatus_t cusparseSpGEMMreuse_copy(STAND_IN_STRUCTURE, size_t *size, void *buffer);

#endif
