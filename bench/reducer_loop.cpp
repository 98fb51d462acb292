#include "reducer_loop.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

constexpr int64_t kFirstBucketBytes = 1 << 20;
constexpr int64_t kBucketBytes = 25 << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw std::runtime_error(std::string(name) + " is not set: start this with accelerate launch");
  }
  return value;
}

std::unique_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            c10::intrusive_ptr<c10d::ProcessGroup> group) {
  const auto assignment = c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(kFirstBucketBytes), static_cast<size_t>(kBucketBytes)});
  const auto& buckets = std::get<0>(assignment);
  return std::make_unique<c10d::Reducer>(
      parameters, std::vector<std::vector<size_t>>(buckets.rbegin(), buckets.rend()),
      std::move(group), std::vector<bool>(parameters.size(), false), kBucketBytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false,
      std::unordered_map<size_t, std::string>{}, kFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

}  // namespace

Place Place::from_environment() {
  return {.rank = std::stoi(variable("RANK")),
          .world_size = std::stoi(variable("WORLD_SIZE")),
          .master_address = variable("MASTER_ADDR"),
          .master_port = static_cast<uint16_t>(std::stoi(variable("MASTER_PORT")))};
}

c10::intrusive_ptr<c10d::Store> open_store(const Place& place) {
  c10d::TCPStoreOptions options;
  options.port = place.master_port;
  options.isServer = place.rank == 0;
  options.numWorkers = place.world_size;
  return c10::make_intrusive<c10d::TCPStore>(place.master_address, options);
}

c10::intrusive_ptr<c10d::ProcessGroup> open_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const Place& place) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place.rank, place.world_size);
  group->setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.world_size, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

ReducerLoop::ReducerLoop(c10::intrusive_ptr<c10d::ProcessGroup> group, const Task& task)
    : batches_(task, group->getRank(), group->getSize()),
      model_(make_model(task)),
      optimizer_(make_optimizer(task, model_->parameters())),
      reducer_(make_reducer(model_->parameters(), std::move(group))) {}

void ReducerLoop::step() {
  const TrainingData batch = batches_.next();
  optimizer_->zero_grad();
  reducer_->prepare_for_forward();
  reducer_->rebuild_buckets();
  auto loss = torch::nn::functional::cross_entropy(model_(batch.inputs), batch.labels);
  reducer_->prepare_for_backward({});
  loss.backward();
  optimizer_->step();
  loss_ = loss;
}

}  // namespace bench
