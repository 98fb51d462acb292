// A tree that grows by the events of nlohmann's parser, which does not recurse: whoever reads a
// file decides what each event may be.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace accelerate::files {

class JsonTree {
 public:
  static constexpr size_t kDeepest = 64;

  // Whether no object or list is open: before the first event, and after the last.
  bool is_at_top() const { return open_.empty(); }
  bool is_full() const { return open_.size() == kDeepest; }
  // Whether the object that is open has such a key already.
  bool has(const std::string& key) const { return open_.back()->contains(key); }

  void put(nlohmann::json value) { place(std::move(value)); }
  // An object or a list, to which all belongs that comes before close(). Not where is_full().
  void open(nlohmann::json value) { open_.push_back(place(std::move(value))); }
  void close() { open_.pop_back(); }
  // Of the next value.
  void key(std::string name) { key_ = std::move(name); }

  nlohmann::json take() { return std::move(root_); }

 private:
  nlohmann::json* place(nlohmann::json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }

  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;
  std::string key_;
};

}  // namespace accelerate::files
