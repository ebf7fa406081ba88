# The only place that sets instruction-set flags, one file at a time. Files for other architectures are left out.
function(anthesis_kernel_file file)
  set_source_files_properties(src/kernels/${file} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endfunction()
function(anthesis_leave_out file)
  set_source_files_properties(src/kernels/${file} PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  anthesis_kernel_file(avx2.cpp -mavx2 -mfma -mf16c)
  # GCC's own header initialises a variable with itself, which GCC then warns of.
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -Wno-uninitialized -Wno-maybe-uninitialized)
  anthesis_kernel_file(avx512.cpp ${avx512})
  anthesis_kernel_file(avx512_vnni.cpp ${avx512} -mavx512vnni)
  anthesis_kernel_file(avx512_bf16.cpp ${avx512} -mavx512vnni -mavx512bf16)
  set(other_files neon neon_dotprod machine_arm machine_any)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  anthesis_kernel_file(neon_dotprod.cpp -march=armv8.2-a+dotprod)
  set(other_files avx2 avx512 avx512_vnni avx512_bf16 machine_x86 machine_any)
else()
  set(other_files avx2 avx512 avx512_vnni avx512_bf16 neon neon_dotprod machine_x86 machine_arm)
endif()
foreach(file ${other_files})
  anthesis_leave_out(${file}.cpp)
endforeach()

if(ANTHESIS_BUILD_TESTS)
  # The scalar kernels once more, with fused multiply-add as an instruction: the same bits, quick enough to test against.
  add_library(anthesis_kernels_oracle STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/kernels/scalar_fma.cpp)
  target_link_libraries(anthesis_kernels_oracle PUBLIC anthesis_kernels)
  target_include_directories(anthesis_kernels_oracle PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(anthesis_kernels_oracle PRIVATE -mfma)
  endif()

  # A function with a weak symbol, compiled for one instruction set, could be linked for every machine.
  add_test(NAME kernels.NoWeakSymbols
    COMMAND sh ${PROJECT_SOURCE_DIR}/tests/kernels/no_weak_symbols.sh ${CMAKE_NM}
      "$<FILTER:$<TARGET_OBJECTS:anthesis_kernels>,INCLUDE,/(avx|neon|scalar)[^/]*$>"
    COMMAND_EXPAND_LISTS)
endif()
