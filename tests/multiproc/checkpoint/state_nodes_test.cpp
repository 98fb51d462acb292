// Checkpoints of nodes without a common file system are those of one save, on all nodes or on none.
#include "multiproc/state_nodes.h"

#include <fstream>

#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct StateNodes : Ranks {
  StateFolder folder;
};

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The training on one node.
struct Node {
  explicit Node(ProjectOptions project) : own(std::move(project)), training({}, 7, own) {}
  Accelerator& accelerator() { return training.accelerator(); }
  std::filesystem::path checkpoints() const { return own.project_dir / "checkpoints"; }

  ProjectOptions own;
  ResumeTraining training;
};

ProjectOptions keeping_one(ProjectOptions project) {
  project.total_limit = 1;
  return project;
}

TEST_F(StateNodes, AManifestThatOneNodeCannotWriteLeavesTheOldCheckpointOnAll) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(keeping_one(project_of_node(folder, rank.rank)));
    node.training.train(0, 2);
    node.accelerator().save_state();
    const auto saved = flat(node.training.net()->parameters());
    node.training.train(2, 3);
    auto hook = node.accelerator().register_save_state_pre_hook(
        [&](auto&, const std::filesystem::path& directory) {
          if (rank.rank == 1) std::filesystem::create_directory(directory / "folder");
        });
    EXPECT_THAT(thrown_by<CheckpointError>([&] { node.accelerator().save_state(); }),
                HasSubstr("a hook has made the folder"));
    hook.remove();
    EXPECT_THAT(names_in(node.checkpoints()), ElementsAre("checkpoint_0"));
    EXPECT_EQ(node.accelerator().load_state(), node.checkpoints() / "checkpoint_0");
    EXPECT_EQ(flat(node.training.net()->parameters()), saved);
  });
}

TEST_F(StateNodes, ANameThatOneNodeCannotGiveIsTakenBackOnTheOthers) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(keeping_one(project_of_node(folder, rank.rank)));
    node.accelerator().save_state();
    const auto in_the_way = node.checkpoints() / "checkpoint_1";
    auto hook =
        node.accelerator().register_save_state_pre_hook([&](auto&, const std::filesystem::path&) {
          if (rank.rank == 0) return;
          std::filesystem::create_directory(in_the_way);
          std::ofstream(in_the_way / "notes.txt") << "of the user";
        });
    EXPECT_THAT(thrown_by<CheckpointError>([&] { node.accelerator().save_state(); }),
                HasSubstr("notes.txt"));
    hook.remove();
    std::filesystem::remove_all(in_the_way);
    EXPECT_THAT(names_in(node.checkpoints()), ElementsAre("checkpoint_0"));
    EXPECT_EQ(node.accelerator().load_state(), node.checkpoints() / "checkpoint_0");
    node.accelerator().save_state();
    EXPECT_THAT(names_in(node.checkpoints()), ElementsAre("checkpoint_1"));
  });
}

TEST_F(StateNodes, AReplacedCheckpointComesBackIfOneNodeCannotReplaceItsOwn) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(project_of_node(folder, rank.rank));
    const auto latest = node.own.project_dir / "latest";
    node.training.train(0, 2);
    node.accelerator().save_state(latest);
    const auto saved = flat(node.training.net()->parameters());
    node.training.train(2, 4);
    auto hook =
        node.accelerator().register_save_state_pre_hook([&](auto&, const std::filesystem::path&) {
          if (rank.rank == 1) std::ofstream(latest / "notes.txt") << "of the user";
        });
    EXPECT_THAT(thrown_by<CheckpointError>([&] { node.accelerator().save_state(latest); }),
                HasSubstr("notes.txt"));
    hook.remove();
    std::filesystem::remove(latest / "notes.txt");
    EXPECT_THAT(names_in(node.own.project_dir), ElementsAre("latest"));
    node.accelerator().load_state(latest);
    EXPECT_EQ(flat(node.training.net()->parameters()), saved);
  });
}

