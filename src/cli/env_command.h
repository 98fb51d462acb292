// accelerate env
#pragma once

namespace CLI {
class App;
}

namespace accelerate::cli {

// Adds the command to `app`; it has no options.
CLI::App* setup_env(CLI::App& app);

// Prints what a bug report should say about this machine and this build. Returns 0. Takes at most
// a few seconds, when a program that it asks does not answer.
int run_env();

}  // namespace accelerate::cli
