// Times safetensors files and saved models: saving to the disk, loading into a model, opening a
// file of many tensors, the memory that each takes beside the model, and for how long a save in the
// background stops a loop.
#include <accelerate/accelerator.h>
#include <accelerate/model_files.h>
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <stdexcept>

#include "main.h"
#include "report.h"
#include "turns.h"

namespace bench {
namespace {

namespace fs = std::filesystem;

constexpr int kTensors = 64;
constexpr int kMany = 10'000;
constexpr double kMega = 1e6;

void require(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

// Of `megabytes` in equal tensors, with values that no file system can make smaller.
struct LargeImpl : torch::nn::Module {
  explicit LargeImpl(int64_t megabytes) {
    const int64_t elements = megabytes * 1'000'000 / kTensors / 4;
    for (int i = 0; i < kTensors; ++i) {
      register_parameter("weight_" + std::to_string(i), torch::randn({elements}));
    }
  }
  static at::Tensor forward(const at::Tensor& input) { return input; }
};
TORCH_MODULE(Large);

// The most memory that was in use since the last forget_peak(), in megabytes.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024 / kMega;
  }
  throw std::runtime_error("the kernel does not tell the peak of memory");
}

void forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  require(file.good(), "the kernel does not let the peak of memory be forgotten");
}

// What `action` takes at its peak beside what was in use before.
template <class Action>
double extra_megabytes(Action action) {
  forget_peak();
  const double before = peak_megabytes();
  action();
  return peak_megabytes() - before;
}

// What dd with conv=fsync does: the bytes of the model, in pieces, to a file and to the disk.
void write_by_hand(const torch::nn::Module& module, const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(file >= 0, "cannot create a file");
  constexpr size_t kPiece = 16 << 20;
  for (const at::Tensor& tensor : module.parameters()) {
    const char* bytes = static_cast<const char*>(tensor.data_ptr());
    for (size_t at = 0; at < tensor.nbytes(); at += kPiece) {
      const size_t piece = std::min(kPiece, tensor.nbytes() - at);
      require(write(file, bytes + at, piece) == static_cast<ssize_t>(piece), "cannot write");
    }
  }
  require(fsync(file) == 0 && close(file) == 0, "cannot write to the disk");
}

nlohmann::json measure_save(const fs::path& folder, int64_t megabytes, int repetitions) {
  const Large model(megabytes);
  // Each write is to a new file: to cut an old one down costs time of its own.
  const auto fresh = [&](const char* name, auto write_file) {
    return Contender{name, [=] {
                       fs::remove_all(folder / name);
                       const Stopwatch watch;
                       write_file(folder / name);
                       return watch.seconds() / static_cast<double>(megabytes);
                     }};
  };
  const Turns turns(
      {fresh("by hand", [&](const fs::path& path) { write_by_hand(*model, path); }),
       fresh("save_model", [&](const fs::path& path) { accelerate::save_model(*model, path); })},
      repetitions);
  Large loaded(megabytes);
  accelerate::load_checkpoint_in_model(*loaded, folder / "save_model", {.strict = true});
  require(torch::equal(loaded->parameters().back(), model->parameters().back()),
          "what was saved is not what was loaded");
  const double extra =
      extra_megabytes([&] { accelerate::save_model(*model, folder / "save_model"); });
  return {{"megabytes", megabytes},
          {"rows", turns.report()},
          {"speed", turns.speed("save_model", "by hand")},
          {"extra_megabytes", extra}};
}

nlohmann::json measure_load(const fs::path& folder, int64_t megabytes, int repetitions) {
  const Large saved(megabytes);
  accelerate::save_model(*saved, folder / "model");
  Large model(megabytes);
  const auto load = [&] {
    accelerate::load_checkpoint_in_model(*model, folder / "model", {.strict = true});
  };
  const auto copy = [&] {
    const torch::NoGradGuard no_grad;
    for (const auto& item : saved->named_parameters()) {
      model->named_parameters()[item.key()].copy_(item.value());
    }
  };
  const auto timed_by_megabyte = [&](const char* name, auto action) {
    return timed(name, [=] {
      action();
      return megabytes;
    });
  };
  const Turns turns({timed_by_megabyte("copy in memory", copy),
                     timed_by_megabyte("load_checkpoint_in_model", load)},
                    repetitions);
  require(torch::equal(saved->parameters().back(), model->parameters().back()),
          "what was saved is not what was loaded");
  return {{"megabytes", megabytes},
          {"rows", turns.report()},
          {"speed", turns.speed("load_checkpoint_in_model", "copy in memory")},
          {"extra_megabytes", extra_megabytes(load)}};
}

