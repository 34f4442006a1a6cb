# bppsa_version.h: the version comes from project(), the commit is read from git at every build.
set(BPPSA_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
set(BPPSA_VERSION_COMMAND
    ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${BPPSA_GENERATED_DIR}/bppsa_version.h -DVERSION=${PROJECT_VERSION}
    -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake)
execute_process(COMMAND ${BPPSA_VERSION_COMMAND} COMMAND_ERROR_IS_FATAL ANY)
add_custom_target(bppsa_version COMMAND ${BPPSA_VERSION_COMMAND} BYPRODUCTS ${BPPSA_GENERATED_DIR}/bppsa_version.h VERBATIM)
