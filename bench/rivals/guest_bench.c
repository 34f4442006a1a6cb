#include "bench/rivals/guest_bench.h"

bppsa_status bppsa_bench_start_guest(const bppsa_bench *bench, const char *program, bppsa_guest **guest) {
  const bppsa_guest_waits waits = {
      .patience_s = 900, .over = bench->deadline, .grace_s = (double)bench->request->time_limit_s / 8};
  return program == NULL
             ? BPPSA_OK
             : bppsa_guest_start(program, bppsa_device_get_threads(bench->device), bench->gpu ? "cuda" : "cpu", &waits, guest);
}
