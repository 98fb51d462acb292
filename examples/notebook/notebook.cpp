// Trains on several processes without a launcher:  ./notebook_example [processes]
#include <accelerate/notebook.h>
#include <accelerate/run.h>

#include <cstdio>

#include "../command_line.h"
#include "line.h"

int main(int argc, char** argv) {
  const Words words(argc, argv, "[PROCESSES]",
                    "Trains on several processes [2] without a launcher.");
  const int epochs = 40;
  return accelerate::run([&] {
    // Forks; what the function returns comes back, one entry a process.
    const auto lines = accelerate::notebook_launcher(
        [&] { return learn_line(epochs); },
        {.num_processes = static_cast<int>(words.count(0, 2)), .cpu = true});
    for (size_t rank = 0; rank < lines.size(); ++rank) {
      std::printf("rank %zu: y = %.2f x + %.2f\n", rank, lines[rank][0].item<double>(),
                  lines[rank][1].item<double>());
    }
  });
}
