// Reads the fields of an optimizer from Python's entries and reports what does not fit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "accelerate/torch_archive.h"
#include "checkpoint/archive/copy_budget.h"
#include "checkpoint/optimizer/optimizer_state_family.h"

namespace accelerate {

// Each call takes the entry of that name and puts it into the field; a problem leaves the field as
// it is. `entries` and `problems` outlive the object.
class FieldReader {
 public:
  FieldReader(const TorchDict& entries, std::string subject, StateProblems& problems)
      : entries_(entries), subject_(std::move(subject)), problems_(problems) {}

  void number(const char* name, double& field);
  void integer(const char* name, int64_t& field);
  void boolean(const char* name, bool& field);
  void two_numbers(const char* name, std::tuple<double, double>& field);
  void optional_integer(const char* name, std::optional<int64_t>& field);
  void optional_text(const char* name, std::optional<std::string>& field);

 protected:
  // nullptr if it is missing or None.
  const TorchValue* take(const char* name);
  // Reports it if it is missing or None.
  const TorchValue* take_needed(const char* name);
  void report(const std::string& name, const std::string& what) const {
    problems_.add(subject_, "'" + name + "' " + what);
  }
  // The entries that nobody has taken, None aside.
  std::vector<const TorchDict::Entry*> left_over() const;

 private:
  const TorchDict& entries_;
  std::string subject_;
  StateProblems& problems_;
  std::unordered_set<std::string_view> taken_;
};

// Of a parameter group.
class GroupReader : public FieldReader {
 public:
  using FieldReader::FieldReader;

  // An option that C++ does not have, and that changes the numbers unless it is False.
  void only_false(const char* name);
  // An option that only says how Python computes.
  void without_effect(const char* name, const TorchValue& /*value*/) { take(name); }
  void decoupled_weight_decay(bool expected, double weight_decay);
  // Reports what is left over and is not known to mean nothing here. Last.
  void finish();
};

// Of the state of a parameter. Tensors are copied to the device and dtype of the parameter.
class ParamStateReader : public FieldReader {
 public:
  ParamStateReader(const TorchDict& entries, std::string subject, StateProblems& problems,
                   const at::Tensor& parameter, OptimizerFamily::Tensors tensors)
      : FieldReader(entries, std::move(subject), problems),
        parameter_(parameter),
        copies_(tensors == OptimizerFamily::Tensors::kCopy) {}

  void step(const char* name, int64_t& field);
  // Of the shape and layout of the parameter.
  void tensor(const char* name, at::Tensor& field, bool is_needed);
  // Of any shape.
  void free_tensor(const char* name, at::Tensor& field);
  void free_tensors(const char* name, std::deque<at::Tensor>& field);
  void optional_tensors(const char* name, std::optional<std::vector<at::Tensor>>& field);
  void finish();

 private:
  bool is_usable(const char* name, const TorchValue& value) const;
  // The same for a tensor whose shape nothing is known of.
  bool is_usable_of_any_shape(const char* name, const TorchValue& value);
  at::Tensor placed(const at::Tensor& value) const;

  const at::Tensor& parameter_;
  bool copies_;
  checkpoint::CopyBudget budget_;  // for tensors of any shape
};

}  // namespace accelerate
