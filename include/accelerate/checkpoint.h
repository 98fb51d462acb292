// Saving and loading everything that a training loop needs to go on: what Accelerator::save_state
// and load_state can be told, and what they give back. docs/training_state.md describes the
// files.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/model_files.h"
#include "accelerate/state_dict.h"
#include "accelerate/tensor_box.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace accelerate {

namespace checkpoint {
class AsyncSaver;
}

// Where the files of a training program go.
struct ProjectOptions {
  std::filesystem::path project_dir{};
  // Of trackers; empty: project_dir.
  std::filesystem::path logging_dir{};
  // save_state() without a directory goes to <project_dir>/checkpoints/checkpoint_<iteration>, and
  // load_state() takes the newest of these that is complete.
  bool automatic_checkpoint_naming = false;
  // How many of these to keep. Older ones are deleted once the new one is in place. Unset: all.
  std::optional<int64_t> total_limit{};
  // Number of the next of these; load_state() sets it to the one after the checkpoint it found.
  int64_t iteration = 0;
  // For nodes without a common file system: the first rank of each node writes all files that are
  // not a rank's own, and each node has a checkpoint of its own, which its ranks load. A save is
  // seen on all nodes or on none, and load_state() takes a checkpoint that the same save wrote on
  // all of them.
  bool save_on_each_node = false;
};

// What a save does while an asynchronous one still writes.
enum class WhileSaving {
  kWait,    // waits for it
  kRefuse,  // throws UsageError on all ranks; nothing is saved
};

struct SaveOptions {
  // Return as soon as the state is copied to host memory (page-locked where there is a GPU); a
  // thread of low priority writes the files. The memory is kept for the next such save, which
  // is several times faster than the first; Accelerator::free_memory() releases it.
  bool async = false;
  // Models as model.safetensors; else as pytorch_model.bin, an archive of torch.save().
  bool safe_serialization = true;
  WhileSaving while_saving = WhileSaving::kWait;
  // Save the gradients that each rank holds. Unset: inside a window of accumulation, where they
  // would be lost otherwise. Set it where gradients are added up without accumulate().
  std::optional<bool> gradients{};
};

struct LoadOptions {
  // Read all files once and compare their checksums before anything else.
  bool verify_data = true;
  // Where no checkpoint is yet, load nothing and return an empty path: for the first start of a
  // job that may be restarted. A checkpoint that exists but cannot be loaded is still an
  // error.
  bool if_any = false;
  // If the checkpoint is damaged, take the newest undamaged one before it, by the number in its
  // name. Skipped checkpoints are logged.
  bool fall_back = false;
  // Missing or unexpected names in models, and numbers of models, optimizers, schedulers,
  // loaders and registered objects that differ from what was saved, are an error. If false they are
  // logged, and whatever matches is loaded. Shapes must match either way.
  bool strict = true;
};

// How a save is going. A handle: copies share the save, and a moved-from one stays valid. Any
// thread.
class ACCELERATE_EXPORT SaveTicket {
 public:
  SaveTicket(const SaveTicket&) = default;
  SaveTicket& operator=(const SaveTicket&) = default;

  // Where the checkpoint is, once it is done.
  const std::filesystem::path& directory() const;
  // Whether the files are durable, or writing them has failed.
  bool done() const;
  // Blocks until it is done. Throws CheckpointError, the same on all ranks, if one of them could
  // not write: the previous checkpoint is still in place. An error that was thrown here
  // on one rank counts as seen by all of them. Not collective.
  void wait() const;

 private:
  friend class checkpoint::AsyncSaver;
  struct ACCELERATE_HIDDEN State;
  explicit SaveTicket(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Anything that can return its state and take it back later.
template <class T>
concept Checkpointable = requires(const T& constant, T& object, const StateDict& state) {
  { constant.state_dict() } -> std::convertible_to<StateDict>;
  object.load_state_dict(state);
};

// The same as two functions, for objects that have other names for it.
struct CheckpointFunctions {
  std::function<StateDict()> state_dict{};
  // Throws, and leaves the object usable, if the state does not fit: load_state() then gives every
  // object back the state it had.
  std::function<void(const StateDict&)> load_state_dict{};
  // A prepared optimizer whose state these functions save: it has no optimizer.bin then. Needed for
  // classes that are not of torch::optim, which save_state() refuses otherwise. Set automatically
  // if the registered object is an optimizer.
  const torch::optim::Optimizer* optimizer = nullptr;
};

namespace detail {

template <class T>
inline constexpr bool is_shared_pointer = false;
template <class T>
inline constexpr bool is_shared_pointer<std::shared_ptr<T>> = true;

template <class T>
const torch::optim::Optimizer* as_optimizer(const T& object) {
  if constexpr (std::is_convertible_v<const T*, const torch::optim::Optimizer*>) return &object;
  return nullptr;
}

// An object of the user as two functions. Refers to an lvalue, keeps a shared pointer.
template <class T>
CheckpointFunctions checkpoint_functions(T&& object) {
  using Object = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<Object, CheckpointFunctions>) {
    return std::forward<T>(object);
  } else if constexpr (is_shared_pointer<Object>) {
    static_assert(Checkpointable<typename Object::element_type>,
                  "register_for_checkpointing() needs state_dict() and load_state_dict()");
    return {.state_dict = [object]() -> StateDict { return object->state_dict(); },
            .load_state_dict = [object](const StateDict& state) { object->load_state_dict(state); },
            .optimizer = as_optimizer(*object)};
  } else {
    static_assert(Checkpointable<Object>,
                  "register_for_checkpointing() needs state_dict() and load_state_dict()");
    static_assert(std::is_lvalue_reference_v<T>,
                  "register_for_checkpointing() keeps a reference: give it an object that outlives "
                  "the accelerator");
    return {.state_dict = [&object]() -> StateDict { return object.state_dict(); },
            .load_state_dict = [&object](const StateDict& state) { object.load_state_dict(state); },
            .optimizer = as_optimizer(object)};
  }
}

}  // namespace detail

// A model on its way into a checkpoint.
struct ModelToSave {
  std::shared_ptr<torch::nn::Module> module{};
  // With exact values, see Accelerator::get_state_dict(); of tensors in pieces what this rank
  // holds.
  ModelStateDict weights{};
  // Which of the weights are in pieces: see ModelStrategy::layout().
  ModelLayout layout{};
};

// Runs at the beginning of save_state() on all ranks, before anything is copied or written: may
// change weights and drop models, which are then not saved, and may write files of its own into
// `directory`, where the checkpoint is being made. Such files become part of it: plain names, no
// folders, complete when the hook returns.
using SaveStateHook =
    std::function<void(std::vector<ModelToSave>& models, const std::filesystem::path& directory)>;
// Runs in load_state() on all ranks before anything is loaded: may load models itself and drop
// them from the list; those are then left alone. It comes before the checks: what it has changed
// stays changed if load_state() throws.
using LoadStateHook = std::function<void(std::vector<std::shared_ptr<torch::nn::Module>>& models,
                                         const std::filesystem::path& directory)>;

// A registered hook. Destroying the handle does not remove the hook.
class HookHandle {
 public:
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  // A second call does nothing.
  void remove() {
    if (remove_) std::exchange(remove_, nullptr)();
  }

 private:
  std::function<void()> remove_;
};

}  // namespace accelerate
