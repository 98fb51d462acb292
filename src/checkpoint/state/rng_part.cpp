#include "checkpoint/state/rng_part.h"

#include <ATen/core/Generator.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "base/split_mix.h"
#include "checkpoint/name_list.h"
#include "device/device_backend.h"
#include "device/generators.h"
#include "files/durable/checksum.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kCpu = "torch_manual_seed";
constexpr const char* kDevice = "device_index";
constexpr const char* kStep = "step";
constexpr const char* kWrittenBy = "written_by";  // Python's library does not write it
constexpr const char* kPython = "random_state";
constexpr const char* kNumpy = "numpy_random_seed";

// "torch_cuda_manual_seed": the key of the states of all devices of one kind beside the CPU.
std::string key_of(c10::Device device) {
  return "torch_" + c10::DeviceTypeName(device.type(), /*lower_case=*/true) + "_manual_seed";
}

at::Generator generator_of(c10::Device device) {
  return device::device_backend(device.type()).generator(device);
}

// Another stream of random numbers for each rank, the same whenever the checkpoint is loaded.
uint64_t derived_seed(const at::Tensor& state, int rank) {
  const at::Tensor bytes = state.contiguous();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data_ptr<uint8_t>());
  const uint64_t of_state =
      files::checksum_of(std::span<const std::byte>(begin, static_cast<size_t>(bytes.numel())));
  return of_state ^ (static_cast<uint64_t>(rank) * kSplitMixStep);
}

// Python's library restores torch's states only after its own and NumPy's: they get seeds made of
// torch's. Both are Mersenne twisters of 624 words.
void add_states_of_python(TorchDict& states) {
  constexpr int64_t kWords = 624;
  SplitMix numbers(derived_seed(states.at(kCpu).as_tensor(), -1));
  const auto words = [&] {
    std::vector<TorchValue> all;
    for (int64_t i = 0; i < kWords; ++i) {
      all.emplace_back(static_cast<int64_t>(numbers.next() & 0xFFFFFFFFULL));
    }
    return all;
  };
  TorchTuple of_python{.items = words()};
  of_python.items.emplace_back(kWords);  // all words used up
  states.set(kPython, TorchTuple{.items = {3, std::move(of_python), TorchValue()}});
  states.set(kNumpy, TorchTuple{.items = {"MT19937", words(), kWords, 0, 0.0}});
}

class RngPart final : public StatePart {
 public:
  RngPart(int rank, c10::Device device, int64_t step) : rank_(rank), device_(device), step_(step) {}

  void save(Snapshot& snapshot) const override {
    TorchDict states{{kWrittenBy, "Accelerate for C++"},
                     {kStep, step_},
                     {kCpu, device::generator_state(generator_of(c10::kCPU))}};
    add_states_of_python(states);
    // Of a program that stays on the CPU libtorch may have been told that there are no GPUs.
    if (!device_.is_cpu()) {
      std::vector<TorchValue> all;
      for (const auto& generator : device::device_backend(device_.type()).generators()) {
        all.emplace_back(device::generator_state(generator));
      }
      states.set(key_of(device_), all);
      states.set(kDevice, static_cast<int64_t>(device_.index()));
    }
    snapshot.add(rng_file(rank_), states);
  }

  void check(StateReader& reader) override {
    const std::string name = file_to_read(reader);
    const TorchValue file = reader.archive(name);
    const TorchDict& states = file.as_dict();
    add(c10::kCPU, states.at(kCpu).as_tensor(), reader.where(name));
    const std::string own_key = device_.is_cpu() ? std::string() : key_of(device_);
    if (!device_.is_cpu()) {
      const TorchValue* of_devices = states.find(std::string_view(own_key));
      if (of_devices == nullptr) {
        reader.note(name + ": it holds no random state of a " +
                    device::device_backend(device_.type()).noun() + ", which gets a new seed");
        seeds_own_device_ = true;
      } else {
        add_devices(of_devices->as_sequence(), states.find(std::string_view(kDevice)),
                    reader.where(name));
      }
    }
    std::vector<std::string> others;
    for (const auto& [key, value] : states.entries()) {
      const std::string& entry = key.as_string();
      const bool known = entry == kCpu || entry == kDevice || entry == kStep ||
                         entry == kWrittenBy || entry == own_key ||
                         (reader.is_ours() && (entry == kPython || entry == kNumpy));
      if (!known) others.push_back(entry);
    }
    if (!others.empty() && rank_ == 0) reader.note(name + ": " + name_list(others));
  }

