#!/bin/sh
# test_nvidia_folders.sh ROOT WORK CC FOLDERS: a Python package with CUDA finds NVIDIA's libraries in the packages nvidia-* that
# PyTorch and JAX bring. A module stands in for the package's library: it has its loader (core/compute/library.c) and is linked with
# FOLDERS, which python/CMakeLists.txt gives to the package. Small libraries in the places of those packages stand in for NVIDIA's.
# They must be found by their names alone, in front of others on this machine, and a name that is nowhere must be missed.
set -eu
root=$1
work=$2
cc=$3
folders=$4
rm -rf "$work"
site=$work/site-packages
mkdir -p "$site/bppsa"
cat >"$work/module.c" <<'END'
#include "core/compute/library.h"

static int (*number)(void);

/* The number of the library of that name; -1 and the problem where there is none. */
int look_up(const char *file, char *problem, size_t size);
int look_up(const char *file, char *problem, size_t size) {
  const bppsa_library_function functions[] = {{"stand_in_number", (void **)(void *)&number}};
  return bppsa_library_load(file, 1, functions, problem, size) ? number() : -1;
}
END
cat >"$work/main.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

/* main MODULE LIBRARY: loads the module as Python does, and asks it for the library. */
int main(int argc, char **argv) {
  char problem[256] = "";
  void *module = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*look_up)(const char *, char *, size_t) = NULL;
  if (module != NULL) {
    *(void **)&look_up = dlsym(module, "look_up");
  }
  if (look_up == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  printf("%d", look_up(argv[2], problem, sizeof problem));
  printf("%s%s\n", problem[0] != '\0' ? ": " : "", problem);
  return 0;
}
END
"$cc" -std=c17 -D_POSIX_C_SOURCE=200809L -fPIC -shared -I "$root" "$work/module.c" "$root/core/compute/library.c" \
  -Wl,-rpath,"$folders" -o "$site/bppsa/module.so" -ldl -lpthread
"$cc" -std=c17 -D_POSIX_C_SOURCE=200809L "$work/main.c" -o "$work/main" -ldl
status=0
expect() { # expect PATTERN LIBRARY
  found=$(cd / && env -u LD_LIBRARY_PATH "$work/main" "$site/bppsa/module.so" "$2")
  printf '%s\n' "$found" | grep -q -- "$1" || {
    echo "$2: expected $1, found $found"
    status=1
  }
}
number=0
# Where today's packages have the libraries, and where those of CUDA 12 had two of them.
for path in cudnn/lib/libcudnn.so.9 nccl/lib/libnccl.so.2 cu13/lib/libcublas.so.13 cu13/lib/libcusparse.so.12 \
  cublas/lib/libcublas.so.12 cusparse/lib/libcusparse.so.11; do
  number=$((number + 1))
  mkdir -p "$site/nvidia/$(dirname "$path")"
  echo "int stand_in_number(void); int stand_in_number(void) { return $number; }" >"$work/stand_in.c"
  "$cc" -shared -fPIC -Wl,-soname,"$(basename "$path")" "$work/stand_in.c" -o "$site/nvidia/$path"
  expect "^$number\$" "$(basename "$path")"
done
expect '^-1: libbppsa_nowhere.so.1: cannot open' libbppsa_nowhere.so.1
# The same libraries where no package of NVIDIA's is: another one, or none, but not these.
mv "$site/nvidia" "$site/elsewhere"
expect '^-1: ' libcudnn.so.9
expect '^-1: ' libcublas.so.13
exit "$status"
