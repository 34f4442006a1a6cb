#include "bench/cases/case.h"

#include <string.h>

const bppsa_bench_case *bppsa_bench_case_find(const char *name) {
  static const bppsa_bench_case *const cases[] = {

#define CELL(id, words, functions, rate, sweep) &bppsa_bench_case_##id,
#include "networks/cells.inc"
      &bppsa_bench_case_crossover, &bppsa_bench_case_lenet5,   &bppsa_bench_case_vgg11,   &bppsa_bench_case_product,
      &bppsa_bench_case_scan,      &bppsa_bench_case_jacobian, &bppsa_bench_case_threads, &bppsa_bench_case_mfcc,
      &bppsa_bench_case_forward,   &bppsa_bench_case_step,     &bppsa_bench_case_ranks,   &bppsa_bench_case_schedule,
      &bppsa_bench_case_oracle};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (strcmp(cases[i]->name, name) == 0) {
      return cases[i];
    }
  }
  return NULL;
}
