#include "reducer_loop.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw std::runtime_error(std::string(name) + " is not set: start this with accelerate launch");
  }
  return value;
}

accelerate::compat::ReducerAndLogger make_reducer(const MlpImpl& model,
                                                  c10::intrusive_ptr<c10d::ProcessGroup> group) {
  const std::vector<std::string> names = model.named_parameters().keys();
  return accelerate::compat::make_reducer(
      model.parameters(), names, std::vector<bool>(names.size(), false), std::move(group), {});
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
      made_(make_reducer(*model_, std::move(group))) {}

void ReducerLoop::step() {
  const TrainingData batch = batches_.next();
  optimizer_->zero_grad();
  made_.reducer->prepare_for_forward();
  made_.reducer->rebuild_buckets();
  auto loss = torch::nn::functional::cross_entropy(model_(batch.inputs), batch.labels);
  made_.reducer->prepare_for_backward({});
  loss.backward();
  optimizer_->step();
  loss_ = loss;
}

}  // namespace bench
