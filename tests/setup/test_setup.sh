#!/bin/sh
# tools/setup on machines that lack everything, simulated by a PATH of stand-ins.
set -eu
setup=$1 # the absolute path of tools/setup
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
stand_in() { # stand_in NAME BODY
  printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}
for tool in awk mktemp tail rm ls; do # no links: a stand-in must never be written through one
  stand_in $tool "exec $(command -v $tool) \"\$@\""
done
expect() { # expect STATUS TEXT [ARGUMENT]
  status=0
  output=$(PATH=$bin /bin/sh "$setup" ${3:+"$3"} 2>&1) || status=$?
  if [ "$status" -ne "$1" ] || ! printf '%s\n' "$output" | grep -q -- "$2"; then
    printf 'expected exit %s and "%s", got exit %s and:\n%s\n' "$1" "$2" "$status" "$output"
    exit 1
  fi
}

stand_in id 'echo 1000'
expect 1 '^    sudo apt-get update && sudo apt-get install -y --no-install-recommends gcc .*libopenblas-dev libjansson-dev'

stand_in id 'echo 0'
expect 1 'sudo apt-get' # root, but no apt-get: it can only say what it needs

stand_in apt-get 'echo "E: no network"; exit 100'
expect 1 'E: no network'
expect 1 'apt-get failed'

stand_in apt-get "echo \"\$@\" >>\"$bin/calls\""
expect 1 'still missing after the installation: gcc'
grep -q '^-q update$' "$bin/calls"
grep -q 'install gcc libc6-dev' "$bin/calls"
grep -q ' g++ .*gnuplot-nox' "$bin/calls"

# A build needs less.
rm "$bin/calls"
expect 1 'still missing after the installation: gcc .* libcmocka-dev$' build

# With everything installed it is silent and does not call apt-get.
rm "$bin/calls"
for tool in cc c++ ninja pkg-config mpirun gnuplot protoc-c python3; do
  stand_in $tool 'exit 0'
done
stand_in ls 'exit 0'
stand_in cmake 'echo cmake version 3.24.0'
expect 0 '^$'
[ ! -e "$bin/calls" ]

# The sanitizers need clang, and only `make check` needs them.
expect 1 'still missing after the installation: clang libclang-rt-dev llvm' check
stand_in clang 'exit 1'
stand_in llvm-symbolizer 'exit 0'
expect 1 'still missing after the installation: libclang-rt-dev' check
stand_in clang 'exit 0'
expect 0 '^$' check
expect 2 'tsan, expected build, check or nothing' tsan

stand_in cmake 'echo cmake version 3.18.4'
expect 1 'cmake 3.18.4 is too old'
