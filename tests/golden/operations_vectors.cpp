// Operations on nested values over real ranks against the recorded behaviour of the reference.
#include <accelerate/accelerate.h>
#include <accelerate/operations.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <tuple>

#include "golden/collective_cases.h"
#include "golden/loader_cases.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// Nested lists of numbers: of int64 if all are whole.
at::Tensor tensor_of(const json& numbers, bool whole) {
  if (!numbers.is_array()) {
    return whole ? torch::tensor(numbers.get<int64_t>()) : torch::tensor(numbers.get<double>());
  }
  std::vector<at::Tensor> parts;
  for (const json& part : numbers) parts.push_back(tensor_of(part, whole));
  return parts.empty() ? torch::empty({0}) : torch::stack(parts);
}

bool is_whole(const json& numbers) {
  if (!numbers.is_array()) return numbers.is_number_integer();
  return std::ranges::all_of(numbers, is_whole);
}

at::Tensor tensor_of(const json& numbers) { return tensor_of(numbers, is_whole(numbers)); }

json json_of(const at::Tensor& tensor) {
  if (tensor.dim() > 0) {
    json list = json::array();
    for (const at::Tensor& part : tensor.unbind(0)) list.push_back(json_of(part));
    return list;
  }
  if (tensor.is_floating_point()) return tensor.item<double>();
  return tensor.item<int64_t>();
}

// The dict of a tensor and of a tuple of a tensor and a list of any number of tensors.
struct Tree {
  at::Tensor a{};
  std::pair<at::Tensor, std::vector<at::Tensor>> b{};
  ACCELERATE_FIELDS(a, b)
};

Tree tree_of(const json& recorded) {
  Tree tree{.a = tensor_of(recorded.at("a")), .b = {tensor_of(recorded.at("b").at(0)), {}}};
  for (const json& entry : recorded.at("b").at(1)) tree.b.second.push_back(tensor_of(entry));
  return tree;
}

json json_of(const Tree& tree) {
  json list = json::array();
  for (const at::Tensor& entry : tree.b.second) list.push_back(json_of(entry));
  return {{"a", json_of(tree.a)}, {"b", json::array({json_of(tree.b.first), list})}};
}

// One case on one rank.
struct OperationCase {
  const json& recorded;
  Communicator& ranks;
  CaseLog& log;

  const json& args() const { return recorded.at("args"); }
  const json& input() const { return of_rank("input_per_rank"); }
  const json& output() const { return of_rank("output_per_rank"); }
  void expect(const json& actual) const { log.expect_equal("the result", actual, output()); }

 private:
  const json& of_rank(const char* name) const {
    return recorded.at(name).at(static_cast<size_t>(ranks.rank()));
  }
};

void check_gather(const OperationCase& c) {
  if (c.input().is_object()) return c.expect(json_of(gather(c.ranks, tree_of(c.input()))));
  const json actual = json_of(gather(c.ranks, tensor_of(c.input())));
  // One entry a rank also where there is one rank; the reference gives back the number there.
  if (c.output().is_number())
    return c.log.expect_equal("the entries", actual, json::array({c.output()}));
  c.expect(actual);
}

void check_reduce(const OperationCase& c) {
  const std::string reduction = c.args().at("reduction");
  const at::Tensor input = tensor_of(c.input());
  // The mean of integers is refused with one rank too, where the reference gives them back.
  if (reduction == "mean" && !input.is_floating_point()) {
    try {
      (void)reduce(c.ranks, input, reduction);
      c.log.note("a mean of integers was accepted");
    } catch (const UsageError&) {
    }
    return;
  }
  const json actual = json_of(reduce(c.ranks, input, reduction));
  c.log.expect_equal("the input", json_of(input), c.input());
  if (shows_bug(c.recorded, "B8")) return c.log.expect_equal("the result", actual, c.input());
  c.expect(actual);
}

void check_broadcast(const OperationCase& c) {
  c.expect(json_of(broadcast(c.ranks, tensor_of(c.input()), c.args().value("from_process", 0))));
}

void check_pad(const OperationCase& c) {
  const PadOptions options{.dim = c.args().value("dim", 0),
                           .pad_index = c.args().value("pad_index", int64_t{0}),
                           .pad_first = c.args().value("pad_first", false)};
  c.expect(json_of(pad_across_processes(c.ranks, tensor_of(c.input()), options)));
}

