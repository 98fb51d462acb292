#include "cuda/products.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace accelerate::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kMostWays = 48;
constexpr int kTimedRuns = 6;

// Matrices lie by rows here and by columns for cuBLASLt, which is why it computes to^T = right^T
// left^T: its first operand is `right`.
struct Operand {
  bool transposed = false;  // as cuBLASLt sees it
  int64_t leading = 0;
  int64_t alignment = 0;
  auto operator<=>(const Operand&) const = default;
};

struct Shape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  Operand left, right, to;
  at::ScalarType type = at::kBFloat16;
  at::ScalarType to_type = at::kBFloat16;
  bool add = false;
  bool bias = false;
  int device = 0;
  auto operator<=>(const Shape&) const = default;
};

// How the memory of a matrix with a stride of 1 looks; none for others.
std::optional<Operand> operand_of(const at::Tensor& matrix) {
  const auto address = reinterpret_cast<uintptr_t>(matrix.data_ptr());
  const auto alignment = static_cast<int64_t>(std::min<uintptr_t>(256, address & (~address + 1)));
  if (alignment < 16) return std::nullopt;
  if (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1)) {
    return Operand{.transposed = false, .leading = matrix.stride(0), .alignment = alignment};
  }
  if (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0)) {
    return Operand{.transposed = true, .leading = matrix.stride(1), .alignment = alignment};
  }
  return std::nullopt;
}

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

std::optional<Shape> shape_of(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
                              const at::Tensor& bias, bool add) {
  if (to.dim() != 2 || left.dim() != 2 || right.dim() != 2 || to.numel() == 0 ||
      left.numel() == 0) {
    return std::nullopt;
  }
  // libtorch says what is wrong with others.
  if (left.size(1) != right.size(0) || to.size(0) != left.size(0) || to.size(1) != right.size(1) ||
      left.device() != to.device() || right.device() != to.device()) {
    return std::nullopt;
  }
  if (bias.defined() &&
      (bias.dim() != 1 || bias.size(0) != to.size(1) || bias.device() != to.device())) {
    return std::nullopt;
  }
  const at::ScalarType type = left.scalar_type();
  if (!is_half(type) || right.scalar_type() != type) return std::nullopt;
  if (to.scalar_type() != type && to.scalar_type() != at::kFloat) return std::nullopt;
  if (bias.defined() && (add || bias.scalar_type() != type || !bias.is_contiguous())) {
    return std::nullopt;
  }
  const auto own_left = operand_of(left);
  const auto own_right = operand_of(right);
  const auto own_to = operand_of(to);
  if (!own_left || !own_right || !own_to || own_to->transposed) return std::nullopt;
  return Shape{.rows = to.size(0),
               .columns = to.size(1),
               .inner = left.size(1),
               .left = *own_left,
               .right = *own_right,
               .to = *own_to,
               .type = type,
               .to_type = to.scalar_type(),
               .add = add,
               .bias = bias.defined(),
               .device = to.get_device()};
}

void check_cublas(cublasStatus_t status) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt failed with status ",
              static_cast<int>(status));
}

