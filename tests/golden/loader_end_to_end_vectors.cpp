// Prepared loaders on real ranks against the recorded behaviour of the reference.
#include <accelerate/accelerate.h>

#include <functional>
#include <map>

#include "golden/case_log.h"
#include "golden/loader_cases.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

struct LoaderCase {
  explicit LoaderCase(const json& recorded)
      : kind(recorded.at("kind")),
        n(recorded.at("n")),
        batch_size(recorded.at("batch_size")),
        drop_last(recorded.at("drop_last")),
        split(recorded.at("split_batches")),
        dispatch(recorded.at("dispatch_batches")) {}

  std::string kind;
  int64_t n, batch_size;
  bool drop_last, split, dispatch;
};

// What all ranks saw: the rounds of each rank and, round by round, the real samples of all.
struct SeenByAll {
  SeenPass own;
  Batches real;
  std::vector<std::vector<int64_t>> sizes;  // of a round, by rank
};

template <class Loader>
SeenByAll see_on_all_ranks(const Loader& loader, Accelerator& accelerator) {
  SeenByAll seen;
  for (const auto& batch : loader) {
    const at::Tensor real = batch.data.masked_select(batch.info().valid_mask());
    seen.own.batches.push_back(integers_of(batch.data));
    seen.own.valid.push_back(batch.info().valid);
    seen.own.is_last.push_back(batch.info().is_last);
    seen.real.push_back(
        integers_of(torch::cat(accelerator.communicator().all_gather_ragged(real))));
    seen.sizes.push_back(integers_of(accelerator.gather(torch::tensor(batch.data.size(0)))));
  }
  return seen;
}

