# libbppsa: the object libraries of all folders. Static unless BUILD_SHARED_LIBS.
#
# bppsa is what other projects link: its headers are the public ones, and as a shared library it shows their names alone.
# bppsa_internal is what the programs and tests of this project link: an archive of the same objects, and the sources' headers.
get_property(objects GLOBAL PROPERTY BPPSA_OBJECTS)

# bppsa_link_shared(TARGET): the options by which a shared library is linked from the objects.
function(bppsa_link_shared target)
  set(map "${BPPSA_INTERFACE_DIR}/bppsa.map")
  add_dependencies(${target} bppsa_interface)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:bppsa_options> $<BUILD_INTERFACE:bppsa_depends>)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  if(NOT BPPSA_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
endfunction()

add_library(bppsa ${objects})
add_library(bppsa::bppsa ALIAS bppsa)
set_target_properties(bppsa PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                       LINKER_LANGUAGE C)
target_include_directories(bppsa INTERFACE $<BUILD_INTERFACE:${BPPSA_INTERFACE_DIR}/include>
                                           $<BUILD_INTERFACE:${BPPSA_GENERATED_DIR}>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/bppsa>)
add_dependencies(bppsa bppsa_interface)
if(TARGET bppsa_mpi)
  add_dependencies(bppsa bppsa_mpi) # loaded when it is needed, and then it is to be there
endif()
set(archive bppsa)
if(BUILD_SHARED_LIBS)
  bppsa_link_shared(bppsa)
  set(archive bppsa_archive)
  add_library(bppsa_archive STATIC ${objects})
  set_target_properties(bppsa_archive PROPERTIES LINKER_LANGUAGE C)
else()
  target_link_libraries(bppsa PRIVATE $<BUILD_INTERFACE:bppsa_options> INTERFACE $<BUILD_INTERFACE:bppsa_depends>)
endif()
add_library(bppsa_internal INTERFACE)
target_include_directories(bppsa_internal INTERFACE "${PROJECT_SOURCE_DIR}" "${BPPSA_GENERATED_DIR}")
target_link_libraries(bppsa_internal INTERFACE $<LINK_ONLY:${archive}> bppsa_depends)
