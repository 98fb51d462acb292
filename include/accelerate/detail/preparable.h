// What prepare() can tell apart, and the types it makes of them.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "accelerate/data_loader.h"
#include "accelerate/detail/torch_loader.h"
#include "accelerate/prepared_model.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/prepared_scheduler.h"

namespace torch::nn {
class AnyModule;
}
namespace torch::data {
template <typename Dataset, typename Batch, typename BatchRequest>
class DataLoaderBase;
}

namespace accelerate {

// What unplaced() returns: T is a reference for an lvalue.
template <class T>
struct Unplaced {
  T object;
};

// Has prepare() leave `object` where it is: a model on its device, batches where the dataset puts
// them. Otherwise it is prepared like any other.
//   auto [model, loader] = accelerator.prepare(net, accelerate::unplaced(batches));
template <class T>
Unplaced<T> unplaced(T&& object) {
  return {std::forward<T>(object)};
}

}  // namespace accelerate

namespace accelerate::detail {

template <class T>
inline constexpr bool is_module = std::is_base_of_v<torch::nn::Module, T>;

// A TORCH_MODULE holder: names the module it contains and gives it away by ptr().
template <class T>
concept ModuleHolder = requires(const T& holder) {
  typename T::ContainedType;
  holder.ptr();
}
&&is_module<typename T::ContainedType>;

template <class T>
struct PointeeOf {
  using type = void;
};
template <class T>
struct PointeeOf<std::shared_ptr<T>> {
  using type = T;
};

template <class T, class Deleter>
struct PointeeOf<std::unique_ptr<T, Deleter>> {
  using type = T;
};

template <class T>
inline constexpr bool is_shared_ptr = false;
template <class T>
inline constexpr bool is_shared_ptr<std::shared_ptr<T>> = true;

template <class T>
concept SharedModule = is_shared_ptr<T> && is_module<typename PointeeOf<T>::type>;

template <class T>
inline constexpr bool is_optimizer = std::is_base_of_v<torch::optim::Optimizer, T>;

template <class T>
inline constexpr bool is_optimizer_pointer = is_optimizer<typename PointeeOf<T>::type>;

template <class T>
inline constexpr bool is_prepared_model = false;
template <class Module>
inline constexpr bool is_prepared_model<PreparedModel<Module>> = true;

template <class T>
inline constexpr bool is_loader = false;
template <class Source, class Collate>
inline constexpr bool is_loader<DataLoader<Source, Collate>> = true;

template <class T>
concept Model = ModuleHolder<T> || SharedModule<T>;

// The shared_ptr inside a holder, or the pointer itself.
template <Model T>
auto module_of(const T& model) {
  if constexpr (ModuleHolder<T>) {
    return model.ptr();
  } else {
    return model;
  }
}

// A module in a form that cannot be shared with a prepared model.
template <class T>
inline constexpr bool is_unshared_module = is_module<T> || is_module<std::remove_pointer_t<T>> ||
                                           std::is_same_v<T, torch::nn::AnyModule> ||
                                           (!is_shared_ptr<T> &&
                                            is_module<typename PointeeOf<T>::type>);

template <class Dataset, class Batch, class Request>
std::true_type is_torch_loader_pointer(const torch::data::DataLoaderBase<Dataset, Batch, Request>*);
std::false_type is_torch_loader_pointer(const void*);

// A loader of torch::data, or a smart pointer to one.
template <class T>
inline constexpr bool is_torch_loader =
    decltype(is_torch_loader_pointer(static_cast<T*>(nullptr)))::value ||
    decltype(is_torch_loader_pointer(static_cast<typename PointeeOf<T>::type*>(nullptr)))::value;

template <class T>
inline constexpr bool is_unplaced = false;
template <class T>
inline constexpr bool is_unplaced<Unplaced<T>> = true;

// A pointer that owns nothing: whoever made `object` keeps it alive.
template <class T>
std::shared_ptr<T> borrowed(T* object) {
  return std::shared_ptr<T>(std::shared_ptr<T>(), object);
}

// A loader of torch::data, given by reference or by pointer, as a loader of ours. An lvalue is
// referenced, an rvalue owned.
template <class T>
auto adopt_torch_loader(T&& object) {
  using Object = std::remove_cvref_t<T>;
  using Pointee = typename PointeeOf<Object>::type;
  const auto adopt = [](auto loader) { return data_loader(batches_of_torch(std::move(loader))); };
  if constexpr (std::is_void_v<Pointee>) {
    static_assert(std::is_lvalue_reference_v<T>);
    return adopt(borrowed(&object));
  } else if constexpr (is_shared_ptr<Object> || !std::is_lvalue_reference_v<T>) {
    return adopt(std::shared_ptr<Pointee>(std::forward<T>(object)));
  } else {
    return adopt(borrowed(object.get()));
  }
}

}  // namespace accelerate::detail
