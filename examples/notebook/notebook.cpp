// Trains on several processes without a launcher:  ./notebook_example [processes]
#include <accelerate/notebook.h>

#include <cstdio>
#include <cstdlib>

#include "line.h"

int main(int argc, char** argv) {
  const int processes = argc > 1 ? std::atoi(argv[1]) : 2;
  const int epochs = 40;
  try {
    // Forks; what the function returns comes back, one entry a process.
    const auto lines = accelerate::notebook_launcher([&] { return learn_line(epochs); },
                                                     {.num_processes = processes, .cpu = true});
    for (size_t rank = 0; rank < lines.size(); ++rank) {
      std::printf("rank %zu: y = %.2f x + %.2f\n", rank, lines[rank][0].item<double>(),
                  lines[rank][1].item<double>());
    }
  } catch (const accelerate::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
