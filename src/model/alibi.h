// ALiBi: attention with linear biases. Press, Smith, Lewis: Train Short, Test Long (2022).
#pragma once

#include <cstdint>
#include <vector>

namespace anthesis {

/// One slope per head, for any head count. Powers of two: slope of head h is 2^(-8 (h + 1) / heads). Others: the slopes of the
/// next smaller power of two c, then every other slope of 2c. Hugging Face: build_alibi_tensor, which takes powers of a float32
/// base; these are exact to float32 rounding.
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace anthesis
