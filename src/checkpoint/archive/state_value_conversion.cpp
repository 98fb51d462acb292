// Between the values of this library's states and those of torch.save.
#include <variant>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/archive/torch_archive_format.h"

namespace accelerate {
namespace {

struct ToTorch {
  template <class T>
  TorchValue operator()(const T& value) const {
    return value;
  }
  TorchValue operator()(std::monostate /*nothing*/) const { return {}; }
  TorchValue operator()(const StateValue::List& values) const {
    TorchValue::List list;
    list.reserve(values.size());
    for (const StateValue& value : values) list.push_back(to_torch_value(value));
    return list;
  }
  TorchValue operator()(const StateDict& state) const {
    TorchDict dict;
    for (const auto& [key, value] : state.entries()) dict.add(key, to_torch_value(value));
    return dict;
  }
};

class ToState {
 public:
  StateValue convert(const TorchValue& value) {
    return std::visit([&](const auto& held) { return of(held, value); }, value.variant());
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError({.what = "a state of this library cannot hold " + what,
                           .where = path_.text(),
                           .hint = "read the file with load_torch_archive() as it is"});
  }

  // All other kinds.
  template <class T>
  StateValue of(const T& /*held*/, const TorchValue& value) const {
    refuse(value.kind());
  }
  StateValue of(std::monostate /*none*/, const TorchValue& /*value*/) const { return {}; }
  StateValue of(bool held, const TorchValue& /*value*/) const { return held; }
  StateValue of(int64_t held, const TorchValue& /*value*/) const { return held; }
  StateValue of(double held, const TorchValue& /*value*/) const { return held; }
  StateValue of(const std::string& held, const TorchValue& /*value*/) const { return held; }
  StateValue of(const at::Tensor& held, const TorchValue& /*value*/) const { return held; }
  StateValue of(const TorchSize& held, const TorchValue& /*value*/) const { return held.sizes; }
  StateValue of(const TorchValue::List& held, const TorchValue& /*value*/) { return items(held); }
  StateValue of(const TorchTuple& held, const TorchValue& /*value*/) { return items(held.items); }
  StateValue of(const TorchSet& held, const TorchValue& /*value*/) { return items(held.items); }
  StateValue of(const TorchDict& held, const TorchValue& /*value*/) {
    StateDict dict;
    for (const auto& [key, value] : held.entries()) {
      std::string name = name_of(key);
      const ValuePath::Step step(path_, "'" + name + "'");
      if (dict.contains(name)) refuse("two values with the same name");
      dict.set(name, convert(value));
    }
    return dict;
  }

  StateValue items(const std::vector<TorchValue>& values) {
    StateValue::List list;
    list.reserve(values.size());
    for (const TorchValue& value : values) {
      const ValuePath::Step step(path_, std::to_string(list.size()));
      list.push_back(convert(value));
    }
    return list;
  }

  std::string name_of(const TorchValue& key) const {
    if (const auto* text = std::get_if<std::string>(&key.variant())) return *text;
    if (const auto* integer = std::get_if<int64_t>(&key.variant())) return std::to_string(*integer);
    refuse(std::string("a dict with ") + key.kind() + " as a key");
  }

  ValuePath path_;
};

}  // namespace

TorchValue to_torch_value(const StateValue& value) {
  return std::visit(ToTorch(), value.variant());
}

StateValue to_state_value(const TorchValue& value) { return ToState().convert(value); }

}  // namespace accelerate
