// Singular values of small or flat matrices, in double precision: for merging, where nobody waits. Not for large square ones.
#pragma once

#include <cstdint>
#include <vector>

namespace anthesis {

/// Row-major, zeros at first.
struct DoubleMatrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> data;

  DoubleMatrix() = default;
  DoubleMatrix(std::int64_t rows_, std::int64_t cols_)
      : rows(rows_), cols(cols_), data(static_cast<std::size_t>(rows_ * cols_)) {}
  double& operator()(std::int64_t r, std::int64_t c) noexcept { return data[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const noexcept { return data[static_cast<std::size_t>(r * cols + c)]; }
};

/// u * diag(values) * v; values descending, as many as the smaller side has.
struct Svd {
  DoubleMatrix u;  ///< [rows, values]
  std::vector<double> values;
  DoubleMatrix v;  ///< [values, cols]
};

/// Of any matrix, by one-sided Jacobi rotations. Time: the smaller side squared times the larger, some ten times.
Svd singular_values(const DoubleMatrix& matrix);

/// Of b * a with b [rows, rank] and a [rank, cols], without writing the product out.
Svd singular_values_of_product(const DoubleMatrix& b, const DoubleMatrix& a);

}  // namespace anthesis
