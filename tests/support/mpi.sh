# Begins a script `test_name` that runs a program, its first argument, under mpirun. If `folder` is set, that folder is emptied and
# becomes the current one. Without mpirun the test is skipped.
program=$1
if ! command -v mpirun >/dev/null 2>&1; then
  echo "$test_name: no mpirun (package openmpi-bin)"
  exit 77
fi
root=""
if [ "$(id -u)" -eq 0 ]; then
  root=--allow-run-as-root
fi
# OpenMPI does not free all of its memory, so leaks are not checked here; programs count what the library itself allocates.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
if [ -n "${folder:-}" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  cd "$folder"
fi

fail() {
  echo "$test_name: $*"
  cat out err 2>/dev/null
  exit 1
}
# mpi RANKS ARGUMENT ...: runs the program under mpirun; its results go to `out`, everything else to `err`
mpi() {
  ranks=$1
  shift
  status=0
  timeout -k 5 120 mpirun $root --oversubscribe -n "$ranks" "$program" "$@" >out 2>err || status=$?
}
