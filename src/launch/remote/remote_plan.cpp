#include "launch/remote/remote_plan.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "accelerate/errors.h"
#include "launch/plan/plan_fields.h"
#include "launch/plan/worker_environment.h"
#include "launch/remote/message.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;
using Variables = std::vector<std::pair<std::string, std::string>>;

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

// Each kind of field, into a message and out of it.
void put(Message& message, const char* key, const std::string& value) { message.set(key, value); }
void put(Message& message, const char* key, int value) { message.set(key, int64_t{value}); }
void put(Message& message, const char* key, bool value) { message.set(key, int64_t{value}); }
void put(Message& message, const char* key, milliseconds value) {
  message.set(key, int64_t{value.count()});
}
void put(Message& message, const char* key, const std::filesystem::path& value) {
  message.set(key, value.string());
}
void put(Message& message, const char* key, const std::vector<std::string>& values) {
  message.set(key, values);
}
void put(Message& message, const char* key, const Variables& variables) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  message.set(key, lines);
}
void put(Message& message, const char* key, const Tee& tee) { message.set(key, tee_text(tee)); }
// Not there: the field is not set.
template <typename T>
void put(Message& message, const char* key, const std::optional<T>& value) {
  if (value) put(message, key, *value);
}

void take(const Message& message, const char* key, std::string& value) {
  value = message.text(key);
}
void take(const Message& message, const char* key, int& value) {
  value = static_cast<int>(message.number(key));
}
void take(const Message& message, const char* key, bool& value) {
  value = message.number(key) != 0;
}
void take(const Message& message, const char* key, milliseconds& value) {
  value = milliseconds(message.number(key));
}
void take(const Message& message, const char* key, std::filesystem::path& value) {
  value = message.text(key);
}
void take(const Message& message, const char* key, std::vector<std::string>& values) {
  values = message.texts(key);
}
void take(const Message& message, const char* key, Variables& variables) {
  for (const std::string& line : message.texts(key)) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    variables.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
}
void take(const Message& message, const char* key, Tee& tee) {
  tee = Tee::parse(message.text(key));
}
template <typename T>
void take(const Message& message, const char* key, std::optional<T>& value) {
  if (message.has(key)) take(message, key, value.emplace());
}

template <class Remote, class Visit>
void visit_remote_plan(Remote& remote, Visit&& visit) {
  auto& [plan, folder, environment, place_from_slurm, has_lifeline] = remote;
  visit_fields(plan, visit, [](const char* /*key*/, const auto& /*field*/) {});
  visit("folder", folder);
  visit("environment", environment);
  visit("slurm", place_from_slurm);
  visit("lifeline", has_lifeline);
}

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
  Message message(kName);
  visit_remote_plan(remote, [&](const char* key, const auto& field) { put(message, key, field); });
  return message;
}

RemotePlan plan_in(const std::string& text) {
  const auto message = Message::decode(text, kMaxPlanBytes);
  if (!message || message->name() != kName) refuse_plan();
  RemotePlan remote;
  visit_remote_plan(remote, [&](const char* key, auto& field) { take(*message, key, field); });
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
