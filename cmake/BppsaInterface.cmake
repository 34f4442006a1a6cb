# The public interface: out of the library's headers cmake/interface.awk makes those that are installed, and the list of symbols
# that the shared library shows, as cmake/interface.txt says.
find_program(BPPSA_AWK NAMES awk gawk mawk nawk REQUIRED)
set(BPPSA_INTERFACE_DIR "${PROJECT_BINARY_DIR}/interface")
file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/[a-z]*/*.h")
list(FILTER headers EXCLUDE REGEX "^(build|tests)/")
set(table "${PROJECT_SOURCE_DIR}/cmake/interface.txt")
set(program "${PROJECT_SOURCE_DIR}/cmake/interface.awk")
add_custom_command(
  OUTPUT "${BPPSA_INTERFACE_DIR}/names.txt" "${BPPSA_INTERFACE_DIR}/bppsa.map"
  COMMAND ${CMAKE_COMMAND} -E rm -rf "${BPPSA_INTERFACE_DIR}"
  COMMAND ${CMAKE_COMMAND} -E make_directory "${BPPSA_INTERFACE_DIR}/include"
  COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${BPPSA_AWK} -f "${program}" -v "out=${BPPSA_INTERFACE_DIR}" "${table}"
  DEPENDS ${headers} "${table}" "${program}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Public headers"
  VERBATIM)
add_custom_target(bppsa_interface ALL DEPENDS "${BPPSA_INTERFACE_DIR}/names.txt")
