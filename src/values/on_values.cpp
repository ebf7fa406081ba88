// A visitor made of a function.
#include <algorithm>

#include "anthesis/values.h"

namespace anthesis {
namespace {

class FunctionVisitor final : public ValueVisitor {
 public:
  FunctionVisitor(std::vector<ValueRef> values, std::function<void(const ValuePoint&)> visit, bool writes)
      : values_(std::move(values)), visit_(std::move(visit)), writes_(writes) {
    std::sort(values_.begin(), values_.end());
  }
  [[nodiscard]] bool wants(ValueId id, std::int64_t layer) const override {
    return std::binary_search(values_.begin(), values_.end(), ValueRef{id, layer});
  }
  void visit(const ValuePoint& point) override { visit_(point); }
  [[nodiscard]] bool writes() const override { return writes_; }

 private:
  std::vector<ValueRef> values_;
  std::function<void(const ValuePoint&)> visit_;
  bool writes_;
};

}  // namespace

std::shared_ptr<ValueVisitor> on_values(std::string_view names, std::int64_t layers,
                                        std::function<void(const ValuePoint&)> visit, bool writes) {
  return std::make_shared<FunctionVisitor>(select_values(names, layers), std::move(visit), writes);
}

}  // namespace anthesis
