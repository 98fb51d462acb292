// Files that the safetensors library takes or refuses, and those it wrote: read, and written again
// byte for byte.
#include <accelerate/safetensors.h>
#include <torch/torch.h>

#include <fstream>

#include "checkpoint/model/safetensors_stream.h"
#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "golden/sha256.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  return {static_cast<const char*>(plain.data_ptr()), plain.nbytes()};
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    hex += {kHex[byte >> 4], kHex[byte & 0xf]};
  }
  return hex;
}

struct TextSink final : files::ByteSink {
  void write(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string text;
};

void expect_tensors(CaseLog& log, const SafetensorsFile& file, const json& recorded) {
  log.expect_equal("number of tensors", file.names().size(), recorded.at("tensors").size());
  for (const json& tensor : recorded.at("tensors")) {
    const std::string name = tensor.at("name");
    log.expect_equal(name + " dtype", json(file.info(name).dtype), tensor.at("dtype"));
    log.expect_equal(name + " shape", json(file.info(name).shape), tensor.at("shape"));
    const std::string bytes = bytes_of(file.tensor(name));
    if (tensor.contains("hex")) {
      log.expect_equal(name + " bytes", json(hex_of(bytes)), tensor.at("hex"));
    }
    if (tensor.contains("sha256")) {
      log.expect_equal(name + " sha256", json(sha256_of(bytes)), tensor.at("sha256"));
    }
  }
  const json metadata = file.metadata();
  log.expect_equal("metadata", metadata.empty() ? json() : metadata,
                   recorded.value("metadata", json()));
}

TEST(Fixtures, SafetensorsBad) {
  const json recorded = load_fixture("safetensors_bad/cases.json");
  const std::set<std::string> to_be_read{"extra_info_key.safetensors",
                                         "header_trailing_newlines.safetensors"};
  CaseLog log;
  int refused = 0;
  for (const json& file : recorded.at("cases")) {
    const std::string name = file.at("file");
    log.run(name, [&] {
      const fs::path path = fixtures_folder().path / "safetensors_bad" / name;
      // Or it would count as one that is refused.
      if (!fs::exists(path)) return log.note("is missing");
      try {
        const SafetensorsFile opened(path);
        for (const std::string& tensor : opened.names()) opened.tensor(tensor);
        if (!file.at("accepted").get<bool>()) log.note("was accepted");
        expect_tensors(log, opened, file);
      } catch (const CheckpointError& error) {
        ++refused;
        if (error.message().empty() || error.where().empty()) log.note("has no clear message");
        if (to_be_read.contains(name)) log.note(error.what());
      }
    });
  }
  log.report();
  EXPECT_GT(refused, 0);
}

TEST(Fixtures, SafetensorsValid) {
  const json recorded = load_fixture("safetensors_valid/cases.json");
  CaseLog log;
  for (const json& file : recorded.at("cases")) {
    const std::string name = file.at("file");
    log.run(name, [&] {
      const fs::path path = fixtures_folder().path / "safetensors_valid" / name;
      const SafetensorsFile opened(path);
      expect_tensors(log, opened, file);
      // The library writes several keys of metadata in any order.
      if (file.at("written") == "by hand" || opened.metadata().size() > 1) return;
      NamedTensors tensors;
      for (const std::string& tensor : opened.names()) {
        // A copy: in another order than that of the file, and with no memory in common.
        tensors.insert(tensor, opened.tensor(tensor).clone());
      }
      TextSink sink;
      checkpoint::write_safetensors(sink, tensors, opened.metadata());
      std::ifstream stream(path, std::ios::binary);
      const std::string original{std::istreambuf_iterator<char>(stream), {}};
      if (sink.text != original) log.note("is written differently: " + sink.text.substr(8, 500));
    });
  }
  log.report();
}

}  // namespace
}  // namespace accelerate::test
