#include "cnn/move.h"

#include "core/compute/flush.h"
#include "core/compute/pool.h"

enum { BLOCK = 4096 }; /* values of a task */

typedef struct {
  bppsa_move_how how;
  int64_t blocks, count; /* blocks: tasks of a sample */
  bppsa_cnn_part_view from, to;
} move_job;

typedef struct {
  bppsa_move_how how;
  const int64_t *shape, *from_strides, *to_strides;
  bppsa_cnn_part_view from, to;
} strided_job;

#define EACH_REAL "cnn/move.inc"
#include "core/base/each_real.inc"

void bppsa_cnn_move(bppsa_move_how how, bppsa_dtype dtype, int32_t threads, int64_t batch, int64_t count,
                    bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  const move_job job = {how, (count + BLOCK - 1) / BLOCK, count, from, to};
  const double bytes = 3 * (double)bppsa_dtype_size(dtype) * (double)batch * (double)count;
  bppsa_parallel_for(threads, batch * job.blocks, bppsa_loop_work(0, bytes), dtype == BPPSA_F32 ? move_tasks_f32 : move_tasks_f64,
                     &job);
}

void bppsa_cnn_move_strided(bppsa_move_how how, bppsa_dtype dtype, int32_t threads, int64_t batch, const int64_t shape[3],
                            bppsa_cnn_part_view from, const int64_t from_strides[3], bppsa_cnn_part_view to,
                            const int64_t to_strides[3]) {
  const strided_job job = {how, shape, from_strides, to_strides, from, to};
  const double values = (double)batch * (double)(shape[0] * shape[1] * shape[2]);
  bppsa_parallel_for(threads, batch, bppsa_loop_work(0, 3 * (double)bppsa_dtype_size(dtype) * values),
                     dtype == BPPSA_F32 ? strided_tasks_f32 : strided_tasks_f64, &job);
}
