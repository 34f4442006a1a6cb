# The two commands are `make demo` and `make test`. CMake does the work; see CMakePresets.json.
.DEFAULT_GOAL := help
.PHONY: help setup setup-build setup-check build demo test check check-long coverage gpu-bundle install wheel wheel-cuda
.PHONY: format clean
SHELL := /bin/sh
PREFIX ?= /usr/local
# CMake runs its own build tool: it must not inherit this make's job server.
unexport MAKEFLAGS MAKELEVEL MFLAGS

help:
	@echo "make demo              build, then train an RNN by BP and by the scan and compare them (under two minutes)"
	@echo "make test              build and run all tests (minutes)"
	@echo "make check             what takes longer: CUDA compiles and links, tests under the sanitizers, a wheel"
	@echo "make check-long        everything at full length, all tests under the sanitizers (hours; docs/testing.md)"
	@echo "make coverage          which statements the tests run, a row a folder (long; needs python3)"
	@echo "make build             build the program: build/cpu/bppsa"
	@echo "make install PREFIX=P  install program, library, headers, completions and manual pages under P (default $(PREFIX))"
	@echo "make wheel             build the Python package for machines without a compiler: build/dist/bppsa-*.whl (needs the network)"
	@echo "make wheel-cuda        the same with CUDA for sm_80, 90, 100 and 120, in build/dist-cuda (needs nvcc; long)"
	@echo "make gpu-bundle        build what bench/gpu.sh runs on a machine with a GPU: build/gpu/bundle"
	@echo "make setup             install the packages that are missing (as root), or name them"
	@echo "make format            clang-format 14 over all sources"
	@echo "make clean             remove build/"

setup:
	@tools/setup

setup-build:
	@tools/setup build

setup-check:
	@tools/setup check

build: setup-build
	@tools/build cpu bppsa_program bppsa_shell_files

demo: setup
	@tools/build cpu bppsa_program bppsa_demo
	@demo/run build/cpu

test: setup
	@tools/run_tests test

check: setup-check
	@tools/run_tests check

check-long: setup-check
	@tools/run_tests long

coverage: setup
	@tools/coverage

gpu-bundle: setup
	@tools/gpu_bundle

install: build
	@cmake --install build/cpu --prefix "$(PREFIX)"

wheel: setup-build
	@tools/wheel build/dist

wheel-cuda: setup-build
	@tools/wheel build/dist-cuda cuda

format:
	@tools/check_format --fix

clean:
	rm -rf build
