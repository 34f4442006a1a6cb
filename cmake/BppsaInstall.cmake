# cmake --install: headers, library, CMake package and pkg-config file; cli/ adds the program.
include(CMakePackageConfigHelpers)

# The libraries that users of a static libbppsa must link themselves; a shared one names them.
set(link_libraries "")
if(NOT BUILD_SHARED_LIBS)
  list(APPEND link_libraries PkgConfig::BPPSA_JANSSON PkgConfig::BPPSA_ZLIB Threads::Threads ${CMAKE_DL_LIBS} m)
  if(BPPSA_CUDA)
    list(APPEND link_libraries CUDA::cudart_static stdc++)
  endif()
endif()
target_link_libraries(bppsa INTERFACE "$<INSTALL_INTERFACE:${link_libraries}>")

install(DIRECTORY "${BPPSA_INTERFACE_DIR}/include/" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bppsa)
install(FILES "${BPPSA_GENERATED_DIR}/bppsa_version.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bppsa)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/CITATION.cff" DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS bppsa EXPORT bppsa ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bppsa)
install(EXPORT bppsa NAMESPACE bppsa:: FILE bppsaTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/bppsaConfig.cmake.in "${PROJECT_BINARY_DIR}/bppsaConfig.cmake"
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/bppsaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/bppsaConfig.cmake" "${PROJECT_BINARY_DIR}/bppsaConfigVersion.cmake" DESTINATION ${package_dir})

# pkg-config. The prefix is relative to the file's directory, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig"
           OUTPUT_VARIABLE BPPSA_PC_PREFIX)
set(libs "")
if(BPPSA_CUDA)
  string(APPEND libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lstdc++ -lrt")
endif()
string(APPEND libs " -ldl -lpthread -lm")
if(BUILD_SHARED_LIBS)
  set(BPPSA_PC_REQUIRES "")
  set(BPPSA_PC_PRIVATE "Requires.private: jansson, zlib\nLibs.private:${libs}\n")
  set(BPPSA_PC_LIBS "-lbppsa")
else()
  set(BPPSA_PC_REQUIRES "jansson, zlib")
  set(BPPSA_PC_PRIVATE "")
  set(BPPSA_PC_LIBS "-lbppsa${libs}")
endif()
configure_file(cmake/bppsa.pc.in "${PROJECT_BINARY_DIR}/bppsa.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/bppsa.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
