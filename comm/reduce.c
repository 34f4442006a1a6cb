/* The reductions (sum, max, min) for f32, f64 and i64. */
#include "comm/comm_internal.h"

typedef void (*reducer)(int64_t count, const void *from, void *to);

#define T float
#define NAME(operation) operation##_f32
#include "comm/reduce.inc"
#undef T
#undef NAME
#define T double
#define NAME(operation) operation##_f64
#include "comm/reduce.inc"
#undef T
#undef NAME
#define T int64_t
#define NAME(operation) operation##_i64
#include "comm/reduce.inc"
#undef T
#undef NAME

static const reducer reducers[BPPSA_COMM_OP_COUNT][BPPSA_DTYPE_COUNT] = {
    [BPPSA_COMM_SUM] = {[BPPSA_F32] = sum_f32, [BPPSA_F64] = sum_f64, [BPPSA_I64] = sum_i64},
    [BPPSA_COMM_MAX] = {[BPPSA_F32] = max_f32, [BPPSA_F64] = max_f64, [BPPSA_I64] = max_i64},
    [BPPSA_COMM_MIN] = {[BPPSA_F32] = min_f32, [BPPSA_F64] = min_f64, [BPPSA_I64] = min_i64},
};

void bppsa_comm_reduce(bppsa_comm_op op, bppsa_dtype dtype, int64_t count, const void *from, void *to) {
  reducers[op][dtype](count, from, to);
}
