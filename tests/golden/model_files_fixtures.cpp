// Folders that Accelerate's save_model wrote: loaded into a model, and written again.
#include <accelerate/model_files.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "golden/sha256.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string contents_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A module that has tensors of those names, in their order.
class NamedModule : public torch::nn::Module {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    const size_t dot = name.find('.');
    if (dot == name.npos) {
      register_buffer(name, tensor);
      return;
    }
    const std::string child = name.substr(0, dot);
    if (!children_.contains(child)) {
      register_module(child, children_[child] = std::make_shared<NamedModule>());
    }
    children_[child]->add(name.substr(dot + 1), tensor);
  }

 private:
  std::map<std::string, std::shared_ptr<NamedModule>> children_;
};

// What a folder of save_model() was written from.
struct Saved {
  fs::path folder{};
  json expected{};
  std::vector<std::string> names{};  // of the state dict
  std::set<std::string> dropped{};
  std::string kept{};  // the name of the tied tensor in the file
};

std::vector<Saved> saved_models() {
  std::vector<Saved> all;
  for (const fs::path& folder : fixture_folders("accelerate_state")) {
    const std::string file = "accelerate_state/" + folder.filename().string() + "/expected.json";
    const json expected = load_fixture(file);
    Saved saved{.folder = folder, .expected = expected};
    if (expected.contains("shards")) {
      // Recorded in the order of the state dict.
      const auto ordered = load_fixture_in_order(file);
      for (const auto& [name, tensor] : ordered.at("tensors").items()) saved.names.push_back(name);
    } else if (expected.value("how", "").starts_with("save_model")) {
      saved.names = expected.at("state_dict_keys").get<std::vector<std::string>>();
      saved.dropped = expected.at("dropped").get<std::set<std::string>>();
      for (const std::string name : expected.at("tied")) {
        if (!saved.dropped.contains(name)) saved.kept = name;
      }
    } else {
      continue;
    }
    all.push_back(std::move(saved));
  }
  return all;
}

std::vector<fs::path> safetensors_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A model of zeros with the shapes of the files.
std::shared_ptr<NamedModule> empty_model(const Saved& saved) {
  NamedTensors shapes;
  for (const fs::path& path : safetensors_files(saved.folder)) {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) {
      shapes.insert(name, torch::zeros(file.info(name).shape, *file.info(name).scalar_type));
    }
  }
  auto model = std::make_shared<NamedModule>();
  for (const std::string& name : saved.names) {
    model->add(name, shapes[saved.dropped.contains(name) ? saved.kept : name]);
  }
  return model;
}

void expect_values(CaseLog& log, const ModelStateDict& state, const json& expected) {
  if (expected.contains("weights")) {
    for (const auto& [name, weight] : expected.at("weights").items()) {
      const auto values = weight.at("values").get<std::vector<double>>();
      const at::Tensor recorded = torch::tensor(values, torch::kDouble).to(torch::kFloat);
      const at::Tensor loaded = state[name].reshape(-1);
      if (!torch::equal(loaded, recorded)) log.note(name + " differs");
    }
  }
  if (expected.contains("tensors")) {
    for (const auto& [name, tensor] : expected.at("tensors").items()) {
      const at::Tensor& loaded = state[name];
      log.expect_equal(name + " shape", json(loaded.sizes().vec()), tensor.at("shape"));
      const std::string bytes(static_cast<const char*>(loaded.data_ptr()), loaded.nbytes());
      log.expect_equal(name + " bytes", json(sha256_of(bytes)), tensor.at("sha256_of_bytes"));
    }
  }
}

void expect_files(CaseLog& log, const fs::path& written, const Saved& saved) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(written)) {
    const std::string name = entry.path().filename().string();
    names.insert(name);
    const std::string ours = contents_of(entry.path());
    const std::string theirs = contents_of(saved.folder / name);
    if (ours == theirs) continue;
    if (saved.dropped.empty() || entry.path().extension() == ".json") {
      log.note(name + " differs");
      continue;
    }
    // The metadata say more: which names were dropped. The tensors and their bytes are the same.
    const SafetensorsFile our_file(entry.path());
    const SafetensorsFile their_file(saved.folder / name);
    log.expect_equal(name + " names", our_file.names(), their_file.names());
    for (const std::string& tensor : their_file.names()) {
      if (!torch::equal(our_file.tensor(tensor), their_file.tensor(tensor))) {
        log.note(name + " " + tensor + " differs");
      }
    }
    for (const std::string& alias : saved.dropped) {
      log.expect_equal("alias", our_file.aliases().at(alias), saved.kept);
    }
  }
  std::set<std::string> expected;
  for (const auto& [name, bytes] : saved.expected.at("files").items()) expected.insert(name);
  log.expect_equal("files", names, expected);
}

TEST(Fixtures, SavedModels) {
  const std::vector<Saved> models = saved_models();
  const fs::path scratch =
      fs::temp_directory_path() / ("accelerate_saved_models_" + std::to_string(getpid()));
  CaseLog log;
  for (const Saved& saved : models) {
    log.run(saved.folder.filename().string(), [&] {
      const auto model = empty_model(saved);
      load_checkpoint_in_model(*model, saved.folder, {.strict = true});
      const ModelStateDict state = get_state_dict(*model);
      log.expect_equal("names", state.keys(), saved.names);
      expect_values(log, state, saved.expected);

      fs::remove_all(scratch);
      const bool sharded = saved.expected.at("files").size() > 1;
      save_model(*model, scratch,
                 {.max_shard_size = sharded ? saved.expected.value("max_shard_size", "1KB")
                                            : std::string("10GB")});
      expect_files(log, scratch, saved);
    });
  }
  fs::remove_all(scratch);
  log.report();
}

}  // namespace
}  // namespace accelerate::test