  void apply() override {
    if (seeds_own_device_) {
      const at::Tensor& of_cpu = states_.front().second;
      device::seed_generator(generator_of(device_), derived_seed(of_cpu, rank_));
    }
    for (const auto& [device, state] : states_) {
      if (derived_) {
        device::seed_generator(generator_of(device), derived_seed(state, rank_));
      } else {
        device::set_generator_state(generator_of(device), state);
      }
    }
  }

 private:
  std::string file_to_read(StateReader& reader) {
    const int saved = reader.saved_world_size();
    const std::string own = rng_file(rank_);
    if (saved == reader.world_size() || reader.has(own)) return own;
    derived_ = true;
    if (rank_ < saved) reader.note(own + ": it is on another node, so the rank gets a new seed");
    int first = 0;
    while (first + 1 < saved && !reader.has(rng_file(first))) ++first;
    return rng_file(first);
  }

  // The rank's own device takes the state of the one it had, whatever its number; the others that
  // of their number.
  void add_devices(const std::vector<TorchValue>& saved, const TorchValue* saved_index,
                   const std::string& where) {
    const int64_t had = saved_index ? saved_index->as_integer() : device_.index();
    const int count = device::device_backend(device_.type()).count();
    for (int index = 0; index < count; ++index) {
      const int64_t from = index == device_.index() ? had : index;
      if (from < 0 || from >= static_cast<int64_t>(saved.size())) continue;
      add({device_.type(), static_cast<c10::DeviceIndex>(index)},
          saved[static_cast<size_t>(from)].as_tensor(), where);
    }
  }

  void add(c10::Device device, const at::Tensor& state, const std::string& where) {
    const at::Tensor own = device::generator_state(generator_of(device));
    if (state.scalar_type() != own.scalar_type() || state.sizes() != own.sizes()) {
      throw CheckpointError({.what = "the random state of " + device.str() + " has " +
                                     std::to_string(state.numel()) + " bytes, this libtorch has " +
                                     std::to_string(own.numel()),
                             .where = where,
                             .hint = "load it with the version of libtorch that saved it"});
    }
    try {
      generator_of(device).clone().set_state(state);
    } catch (const std::exception& error) {
      const std::string_view text(error.what());
      throw CheckpointError({.what = "the random state of " + device.str() +
                                     " is invalid: " + std::string(text.substr(0, text.find('\n'))),
                             .where = where,
                             .hint = "load another checkpoint"});
    }
    states_.emplace_back(device, state);
  }

  int rank_;
  c10::Device device_;
  int64_t step_;
  bool derived_ = false;
  bool seeds_own_device_ = false;  // the checkpoint comes from a run on another kind of device
  std::vector<std::pair<c10::Device, at::Tensor>> states_;
};

}  // namespace

bool has_rng_file_of_ours(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("random_states_")) continue;
    const TorchValue states = load_torch_archive(entry.path());
    return states.is_dict() && states.as_dict().find(std::string_view(kWrittenBy)) != nullptr;
  }
  return false;
}

std::string rng_file(int rank) { return "random_states_" + std::to_string(rank) + ".pkl"; }

std::unique_ptr<StatePart> rng_part(int rank, c10::Device device, int64_t step) {
  return std::make_unique<RngPart>(rank, device, step);
}

}  // namespace accelerate::checkpoint
