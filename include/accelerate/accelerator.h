// The accelerator: knows the process, the device and the other ranks, and prepares the objects of a
// training loop for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/accumulation.h"
#include "accelerate/autocast.h"
#include "accelerate/checkpoint.h"
#include "accelerate/clip.h"
#include "accelerate/communicator.h"
#include "accelerate/configured.h"
#include "accelerate/data_loader.h"
#include "accelerate/detail/followed_loader.h"
#include "accelerate/detail/owned_impl.h"
#include "accelerate/detail/preparable.h"
#include "accelerate/detail/torch_scheduler.h"
#include "accelerate/export.h"
#include "accelerate/full_parameters.h"
#include "accelerate/grad_scaler.h"
#include "accelerate/join.h"
#include "accelerate/mixed_precision.h"
#include "accelerate/no_sync.h"
#include "accelerate/operations.h"
#include "accelerate/options.h"
#include "accelerate/prepared_model.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/prepared_scheduler.h"
#include "accelerate/process_control.h"
#include "accelerate/process_state.h"
#include "accelerate/profiler.h"
#include "accelerate/schedulers.h"
#include "accelerate/split.h"
#include "accelerate/step_capture.h"
#include "accelerate/torch_archive.h"
#include "accelerate/tracking.h"

namespace accelerate {

// One for each training loop; several may live in one process if all ranks make them in the same
// order. Calls marked collective must be made by all ranks, in the same order. One thread at a
// time. The library's errors are accelerate::Errors that carry the rank, once it is known;
// exceptions of libtorch and of your own code are passed on unchanged. Prepared objects stay valid
// when the accelerator is moved; calls on the moved-from one throw UsageError.
class ACCELERATE_EXPORT Accelerator {
 public:
  // Reads the environment and meets the other ranks. Collective. Throws ConfigError for an invalid
  // environment and for one that contradicts the options, UsageError for options that contradict
  // each other, CommError if ranks do not join.
  explicit Accelerator(AcceleratorOptions options = {});
  ~Accelerator();
  Accelerator(Accelerator&&) noexcept;
  Accelerator& operator=(Accelerator&&) noexcept;

  // What it was made with; settings that were left to the environment or to defaults
  // (mixed_precision, gradient_accumulation.steps, the time-outs of process_group, what a
  // configuration of DeepSpeed or FSDP decides) have the values that it found.
  const AcceleratorOptions& options() const;
  const ProcessState& state() const;
  c10::Device device() const { return state().device(); }
  DistributedType distributed_type() const { return state().distributed_type(); }
  int num_processes() const { return state().world_size(); }
  int process_index() const { return state().rank(); }
  int local_process_index() const { return state().local_rank(); }
  bool is_main_process() const { return state().is_main_process(); }
  bool is_local_main_process() const { return state().is_local_main_process(); }
  bool is_last_process() const { return state().is_last_process(); }
  // "single", "ddp", "zero" or what a strategy of your own calls itself.
  std::string strategy_name() const;
  Communicator& communicator() const;
  // Wherever a Communicator is expected: gather(accelerator, x).
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator Communicator&() const { return communicator(); }

  // Prepares any number of objects, in any order, and returns them in that order; a single object
  // comes back without a tuple.
  //   model      TORCH_MODULE holder, std::shared_ptr of a module, Sequential -> PreparedModel
  //   optimizer  of torch::optim, or a smart pointer to one: an lvalue is referenced and must
  //              outlive the result, an rvalue is moved in -> PreparedOptimizer
  //   optimizer  accelerate::ConfiguredOptimizer, accelerate::ConfiguredScheduler: what the
  //   scheduler  configuration of DeepSpeed describes, see configured.h
  //   scheduler  accelerate::Scheduler -> PreparedScheduler; its optimizer is prepared too, before
  //              its first step
  //   scheduler  torch::optim::LRScheduler or a class derived from it, or a smart pointer to one:
  //              an lvalue is referenced and must outlive the result -> PreparedScheduler, which
  //              decides when its step() runs. Its step count and the rates are saved; a class
  //              with more state offers state_dict() and load_state_dict()
  //   loader     accelerate::DataLoader or Loader -> this rank's share of it, on the device
  //   loader     of torch::data, or a smart pointer to one -> a DataLoader: of its dataset, with
  //              its batch size and its workers, where its sampler is RandomSampler or
  //              SequentialSampler; else of its batches, which rank 0 reads and sends every rank
  //              its part of. An lvalue must outlive the result
  //   unplaced() any of them, left on its device
  //   pass_through() anything else, as it is: an lvalue as a reference, an rvalue by value
  // Other types do not compile. Objects that are already prepared come back unchanged. Collective:
  // all ranks, same objects. Models come first, whatever the order: they are moved to the device in
  // place and handed to the strategy, which then sees the optimizers of their parameters.
  template <class... Ts>
  decltype(auto) prepare(Ts&&... objects) {
    static_assert(sizeof...(Ts) > 0, "prepare() needs at least one object");
    (prepare_model(objects), ...);
    if constexpr (sizeof...(Ts) == 1) {
      return (prepare_one(std::forward<Ts>(objects)), ...);
    } else {
      using Result = std::tuple<decltype(prepare_one(std::forward<Ts>(objects)))...>;
      return Result{prepare_one(std::forward<Ts>(objects))...};
    }
  }

