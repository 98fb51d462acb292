#include "checkpoint/optimizer/optimizer_state_family.h"

#include <typeindex>
#include <unordered_map>

#include "checkpoint/optimizer/optimizer_state_fields.h"
#include "checkpoint/optimizer/optimizer_state_reading.h"
#include "checkpoint/optimizer/optimizer_state_writing.h"

namespace accelerate {
namespace {

template <class Fields>
class FamilyOf final : public OptimizerFamily {
 public:
  const char* name() const override { return Fields::kName; }

  TorchDict group_entries(const Options& options) const override {
    TorchDict entries;
    FieldWriter writer(entries);
    Fields::options(own(options), writer);
    return entries;
  }

  TorchDict state_entries(const ParamState& state) const override {
    TorchDict entries;
    FieldWriter writer(entries);
    // Options decide what is needed when a state is read; all that is there is written.
    const OwnOptions any = some_options();
    Fields::state(any, static_cast<const OwnState&>(state), writer);
    return entries;
  }

  std::unique_ptr<Options> read_group(const TorchDict& group, const Options& present,
                                      const std::string& subject,
                                      StateProblems& problems) const override {
    auto options = std::make_unique<OwnOptions>(own(present));
    GroupReader reader(group, subject, problems);
    Fields::options(*options, reader);
    reader.finish();
    return options;
  }

  void assign(Options& target, const Options& source) const override {
    static_cast<OwnOptions&>(target) = own(source);
  }

  std::unique_ptr<ParamState> read_state(const TorchDict& entries, const at::Tensor& parameter,
                                         const Options& options, Tensors tensors,
                                         const std::string& subject,
                                         StateProblems& problems) const override {
    auto state = std::make_unique<OwnState>();
    ParamStateReader reader(entries, subject, problems, parameter, tensors);
    Fields::state(own(options), *state, reader);
    reader.finish();
    return state;
  }

  bool needs_all_states() const override { return Fields::kNeedsAllStates; }

 private:
  using OwnOptions = typename Fields::Options;
  using OwnState = typename Fields::State;

  static const OwnOptions& own(const Options& options) {
    return static_cast<const OwnOptions&>(options);
  }
  static OwnOptions some_options() { return OwnOptions(/*lr=*/0); }
};

template <class Fields>
const OptimizerFamily* family_of_type() {
  static const FamilyOf<Fields> family;
  return &family;
}

}  // namespace

const OptimizerFamily* find_optimizer_family(const torch::optim::Optimizer& optimizer) {
  static const std::unordered_map<std::type_index, const OptimizerFamily*> families{
      {typeid(torch::optim::SGD), family_of_type<SgdFields>()},
      {typeid(torch::optim::Adam), family_of_type<AdamFields>()},
      {typeid(torch::optim::AdamW), family_of_type<AdamWFields>()},
      {typeid(torch::optim::Adagrad), family_of_type<AdagradFields>()},
      {typeid(torch::optim::RMSprop), family_of_type<RmspropFields>()},
      {typeid(torch::optim::LBFGS), family_of_type<LbfgsFields>()}};
  const auto found = families.find(typeid(optimizer));
  return found == families.end() ? nullptr : found->second;
}

}  // namespace accelerate
