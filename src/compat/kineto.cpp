#include "compat/kineto.h"

#include <ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/collection.h>
#include <torch/csrc/profiler/util.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>
#include <variant>

namespace accelerate::compat {
namespace {

namespace impl = torch::profiler::impl;
namespace kineto = torch::autograd::profiler;
using Operator = impl::ExtraFields<impl::EventType::TorchOp>;
using Allocation = impl::ExtraFields<impl::EventType::Allocation>;
using DeviceWork = impl::ExtraFields<impl::EventType::Kineto>;

impl::ProfilerConfig profiler_config(const KinetoConfig& config) {
  return impl::ProfilerConfig(impl::ProfilerState::KINETO, config.record_shapes,
                              config.profile_memory, config.with_stack, config.with_flops,
                              /*with_modules=*/false);
}

std::optional<impl::ActivityType> activity_of(c10::DeviceType device) {
  switch (device) {
    case c10::DeviceType::CUDA:
      return impl::ActivityType::CUDA;
    case c10::DeviceType::XPU:
      return impl::ActivityType::XPU;
    case c10::DeviceType::MTIA:
      return impl::ActivityType::MTIA;
    case c10::DeviceType::HPU:
      return impl::ActivityType::HPU;
    default:
      return std::nullopt;
  }
}

std::set<impl::ActivityType> activities_of(const KinetoConfig& config) {
  std::set<impl::ActivityType> activities;
  if (config.cpu) activities.insert(impl::ActivityType::CPU);
  if (config.device) activities.insert(activity_of(*config.device).value());
  return activities;
}

void write_shape(const impl::TensorMetadata& tensor, std::ostream& out) {
  out << '[';
  for (size_t i = 0; i < tensor.sizes_.size(); ++i) out << (i == 0 ? "" : ", ") << tensor.sizes_[i];
  out << ']';
}

void add_inputs(const Operator& fields, KinetoRecord& record) {
  if (fields.inputs_.empty()) return;
  std::ostringstream shapes;
  shapes << '[';
  bool is_first = true;
  const auto add = [&](const impl::TensorMetadata& tensor) {
    record.inputs.push_back(tensor.impl().value_of());
    record.inputs.push_back(tensor.data_.value_of());
    write_shape(tensor, shapes);
  };
  for (const impl::op_input_t& input : fields.inputs_) {
    shapes << (is_first ? "" : ", ");
    is_first = false;
    if (const auto* tensor = std::get_if<impl::TensorMetadata>(&input)) {
      add(*tensor);
    } else if (const auto* list = std::get_if<std::vector<impl::TensorMetadata>>(&input)) {
      shapes << '[';
      for (size_t i = 0; i < list->size(); ++i) {
        if (i > 0) shapes << ", ";
        add((*list)[i]);
      }
      shapes << ']';
    } else {
      shapes << "[]";
    }
  }
  shapes << ']';
  record.input_shapes = shapes.str();
}

void describe(const Operator& fields, KinetoRecord& record) {
  switch (fields.scope_) {
    case at::RecordScope::USER_SCOPE:
      record.kind = KinetoRecord::Kind::kSpan;
      break;
    case at::RecordScope::BACKWARD_FUNCTION:
      record.kind = KinetoRecord::Kind::kBackward;
      break;
    default:
      record.kind = KinetoRecord::Kind::kOperator;
  }
  record.sequence = fields.sequence_number_;
  record.forward_thread = fields.forward_tid_;
  if (!fields.extra_args_.empty()) {
    record.flops = impl::computeFlops(fields.name_, fields.extra_args_);
  }
  add_inputs(fields, record);
}

void describe(const Allocation& fields, KinetoRecord& record) {
  record.kind = KinetoRecord::Kind::kAllocation;
  record.device = fields.device();
  record.bytes = fields.alloc_size_;
  record.bytes_in_use = static_cast<int64_t>(fields.total_allocated_);
}

void describe(const DeviceWork& fields, KinetoRecord& record) {
  using libkineto::ActivityType;
  const bool is_work = fields.activity_type_ == ActivityType::CONCURRENT_KERNEL ||
                       fields.activity_type_ == ActivityType::GPU_MEMCPY ||
                       fields.activity_type_ == ActivityType::GPU_MEMSET;
  if (is_work) record.kind = KinetoRecord::Kind::kDeviceWork;
}

KinetoRecord record_of(const impl::Result& result, int64_t parent) {
  KinetoRecord record{.name = result.name(),
                      .begin_ns = result.start_time_ns_,
                      .end_ns = std::max(result.start_time_ns_, result.endTimeNS()),
                      .thread = result.start_tid_,
                      .system_thread = result.kineto_info_.resource,
                      .parent = parent};
  result.visit([&](const auto& fields) {
    using Fields = std::remove_cvref_t<decltype(fields)>;
    if constexpr (std::is_same_v<Fields, Operator> || std::is_same_v<Fields, Allocation> ||
                  std::is_same_v<Fields, DeviceWork>) {
      describe(fields, record);
    }
  });
  if (record.kind == KinetoRecord::Kind::kDeviceWork) {
    record.device =
        c10::Device(result.deviceType(), static_cast<c10::DeviceIndex>(result.kineto_info_.device));
  }
  return record;
}

}  // namespace

struct KinetoTrace::Held {
  std::unique_ptr<kineto::ProfilerResult> result;
};

KinetoTrace::KinetoTrace(std::unique_ptr<Held> held) : held_(std::move(held)) {}
KinetoTrace::KinetoTrace(KinetoTrace&&) noexcept = default;
KinetoTrace& KinetoTrace::operator=(KinetoTrace&&) noexcept = default;
KinetoTrace::~KinetoTrace() = default;

int64_t KinetoTrace::begin_ns() const {
  return static_cast<int64_t>(held_->result->trace_start_ns());
}

std::vector<KinetoRecord> KinetoTrace::records() const {
  std::vector<KinetoRecord> records;
  std::vector<std::pair<const impl::Result*, int64_t>> open;  // with the place of its parent
  const auto& roots = held_->result->event_tree();
  for (auto root = roots.rbegin(); root != roots.rend(); ++root) open.emplace_back(root->get(), -1);
  while (!open.empty()) {
    const auto [result, parent] = open.back();
    open.pop_back();
    const auto place = static_cast<int64_t>(records.size());
    records.push_back(record_of(*result, parent));
    const auto& children = result->children_;
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      open.emplace_back(child->get(), place);
    }
  }
  return records;
}

void KinetoTrace::save(const std::filesystem::path& path) { held_->result->save(path.string()); }

bool kineto_records(c10::DeviceType device) { return activity_of(device).has_value(); }

bool profiler_is_on() { return impl::profilerEnabled(); }

void prepare_kineto(const KinetoConfig& config) {
  kineto::prepareProfiler(profiler_config(config), activities_of(config));
}

void start_kineto(const KinetoConfig& config) {
  kineto::enableProfiler(profiler_config(config), activities_of(config));
}

KinetoTrace stop_kineto() {
  auto held = std::make_unique<KinetoTrace::Held>();
  held->result = kineto::disableProfiler();
  return KinetoTrace(std::move(held));
}

void add_to_trace(const std::string& key, const std::string& json) {
  kineto::addMetadataJson(key, json);
}

}  // namespace accelerate::compat