cudaDataType_t data_type(at::ScalarType type) {
  if (type == at::kFloat) return CUDA_R_32F;
  return type == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

// What cuBLASLt wants to know of a product, and the way that was chosen for it.
class Plan {
 public:
  explicit Plan(const Shape& shape) : shape_(shape) {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t right = shape.right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t left = shape.left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, right);
    set(CUBLASLT_MATMUL_DESC_TRANSB, left);
    if (shape.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const cudaDataType_t type = data_type(shape.type);
    right_ = layout(type, shape.columns, shape.inner, shape.right);
    left_ = layout(type, shape.inner, shape.rows, shape.left);
    to_ = layout(data_type(shape.to_type), shape.columns, shape.rows, shape.to);
    ways_ = ways();
    if (!ways_.empty()) chosen_ = ways_.front();
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(right_);
    cublasLtMatrixLayoutDestroy(left_);
    cublasLtMatrixLayoutDestroy(to_);
    cublasLtMatmulDescDestroy(product_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool run(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
           const at::Tensor& bias, const at::Tensor& workspace) {
    return chosen_ && run(to, left, right, bias, *chosen_, workspace);
  }

  // Runs all ways and keeps the fastest.
  void measure(const at::Tensor& like, const at::Tensor& left, const at::Tensor& right,
               const at::Tensor& bias, const at::Tensor& workspace) {
    measured_ = true;
    const at::Tensor to = at::empty_like(like);
    std::optional<float> best;
    for (const cublasLtMatmulAlgo_t& way : ways_) {
      if (!run(to, left, right, bias, way, workspace)) continue;
      at::cuda::CUDAEvent begin(cudaEventDefault);
      at::cuda::CUDAEvent end(cudaEventDefault);
      begin.record();
      for (int i = 0; i < kTimedRuns; ++i) run(to, left, right, bias, way, workspace);
      end.record();
      end.synchronize();
      const float taken = begin.elapsed_time(end);
      if (best && taken >= *best) continue;
      best = taken;
      chosen_ = way;
    }
  }
  bool measured() const { return measured_; }

 private:
  bool run(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
           const at::Tensor& bias, const cublasLtMatmulAlgo_t& way, const at::Tensor& workspace) {
    const float alpha = 1;
    const float beta = shape_.add ? 1 : 0;
    if (shape_.bias) set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data_ptr());
    return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), product_, &alpha,
                          right.data_ptr(), right_, left.data_ptr(), left_, &beta, to.data_ptr(),
                          to_, to.data_ptr(), to_, &way, workspace.data_ptr(), kWorkspaceBytes,
                          at::cuda::getCurrentCUDAStream()) == CUBLAS_STATUS_SUCCESS;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)));
  }

  // `rows` and `columns` are those of the operand after it was transposed, where it is.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                       const Operand& operand) {
    cublasLtMatrixLayout_t made = nullptr;
    const auto high = static_cast<uint64_t>(operand.transposed ? columns : rows);
    const auto wide = static_cast<uint64_t>(operand.transposed ? rows : columns);
    check_cublas(cublasLtMatrixLayoutCreate(&made, type, high, wide, operand.leading));
    return made;
  }

  std::vector<cublasLtMatmulAlgo_t> ways() const {
    cublasLtMatmulPreference_t wish = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&wish));
    const auto want = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof(value)));
    };
    want(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(shape_.right.alignment));
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape_.left.alignment));
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(shape_.to.alignment));
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(shape_.to.alignment));
    std::array<cublasLtMatmulHeuristicResult_t, kMostWays> found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), product_, right_,
                                       left_, to_, to_, wish, kMostWays, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(wish);
    std::vector<cublasLtMatmulAlgo_t> all;
    if (status != CUBLAS_STATUS_SUCCESS) return all;
    for (int i = 0; i < count; ++i) all.push_back(found[static_cast<size_t>(i)].algo);
    return all;
  }

  Shape shape_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t right_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr;
  cublasLtMatrixLayout_t to_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t> ways_;
  std::optional<cublasLtMatmulAlgo_t> chosen_;
  bool measured_ = false;
};

}  // namespace

bool measured_product(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
                      const at::Tensor& bias, bool add) {
  const auto shape = shape_of(to, left, right, bias, add);
  if (!shape) return false;
  const c10::cuda::CUDAGuard device(to.device());
  // Backward passes run on a thread of their own.
  static std::mutex mutex;
  // Never destroyed: at the end of the process cuBLASLt may be gone before.
  static auto& plans = *new std::map<Shape, std::unique_ptr<Plan>>();
  const std::lock_guard lock(mutex);
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(kWorkspaceBytes)}, to.options().dtype(at::kByte));
  std::unique_ptr<Plan>& plan = plans[*shape];
  if (plan == nullptr) plan = std::make_unique<Plan>(*shape);
  if (!plan->measured() &&
      c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None) {
    plan->measure(to, left, right, bias, workspace);
  }
  return plan->run(to, left, right, bias, workspace);
}

}  // namespace accelerate::cuda
