# Short programs over the public API. Each is run by the tests on the bundled model, where it exits with 0.
function(anthesis_example name)
  if(NOT TARGET anthesis)
    return()
  endif()
  add_executable(${name} ${PROJECT_SOURCE_DIR}/examples/${name}.cpp)
  target_link_libraries(${name} PRIVATE anthesis_flags anthesis)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
endfunction()
