#include "launch/plan/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "launch/scratch_folder.h"

namespace accelerate::launch {
namespace {

using test::ScopedVariable;
using test::ScratchFolder;
using ::testing::ElementsAre;

// The error that worker_command throws, or nothing.
std::optional<ProgramError> refusal(ProgramKind kind, const std::string& program) {
  try {
    worker_command(kind, program, {});
  } catch (const ProgramError& error) {
    return error;
  }
  return std::nullopt;
}

TEST(CommandLine, RunsAnExecutableAsItIsWithItsArgumentsUntouched) {
  ScratchFolder folder;
  const std::string program = folder.write("train", "#!/bin/sh\n", true);
  EXPECT_THAT(worker_command(ProgramKind::kAuto, program, {"--cpu", "", "a b", "--"}),
              ElementsAre(program, "--cpu", "", "a b", "--"));
}

TEST(CommandLine, FindsAProgramWithoutASlashInPath) {
  ScratchFolder folder;
  const std::string program = folder.write("train", "#!/bin/sh\n", true);
  const ScopedVariable path("PATH", ("/nonexistent:" + folder.path().string()).c_str());
  EXPECT_THAT(worker_command(ProgramKind::kAuto, "train", {}), ElementsAre(program));
}

TEST(CommandLine, RunsAPythonFileThroughPython3ThenPython) {
  ScratchFolder folder;
  const std::string script = folder.write("train.py", "");
  const ScopedVariable path("PATH", folder.path().c_str());
  const ScopedVariable named("PYTHON", nullptr);
  const std::string python = folder.write("python", "", true);
  EXPECT_THAT(worker_command(ProgramKind::kAuto, script, {"-v"}),
              ElementsAre(python, script, "-v"));
  const std::string python3 = folder.write("python3", "", true);
  EXPECT_THAT(worker_command(ProgramKind::kAuto, script, {}), ElementsAre(python3, script));
  EXPECT_THAT(worker_command(ProgramKind::kModule, "package.train", {"-v"}),
              ElementsAre(python3, "-m", "package.train", "-v"));
}

TEST(CommandLine, CallsAProgramAsPeopleDo) {
  EXPECT_EQ(program_name({"/opt/runs/train", "--epochs", "3"}), "train");
  EXPECT_EQ(program_name({"/usr/bin/python3", "src/train.py", "-v"}), "train.py");
  EXPECT_EQ(program_name({"/usr/bin/python3", "-m", "package.train"}), "package.train");
  EXPECT_EQ(program_name({"/usr/bin/python3", "-c", "pass"}), "python3");
  EXPECT_EQ(program_name({"/bin/sh"}), "sh");
  EXPECT_EQ(program_name({"bell\x07"}), "bell?");
  EXPECT_EQ(program_name({}), "");
}

TEST(CommandLine, TakesThePythonThatTheVariablePythonNames) {
  ScratchFolder folder;
  const std::string script = folder.write("train.py", "");
  const std::string python = folder.write("mypython", "", true);
  const ScopedVariable named("PYTHON", python.c_str());
  EXPECT_THAT(worker_command(ProgramKind::kAuto, script, {}), ElementsAre(python, script));
}

TEST(CommandLine, RefusesAMissingPythonThatTheVariablePythonNames) {
  const ScopedVariable named("PYTHON", "/no/such/python");
  const auto error = refusal(ProgramKind::kModule, "package.train");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_code(), 127);
  EXPECT_EQ(error->message(), "program '/no/such/python' not found: no such file");
}

TEST(CommandLine, ExecutesAPythonFileItselfWhenAsked) {
  ScratchFolder folder;
  const std::string script = folder.write("train.py", "#!/usr/bin/env python3\n", true);
  EXPECT_THAT(worker_command(ProgramKind::kAsIs, script, {}), ElementsAre(script));
}

TEST(CommandLine, AMissingProgramIsNotFound) {
  const auto path = refusal(ProgramKind::kAuto, "./no/such/train");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->exit_code(), 127);
  EXPECT_EQ(path->message(), "program './no/such/train' not found: no such file");

  const auto name = refusal(ProgramKind::kAuto, "no-such-train");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->exit_code(), 127);
  EXPECT_EQ(name->message(), "program 'no-such-train' not found in PATH");

  const auto script = refusal(ProgramKind::kAuto, "no_such_train.py");
  ASSERT_TRUE(script);
  EXPECT_EQ(script->exit_code(), 127);
}

TEST(CommandLine, SaysThatAPythonProgramNeedsPython) {
  ScratchFolder folder;
  const ScopedVariable path("PATH", folder.path().c_str());
  const ScopedVariable named("PYTHON", nullptr);
  const auto error = refusal(ProgramKind::kModule, "package.train");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_code(), 127);
  EXPECT_EQ(error->message(), "no python3 or python in PATH to run a Python program");
}

TEST(CommandLine, AFileWithoutPermissionIsNotExecutable) {
  ScratchFolder folder;
  const std::string program = folder.write("train", "#!/bin/sh\n");
  const auto error = refusal(ProgramKind::kAuto, program);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_code(), 126);
  EXPECT_EQ(error->message(), "'" + program + "' may not be executed");
  EXPECT_EQ(error->hint(),
            "run `chmod +x " + program + "`, or name the interpreter before the script");
}

TEST(CommandLine, ADirectoryIsNotAProgram) {
  ScratchFolder folder;
  const auto error = refusal(ProgramKind::kAuto, folder.path().string());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_code(), 126);
  EXPECT_EQ(error->message(), "'" + folder.path().string() + "' is a directory, not a program");
}

}  // namespace
}  // namespace accelerate::launch
