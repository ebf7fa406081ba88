# Tests of the house as a whole: its rules (tests/house), the public headers each by itself, the documentation's snippets, the
# examples, and an installed copy found by another project.
anthesis_tests(house anthesis_flags)

# Each public header compiles alone, and twice in a row, with nothing but include/ to look into.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/anthesis/*.h)
foreach(header ${headers})
  set(file ${PROJECT_BINARY_DIR}/public_headers/${header}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND header_files ${file})
endforeach()
add_library(public_headers OBJECT ${header_files})
target_link_libraries(public_headers PRIVATE anthesis_flags)

if(NOT TARGET anthesis_program)
  return()
endif()
target_compile_definitions(test_house PRIVATE ANTHESIS_BINARY_DIR="${PROJECT_BINARY_DIR}")
add_dependencies(test_house anthesis_program)

# C++ snippets of the documentation are whole programs: extracted, compiled, and run on the bundled model.
foreach(page README.md docs/numbers.md docs/values.md docs/edits.md docs/adapters.md)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${page})
  file(READ ${PROJECT_SOURCE_DIR}/${page} rest)
  string(MAKE_C_IDENTIFIER ${page} page)
  set(number 0)
  while(TRUE)
    string(FIND "${rest}" "\n```cpp\n" begin)
    if(begin EQUAL -1)
      break()
    endif()
    math(EXPR begin "${begin} + 8")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "\n```\n" end)
    string(SUBSTRING "${rest}" 0 ${end} snippet)
    math(EXPR number "${number} + 1")
    set(name snippet_${page}_${number})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/snippets/${name}.cpp CONTENT "${snippet}\n" @ONLY)
    add_executable(${name} ${PROJECT_BINARY_DIR}/snippets/${name}.cpp)
    target_link_libraries(${name} PRIVATE anthesis_flags anthesis)
    add_test(NAME ${name} COMMAND ${name})
  endwhile()
endforeach()

foreach(name ${ANTHESIS_EXAMPLES})
  if(TARGET example_${name})
    add_test(NAME example.${name} COMMAND example_${name})
  endif()
endforeach()

add_test(NAME house.find_package COMMAND ${CMAKE_COMMAND}
  -D build=${PROJECT_BINARY_DIR} -D source=${PROJECT_SOURCE_DIR} -D generator=${CMAKE_GENERATOR}
  -D compiler=${CMAKE_CXX_COMPILER} -D sanitize=${ANTHESIS_SANITIZE}
  -P ${PROJECT_SOURCE_DIR}/tests/house/find_package.cmake)
