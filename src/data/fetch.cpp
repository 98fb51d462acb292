#include "accelerate/detail/fetch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <exception>
#include <string>

#include "accelerate/errors.h"
#include "base/split_mix.h"

namespace accelerate::detail {
namespace {

// What the exception in flight says, as an error of the data.
[[noreturn]] void rethrow_as_data_error(const std::string& subject) {
  try {
    throw;
  } catch (const Error& error) {
    std::throw_with_nested(DataError(
        {.what = subject + ": " + error.message(), .where = error.where(), .hint = error.hint()}));
  } catch (const c10::Error& error) {
    std::throw_with_nested(
        DataError({.what = subject + " could not be read: " + error.what_without_backtrace()}));
  } catch (const std::exception& error) {
    std::throw_with_nested(DataError({.what = subject + " could not be read: " + error.what()}));
  } catch (...) {
    std::throw_with_nested(DataError(
        {.what = subject + " could not be read: the dataset threw something that is not a "
                           "std::exception"}));
  }
}

[[noreturn]] void refuse_batch(const std::string& returned, size_t asked,
                               const std::type_info& dataset) {
  throw DataError({.what = "the dataset was asked for a batch of " + std::to_string(asked) +
                           " samples and returned " + returned,
                   .where = "get_batch() of " + c10::demangle(dataset.name()),
                   .hint = "return one row for each index, the batch as the first dimension"});
}

}  // namespace

void check_batch_size(size_t returned, size_t asked, const std::type_info& dataset) {
  if (returned != asked) refuse_batch("one of " + std::to_string(returned), asked, dataset);
}

void check_batch_size(const at::Tensor& tensor, size_t asked, const std::type_info& dataset) {
  if (!tensor.defined()) return;
  if (tensor.dim() == 0) refuse_batch("a tensor without a batch dimension", asked, dataset);
  check_batch_size(static_cast<size_t>(tensor.size(0)), asked, dataset);
}

void rethrow_for_sample(size_t index) { rethrow_as_data_error("sample " + std::to_string(index)); }

void rethrow_for_batch(int64_t number) { rethrow_as_data_error("batch " + std::to_string(number)); }

void rethrow_for_samples(c10::ArrayRef<size_t> indices) {
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(indices.size(), kShown); ++i) {
    list += (i == 0 ? " " : ", ") + std::to_string(indices[i]);
  }
  if (indices.size() > kShown) {
    list += ", ... (" + std::to_string(indices.size()) + " of them)";
  }
  rethrow_as_data_error("the batch of samples" + list);
}

at::Generator& sample_generator(uint64_t seed, int64_t epoch, size_t index) {
  thread_local at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  const uint64_t place = split_mix(split_mix(seed) + static_cast<uint64_t>(epoch)) + index;
  generator.set_current_seed(split_mix(place));
  return generator;
}

}  // namespace accelerate::detail
