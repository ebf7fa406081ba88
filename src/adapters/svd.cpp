#include "adapters/svd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace anthesis {
namespace {

DoubleMatrix transposed(const DoubleMatrix& matrix) {
  DoubleMatrix result(matrix.cols, matrix.rows);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.cols; ++c) result(c, r) = matrix(r, c);
  }
  return result;
}

DoubleMatrix times(const DoubleMatrix& x, const DoubleMatrix& y) {
  DoubleMatrix result(x.rows, y.cols);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const double factor = x(r, j);
      for (std::int64_t c = 0; c < y.cols; ++c) result(r, c) += factor * y(j, c);
    }
  }
  return result;
}

double dot(const double* x, const double* y, std::int64_t count) noexcept {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// Turns rows i and j of a matrix.
void rotate(DoubleMatrix& matrix, std::int64_t i, std::int64_t j, double cosine, double sine) noexcept {
  double *x = &matrix(i, 0), *y = &matrix(j, 0);
  for (std::int64_t k = 0; k < matrix.cols; ++k) {
    const double a = x[k], b = y[k];
    x[k] = cosine * a - sine * b;
    y[k] = sine * a + cosine * b;
  }
}

// Of a matrix with at most as many rows as columns: its rows are turned against each other until all are orthogonal.
Svd of_flat(DoubleMatrix matrix) {
  const std::int64_t n = matrix.rows;
  DoubleMatrix turns(n, n);
  for (std::int64_t i = 0; i < n; ++i) turns(i, i) = 1;
  constexpr int kMostSweeps = 60;
  constexpr double kOrthogonal = 1e-15;
  bool done = false;
  for (int sweep = 0; sweep < kMostSweeps && !done; ++sweep) {
    done = true;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i + 1; j < n; ++j) {
        const double a = dot(&matrix(i, 0), &matrix(i, 0), matrix.cols), b = dot(&matrix(j, 0), &matrix(j, 0), matrix.cols);
        const double c = dot(&matrix(i, 0), &matrix(j, 0), matrix.cols);
        if (std::abs(c) <= kOrthogonal * std::sqrt(a * b) || c == 0) continue;
        done = false;
        const double zeta = (b - a) / (2 * c);
        const double tangent = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent);
        rotate(matrix, i, j, cosine, cosine * tangent);
        rotate(turns, i, j, cosine, cosine * tangent);
      }
    }
  }
  // turns * original = diag(values) * v
  std::vector<double> lengths;
  for (std::int64_t i = 0; i < n; ++i) lengths.push_back(std::sqrt(dot(&matrix(i, 0), &matrix(i, 0), matrix.cols)));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; });
  Svd svd{DoubleMatrix(n, n), {}, DoubleMatrix(n, matrix.cols)};
  for (std::int64_t to = 0; to < n; ++to) {
    const std::int64_t from = order[static_cast<std::size_t>(to)];
    const double length = lengths[static_cast<std::size_t>(from)];
    svd.values.push_back(length);
    for (std::int64_t k = 0; k < matrix.cols; ++k) svd.v(to, k) = length == 0 ? 0 : matrix(from, k) / length;
    for (std::int64_t r = 0; r < n; ++r) svd.u(r, to) = turns(from, r);
  }
  return svd;
}

}  // namespace

Svd singular_values(const DoubleMatrix& matrix) {
  if (matrix.rows <= matrix.cols) return of_flat(matrix);
  Svd svd = of_flat(transposed(matrix));
  return {transposed(svd.v), std::move(svd.values), transposed(svd.u)};
}

// b = ub sb vb and a = ua sa va: the middle, sb vb ua sa, is small.
Svd singular_values_of_product(const DoubleMatrix& b, const DoubleMatrix& a) {
  const Svd of_b = singular_values(b), of_a = singular_values(a);
  DoubleMatrix middle = times(of_b.v, of_a.u);
  for (std::int64_t r = 0; r < middle.rows; ++r) {
    for (std::int64_t c = 0; c < middle.cols; ++c) {
      middle(r, c) *= of_b.values[static_cast<std::size_t>(r)] * of_a.values[static_cast<std::size_t>(c)];
    }
  }
  const Svd inner = singular_values(middle);
  return {times(of_b.u, inner.u), inner.values, times(inner.v, of_a.v)};
}

}  // namespace anthesis
