// What Accelerator::prepare() does with one object, by its type. A part of accelerator.h, which
// includes it. Internal: users do not call it.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "accelerate/accelerator.h"
#include "accelerate/detail/followed_loader.h"
#include "accelerate/detail/preparable.h"
#include "accelerate/detail/stamped.h"

namespace accelerate {

template <class T>
decltype(auto) Accelerator::prepare_one(T&& object, bool place) {
  using Object = std::remove_cvref_t<T>;
  static_assert(!detail::is_unshared_module<Object>,
                "pass a TORCH_MODULE holder or a std::shared_ptr to prepare()");
  static_assert(!detail::is_optimizer<std::remove_pointer_t<Object>> || !std::is_pointer_v<Object>,
                "pass the optimizer itself or a smart pointer to prepare()");
  static_assert(!detail::is_torch_scheduler<Object> || !std::is_pointer_v<Object>,
                "pass the scheduler itself or a smart pointer to prepare()");
  static_assert(
      !detail::is_torch_plateau<Object>,
      "torch::optim::ReduceLROnPlateauScheduler keeps its state private and cannot be "
      "saved; use accelerate::Scheduler(optimizer, accelerate::reduce_lr_on_plateau({}))");
  static_assert(detail::is_preparable<Object> || detail::is_unshared_module<Object> ||
                    detail::is_optimizer<std::remove_pointer_t<Object>> ||
                    detail::is_torch_plateau<Object>,
                "prepare() does not know this type; wrap it in accelerate::pass_through() to get "
                "it back as it is");
  if constexpr (detail::Model<Object>) {
    auto module = detail::module_of(object);
    using Module = typename decltype(module)::element_type;
    auto strategy = wrap_module(module, /*place=*/false);  // was placed and wrapped before
    return PreparedModel<Module>(std::move(module), std::move(strategy), precision(),
                                 zero_grad_of_models());
  } else if constexpr (detail::is_optimizer<Object>) {
    static_assert(!std::is_const_v<std::remove_reference_t<T>>,
                  "prepare() needs a mutable optimizer");
    if constexpr (std::is_lvalue_reference_v<T>) {
      return prepare_optimizer(detail::borrowed(&object), place);
    } else {
      return prepare_optimizer(std::make_shared<Object>(std::forward<T>(object)), place);
    }
  } else if constexpr (detail::is_optimizer_pointer<Object>) {
    if constexpr (std::is_lvalue_reference_v<T> && !detail::is_shared_ptr<Object>) {
      return prepare_optimizer(detail::borrowed(object.get()), place);
    } else {
      return prepare_optimizer(std::forward<T>(object), place);
    }
  } else if constexpr (std::is_same_v<Object, ConfiguredOptimizer>) {
    return prepare_configured(object, place);
  } else if constexpr (std::is_same_v<Object, ConfiguredScheduler>) {
    return prepare_configured(object);
  } else if constexpr (std::is_same_v<Object, Scheduler>) {
    return prepare_scheduler(object);
  } else if constexpr (detail::is_torch_scheduler<Object> && !std::is_pointer_v<Object>) {
    static_assert(!std::is_base_of_v<torch::optim::LRScheduler, std::remove_reference_t<T>> ||
                      !std::is_const_v<std::remove_reference_t<T>>,
                  "prepare() needs a mutable scheduler");
    return prepare_torch_scheduler(
        detail::torch_scheduler(detail::shared_object(std::forward<T>(object))));
  } else if constexpr (detail::is_torch_loader<Object>) {
    auto adopted = detail::adopt_torch_loader(std::forward<T>(object));
    if (adopted.is_batch_stream()) say_rank_zero_reads();
    return prepare_loader(adopted, place);
  } else if constexpr (detail::is_loader<Object>) {
    return prepare_loader(object, place);
  } else if constexpr (detail::is_unplaced<Object>) {
    return prepare_one(static_cast<decltype(object.object)&&>(object.object), false);
  } else if constexpr (detail::is_prepared<Object>) {
    return Object(std::forward<T>(object));
  } else if constexpr (detail::is_pass_through<Object>) {
    return static_cast<decltype(object.object)>(std::forward<T>(object).object);
  } else {
    return static_cast<T&&>(object);  // was refused above
  }
}

template <class Loader>
Loader Accelerator::prepare_loader(const Loader& loader, bool place) {
  if (loader.is_sharded()) return loader;
  Loader prepared = detail::stamped(state(), [&] {
    // A rank that is sent its batches need not have data: nothing is asked of it.
    const LoaderState place_of_data =
        reads_data(loader.is_batch_stream()) ? loader.state_dict() : LoaderState{};
    const bool has_seed =
        loader.options().seed.has_value() || loader.control()->start().seed.has_value();
    return loader.sharded(loader_shard(loader.options(), loader.is_batch_stream(), place_of_data,
                                       has_seed, place, loader.sample_digest()));
  });
  follow_loader(detail::follow(prepared));
  return prepared;
}

}  // namespace accelerate
