#include "launch/remote/remote_plan.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "accelerate/errors.h"
#include "launch/plan/worker_environment.h"
#include "launch/remote/message.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;

constexpr const char* kName = "plan";
constexpr size_t kMaxPlanBytes = size_t{64} << 20;

std::string tee_text(const Tee& tee) {
  if (tee.of_rank.empty()) return std::to_string(tee.all_ranks);
  std::string text;
  for (const auto& [rank, streams] : tee.of_rank) {
    text += (text.empty() ? "" : ",") + std::to_string(rank) + ":" + std::to_string(streams);
  }
  return text;
}

template <typename T>
void set_if(Message& message, const char* key, const std::optional<T>& value) {
  if (value) message.set(key, *value);
}

}  // namespace

namespace {

[[noreturn]] void refuse_plan() {
  throw UsageError({.what = "this is not a plan for a launcher",
                    .where = "accelerate node-agent",
                    .hint = "it is started by accelerate launch: run that"});
}

// Fills all of `bytes` from `fd`.
void read_all(int fd, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t count = read(fd, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse_plan();
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

Message plan_message(const RemotePlan& remote) {
  const LaunchPlan& plan = remote.plan;
  std::vector<std::string> variables;
  for (const auto& [name, value] : plan.variables) variables.push_back(name + "=" + value);
  Message message(kName);
  message.set("command", plan.command)
      .set("processes", plan.num_processes)
      .set("machines", plan.num_machines)
      .set("machine", plan.machine_rank)
      .set("address", plan.main_address)
      .set("port", plan.main_port)
      .set("same_network", plan.same_network)
      .set("cpu", plan.use_cpu)
      .set("variables", variables)
      .set("affinity", plan.cpu_affinity)
      .set("prefix", plan.prefix_output)
      .set("log_dir", plan.log_dir.string())
      .set("log_run", plan.log_run)
      .set("quiet", plan.quiet)
      .set("repeat", plan.repeat_last_lines)
      .set("debug", plan.debug)
      .set("restarts", plan.max_restarts)
      .set("monitor_ms", plan.monitor_interval.count())
      .set("machine_ms", plan.machine_timeout.count())
      .set("join_ms", plan.join_timeout.count())
      .set("failure_ms", plan.failure_grace.count())
      .set("signal_ms", plan.signal_grace.count())
      .set("run", plan.run_id)
      .set("folder", remote.folder)
      .set("environment", remote.environment)
      .set("slurm", remote.place_from_slurm)
      .set("lifeline", remote.has_lifeline);
  set_if(message, "precision", plan.mixed_precision);
  set_if(message, "gpus", plan.gpu_ids);
  if (plan.num_cpu_threads_per_process) message.set("threads", *plan.num_cpu_threads_per_process);
  if (plan.tee) message.set("tee", tee_text(*plan.tee));
  return message;
}

RemotePlan plan_in(const std::string& text) {
  const auto message = Message::decode(text, kMaxPlanBytes);
  if (!message || message->name() != kName) refuse_plan();
  RemotePlan remote;
  LaunchPlan& plan = remote.plan;
  const auto number = [&](const char* key) { return static_cast<int>(message->number(key)); };
  const auto duration = [&](const char* key) { return milliseconds(message->number(key)); };
  plan.command = message->texts("command");
  plan.num_processes = number("processes");
  plan.num_machines = number("machines");
  plan.machine_rank = number("machine");
  plan.main_address = message->text("address");
  plan.main_port = number("port");
  plan.same_network = number("same_network") != 0;
  plan.use_cpu = number("cpu") != 0;
  for (const std::string& variable : message->texts("variables")) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    plan.variables.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  plan.cpu_affinity = number("affinity") != 0;
  plan.prefix_output = number("prefix") != 0;
  plan.log_dir = message->text("log_dir");
  plan.log_run = number("log_run");
  plan.quiet = number("quiet") != 0;
  plan.repeat_last_lines = number("repeat") != 0;
  plan.debug = number("debug") != 0;
  plan.max_restarts = number("restarts");
  plan.monitor_interval = duration("monitor_ms");
  plan.machine_timeout = duration("machine_ms");
  plan.join_timeout = duration("join_ms");
  plan.failure_grace = duration("failure_ms");
  plan.signal_grace = duration("signal_ms");
  plan.run_id = message->text("run");
  if (message->has("precision")) plan.mixed_precision = message->text("precision");
  if (message->has("gpus")) plan.gpu_ids = message->text("gpus");
  if (message->has("threads")) plan.num_cpu_threads_per_process = number("threads");
  if (message->has("tee")) plan.tee = Tee::parse(message->text("tee"));
  remote.folder = message->text("folder");
  remote.environment = message->texts("environment");
  remote.place_from_slurm = number("slurm") != 0;
  remote.has_lifeline = number("lifeline") != 0;
  return remote;
}

}  // namespace

std::string encode_remote_plan(const RemotePlan& remote) {
  // Spaces separate the parts of a message; as one word they are escaped once more.
  Message word("launch");
  word.set(kName, plan_message(remote).encode());
  return word.encode().substr(std::string_view("launch plan=").size());
}

RemotePlan decode_remote_plan(const std::string& text) {
  const auto word = Message::decode("launch plan=" + text);
  if (!word) refuse_plan();
  return plan_in(word->text(kName));
}

// Its length in bytes, a line end, and the message.
std::string remote_plan_for_stream(const RemotePlan& remote) {
  const std::string text = plan_message(remote).encode();
  return std::to_string(text.size()) + "\n" + text;
}

RemotePlan read_remote_plan(int fd) {
  size_t size = 0;
  while (true) {
    char digit = 0;
    read_all(fd, &digit, 1);
    if (digit == '\n') break;
    if (digit < '0' || digit > '9' || size > kMaxPlanBytes) refuse_plan();
    size = 10 * size + static_cast<size_t>(digit - '0');
  }
  if (size > kMaxPlanBytes) refuse_plan();
  std::string text(size, '\0');
  read_all(fd, text.data(), size);
  return plan_in(text);
}

std::vector<std::string> environment_to_carry() {
  constexpr std::array<std::string_view, 13> kPrefixes = {
      "ACCELERATE_", "OMP_",  "MKL_", "NCCL_", "GLOO_", "CUDA_", "TORCH_",
      "HF_",         "FSDP_", "KMP_", "UCX_",  "FI_",   "PYTHON"};
  constexpr std::array<std::string_view, 3> kNames = {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"};
  std::vector<std::string> carried;
  for (const std::string& variable : current_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    const bool wanted =
        std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
        std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (wanted) carried.push_back(variable);
  }
  return carried;
}

}  // namespace accelerate::launch
