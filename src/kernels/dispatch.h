// Which kernels run: chosen once, at first use. ANTHESIS_ISA=scalar|avx2|avx512|avx512_vnni|avx512_bf16 (x86)
// or scalar|neon|neon_dotprod (ARM) forces one.
#pragma once

#include <span>
#include <string_view>

namespace anthesis::kernels {

struct Table;  // kernels/table.h

/// Tables that this build has and this machine can run, slowest first; scalar is always there. Each has a name.
std::span<const Table* const> available() noexcept;
/// The one with this name, or null.
const Table* find(std::string_view name) noexcept;
/// The fastest available, or the one that ANTHESIS_ISA names. Throws InvalidArgument where that one is unknown or cannot run
/// here.
const Table& selected();
std::string_view name(const Table& table) noexcept;

}  // namespace anthesis::kernels
