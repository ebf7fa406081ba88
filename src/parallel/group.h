// The ranks that run one model together. The model calls a group wherever ranks would exchange numbers; a group of one does
// nothing there.
#pragma once

#include <memory>

#include "core/matrix.h"

namespace anthesis {

/// Every rank calls the same functions in the same order. Each says whether to go on: false once a rank is lost.
class Group {
 public:
  virtual ~Group() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Sums what the ranks hold, by pairwise exchange along the tree in which a linear folds its K ranges, so that the bits are
  /// those of one rank.
  [[nodiscard]] virtual bool fold(Matrix partial) noexcept = 0;
  /// Puts the ranks' columns side by side: rank r's `own` becomes columns [r * own.cols, ...) of `whole`. In a group of one,
  /// `own` is `whole`.
  [[nodiscard]] virtual bool gather_columns(Matrix own, Matrix whole) noexcept = 0;
};

/// A group of one.
std::unique_ptr<Group> single_group();

}  // namespace anthesis
