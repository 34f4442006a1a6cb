# Language, warnings, optimisation and sanitizers, carried by the interface target bppsa_options.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(bppsa_options INTERFACE)
target_compile_definitions(bppsa_options INTERFACE $<$<COMPILE_LANGUAGE:C>:_POSIX_C_SOURCE=200809L>
                                                   $<$<COMPILE_LANGUAGE:C>:_DEFAULT_SOURCE=>)
target_compile_options(
  bppsa_options
  INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wall>
            $<$<COMPILE_LANGUAGE:C>:-Wextra>
            $<$<COMPILE_LANGUAGE:C>:-Wconversion>
            $<$<COMPILE_LANGUAGE:C>:-Wshadow>
            # a*b + c is rounded twice: whether a compiler fuses it must not change the bits. The hot loops are in the
            # kernels of core/, which are compiled per instruction set and fuse on purpose (core/CMakeLists.txt).
            $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>
            $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(BPPSA_SANITIZE)
  target_compile_options(bppsa_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=${BPPSA_SANITIZE}>
                                                 $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer>
                                                 $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>
                                                 # checks keep clang from vectorising loops, of which it would warn
                                                 $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-pass-failed>)
  target_link_options(bppsa_options INTERFACE -fsanitize=${BPPSA_SANITIZE})
endif()