std::vector<int64_t> integers_up_to(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// B2: where no batch can be made there is none.
void expect_nothing(const SeenByAll& seen, CaseLog& log) {
  log.expect_equal("batches", seen.own.batches, Batches{});
}

// B3: a first batch that is too small goes round until every rank has as much.
void expect_cycled(const SeenByAll& seen, const LoaderCase& inputs, Accelerator& accelerator,
                   CaseLog& log) {
  const int64_t world_size = accelerator.num_processes();
  const int64_t each = (inputs.n + world_size - 1) / world_size;
  std::vector<int64_t> expected;
  for (int64_t slot = 0; slot < each; ++slot) {
    expected.push_back((accelerator.process_index() * each + slot) % inputs.n);
  }
  log.expect_equal("batches", seen.own.batches, Batches{expected});
  log.expect_equal("is_last", seen.own.is_last, {true});
  log.expect_equal("real samples", seen.real, Batches{integers_up_to(inputs.n)});
}

// The reference keeps the number of real rows of the last round, where it knows it.
void expect_remainder(const SeenByAll& seen, const LoaderCase& inputs, const json& recorded,
                      int64_t world_size, CaseLog& log) {
  const json& remainder = recorded.at("remainder");
  if (remainder.empty() || seen.real.empty()) return;
  const auto real = static_cast<int64_t>(seen.real.back().size());
  if (inputs.dispatch) {
    log.expect_equal("real samples of the last round", real, remainder.back().get<int64_t>());
  } else if (inputs.kind == "map" && !inputs.drop_last) {
    const int64_t total = inputs.split ? inputs.batch_size : inputs.batch_size * world_size;
    const int64_t expected = remainder.back();
    log.expect_equal("remainder", real % total, expected == -1 ? 0 : expected % total);
  }
}

void expect_as_recorded(const SeenByAll& seen, const LoaderCase& inputs, const json& recorded,
                        Accelerator& accelerator, CaseLog& log) {
  const auto rank = static_cast<size_t>(accelerator.process_index());
  log.expect_equal("batches", seen.own.batches,
                   recorded.at("batches_per_rank").at(rank).get<Batches>());
  log.expect_equal("is_last", seen.own.is_last,
                   recorded.at("end_of_dataloader").get<std::vector<bool>>());
  if (shows_bug(recorded, "B1")) {
    std::vector<int64_t> all;
    for (const auto& round : seen.real) all.insert(all.end(), round.begin(), round.end());
    log.expect_equal("real samples of the pass", all, integers_up_to(inputs.n));
    return;
  }
  log.expect_equal("real samples", seen.real, recorded.at("gather_for_metrics").get<Batches>());
  expect_remainder(seen, inputs, recorded, accelerator.num_processes(), log);
}

template <class Loader>
void expect_length(const Loader& loader, const SeenByAll& seen, const LoaderCase& inputs,
                   const json& recorded, CaseLog& log) {
  if (inputs.kind == "iterable_nolen") {
    try {
      (void)loader.size();
      log.note("a stream of unknown length has one");
    } catch (const DataError&) {
    }
    return;
  }
  const int64_t length = loader.size();
  log.expect_equal("length", length, static_cast<int64_t>(seen.own.batches.size()));
  // With split_batches the reference counts a stream by the wrong batch size (B5).
  const bool miscounted = inputs.kind == "iterable_len" && inputs.split && !inputs.dispatch;
  if (!recorded.contains("len") || !recorded.at("len").is_number() || miscounted) return;
  log.expect_equal("length", length, recorded.at("len").get<int64_t>());
}

void expect_loader_refusal(const std::function<void()>& prepare, CaseLog& log) {
  try {
    prepare();
    log.note("arguments that the reference refuses were accepted");
  } catch (const UsageError&) {
  }
}

template <class Loader>
void check_loader(const Loader& whole, const LoaderCase& inputs, const json& recorded,
                  Accelerator& accelerator, CaseLog& log) {
  // What the reference refuses otherwise is a mistake of the arguments.
  if (recorded.contains("error") && !shows_bug(recorded, "B2")) {
    return expect_loader_refusal([&] { (void)accelerator.prepare(whole); }, log);
  }
  const auto loader = accelerator.prepare(whole);
  const SeenByAll seen = see_on_all_ranks(loader, accelerator);
  for (size_t k = 0; k < seen.sizes.size(); ++k) {
    const auto& sizes = seen.sizes[k];
    log.expect_equal("sizes of a round", sizes, std::vector<int64_t>(sizes.size(), sizes.front()));
  }
  expect_length(loader, seen, inputs, recorded, log);
  if (shows_bug(recorded, "B2")) return expect_nothing(seen, log);
  if (shows_bug(recorded, "B3")) return expect_cycled(seen, inputs, accelerator, log);
  expect_as_recorded(seen, inputs, recorded, accelerator, log);
}

void check_case(const json& recorded, Accelerator& accelerator, CaseLog& log) {
  const LoaderCase inputs(recorded);
  const LoaderOptions options{.batch_size = inputs.batch_size, .drop_last = inputs.drop_last};
  const auto check = [&](const auto& loader) {
    check_loader(loader, inputs, recorded, accelerator, log);
  };
  if (inputs.kind == "map") return check(data_loader(integers_below(inputs.n), options));
  if (inputs.kind == "iterable_len") return check(data_loader(counted_stream(inputs.n), options));
  if (inputs.kind == "iterable_nolen") {
    return check(data_loader(uncounted_stream(inputs.n), options));
  }
  log.note("no test for data of the kind " + inputs.kind);
}

// One for each way of sharing, made when it is first needed: in the same order on all ranks.
class Accelerators {
 public:
  Accelerator& for_case(const json& recorded) {
    const bool split = recorded.at("split_batches");
    const bool dispatch = recorded.at("dispatch_batches");
    const bool even = recorded.value("even_batches", true);
    auto& accelerator = made_[{split, dispatch, even}];
    if (!accelerator) {
      accelerator = std::make_unique<Accelerator>(AcceleratorOptions{
          .cpu = true,
          .data_loader = {
              .split_batches = split, .even_batches = even, .dispatch_batches = dispatch}});
    }
    return *accelerator;
  }

 private:
  std::map<std::tuple<bool, bool, bool>, std::unique_ptr<Accelerator>> made_;
};

struct LoaderVectors : Ranks {};

TEST_F(LoaderVectors, DataloaderEndToEnd) {
  const json vectors = load_vectors("dataloader_end_to_end.json");
  for (const auto& [world_size, cases] : by_world_size(vectors)) {
    run(world_size,
        [&](const Rank&) {
          Accelerators accelerators;
          CaseLog log;
          for (const json& recorded : cases) {
            Accelerator& accelerator = accelerators.for_case(recorded);
            log.run(recorded, [&] { check_case(recorded, accelerator, log); });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(240)});
  }
}

}  // namespace
}  // namespace accelerate::test
