# pytest, a test per file of tests/python, over the package in BUILD/python. Where the package could not be built, one test that is
# skipped says why.
if(NOT TARGET anthesis_python)
  add_test(NAME python.package COMMAND ${CMAKE_COMMAND} -E echo "The Python package is not tested: ${ANTHESIS_PYTHON_MISSING}")
  set_tests_properties(python.package PROPERTIES SKIP_REGULAR_EXPRESSION "is not tested")
  return()
endif()
file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/test_*.py)
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "test_" "python." name ${name})
  add_test(NAME ${name} COMMAND ${Python_EXECUTABLE} -m pytest -q -rs -p no:cacheprovider ${file})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 5  # pytest: all of the file's tests need what is not there
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;ANTHESIS_BINARY_DIR=${PROJECT_BINARY_DIR}")
endforeach()
