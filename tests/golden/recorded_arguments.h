// Arguments of a Python call as they were recorded, put into the options of this library.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace accelerate::test {

// A number as the recordings write it: those that JSON has no word for are strings.
inline double recorded_number(const nlohmann::json& value) {
  if (!value.is_string()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + value.dump());
}

inline std::vector<double> recorded_numbers(const nlohmann::json& values) {
  std::vector<double> numbers;
  for (const nlohmann::json& value : values) numbers.push_back(recorded_number(value));
  return numbers;
}

// Whether the entry is there and is not null, which is Python's None.
inline bool is_given(const nlohmann::json& recorded, const char* key) {
  return recorded.contains(key) && !recorded.at(key).is_null();
}

// A call that has an argument for which there is no option.
struct UnknownArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Gives each option its recorded value; null and what was not recorded leave it as it is. done()
// throws UnknownArgument unless every argument that was recorded has been asked for.
class RecordedArguments {
 public:
  // null stands for no arguments.
  explicit RecordedArguments(nlohmann::json arguments) : arguments_(std::move(arguments)) {
    if (arguments_.is_null()) arguments_ = nlohmann::json::object();
  }

  template <class T>
  RecordedArguments& operator()(const char* key, T& option) {
    return with(key, [&](const nlohmann::json& value) { assign(value, option); });
  }
  // Calls `use` with the value.
  template <class Use>
  RecordedArguments& with(const char* key, Use use) {
    asked_.insert(key);
    if (is_given(arguments_, key)) use(arguments_.at(key));
    return *this;
  }
  // An argument that changes nothing of what is compared.
  RecordedArguments& ignore(const char* key) {
    return with(key, [](const nlohmann::json&) {});
  }
  // An argument that there is no option for, as long as it has this value.
  RecordedArguments& only(const char* key, const nlohmann::json& supported) {
    return with(key, [&](const nlohmann::json& value) {
      if (value != supported) throw UnknownArgument(std::string(key) + " = " + value.dump());
    });
  }

  void done() const {
    for (const auto& [key, value] : arguments_.items()) {
      if (!asked_.contains(key)) throw UnknownArgument("no option for the argument " + key);
    }
  }

 private:
  static void assign(const nlohmann::json& value, double& option) {
    option = recorded_number(value);
  }
  template <class T>
  static void assign(const nlohmann::json& value, std::optional<T>& option) {
    T given{};
    assign(value, given);
    option = given;
  }
  // One number for all parameter groups, or one for each.
  template <class T>
  requires requires(T& option) { option.for_groups(0, ""); }
  static void assign(const nlohmann::json& value, T& option) {
    if (value.is_array()) {
      option = recorded_numbers(value);
    } else {
      option = recorded_number(value);
    }
  }
  template <class T>
  requires(!requires(T & option) {
    option.for_groups(0, "");
  }) static void assign(const nlohmann::json& value, T& option) {
    option = value.get<T>();
  }

  nlohmann::json arguments_;
  std::set<std::string> asked_{};
};

}  // namespace accelerate::test
