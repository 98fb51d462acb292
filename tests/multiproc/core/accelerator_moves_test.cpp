// Accelerators and prepared objects that are moved: what was moved goes on, and what it was moved
// from says so.
#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct Moves : Ranks {};

TensorDataset four_rows() {
  return {torch::arange(24).view({4, 6}).to(at::kFloat), torch::arange(4)};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.message();
  }
  return "";
}

TEST_F(Moves, AnAcceleratorTakesWhatItPreparedAlong) {
  run(2, [](const Rank& rank) {
    Accelerator first(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer, loader] = first.prepare(net, torch::optim::SGD(net->parameters(), 0.1),
                                                    data_loader(four_rows(), {.batch_size = 2}));
    Accelerator second = std::move(first);
    const auto before = flat(net->parameters());
    for (auto& batch : loader) {
      optimizer.zero_grad();
      second.backward(model(batch.data).mean());
      optimizer.step();
    }
    EXPECT_NE(flat(net->parameters()), before);
    EXPECT_EQ(second.gather(torch::tensor({rank.rank})).numel(), 2);
  });
}

TEST_F(Moves, AnAcceleratorThatWasMovedFromRefusesItsCalls) {
  run(1, [](const Rank&) {
    Accelerator first(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = first.prepare(net);
    const at::Tensor loss = model(torch::ones({1, 6}, test::test_device())).mean();
    const Accelerator second = std::move(first);
    const auto refuses = [](const std::function<void()>& call) {
      EXPECT_EQ(refusal(call), "this Accelerator was moved from and holds nothing");
    };
    // NOLINTBEGIN(bugprone-use-after-move): this is about it
    refuses([&] { (void)first.state(); });
    refuses([&] { (void)first.is_main_process(); });
    refuses([&] { (void)first.strategy_name(); });
    refuses([&] { (void)first.communicator(); });
    refuses([&] { (void)first.prepare(net); });
    refuses([&] { (void)first.prepare(data_loader(four_rows())); });
    refuses([&] { first.backward(loss); });
    refuses([&] { (void)first.accumulate(model); });
    refuses([&] { (void)first.sync_gradients(); });
    refuses([&] { (void)first.autocast(); });
    refuses([&] { first.clip_grad_norm_(net->parameters(), 1.0); });
    refuses([&] { (void)first.scaler(); });
    refuses([&] { first.join_uneven_inputs([] {}); });
    refuses([&] { (void)first.gather(loss); });
    refuses([&] { (void)first.on_process(0, [] {}); });
    refuses([&] { (void)first.split_between_processes(std::vector<int>{1, 2}); });
    refuses([&] { (void)first.main_process_first(); });
    refuses([&] { first.set_trigger(); });
    refuses([&] { first.save_state("nowhere"); });
    refuses([&] { first.load_state("nowhere"); });
    refuses([&] { first.save_model(model, "nowhere"); });
    refuses([&] { first.save(TorchValue(1), "nowhere.bin"); });
    refuses([&] { first.save(NamedTensors(), "nowhere.safetensors"); });
    refuses([&] { (void)first.should_checkpoint_and_exit(); });
    refuses([&] { first.wait_for_everyone(); });
    refuses([&] { first.print("nothing"); });
    refuses([&] { first.free_memory(); });
    refuses([&] { (void)first.capture([](const auto& in) { return in; }); });
    // NOLINTEND(bugprone-use-after-move)
  });
}

TEST_F(Moves, AnAcceleratorThatWasMovedFromCanBeAssignedTo) {
  run(1, [](const Rank&) {
    Accelerator first(on_cpu());
    Accelerator second = std::move(first);
    first = std::move(second);
    EXPECT_EQ(first.num_processes(), 1);
    EXPECT_THAT(refusal([&] { (void)second.num_processes(); }),  // NOLINT(bugprone-use-after-move)
                HasSubstr("moved from"));
  });
}

TEST_F(Moves, ACaptureThatWasMovedFromRefusesItsCalls) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto first = accelerator.capture([](const auto& in) { return in; });
    auto second = std::move(first);
    EXPECT_EQ(second({torch::ones({1})}).size(), 1U);
    EXPECT_EQ(refusal([&] { (void)first({}); }),  // NOLINT(bugprone-use-after-move)
              "this StepCapture was moved from and holds nothing");
  });
}

TEST_F(Moves, HandlesThatWereMovedFromGoOn) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto schedule = get_scheduler("constant", sgd);
    auto [model, optimizer, loader, scheduler] = accelerator.prepare(
        net, sgd, data_loader(four_rows(), {.batch_size = 2}), std::move(schedule));
    const auto other_model = std::move(model);
    const auto other_optimizer = std::move(optimizer);
    const auto other_loader = std::move(loader);
    const auto other_scheduler = std::move(scheduler);
    // NOLINTBEGIN(bugprone-use-after-move): this is about it
    for (auto& batch : loader) {
      accelerator.backward(model(batch.data).mean());
      optimizer.step();
      optimizer.zero_grad();
      scheduler.step();
    }
    EXPECT_EQ(optimizer.step_count(), 2);
    EXPECT_EQ(other_optimizer.step_count(), 2);
    EXPECT_EQ(schedule.last_epoch(), 2);
    const StateFolder folder;
    SaveTicket ticket = accelerator.save_state(folder / "state");
    const SaveTicket other_ticket = std::move(ticket);
    EXPECT_TRUE(ticket.done());
    // NOLINTEND(bugprone-use-after-move)
  });
}

}  // namespace
}  // namespace accelerate::test