  // Runs backward from `loss` and averages the gradients over the ranks; inside a window of
  // accumulation it only adds them up. The loss is divided by the micro-batches of the window (or
  // weighted, see BackwardOptions) and scaled under fp16. {.only = model} writes gradients only
  // there. Use it instead of loss.backward(). Collective. Throws CommError if a peer is lost,
  // UsageError if parameters took no part in the loss and the strategy was not told to expect it,
  // outside of accumulate() where windows have several micro-batches, or on several ranks of DDP if
  // nothing was prepared that the loss could train (DdpOptions::check_replicas switches that off).
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});

  // One micro-batch of a window of gradient_accumulation.steps: while the result lives, backward()
  // sends nothing, and optimizers and schedulers do nothing, unless it is the last one of its
  // window. Without models it means all prepared ones. The windows of all models are counted
  // together, so name models that are trained by one micro-batch in one call. All ranks must call
  // it alike. Not collective. Throws UsageError inside another one, and in the window of other
  // models.
  template <class... Modules>
  Accumulation accumulate(const PreparedModel<Modules>&... models) {
    return begin_micro_batch({models.strategy()...});
  }
  // Whether the current micro-batch ends its window. Valid until the next one begins: true before
  // the first, false after a loop that was left inside of a window.
  bool sync_gradients() const;
  int64_t gradient_accumulation_steps() const;
  // Inside no_sync(): only the next backward pass averages the gradients of this model.
  template <class Module>
  void trigger_sync_in_backward(const PreparedModel<Module>& model) const {
    model.strategy()->sync_next_backward();
  }

  MixedPrecision mixed_precision() const;
  // While it lives, what this thread computes is in mixed precision, as inside a prepared model.
  Autocast autocast() const;
  Autocast autocast(const AutocastOptions& options) const;

  // The norm of the gradients of `parameters`, or of one, as if they were one vector, to log it;
  // unscales them first under fp16. Refuses what clip_grad_norm_ refuses.
  at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options = {});
  // Scales the gradients of `parameters` so that their norm is at most `max_norm`, and returns the
  // norm before; unscales them first under fp16. Nothing waits for the device. Call it where
  // sync_gradients() is true. Throws UsageError if none of the parameters has a gradient, and under
  // fp16 inside a window or if no prepared optimizer has the parameters.
  // NOLINTBEGIN(readability-identifier-naming): torch's names
  at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                             const ClipNormOptions& options = {});
  void clip_grad_value_(at::TensorList parameters, double clip_value);
  // NOLINTEND(readability-identifier-naming)
  // Divides the gradients of all prepared optimizers, or of one, by the scale of fp16, if that was
  // not done yet. An optimizer without gradients is skipped. Throws UsageError inside a window, and
  // for an optimizer of another accelerator. Collective where the strategy trains pieces of
  // parameters (OptimizerStrategy::layout).
  void unscale_gradients();
  void unscale_gradients(const PreparedOptimizer& optimizer);
  // Whether a prepared optimizer skipped its last step because gradients overflowed. Waits for a
  // GPU under fp16.
  bool optimizer_step_was_skipped() const;
  // Null unless mixed_precision() is fp16.
  GradScaler* scaler() const;

  // `step` as CUDA graphs: recorded for each kind of batch, then replayed with one call to the
  // driver. See StepCapture, also for steps that are not recorded. Takes any nested batch and
  // returns any nested result: a StepCapture for a step from tensors to tensors, a CapturedStep for
  // others. The accelerator must outlive the result.
  template <class Step>
  auto capture(Step step, const CaptureOptions& options = {}) {
    if constexpr (std::is_convertible_v<Step, StepCapture::Step>) {
      return StepCapture(*this, StepCapture::Step(std::move(step)), options);
    } else {
      using Captured = typename detail::CapturedStepOf<decltype(std::function(step))>::type;
      return Captured(*this, std::move(step), options);
    }
  }

  // See NoSync.
  template <class Module>
  NoSync no_sync(const PreparedModel<Module>& model) const {
    return NoSync(model.strategy());
  }

  // The parameters of `model` are whole until the result ends, on all ranks; see FullParameters.
  // Collective.
  //
  //   auto whole = accelerator.full_parameters(model);
  //   if (accelerator.is_main_process()) print_norms(*model);
  template <class Module>
  FullParameters full_parameters(const PreparedModel<Module>& model,
                                 const FullParametersOptions& options = {}) {
    return hold_full(*model.module(), model.strategy(), options);
  }

  // Runs `body`, a training loop whose number of batches may differ from rank to rank, zero
  // included. A rank that has run out of data keeps answering what the others exchange in forward
  // and backward passes, until all have finished; gradients are divided as the options say. Then
  // all ranks copy parameters and buffers from one that took part in the last step.
  //
  //   accelerator.join_uneven_inputs([&] { for (auto& batch : loader) { ... } });
  //
  // Joins the named prepared models, or all if none is named; training another one in the body is a
  // UsageError. Prepare everything first. Inside the body the ranks that still have data make the
  // same passes in the same order: UsageError on all ranks if not. Passes that exchange nothing
  // (no_sync, evaluation) may differ in number. Other collectives (gather, reduce,
  // wait_for_everyone) cannot be answered by a rank that has finished: make them after the join.
  // Optimizers, schedules and counters of a rank that has run out do not advance, so their state,
  // such as momentum, may differ between the ranks afterwards, as with torch.
  //
  // Collective. Exceptions of `body` are passed on at once, without waiting: the other ranks notice
  // when this one ends. Each step costs one small exchange and a walk over the graph more. On one
  // process it only runs the body.
  template <class Body, class... Modules>
  void join_uneven_inputs(Body&& body, const JoinOptions& options,
                          const PreparedModel<Modules>&... models) {
    join_models(std::forward<Body>(body), options, {models.strategy()...});
  }
  template <class Body, class... Modules>
  void join_uneven_inputs(Body&& body, const PreparedModel<Modules>&... models) {
    join_models(std::forward<Body>(body), {}, {models.strategy()...});
  }

  // See DataLoader::skip_first_batches().
  template <class Source, class Collate>
  DataLoader<Source, Collate> skip_first_batches(const DataLoader<Source, Collate>& loader,
                                                 int64_t batches) const {
    return loader.skip_first_batches(batches);
  }

  template <class Value>
  Loader<Value> skip_first_batches(const Loader<Value>& loader, int64_t batches) const {
    return loader.skip_first_batches(batches);
  }

  // The module as the user made it, shared with the prepared model. Calls on it bypass the
  // strategy: use it to save, to inspect, or to run on one rank only.
  template <class Module>
  std::shared_ptr<Module> unwrap_model(const PreparedModel<Module>& model) const {
    return model.module();
  }

  // The operations of operations.h, with the ranks of this accelerator. Collective.
  template <Nested V>
  V gather(const V& value) const {
    return accelerate::gather(communicator(), value);
  }
  // Without the rows that only even out the batch that the innermost loop works on.
  template <Nested... Vs>
  auto gather_for_metrics(const Vs&... values) const {
    return accelerate::gather_for_metrics(communicator(), current_batch(), values...);
  }
  template <Nested V>
  auto gather_object_for_metrics(const V& object) const {
    return accelerate::gather_object_for_metrics(communicator(), current_batch(), object);
  }
  template <Nested V>
  auto gather_object(const V& object) const {
    return accelerate::gather_object(communicator(), object);
  }
  template <Nested V>
  V reduce(const V& value, const Reduction& by = ReduceOp::kSum, double scale = 1) const {
    return accelerate::reduce(communicator(), value, by, scale);
  }
  template <Nested V>
  V broadcast(const V& value, int from = 0) const {
    return accelerate::broadcast(communicator(), value, from);
  }
  template <Nested V>
  V broadcast_object(const V& object, int from = 0) const {
    return accelerate::broadcast_object(communicator(), object, from);
  }
  template <Nested V>
  void broadcast_object_list(V& list, int from = 0) const {
    accelerate::broadcast_object_list(communicator(), list, from);
  }
  template <Nested V>
  V pad_across_processes(const V& value, const PadOptions& options = {}) const {
    return accelerate::pad_across_processes(communicator(), value, options);
  }

  // What process_control.h and split.h offer, for this process.
  template <class Function>
  auto on_main_process(Function&& function) const {
    return accelerate::on_main_process(state(), std::forward<Function>(function));
  }
  template <class Function>
  auto on_local_main_process(Function&& function) const {
    return accelerate::on_local_main_process(state(), std::forward<Function>(function));
  }
  template <class Function>
  auto on_last_process(Function&& function) const {
    return accelerate::on_last_process(state(), std::forward<Function>(function));
  }
  template <class Function>
  auto on_process(int index, Function&& function) const {
    return accelerate::on_process(state(), index, std::forward<Function>(function));
  }
  template <class Function>
  auto on_local_process(int index, Function&& function) const {
    return accelerate::on_local_process(state(), index, std::forward<Function>(function));
  }
  ProcessesFirst main_process_first() const {
    return accelerate::main_process_first(state(), communicator());
  }
  ProcessesFirst local_main_process_first() const {
    return accelerate::local_main_process_first(state(), communicator());
  }
  template <Splittable V>
  auto split_between_processes(V&& inputs, SplitOptions options = {}) const {
    return accelerate::split_between_processes(state(), std::forward<V>(inputs), options);
  }
  // A flag that any rank may set, from any thread, and that all see. check_trigger() is collective:
  // true on all ranks if one has set it, and clears it.
  void set_trigger();
  bool check_trigger();

  // Saves everything load_state() needs to continue with the next batch, at any number of ranks:
  // what was prepared (models, optimizers, schedulers, loaders), the gradient scaler, random
  // generators, the open window of accumulation and the registered objects. Call it when a batch is
  // finished: after optimizer.step(), zero_grad() and scheduler.step().
  //
  // Without a directory: see ProjectOptions::automatic_checkpoint_naming. An existing checkpoint of
  // that name is replaced.
  //
  // Collective: all ranks. Returns when the files are durable; with {.async = true} as soon as the
  // state is copied to host memory, and SaveTicket::wait() then reports how the write ended. An
  // error that was not waited for is thrown by the next save or load, on all ranks; the destructor
  // waits and logs it. After any error or power cut `dir` holds the previous checkpoint or the new
  // one, never a mix. Throws CheckpointError on every rank, here or from wait(), if one of them
  // cannot write.
  SaveTicket save_state(const std::filesystem::path& dir = {}, const SaveOptions& options = {});
  SaveTicket save_state(const SaveOptions& options) { return save_state({}, options); }

  // Loads what save_state() has written: prepare the same objects in the same order first. The next
  // pass over each loader continues where it was, also in the middle of an epoch, and on the same
  // number of ranks every later step is the same to the last bit.
  //
  // Saved on P ranks and loaded on Q: samples follow in the same order; the generators of rank q
  // go on where those of the old rank q stood, those of ranks from P on start from a seed made of
  // rank 0's state and q; gradients of an open window become their mean on every rank.
  //
  // A directory of the Python library, which has no manifest, is accepted too. What has no
  // counterpart here (random numbers of Python and NumPy) is logged by name, and loaders start from
  // the beginning.
  //
  // Collective: all ranks. All files are read and checked on all ranks first: throws
  // CheckpointError on every rank, with the same text, that lists what does not fit, and nothing
  // has changed. Where a rank fails later, because memory runs out or a disk cannot be read, all
  // ranks throw its error, which says that the objects are loaded in part. Returns the directory
  // that was loaded; see LoadOptions::if_any for a run that may have none yet.
  std::filesystem::path load_state(const std::filesystem::path& dir = {},
                                   const LoadOptions& options = {});
  std::filesystem::path load_state(const LoadOptions& options) { return load_state({}, options); }

  // For a job that may be started again: loads the newest checkpoint that is complete and
  // undamaged, and returns its directory, or loads nothing if there is none yet. With `dir`, the
  // checkpoint of that name. Checkpoints that were passed over are logged. One that does not fit
  // the objects, and a series in which all are damaged, are errors as for load_state(). Collective.
  std::optional<std::filesystem::path> resume(const std::filesystem::path& dir = {});

  // Objects of the user that save_state() saves and load_state() loads too, in this order: anything
  // with state_dict() and load_state_dict(), or CheckpointFunctions. They are referenced and must
  // outlive the accelerator; a std::shared_ptr is kept. Same objects on all ranks; rank 0's state
  // is the one that is saved. Not collective.
  template <class... Ts>
  void register_for_checkpointing(Ts&&... objects) {
    (register_object(detail::checkpoint_functions(std::forward<Ts>(objects))), ...);
  }
  // See SaveStateHook and LoadStateHook. Same hooks on all ranks.
  HookHandle register_save_state_pre_hook(SaveStateHook hook);
  HookHandle register_load_state_pre_hook(LoadStateHook hook);

  // Number of the next checkpoint that is named automatically.
  int64_t save_iteration() const;
  void set_save_iteration(int64_t iteration);
  const std::filesystem::path& project_dir() const;
  const std::filesystem::path& logging_dir() const;

  // See model_files.h. Writes the whole model with its exact values, as get_state_dict() gives
  // them, whatever the strategy keeps where. The main process writes (the first of each node with
  // save_on_each_node). Collective: returns when the files are there, and throws on all ranks if
  // they could not be written. Tensors in pieces are brought together one at a time, or those of
  // one file at a time without safe_serialization.
  template <class Module>
  void save_model(const PreparedModel<Module>& model, const std::filesystem::path& folder,
                  const SaveModelOptions& options = {}) const {
    write_model(*model.module(), *model.strategy(), folder, options);
  }
  // The parameters and buffers by name, with their exact values: where the model computes with
  // narrower copies of float32 parameters (FlatOptions), these in float32. To be read: they share
  // the memory of the model. Not collective, unless the strategy keeps the model in pieces
  // (ModelStrategy::layout): then all ranks call it, and those that write files (the main process,
  // the first of each node with save_on_each_node) get tensors in pieces as whole copies on the
  // CPU, the others an empty result. Throws UsageError on all ranks alike for pieces that do not
  // make the whole.
  template <class Module>
  ModelStateDict get_state_dict(const PreparedModel<Module>& model) const {
    return exact_state_dict(*model.module(), *model.strategy());
  }
  // accelerate::save() on the main process (the first of each node with save_on_each_node): named
  // tensors as safetensors or as an archive of torch.save(), by the extension; other values as such
  // an archive. A name that contradicts the format is a UsageError on all ranks. Not collective.
  void save(const TorchValue& object, const std::filesystem::path& path) const;
  void save(const NamedTensors& tensors, const std::filesystem::path& path,
            const SaveFileOptions& options = {}) const;

  // Whether one of PreemptionOptions::signals has come to any rank: then save and exit with
  // preemption_exit_code(). Call it at the end of each step. Collective: the same answer on all
  // ranks. Without such signals nothing is sent and the result is false.
  bool should_checkpoint_and_exit();
  int preemption_exit_code() const;

  // Returns when all ranks have called it. Collective.
  void wait_for_everyone() const;

  // Writes its arguments and a newline to standard output, only on the main process.
  template <class... Ts>
  void print(const Ts&... values) const {
    if (!is_main_process()) return;
    std::ostringstream text;
    (text << ... << values);
    print_line(text.str());
  }

  // Starts the trackers of AcceleratorOptions::log_with for a run of `project_name`, on the main
  // process (trackers of your own: see GeneralTracker::main_process_only). Those that need a folder
  // write below ProjectOptions::logging_dir, or project_dir. If a checkpoint was loaded, before or
  // later, the run goes on and no step is recorded twice (TrackerInitOptions::resume). Not
  // collective. Throws UsageError for an unknown name, without a folder or if called twice,
  // TrackerError if a folder or a server is not there.
  void init_trackers(const std::string& project_name, const TrackerConfig& config = {},
                     const TrackerInitOptions& options = {});
  // Records values under a step of your own counting:
  //   accelerator.log({{"loss", loss}, {"lr", scheduler.get_last_lr()[0]}}, step);
  // Never waits: not for a device, a disk or a server. A thread writes what was logged; what it
  // cannot keep up with is dropped, counted and reported in the log. Does nothing on other
  // processes, and without log_with unless the run is recorded (`accelerate launch --monitor` or
  // --run_dir). From any thread. Throws UsageError before init_trackers(), after end_training()
  // and for a tensor with several elements.
  void log(std::initializer_list<Logged> values, std::optional<int64_t> step = {}) {
    log(std::span<const Logged>(values.begin(), values.size()), step);
  }
  void log(std::span<const Logged> values, std::optional<int64_t> step = {});
  // The same for pictures, tables, the distribution of values, drawn figures and files. Trackers
  // that have no use for one leave it out. A file of log_artifact() is read later: keep it.
  void log_images(std::initializer_list<LoggedImages> images, std::optional<int64_t> step = {},
                  ImageLayout layout = ImageLayout::kChannelsFirst);
  void log_table(TrackedTable table, std::optional<int64_t> step = {});
  void log_histogram(std::string_view name, const at::Tensor& values,
                     std::optional<int64_t> step = {});
  void log_figure(TrackedFigure figure, std::optional<int64_t> step = {});
  void log_artifact(const std::filesystem::path& path, std::string artifact_path = {});
  // The tracker of that name, nothing on processes that track nothing. Throws UsageError for a name
  // that log_with does not have.
  Tracker get_tracker(const std::string& name) const;
  // Writes what was logged and ends the trackers; blocks until that is done. The destructor does it
  // too. Not collective.
  void end_training();

  // Records what the loop does while the result lives, or until its end(): see Profile. Without
  // options those of AcceleratorOptions::profile. The result must not outlive the accelerator.
  // Collective where there is an output_trace_dir. Throws UsageError for options that cannot be
  // used and while another profile is open in this process, ProfileError on all ranks if one of
  // them cannot write there.
  Profile profile(const ProfileOptions& options);
  Profile profile();

  // Releases everything prepared so far and returns cached device memory. Models that average
  // gradients must be prepared again before they run. Not collective.
  void free_memory();

 private:
  friend class StepCapture;
  struct ACCELERATE_HIDDEN Impl;

  // Of all prepared models and optimizers, each once.
  std::vector<at::Tensor> trained_parameters() const;
  // Updates the fp16 scale if that is due, so that a step begins as the last one ended.
  void finish_iteration() const;
  // An update that was being recorded is not made.
  void abandon_iteration() const;

  // Places and wraps models; passes over everything else.
  template <class T>
  void prepare_model(const T& object, bool place = true) {
    if constexpr (detail::Model<T>) {
      wrap_module(detail::module_of(object), place);
    } else if constexpr (detail::is_unplaced<T>) {
      prepare_model<std::remove_cvref_t<decltype(object.object)>>(object.object, false);
    }
  }

  // In detail/prepare_object.h.
  template <class T>
  decltype(auto) prepare_one(T&& object, bool place = true);
  template <class Loader>
  Loader prepare_loader(const Loader& loader, bool place);

  std::shared_ptr<ModelStrategy> wrap_module(const std::shared_ptr<torch::nn::Module>& module,
                                             bool place);
  detail::ZeroGrad zero_grad_of_models() const;
  PreparedOptimizer prepare_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                      bool place);
  bool reads_data(bool is_batch_stream) const;
  void say_rank_zero_reads();
  LoaderShard loader_shard(const LoaderOptions& options, bool is_batch_stream,
                           const LoaderState& state, bool has_seed, bool place,
                           const std::optional<detail::SampleDigest>& digest);
  void follow_loader(std::unique_ptr<detail::FollowedLoader> loader);
  FullParameters hold_full(torch::nn::Module& module, const std::shared_ptr<ModelStrategy>& model,
                           const FullParametersOptions& options);
  void join_models(const std::function<void()>& body, const JoinOptions& options,
                   const std::vector<std::shared_ptr<ModelStrategy>>& named);

  void register_object(CheckpointFunctions object);
  void write_model(const torch::nn::Module& module, const ModelStrategy& strategy,
                   const std::filesystem::path& folder, const SaveModelOptions& options) const;
  ModelStateDict exact_state_dict(const torch::nn::Module& module,
                                  const ModelStrategy& strategy) const;

  PreparedOptimizer prepare_configured(const ConfiguredOptimizer& optimizer, bool place);
  PreparedScheduler prepare_configured(const ConfiguredScheduler& scheduler);
  PreparedScheduler prepare_scheduler(const Scheduler& scheduler);
  PreparedScheduler prepare_torch_scheduler(detail::TorchScheduler adapted);
  const PrecisionPolicy& precision() const;
  Accumulation begin_micro_batch(std::vector<std::shared_ptr<ModelStrategy>> models);
  std::optional<BatchInfo> current_batch() const;
  static void print_line(const std::string& text);

  detail::OwnedImpl<Impl> impl_;
};

}  // namespace accelerate

#include "accelerate/detail/prepare_object.h"
