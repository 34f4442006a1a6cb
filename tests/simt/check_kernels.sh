#!/bin/sh
# check_kernels.sh SOURCE: every __global__ function of the library and of the tests is listed in tests/simt/kernels.txt with its
# test, and nothing else is; and GPUs without kernels have all functions that a build without CUDA has in their places.
set -eu
cd "$1"
written=$(cat */*.cu */*.cuh */*/*.cu */*/*.cuh | tr '\n' ' ' | sed 's|__launch_bounds__([A-Za-z0-9_:,*<> ]*)||g' |
  grep -o '__global__ [^(;{]*(' | sed 's/ *($//; s/.*[ *]//' | sort)
listed=$(sed '/^[#-]/d; s/ .*//' tests/simt/kernels.txt | sort)
# Linked from an archive, a member that defines a missing function defines the others for a second time.
stand_ins=$(cat core/compute/device_nocuda.c core/compute/memory_nocuda.c |
  grep -o '^[a-z].*[ *]bppsa_cuda_[a-z_]*(' | grep -o 'bppsa_cuda_[a-z_]*')
for name in $stand_ins; do
  grep -q "^[a-z].*[ *]$name(" tests/simt/nccl/gpu.c || {
    echo "check_kernels: tests/simt/nccl/gpu.c: no $name, expected every function of core/compute/{device,memory}_nocuda.c"
    exit 1
  }
done
if [ -z "$written" ]; then
  echo "check_kernels: no kernel found in $1/*/ and $1/*/*/, *.cu and *.cuh, expected some"
  exit 1
fi
if [ "$written" != "$listed" ]; then
  echo "check_kernels: kernels of the source (<) and of tests/simt/kernels.txt (>) differ:"
  printf '%s\n' "$written" >"${TMPDIR:-/tmp}/kernels.$$"
  printf '%s\n' "$listed" | diff "${TMPDIR:-/tmp}/kernels.$$" - || true
  rm -f "${TMPDIR:-/tmp}/kernels.$$"
  exit 1
fi
