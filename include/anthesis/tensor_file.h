// Named float arrays in safetensors files: how captured values are written and edit tensors are read.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "anthesis/tensor.h"

namespace anthesis {

using NamedTensors = std::map<std::string, Tensor>;

/// Writes `tensors` as F32 to `path`, through a temporary file that is renamed at the end: a file that
/// exists is replaced whole or not at all. Throws LoadError (with the path and the system's reason).
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Reads every array of a safetensors file as float32 (F32, F64, F16, BF16 and integer types are converted).
/// Throws LoadError.
NamedTensors read_safetensors(const std::filesystem::path& path);
/// The strings that its header holds beside the arrays. Throws LoadError.
std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path);

}  // namespace anthesis
