#include "report.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

namespace bench {
namespace {

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string command_line(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) text.append(i > 0 ? " " : "").append(argv[i]);
  return text;
}

}  // namespace

void publish(nlohmann::json results, int argc, char** argv, const std::string& json_file) {
  results["command"] = command_line(argc, argv);
  results["machine"] = {{"processor", processor_name()},
                        {"cores", std::thread::hardware_concurrency()}};
  results["torch"] = TORCH_VERSION;
  results["threads"] = torch::get_num_threads();
  const std::string text = results.dump(2);
  std::cout << text << std::endl;
  if (json_file.empty()) return;
  std::ofstream out(json_file);
  out << text << '\n';
  out.close();
  if (!out) throw std::runtime_error("cannot write " + json_file);
}

}  // namespace bench
