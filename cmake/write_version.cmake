# Writes OUT from VERSION and the git commit of SOURCE; leaves the file alone when nothing changed.
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT VERSION MATCHES "^([0-9]+)\\.([0-9]+)\\.([0-9]+)$")
  message(FATAL_ERROR "version ${VERSION}: expected MAJOR.MINOR.PATCH")
endif()
set(text "/* The build of the library wrote this file. */
#ifndef BPPSA_VERSION_H
#define BPPSA_VERSION_H

#define BPPSA_VERSION \"${VERSION}\"
#define BPPSA_VERSION_MAJOR ${CMAKE_MATCH_1}
#define BPPSA_VERSION_MINOR ${CMAKE_MATCH_2}
#define BPPSA_VERSION_PATCH ${CMAKE_MATCH_3}
#define BPPSA_COMMIT \"${commit}\" /* \"\" outside a git checkout; ends in -dirty when files differ from it */

#endif
")
set(old "")
if(EXISTS "${OUT}")
  file(READ "${OUT}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${OUT}" "${text}")
endif()
