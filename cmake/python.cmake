# The Python package: the extension module python/src over the public headers, and the Python files of python/anthesis. It is put
# together in BUILD/python, where the tests import it; `pip install .` (pyproject.toml) installs the component "python".
set(ANTHESIS_BUILD_PYTHON AUTO CACHE STRING "ON, OFF, or AUTO: where ANTHESIS_PYTHON has nanobind")
set(ANTHESIS_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "The Python to build for; tools/python-env makes this one")

set(ANTHESIS_PYTHON_MISSING "")  # why the package is not built
if(SKBUILD)  # scikit-build-core, which names the Python that it runs in
  set(python ${Python_EXECUTABLE})
elseif(NOT ANTHESIS_BUILD_PYTHON OR NOT PROJECT_IS_TOP_LEVEL)
  set(ANTHESIS_PYTHON_MISSING "it was not asked for")
elseif(ANTHESIS_SANITIZE)
  set(ANTHESIS_PYTHON_MISSING "the interpreter is built without the sanitizers")
else()
  set(python ${ANTHESIS_PYTHON})
endif()
if(NOT ANTHESIS_PYTHON_MISSING)
  execute_process(COMMAND ${python} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    set(ANTHESIS_PYTHON_MISSING "${python} has no nanobind; tools/python-env sees to it where pip reaches an index")
  endif()
endif()
if(ANTHESIS_PYTHON_MISSING)
  if(ANTHESIS_BUILD_PYTHON STREQUAL ON OR SKBUILD)
    message(FATAL_ERROR "The Python package cannot be built: ${ANTHESIS_PYTHON_MISSING}")
  endif()
  message(STATUS "The Python package is left out: ${ANTHESIS_PYTHON_MISSING}")
  return()
endif()

set(Python_EXECUTABLE ${python})
set(Python_FIND_VIRTUALENV ONLY)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/src/*.cpp)
nanobind_add_module(anthesis_python NB_STATIC ${python_sources})
set(package ${PROJECT_BINARY_DIR}/python/anthesis)
set_target_properties(anthesis_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${package})
target_link_libraries(anthesis_python PRIVATE anthesis_flags anthesis)
get_target_property(nanobind_headers nanobind-static INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(anthesis_python SYSTEM PRIVATE ${nanobind_headers})  # their warnings are not ours
target_link_options(anthesis_python PRIVATE LINKER:--exclude-libs,ALL)  # what the engine is made of is nobody else's business
nanobind_add_stub(anthesis_python_stub MODULE _core PYTHON_PATH ${package} DEPENDS anthesis_python OUTPUT ${package}/_core.pyi)

# The package as it will be installed, of links into the source: a change of a Python file needs no build.
file(GLOB_RECURSE python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/anthesis
  ${PROJECT_SOURCE_DIR}/python/anthesis/*.py ${PROJECT_SOURCE_DIR}/python/anthesis/py.typed)
foreach(file ${python_files})
  get_filename_component(folder ${package}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/anthesis/${file} ${package}/${file} SYMBOLIC)
endforeach()
file(MAKE_DIRECTORY ${package}/demo)
foreach(part model adapters)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/demo/${part} ${package}/demo/${part} SYMBOLIC)
endforeach()

install(TARGETS anthesis_python LIBRARY DESTINATION anthesis COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${package}/_core.pyi DESTINATION anthesis COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY demo/model demo/adapters DESTINATION anthesis/demo COMPONENT python EXCLUDE_FROM_ALL)
