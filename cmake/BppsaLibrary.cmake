# libbppsa: the object libraries of all folders. Static unless BUILD_SHARED_LIBS.
get_property(objects GLOBAL PROPERTY BPPSA_OBJECTS)
add_library(bppsa ${objects})
add_library(bppsa::bppsa ALIAS bppsa)
set_target_properties(bppsa PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                       LINKER_LANGUAGE C)
target_include_directories(bppsa INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${BPPSA_GENERATED_DIR}>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/bppsa>)
if(TARGET bppsa_mpi)
  add_dependencies(bppsa bppsa_mpi) # loaded when it is needed, and then it is to be there
endif()
target_link_libraries(bppsa PRIVATE $<BUILD_INTERFACE:bppsa_options> INTERFACE $<BUILD_INTERFACE:bppsa_depends>)
if(BUILD_SHARED_LIBS)
  target_link_libraries(bppsa PRIVATE $<BUILD_INTERFACE:bppsa_depends>)
  if(NOT BPPSA_SANITIZE)
    target_link_options(bppsa PRIVATE LINKER:-z,defs)
  endif()
endif()
