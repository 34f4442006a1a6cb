# bppsa_add_simd_folder(NAME PREFIX [ROOMS ...] [WIDE ...] [ALL ...]) is bppsa_add_folder for a folder with kernels per instruction
# set: PREFIXavx2.c and PREFIXavx512.c are compiled for AVX2 and AVX-512, and left out on processors of other families. WIDE has
# further options for these two files, ALL options for these two and PREFIXportable.c.
function(bppsa_add_simd_folder name prefix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ROOMS;WIDE;ALL")
  if(CMAKE_C_COMPILER_ID MATCHES "Clang") # it fuses the same a*b + c everywhere only if it fuses what stands in one expression
    list(TRANSFORM arg_WIDE REPLACE "-ffp-contract=fast" "-ffp-contract=on")
  endif()
  if(BPPSA_SANITIZE MATCHES "fuzzer") # kernels read no files, and clang would take minutes for them
    list(APPEND arg_ALL -fno-sanitize=all)
  endif()
  if(BPPSA_SANITIZE MATCHES "address,undefined") # of straight loops over floats, which clang would compile for minutes
    list(APPEND arg_ALL -fno-sanitize=undefined)
  endif()
  if(arg_ALL)
    set_source_files_properties(${prefix}portable.c PROPERTIES COMPILE_OPTIONS "${arg_ALL}")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set_source_files_properties(${prefix}avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;${arg_WIDE};${arg_ALL}")
    set_source_files_properties(${prefix}avx512.c PROPERTIES COMPILE_OPTIONS
                                "-mavx512f;-mavx512vl;-mavx512dq;-mavx2;-mprefer-vector-width=512;${arg_WIDE};${arg_ALL}")
    bppsa_add_folder(${name} ${arg_ROOMS})
  else()
    bppsa_add_folder(${name} ${arg_ROOMS} EXCLUDE "${prefix}avx[0-9]+\\.c$")
  endif()
endfunction()
