# Short programs over the public API, examples/NAME.cpp. The tests run each on the bundled model, where it exits with 0.
set(ANTHESIS_EXAMPLES generate batch named_values forward logit_lens edits trace)
if(TARGET anthesis)
  foreach(name ${ANTHESIS_EXAMPLES})
    add_executable(example_${name} examples/${name}.cpp)
    target_link_libraries(example_${name} PRIVATE anthesis_flags anthesis)
    set_target_properties(example_${name} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  endforeach()
endif()
