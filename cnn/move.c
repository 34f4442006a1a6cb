#include "cnn/move.h"

#include "core/compute/flush.h"
#include "core/compute/pool.h"

enum { BLOCK = 4096 }; /* values of a task */

typedef struct {
  bppsa_move_how how;
  int64_t blocks, count; /* blocks: tasks of a sample */
  bppsa_cnn_part_view from, to;
} move_job;

#define EACH_REAL "cnn/move.inc"
#include "core/base/each_real.inc"

void bppsa_cnn_move(bppsa_move_how how, bppsa_dtype dtype, int32_t threads, int64_t batch, int64_t count,
                    bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  const move_job job = {how, (count + BLOCK - 1) / BLOCK, count, from, to};
  const double bytes = 3 * (double)bppsa_dtype_size(dtype) * (double)batch * (double)count;
  bppsa_parallel_for(threads, batch * job.blocks, bppsa_loop_work(0, bytes), dtype == BPPSA_F32 ? move_tasks_f32 : move_tasks_f64,
                     &job);
}