TEST_F(StateNodes, TheNewestThatAllHaveIsLoaded) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(project_of_node(folder, rank.rank));
    for (int i = 0; i < 3; ++i) node.accelerator().save_state();
    if (rank.rank == 1) std::filesystem::remove_all(node.checkpoints() / "checkpoint_2");
    node.accelerator().wait_for_everyone();
    EXPECT_EQ(node.accelerator().load_state(), node.checkpoints() / "checkpoint_1");
    EXPECT_EQ(node.accelerator().save_iteration(), 3);
  });
}

TEST_F(StateNodes, AllOfThemHaveACheckpointOrNone) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(project_of_node(folder, rank.rank));
    EXPECT_EQ(node.accelerator().load_state({}, {.if_any = true}), "");
    node.accelerator().save_state();
    if (rank.rank == 1) std::filesystem::remove_all(node.checkpoints());
    node.accelerator().wait_for_everyone();
    EXPECT_THAT(
        thrown_by<CheckpointError>([&] { node.accelerator().load_state({}, {.if_any = true}); }),
        HasSubstr("the nodes have no checkpoint of one save in common"));
  });
}

TEST_F(StateNodes, OneNameIsNotOneSave) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Node node(project_of_node(folder, rank.rank));
    node.accelerator().save_state();
    node.accelerator().save_state();
    const auto newest = node.checkpoints() / "checkpoint_1";
    // Node 1 has what another save has left under that name.
    node.accelerator().save_state(node.own.project_dir / "other");
    if (rank.rank == 1) {
      std::filesystem::remove_all(newest);
      std::filesystem::rename(node.own.project_dir / "other", newest);
    }
    node.accelerator().wait_for_everyone();
    EXPECT_EQ(node.accelerator().load_state(), node.checkpoints() / "checkpoint_0");
    EXPECT_THAT(thrown_by<CheckpointError>([&] { node.accelerator().load_state(newest); }),
                HasSubstr("the nodes have no checkpoint of one save in common"));
  });
}

TEST_F(StateNodes, AnOpenWindowIsNotLoadedOnOtherRanksWithoutTheFilesOfAll) {
  const ResumeCase what{.accumulation = 3};
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    ResumeTraining training(what, 7, project_of_node(folder, rank.rank));
    training.train(0, 2);
    training.accelerator().save_state();
    training.train(2, 3);
    training.accelerator().save_state();
  });
  run(1, [&](const Rank& rank) {
    become_node(rank.rank);
    ResumeTraining training(what, 1000, project_of_node(folder, rank.rank));
    const auto directory = [&](const char* name) {
      return folder / "node_0" / "checkpoints" / name;
    };
    EXPECT_THAT(thrown_by<CheckpointError>(
                    [&] { training.accelerator().load_state(directory("checkpoint_0")); }),
                HasSubstr("are not here: rank_state_1.bin"));
    training.accelerator().load_state(directory("checkpoint_1"));  // at the end of a window
    EXPECT_TRUE(training.accelerator().sync_gradients());
  });
}

TEST_F(StateNodes, ANewRankGetsItsRandomNumbersFromWhatItsNodeHas) {
  // Two nodes; later three ranks, of which the second node has two.
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    Accelerator accelerator([&] {
      AcceleratorOptions options = on_cpu();
      options.project = project_of_node(folder, rank.rank);
      return options;
    }());
    accelerator.save_state();
  });
  const auto drawn = run_collect(3, [&](const Rank& rank) {
    const int node = rank.rank == 0 ? 0 : 1;
    setenv("LOCAL_RANK", rank.rank == 2 ? "1" : "0", 1);
    setenv("LOCAL_WORLD_SIZE", node == 0 ? "1" : "2", 1);
    setenv("GROUP_RANK", std::to_string(node).c_str(), 1);
    AcceleratorOptions options = on_cpu();
    options.project = project_of_node(folder, node);
    Accelerator accelerator(options);
    accelerator.load_state();
    return flat({torch::rand({4})});
  });
  EXPECT_NE(drawn[2], drawn[1]);
  EXPECT_NE(drawn[2], drawn[0]);
}

}  // namespace
}  // namespace accelerate::test
