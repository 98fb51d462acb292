// The types that prepare() distinguishes, and what it turns them into.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "accelerate/configured.h"
#include "accelerate/data_loader.h"
#include "accelerate/detail/torch_loader.h"
#include "accelerate/loader.h"
#include "accelerate/prepared_model.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/prepared_scheduler.h"

namespace torch::nn {
class AnyModule;
}
namespace torch::optim {
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim
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

// What pass_through() returns: T is a reference for an lvalue.
template <class T>
struct PassThrough {
  T object;
};

// Has prepare() hand `object` back as it is, whatever it is: for generic code that prepares what it
// is given. An lvalue comes back as a reference, an rvalue by value.
template <class T>
PassThrough<T> pass_through(T&& object) {
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

// Itself, by plain pointer or by smart pointer.
template <class Base, class T>
inline constexpr bool is_or_points_to =
    std::is_base_of_v<Base, T> || std::is_base_of_v<Base, std::remove_pointer_t<T>> ||
    std::is_base_of_v<Base, typename PointeeOf<T>::type>;

template <class T>
inline constexpr bool is_torch_scheduler = is_or_points_to<torch::optim::LRScheduler, T>;

template <class T>
inline constexpr bool is_torch_plateau =
    is_or_points_to<torch::optim::ReduceLROnPlateauScheduler, T>;

template <class T>
inline constexpr bool is_prepared_model = false;
template <class Module>
inline constexpr bool is_prepared_model<PreparedModel<Module>> = true;

template <class T>
inline constexpr bool is_loader = false;
template <class Source, class Collate>
inline constexpr bool is_loader<DataLoader<Source, Collate>> = true;
template <class Value>
inline constexpr bool is_loader<Loader<Value>> = true;

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

template <class T>
inline constexpr bool is_pass_through = false;
template <class T>
inline constexpr bool is_pass_through<PassThrough<T>> = true;

template <class T>
inline constexpr bool is_prepared = is_prepared_model<T> || std::is_same_v<T, PreparedOptimizer> ||
                                    std::is_same_v<T, PreparedScheduler>;

template <class T>
struct PreparedType {
  static_assert(is_loader<T> || is_prepared<T>,
                "Prepared<T>: T is a module or its holder, an optimizer, a scheduler or a loader");
  using type = T;
};
template <class T>
requires is_module<T>
struct PreparedType<T> {
  using type = PreparedModel<T>;
};
template <ModuleHolder T>
struct PreparedType<T> {
  using type = PreparedModel<typename T::ContainedType>;
};
template <class T>
requires is_optimizer<T>
struct PreparedType<T> {
  using type = PreparedOptimizer;
};
template <>
struct PreparedType<ConfiguredOptimizer> {
  using type = PreparedOptimizer;
};
template <class T>
requires(std::is_same_v<T, Scheduler> || std::is_same_v<T, ConfiguredScheduler> ||
         std::is_base_of_v<torch::optim::LRScheduler, T>) struct PreparedType<T> {
  using type = PreparedScheduler;
};

template <class T>
inline constexpr bool is_configured =
    std::is_same_v<T, ConfiguredOptimizer> || std::is_same_v<T, ConfiguredScheduler>;

// What prepare() can do something with.
template <class T>
inline constexpr bool is_preparable =
    Model<T> || is_optimizer<T> || is_optimizer_pointer<T> || std::is_same_v<T, Scheduler> ||
    is_configured<T> || is_torch_scheduler<T> || is_torch_loader<T> || is_loader<T> ||
    is_unplaced<T> || is_pass_through<T> || is_prepared<T>;

// A pointer that owns nothing: the creator of `object` keeps it alive.
template <class T>
std::shared_ptr<T> borrowed(T* object) {
  return std::shared_ptr<T>(std::shared_ptr<T>(), object);
}

// An object of the user, given by reference or by smart pointer, as a shared pointer: an lvalue is
// referenced, an rvalue owned.
template <class T>
auto shared_object(T&& object) {
  using Object = std::remove_cvref_t<T>;
  using Pointee = typename PointeeOf<Object>::type;
  if constexpr (std::is_void_v<Pointee>) {
    if constexpr (std::is_lvalue_reference_v<T>) {
      return borrowed(&object);
    } else {
      return std::make_shared<Object>(std::forward<T>(object));
    }
  } else if constexpr (is_shared_ptr<Object> || !std::is_lvalue_reference_v<T>) {
    return std::shared_ptr<Pointee>(std::forward<T>(object));
  } else {
    return borrowed(object.get());
  }
}

// A torch::data loader as one of ours.
template <class T>
auto adopt_torch_loader(T&& object) {
  auto loader = shared_object(std::forward<T>(object));
  using Loader = typename decltype(loader)::element_type;
  static_assert(!kShardsItself<Loader>,
                "accelerate: this loader's sampler shares the samples between the ranks, and "
                "prepare() would share what is left once more; use torch::data::samplers::"
                "RandomSampler or SequentialSampler of all samples");
  check_dataset(loader.get());
  if constexpr (reads_torch_by_index<Loader>()) {
    auto source = std::make_shared<TorchSource<Loader>>(std::move(loader));
    LoaderOptions options = source->options();
    return DataLoader<TorchSource<Loader>>(std::move(source), std::move(options));
  } else {
    return data_loader(batches_of_torch(std::move(loader)));
  }
}

}  // namespace accelerate::detail

namespace accelerate {

// What prepare() makes of a T, to name it in members and functions:
//   Prepared<Net>                 of a TORCH_MODULE holder or the module itself: PreparedModel
//   Prepared<torch::optim::SGD>   PreparedOptimizer, whatever the optimizer
//   Prepared<Scheduler>           PreparedScheduler; also of torch's schedulers
// Loaders keep their type; see Loader for one that does not name the dataset.
template <class T>
using Prepared = typename detail::PreparedType<T>::type;

}  // namespace accelerate
