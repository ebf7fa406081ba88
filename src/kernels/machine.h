// What this build has kernels for. One of machine_x86.cpp, machine_arm.cpp and machine_any.cpp is built.
#pragma once

#include <span>

#include "kernels/table.h"

namespace anthesis::kernels {

struct Built {
  const Table* table;
  bool (*runs_here)() noexcept;
};

/// Slowest first; scalar is always the first and runs everywhere.
std::span<const Built> built() noexcept;

}  // namespace anthesis::kernels
