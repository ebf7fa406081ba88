# What the kernels and their tests need, from source, so that it can be compiled for another machine: fmt's headers by
# themselves, and GoogleTest as Debian's libgtest-dev brings it.
find_path(ANTHESIS_FMT_HEADERS fmt/format.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
# A folder of its own: beside fmt lie headers of the machine that compiles.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/headers)
file(CREATE_LINK ${ANTHESIS_FMT_HEADERS}/fmt ${PROJECT_BINARY_DIR}/headers/fmt SYMBOLIC)
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt INTERFACE ${PROJECT_BINARY_DIR}/headers)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)

set(BUILD_GMOCK OFF)
set(INSTALL_GTEST OFF)
set(ANTHESIS_GOOGLETEST /usr/src/googletest CACHE PATH "The source of GoogleTest")
add_subdirectory(${ANTHESIS_GOOGLETEST} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
if(NOT TARGET GTest::gtest)
  add_library(GTest::gtest ALIAS gtest)
  add_library(GTest::gtest_main ALIAS gtest_main)
endif()
