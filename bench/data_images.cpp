#include <ATen/ATen.h>
#include <accelerate/accelerate.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

#include "data_parts.h"
#include "turns.h"

namespace bench {
namespace {

constexpr uint32_t kImages = 60'000;
constexpr uint32_t kSide = 28;
constexpr int64_t kBatchSize = 64;

void put_big_endian(std::ofstream& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(value >> shift & 0xff));
}

void write_bytes(std::ofstream& out, size_t count, uint32_t below, std::mt19937& random) {
  std::vector<char> bytes(count);
  for (char& byte : bytes) byte = static_cast<char>((random() >> 8) % below);
  out.write(bytes.data(), static_cast<std::streamsize>(count));
  out.close();
  if (!out) throw std::runtime_error("cannot write the images");
}

struct ImageFiles {
  explicit ImageFiles(const std::filesystem::path& folder)
      : images(folder / "images-idx3-ubyte"), labels(folder / "labels-idx1-ubyte") {
    if (exists(images) && exists(labels)) return;
    std::mt19937 random(1);
    std::ofstream image_file(images, std::ios::binary);
    for (const uint32_t value : {0x0803U, kImages, kSide, kSide}) put_big_endian(image_file, value);
    write_bytes(image_file, size_t{kImages} * kSide * kSide, 256, random);
    std::ofstream label_file(labels, std::ios::binary);
    for (const uint32_t value : {0x0801U, kImages}) put_big_endian(label_file, value);
    write_bytes(label_file, kImages, 10, random);
  }

  std::filesystem::path images;
  std::filesystem::path labels;
};

// What a user writes who thinks of one sample at a time.
class OneByOne {
 public:
  explicit OneByOne(const ImageFiles& files)
      : images_(accelerate::read_idx(files.images)),
        labels_(accelerate::read_idx(files.labels).to(at::kLong)) {}

  size_t size() const { return static_cast<size_t>(images_.size(0)); }
  accelerate::Sample get(size_t index) const {
    const auto row = static_cast<int64_t>(index);
    return {images_[row].to(at::kFloat).div(255), labels_[row]};
  }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

auto batch_by_batch(const ImageFiles& files) {
  return accelerate::map_batches(
      accelerate::TensorDataset(accelerate::read_idx(files.images),
                                accelerate::read_idx(files.labels).to(at::kLong)),
      [](accelerate::Sample batch) {
        return accelerate::Sample{batch.data.to(at::kFloat).div_(255), batch.target};
      });
}

// Three sums that any order of the samples gives alike; the last one tells whether each image came
// with its own label.
struct Sums {
  double pixels = 0;
  double labels = 0;
  double pairs = 0;
};

template <class Loader>
Sums sums_of(const Loader& loader) {
  Sums sums;
  for (auto& batch : loader) {
    const at::Tensor images = batch.data.to(at::kDouble).sum({1, 2});
    const at::Tensor labels = batch.target.to(at::kDouble);
    sums.pixels += images.sum().template item<double>();
    sums.labels += labels.sum().template item<double>();
    sums.pairs += images.dot(labels).template item<double>();
  }
  return sums;
}

void require_equal(const Sums& found, const Sums& expected, const std::string& name) {
  const auto differ = [](double a, double b) { return std::abs(a - b) > 1e-9 * std::abs(b); };
  if (differ(found.pixels, expected.pixels) || differ(found.labels, expected.labels) ||
      differ(found.pairs, expected.pairs)) {
    throw std::runtime_error(name + ": the samples sum up to something else");
  }
}

}  // namespace

nlohmann::json measure_images(const std::filesystem::path& folder, int repetitions) {
  const ImageFiles files(folder);
  accelerate::Accelerator accelerator({.cpu = true});
  std::vector<Contender> contenders;
  std::optional<Sums> expected;
  const auto add = [&](const std::string& name, const auto& dataset) {
    for (int workers = 0; workers <= 2; ++workers) {
      auto loader = accelerator.prepare(accelerate::data_loader(
          dataset, {.batch_size = kBatchSize, .shuffle = true, .num_workers = workers}));
      const std::string full_name = name + ", " + std::to_string(workers) + " workers";
      const Sums sums = sums_of(loader);
      if (!expected) expected = sums;
      require_equal(sums, *expected, full_name);
      contenders.push_back(timed(full_name, [loader] {
        int64_t samples = 0;
        for (auto& batch : loader) samples += batch.data.size(0);
        return samples;
      }));
    }
  };
  add("IdxDataset", accelerate::IdxDataset(files.images, files.labels, {.to_float = true}));
  add("map_batches", batch_by_batch(files));
  const OneByOne one_by_one(files);
  add("get", one_by_one);
  std::vector<size_t> order(one_by_one.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  contenders.push_back(timed("get, without a loader", [&] {
    for (const size_t index : order) (void)one_by_one.get(index);
    return static_cast<int64_t>(order.size());
  }));
  const Turns turns(contenders, repetitions);
  return {{"name", "samples of 28x28 bytes as float32, batch 64, shuffled"},
          {"samples", kImages},
          {"sums", {expected->pixels, expected->labels, expected->pairs}},
          {"rows", turns.report()}};
}

}  // namespace bench
