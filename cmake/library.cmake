# The installable library: the objects of all rooms in one archive (or, with BUILD_SHARED_LIBS, one shared library),
# and the program over its public headers.
option(BUILD_SHARED_LIBS "Build libanthesis as a shared library" OFF)
include(CMakePackageConfigHelpers)

if(TARGET anthesis_engine)
  set(objects "")
  foreach(room ${ANTHESIS_ROOMS})
    list(APPEND objects $<TARGET_OBJECTS:anthesis_${room}>)
  endforeach()
  add_library(anthesis ${objects})
  add_library(anthesis::anthesis ALIAS anthesis)
  set_target_properties(anthesis PROPERTIES
    LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(anthesis PUBLIC cxx_std_20)
  target_include_directories(anthesis PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(anthesis PRIVATE fmt::fmt simdjson::simdjson Threads::Threads)
  if(ANTHESIS_SANITIZE)
    target_link_options(anthesis PUBLIC $<BUILD_INTERFACE:-fsanitize=${ANTHESIS_SANITIZE}>)
  endif()

  # find_package(anthesis) finds anthesis::anthesis and, for a static library, what that stands on.
  set(config ${PROJECT_BINARY_DIR}/cmake)
  set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/anthesis)
  configure_package_config_file(cmake/anthesisConfig.cmake.in ${config}/anthesisConfig.cmake
    INSTALL_DESTINATION ${config_folder} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${config}/anthesisConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(TARGETS anthesis EXPORT anthesisTargets)
  install(EXPORT anthesisTargets NAMESPACE anthesis:: DESTINATION ${config_folder})
  install(FILES ${config}/anthesisConfig.cmake ${config}/anthesisConfigVersion.cmake DESTINATION ${config_folder})
  install(DIRECTORY include/anthesis DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY demo DESTINATION ${CMAKE_INSTALL_DATADIR}/anthesis PATTERN udhr EXCLUDE)
  install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

file(GLOB program_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
if(program_sources AND TARGET anthesis)
  add_executable(anthesis_program ${program_sources})
  target_include_directories(anthesis_program PRIVATE src)  # for "cli/..."; a test sees to it that nothing else is included
  target_link_libraries(anthesis_program PRIVATE
    anthesis_flags anthesis fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
  set_target_properties(anthesis_program PROPERTIES
    OUTPUT_NAME anthesis RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS anthesis_program)
endif()
