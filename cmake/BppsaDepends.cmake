# What the library links, carried by the interface target bppsa_depends.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig)
# What is missing is named in one line, which CMake does not break because it begins with a blank.
set(names OPENBLAS JANSSON ZLIB)
set(modules openblas jansson>=2.10 zlib>=1.2.9)
set(packages libopenblas-dev libjansson-dev zlib1g-dev)
set(missing "")
if(NOT PKG_CONFIG_FOUND)
  set(missing " pkg-config")
endif()
foreach(name module package IN ZIP_LISTS names modules packages)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${name} IMPORTED_TARGET ${module})
  endif()
  if(NOT ${name}_FOUND)
    string(APPEND missing " ${package}")
  endif()
endforeach()
if(missing)
  message(FATAL_ERROR " bppsa: libraries were not found, expected Debian's packages${missing}, or the same libraries by pkg-config")
endif()

# The library loads OpenBLAS when it first needs it (core/compute/blas.c) and needs only cblas.h here. It must be OpenBLAS, because
# the library sets its number of threads. Linking a test program shows that it is installed.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::OPENBLAS)
check_c_source_compiles("#include <cblas.h>
int main(void) { openblas_set_num_threads(1); return openblas_get_num_threads() - 1; }" BPPSA_OPENBLAS_LINKS)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT BPPSA_OPENBLAS_LINKS)
  message(FATAL_ERROR "OpenBLAS: openblas_set_num_threads does not link, expected cblas.h and the library of libopenblas-dev")
endif()

# WAV files and MFCC features need all three libraries: this sets BPPSA_AUDIO to ON or OFF. Their headers are needed here;
# audio/load_libraries.c loads them when sound is read. libavutil has a float64 transform of
# real data from 57.28 on.
set(BPPSA_AUDIO OFF)
if(NOT BPPSA_WITH_AUDIO STREQUAL "OFF")
  pkg_check_modules(AUDIO IMPORTED_TARGET sndfile>=1.0.28 samplerate>=0.1.9 libavutil>=57.28)
  if(AUDIO_FOUND)
    set(BPPSA_AUDIO ON)
  elseif(BPPSA_WITH_AUDIO STREQUAL "ON")
    message(FATAL_ERROR "BPPSA_WITH_AUDIO=ON: sndfile, samplerate or libavutil not found by pkg-config, expected all three "
                        "(packages libsndfile1-dev libsamplerate0-dev libavutil-dev)")
  endif()
endif()
message(STATUS "Audio: ${BPPSA_AUDIO}")

# ONNX files are read with protobuf-c: this sets BPPSA_ONNX to ON or OFF. Its header and its compiler are needed here;
# cnn/onnx_library.c loads the library when a file is read.
set(BPPSA_ONNX OFF)
if(NOT BPPSA_WITH_ONNX STREQUAL "OFF")
  pkg_check_modules(PROTOBUF_C IMPORTED_TARGET libprotobuf-c>=1.3)
  find_program(BPPSA_PROTOC_C protoc-c)
  if(PROTOBUF_C_FOUND AND BPPSA_PROTOC_C)
    set(BPPSA_ONNX ON)
  elseif(BPPSA_WITH_ONNX STREQUAL "ON")
    message(FATAL_ERROR "BPPSA_WITH_ONNX=ON: libprotobuf-c not found by pkg-config, or no program protoc-c, expected both "
                        "(packages libprotobuf-c-dev protobuf-c-compiler)")
  endif()
endif()
message(STATUS "ONNX: ${BPPSA_ONNX}")

# Sets BPPSA_MPI to ON or OFF. OpenMPI is linked by a module that is loaded on demand, and by nothing else.
set(BPPSA_MPI OFF)
if(NOT BPPSA_WITH_MPI STREQUAL "OFF")
  pkg_check_modules(OMPI IMPORTED_TARGET ompi-c>=4.0)
  if(OMPI_FOUND)
    set(BPPSA_MPI ON)
  elseif(BPPSA_WITH_MPI STREQUAL "ON")
    message(FATAL_ERROR "BPPSA_WITH_MPI=ON: ompi-c not found by pkg-config, expected OpenMPI 4 or newer (packages libopenmpi-dev "
                        "openmpi-bin)")
  endif()
endif()
message(STATUS "MPI: ${BPPSA_MPI}")

add_library(bppsa_depends INTERFACE)
target_include_directories(bppsa_depends SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIRS} ${AUDIO_INCLUDE_DIRS}
                                                        ${PROTOBUF_C_INCLUDE_DIRS})
target_link_libraries(bppsa_depends INTERFACE PkgConfig::JANSSON PkgConfig::ZLIB Threads::Threads ${CMAKE_DL_LIBS} m)
if(BPPSA_CUDA)
  # nvcc compiles C++, so every program that links the library needs the C++ runtime.
  target_link_libraries(bppsa_depends INTERFACE CUDA::cudart_static stdc++)
endif()
