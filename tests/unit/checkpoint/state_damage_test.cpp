// Damage to a checkpoint of save_state(): each flipped bit and each cut is found, nothing is loaded
// of it, and the one before it is taken where that is asked for.
#include <accelerate/accelerate.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <optional>
#include <random>

#include "files/manifest/checkpoint_directory.h"
#include "support/parameter_values.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

struct Counter {
  int64_t number = 0;
  StateDict state_dict() const { return {{"number", number}, {"history", torch::arange(20)}}; }
  void load_state_dict(const StateDict& state) { number = state.at("number").as_integer(); }
};

// Everything of checkpoint n is n.
struct Training {
  explicit Training(const std::filesystem::path& folder)
      : accelerator(
            {.cpu = true, .project = {.project_dir = folder, .automatic_checkpoint_naming = true}}),
        adam(net->parameters(), torch::optim::AdamOptions(0.1)) {
    for (at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = torch::ones_like(parameter);
    }
    adam.step();
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(adam));
    Scheduler schedule = get_scheduler("linear", adam, {.warmup_steps = 0, .training_steps = 100});
    scheduler.emplace(accelerator.prepare(schedule));
    accelerator.register_for_checkpointing(counter);
  }
  void become(int64_t number) {
    test::fill_parameters(*net, number);
    counter.number = number;
  }
  bool is(int64_t number) const {
    return test::parameters_are(*net, number) && counter.number == number;
  }

  Accelerator accelerator;
  torch::nn::Linear net{torch::nn::LinearOptions(12, 9)};
  torch::optim::Adam adam;
  Counter counter;
  // What nobody holds is not saved.
  std::optional<decltype(std::declval<Accelerator&>().prepare(net))> model;
  std::optional<PreparedOptimizer> optimizer;
  std::optional<PreparedScheduler> scheduler;
};

class StateDamage : public test::ScratchFolder {
 protected:
  void SetUp() override {
    setenv("ACCELERATE_LOG_LEVEL", "error", 1);  // every fallback is a warning
    test::ScratchFolder::SetUp();
    training_.emplace(folder_);
    for (const int64_t number : {0, 1}) {
      training_->become(number);
      training_->accelerator.save_state();
    }
    for (const auto& entry : std::filesystem::directory_iterator(newest())) {
      files_.push_back(entry.path());
    }
    std::sort(files_.begin(), files_.end());
  }

  std::filesystem::path newest() const { return folder_ / "checkpoints" / "checkpoint_1"; }
  std::filesystem::path older() const { return folder_ / "checkpoints" / "checkpoint_0"; }

  CheckpointError load_error() {
    return test::error_of<CheckpointError>([&] { training_->accelerator.load_state(newest()); });
  }

  // One bit of all bytes of all files, each as likely as the other. Called again it flips it back.
  struct Bit {
    std::filesystem::path file;
    off_t offset;
    int number;
  };
  Bit random_bit() {
    uint64_t bytes = 0;
    for (const auto& file : files_) bytes += std::filesystem::file_size(file);
    uint64_t place = std::uniform_int_distribution<uint64_t>(0, bytes - 1)(random_);
    const int number = std::uniform_int_distribution<int>(0, 7)(random_);
    for (const auto& file : files_) {
      const uint64_t size = std::filesystem::file_size(file);
      if (place < size) return {file, static_cast<off_t>(place), number};
      place -= size;
    }
    return {};
  }
  static void flip(const Bit& bit) {
    const int file = open(bit.file.c_str(), O_RDWR);
    unsigned char byte = 0;
    ASSERT_EQ(pread(file, &byte, 1, bit.offset), 1);
    byte ^= static_cast<unsigned char>(1U << static_cast<unsigned>(bit.number));
    ASSERT_EQ(pwrite(file, &byte, 1, bit.offset), 1);
    close(file);
  }

  std::optional<Training> training_;
  std::vector<std::filesystem::path> files_;
  std::mt19937_64 random_{20260101};
};

TEST_F(StateDamage, ManifestsListThePartsOfEveryFileWithTensors) {
  const files::CheckpointDirectory checkpoint(newest());
  std::set<std::string> names;
  for (const files::PartRecord& part : checkpoint.find("optimizer.bin")->parts) {
    names.insert(part.name);
  }
  EXPECT_THAT(names, Contains("['state'][0]['exp_avg']"));
  EXPECT_THAT(names, Contains("['state'][1]['exp_avg_sq']"));
  EXPECT_EQ(checkpoint.find("custom_checkpoint_0.pkl")->parts.front().bytes, 160U);
  EXPECT_FALSE(checkpoint.find("random_states_0.pkl")->parts.empty());
}

TEST_F(StateDamage, EachOfTenThousandFlippedBitsIsFound) {
  for (int i = 0; i < 10'000; ++i) {
    const Bit bit = random_bit();
    flip(bit);
    const std::vector<files::Finding> findings = files::verify(newest());
    flip(bit);
    ASSERT_FALSE(findings.empty()) << bit.file << ", byte " << bit.offset << ", bit " << bit.number;
    // A damaged manifest vouches for nothing else.
    ASSERT_EQ(findings.size(), 1U);
    ASSERT_EQ(findings[0].file, bit.file.filename());
  }
  EXPECT_THAT(files::verify(newest()), IsEmpty());
}

TEST_F(StateDamage, AFlippedBitIsNeverLoadedAndTheOneBeforeIsTakenWhenAsked) {
  for (int i = 0; i < 300; ++i) {
    const Bit bit = random_bit();
    flip(bit);
    training_->become(77);
    EXPECT_THAT(load_error().what(), HasSubstr(bit.file.filename().string()));
    ASSERT_TRUE(training_->is(77)) << bit.file;
    ASSERT_EQ(training_->accelerator.load_state({}, {.fall_back = true}), older()) << bit.file;
    ASSERT_TRUE(training_->is(0));
    flip(bit);
  }
  EXPECT_EQ(training_->accelerator.load_state(), newest());
  EXPECT_TRUE(training_->is(1));
}

TEST_F(StateDamage, AFileThatIsCutAnywhereIsNeverLoaded) {
  const files::CheckpointDirectory checkpoint(newest());
  for (const auto& file : files_) {
    const uint64_t size = std::filesystem::file_size(file);
    std::set<uint64_t> cuts{0, 1, size / 2, size - 1};
    if (const auto* record = checkpoint.find(file.filename().string())) {
      for (const files::PartRecord& part : record->parts) {
        for (const uint64_t boundary : {part.offset, part.offset + part.bytes}) {
          cuts.insert({boundary - 1, boundary, boundary + 1});
        }
      }
    }
    const auto whole = folder_ / "whole";
    std::filesystem::copy_file(file, whole, std::filesystem::copy_options::overwrite_existing);
    for (const uint64_t cut : cuts) {
      if (cut >= size) continue;
      std::filesystem::resize_file(file, cut);
      training_->become(77);
      EXPECT_THAT(load_error().what(), HasSubstr(file.filename().string()));
      ASSERT_TRUE(training_->is(77)) << file << " cut to " << cut;
      std::filesystem::copy_file(whole, file, std::filesystem::copy_options::overwrite_existing);
    }
    std::filesystem::remove(file);
    ASSERT_EQ(training_->accelerator.load_state(), older()) << file;
    std::filesystem::copy_file(whole, file);
  }
  EXPECT_EQ(training_->accelerator.load_state(), newest());
}

}  // namespace
}  // namespace accelerate