// What the reference makes of a list of any values is made here of one of values of one type.
void check_gather_object(const OperationCase& c) {
  const json& input = c.input();
  const auto world_size = static_cast<size_t>(c.ranks.world_size());
  if (input.is_array()) {  // of numbers, strings and others, which travel as their text
    using Entry = std::tuple<bool, int64_t, std::string>;
    std::vector<Entry> own;
    for (const json& entry : input) {
      const bool is_number = entry.is_number_integer();
      own.emplace_back(is_number, is_number ? entry.get<int64_t>() : 0, entry.dump());
    }
    json actual = json::array();
    for (const auto& [is_number, number, text] : gather_object(c.ranks, own)) {
      actual.push_back(is_number ? json(number) : json::parse(text));
    }
    c.expect(actual);
  } else if (input.is_string()) {
    // One entry a rank; of several ranks' strings the reference makes a list of characters, and
    // gives that of a single process back as it is.
    const auto all = gather_object(c.ranks, input.get<std::string>());
    c.log.expect_equal("the strings", json(all), c.recorded.at("input_per_rank"));
    if (world_size == 1) return c.expect(json(all[0]));
    json characters = json::array();
    for (const std::string& text : all) {
      for (const char character : text) characters.push_back(std::string(1, character));
    }
    c.expect(characters);
  } else {
    // One entry a rank; of several ranks' dicts the reference keeps the keys alone.
    const auto all = gather_object(c.ranks, input.get<std::map<std::string, int64_t>>());
    c.log.expect_equal("the dicts", json(all), c.recorded.at("input_per_rank"));
    if (world_size == 1) return;
    json keys = json::array();
    for (const auto& entries : all) {
      for (const auto& entry : entries) keys.push_back(entry.first);
    }
    c.expect(keys);
  }
}

void check_broadcast_object_list(const OperationCase& c) {
  const int from = c.args().value("from_process", 0);
  using List = std::tuple<int64_t, std::map<std::string, int64_t>, std::string>;
  const json& input = c.input();
  if (input.size() == 3 && input[0].is_number_integer() && input[1].is_object() &&
      input[2].is_string()) {
    auto list = input.get<List>();
    broadcast_object_list(c.ranks, list, from);
    return c.expect(json(list));
  }
  // Other lists travel as the texts of their entries.
  std::vector<std::string> texts;
  for (const json& entry : input) texts.push_back(entry.dump());
  broadcast_object_list(c.ranks, texts, from);
  json received = json::array();
  for (const std::string& text : texts) received.push_back(json::parse(text));
  c.expect(received);
}

const std::map<std::string, std::function<void(const OperationCase&)>>& operation_checks() {
  static const std::map<std::string, std::function<void(const OperationCase&)>> table{
      {"gather", check_gather},
      {"reduce", check_reduce},
      {"broadcast", check_broadcast},
      {"pad_across_processes", check_pad},
      {"gather_object", check_gather_object},
      {"broadcast_object_list", check_broadcast_object_list}};
  return table;
}

struct OperationVectors : CollectiveCases {};

TEST_F(OperationVectors, Collectives) {
  const json vectors = load_vectors("collectives.json");
  std::vector<json> of_operations;
  for (const json& recorded : vectors) {
    const std::string operation = recorded.at("op");
    // Those two are tested in process_control_vectors.cpp.
    if (operation == "split_between_processes" || operation == "trigger") continue;
    ASSERT_TRUE(operation_checks().contains(operation)) << "no test for " << operation;
    of_operations.push_back(recorded);
  }
  run_cases(of_operations, [](const json& recorded, const ProcessState&, Communicator& ranks,
                              CaseLog& log) {
    operation_checks().at(recorded.at("op"))({.recorded = recorded, .ranks = ranks, .log = log});
  });
}

TEST_F(OperationVectors, PadInputTensors) {
  const json vectors = load_vectors("pad_input_tensors.json");
  ASSERT_FALSE(vectors.empty());
  run(1,
      [&](const Rank&) {
        for (const json& recorded : vectors) {
          const int64_t batch_size = recorded.at("batch_size");
          const int64_t num_processes = recorded.at("num_processes");
          const at::Tensor rows = torch::arange(1, batch_size + 1);
          const json actual = json_of(pad_input_tensors(rows, batch_size, num_processes));
          json expected = recorded.at("out_rows");
          // The reference adds rows of zeros, and not the number that is needed.
          if (shows_bug(recorded, "B12")) {
            expected = json_of(rows);
            while (expected.size() % static_cast<size_t>(num_processes) != 0) {
              expected.push_back(batch_size);
            }
          }
          EXPECT_EQ(actual, expected) << recorded.dump();
        }
      },
      {.launched = false});
}

}  // namespace
}  // namespace accelerate::test
