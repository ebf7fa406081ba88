# Installs the build to a folder of its own, builds tests/house/find_package against it, moves it, and runs what came out.
set(prefix ${build}/find_package/prefix)
set(moved ${build}/find_package/moved)
set(project ${build}/find_package/project)
file(REMOVE_RECURSE ${build}/find_package)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${build} --prefix ${prefix})
set(flags "")
if(sanitize)
  set(flags -fsanitize=${sanitize})
endif()
run(${CMAKE_COMMAND} -S ${source}/tests/house/find_package -B ${project} -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_FLAGS=${flags} -D CMAKE_EXPORT_NO_PACKAGE_REGISTRY=ON)
run(${CMAKE_COMMAND} --build ${project})
run(${project}/hello ${prefix}/share/anthesis/demo/model)
if(NOT output MATCHES "All human beings are born free and equal")
  message(FATAL_ERROR "the project over find_package(anthesis) printed:\n${output}")
endif()

# The installed program finds the model beside itself, wherever the tree was moved.
file(RENAME ${prefix} ${moved})
run(${moved}/bin/anthesis info --json)
if(NOT output MATCHES "${moved}/share/anthesis/demo/model")
  message(FATAL_ERROR "the installed program uses another model than the one it was installed with:\n${output}")
endif()
file(REMOVE_RECURSE ${build}/find_package)
