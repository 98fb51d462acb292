#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/archive/state_value_copy.h"
#include "checkpoint/state/state_parts.h"

namespace accelerate::checkpoint {
namespace {

// Numbered from 0 on, unlike other files.
std::string object_file(size_t number) {
  return "custom_checkpoint_" + std::to_string(number) + ".pkl";
}

class ObjectsPart final : public StatePart {
 public:
  explicit ObjectsPart(std::vector<CheckpointFunctions> objects) : objects_(std::move(objects)) {}

  void save(Snapshot& snapshot) const override {
    if (!snapshot.writes_shared_files()) return;
    for (size_t i = 0; i < objects_.size(); ++i) {
      snapshot.add(object_file(i), to_torch_value(state_of(i, object_file(i))));
    }
  }

  void check(StateReader& reader) override {
    size_t saved = 0;
    while (reader.has(object_file(saved))) ++saved;
    reader.require_count("registered objects", saved, objects_.size());
    for (size_t i = 0; i < objects_.size() && i < saved; ++i) {
      states_.push_back(to_state_dict(reader.archive(object_file(i))));
    }
    directory_ = reader.directory();
  }

  void try_apply() override {
    for (size_t i = 0; i < states_.size(); ++i) {
      const std::string file = (directory_ / object_file(i)).string();
      before_.push_back(cloned(state_of(i, file)));  // it may change in place
      try {
        objects_[i].load_state_dict(states_[i]);
      } catch (const std::exception& error) {
        throw CheckpointError({.what = "registered object " + std::to_string(i) +
                                       " refuses its state: " + error.what(),
                               .where = file,
                               .hint = "register the objects that were saved, in the same order"});
      }
    }
  }

  void undo() override {
    for (size_t i = 0; i < before_.size(); ++i) {
      try {
        objects_[i].load_state_dict(before_[i]);
      } catch (const std::exception& error) {
        log(LogLevel::kError, "registered object " + std::to_string(i) +
                                  " could not be put back into its earlier state: " + error.what());
      }
    }
    before_.clear();
  }

  void apply() override {}

 private:
  // Of an object of the user, who is told which of them has thrown. `file` is the one it is for.
  StateDict state_of(size_t number, const std::string& file) const {
    try {
      return objects_[number].state_dict();
    } catch (const std::exception& error) {
      throw CheckpointError({.what = "registered object " + std::to_string(number) +
                                     " could not return its state: " + error.what(),
                             .where = file,
                             .hint = "check why its state_dict() throws; objects are numbered from "
                                     "0 in the order of register_for_checkpointing()"});
    }
  }

  std::vector<CheckpointFunctions> objects_;
  std::vector<StateDict> states_;
  std::vector<StateDict> before_;
  std::filesystem::path directory_;
};

}  // namespace

std::unique_ptr<StatePart> objects_part(std::vector<CheckpointFunctions> objects) {
  return std::make_unique<ObjectsPart>(std::move(objects));
}

}  // namespace accelerate::checkpoint
