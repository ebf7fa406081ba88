#include "engine/job.h"

#include <algorithm>

namespace anthesis {

Route Job::route(std::int64_t row, std::int64_t layers) const {
  Route route{watch && watch->late() != nullptr ? watch->late()->pass_of() : nullptr, 0, layers, {}};
  if (row < input_rows) {
    route.first = request.start_layer;
    if (request.stop_after_layer) route.end = *request.stop_after_layer + 1;
  }
  if (edits && edits->skips()) {
    for (std::int64_t layer = 0; layer < layers; ++layer) route.passages.push_back(edits->passage(step_of(row), layer));
    const bool all_run = std::all_of(route.passages.begin(), route.passages.end(), [](Passage p) { return p == Passage::run; });
    if (all_run) route.passages.clear();
  }
  return route;
}

}  // namespace anthesis
