// What reading and writing of torch archives agree on.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate {

// How deep lists and dicts may lie in each other, lest a hostile file exhaust the stack.
constexpr size_t kDeepestTorchValue = 200;

// The name in Python, "float32"; nothing for types that the format does not know.
std::optional<std::string_view> torch_dtype_name(at::ScalarType type);
// Of a name that files::find_pickle_dtype() knows.
at::ScalarType torch_dtype(std::string_view name);

// Where a value lies inside another one, for messages: ['state'][0]['exp_avg'].
class ValuePath {
 public:
  // One step deeper for as long as it lives.
  class Step {
   public:
    Step(ValuePath& path, std::string name) : path_(path) {
      path_.names_.push_back(std::move(name));
    }
    ~Step() { path_.names_.pop_back(); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    ValuePath& path_;
  };

  size_t depth() const { return names_.size(); }
  std::string text() const;

 private:
  std::vector<std::string> names_;
};

}  // namespace accelerate