nlohmann::json measure_open(const fs::path& folder, int repetitions) {
  const fs::path path = folder / "many.safetensors";
  accelerate::NamedTensors tensors;
  for (int i = 0; i < kMany; ++i) {
    tensors.insert("layers." + std::to_string(i) + ".weight", torch::full({4, 4}, i));
  }
  accelerate::save_safetensors(path, tensors);
  const auto open_file = [&] {
    require(accelerate::SafetensorsFile(path).names().size() == kMany, "tensors are missing");
    return int64_t{1};
  };
  const auto all_tensors = [&] {
    const accelerate::SafetensorsFile file(path);
    double sum = 0;
    for (const std::string& name : file.names()) {
      sum += static_cast<double>(file.tensor(name).numel());
    }
    require(sum == 16.0 * kMany, "tensors are missing");
    return int64_t{1};
  };
  const Turns turns({timed("open", open_file), timed("open, all tensors", all_tensors)},
                    repetitions);
  return {{"tensors", kMany}, {"rows", turns.report()}};
}

// How long the thread of the training is in save_state() of a model, with and without writing in
// the background.
nlohmann::json measure_async(const fs::path& folder, int64_t megabytes, int repetitions,
                             const std::string& device) {
  accelerate::Accelerator accelerator({.cpu = device == "cpu"});
  require(accelerator.device().str().starts_with(device), "there is no such device");
  Large large(megabytes);
  auto model = accelerator.prepare(large);
  const auto saved = [&](const char* name, bool in_background) {
    return Contender{name, [&, name, in_background] {
                       fs::remove_all(folder / name);
                       const Stopwatch watch;
                       const accelerate::SaveTicket ticket =
                           accelerator.save_state(folder / name, {.async = in_background});
                       const double seconds = watch.seconds();
                       ticket.wait();
                       return seconds / static_cast<double>(megabytes);
                     }};
  };
  const Turns turns({saved("synchronous", false), saved("asynchronous", true)}, repetitions);
  const at::Tensor before = large->parameters().back().detach().clone();
  {
    const torch::NoGradGuard no_grad;
    large->parameters().back().zero_();
  }
  accelerator.load_state(folder / "asynchronous");
  require(torch::equal(large->parameters().back(), before),
          "what was saved is not what was loaded");
  return {{"megabytes", megabytes},
          {"device", device},
          {"rows", turns.report()},
          {"part", 1 / turns.speed("asynchronous", "synchronous")}};
}

int main(int argc, char** argv) {
  int repetitions = 5;
  int64_t megabytes = 1000;
  std::string json_file;
  std::string device = "cpu";
  std::string folder = fs::temp_directory_path();
  nlohmann::json results;
  CLI::App app("Times safetensors files and saved models");
  app.require_subcommand(1);
  const auto part = [&](const char* name, const char* what, auto measure) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("--repetitions", repetitions, "How often all take their turn")
        ->capture_default_str();
    command->add_option("--megabytes", megabytes, "The size of the model")->capture_default_str();
    command->add_option("--folder", folder, "Where files are written; they are removed at the end");
    command->add_option("--json", json_file, "File for the results");
    if (std::string_view(name) == "async") {
      command->add_option("--device", device, "Where the model is: cpu or cuda")
          ->capture_default_str();
    }
    command->callback([&, measure] {
      const fs::path scratch = fs::path(folder) / ("bench_checkpoint_" + std::to_string(getpid()));
      fs::create_directories(scratch);
      results = measure(scratch);
      fs::remove_all(scratch);
    });
  };
  part("save", "A model to the disk, against writing its bytes by hand",
       [&](const fs::path& path) { return measure_save(path, megabytes, repetitions); });
  part("load", "A model from a file in the page cache, against a copy in memory",
       [&](const fs::path& path) { return measure_load(path, megabytes, repetitions); });
  part("open", "A file of many tensors",
       [&](const fs::path& path) { return measure_open(path, repetitions); });
  part("async", "How long a save in the background stops a loop, against one that does not",
       [&](const fs::path& path) { return measure_async(path, megabytes, repetitions, device); });
  CLI11_PARSE(app, argc, argv);

  publish(std::move(results), argc, argv, json_file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  return bench::run_main("bench_checkpoint", bench::main, argc, argv);
}
