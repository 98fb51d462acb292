#include "core/process/stack_frames.h"

#include <c10/util/Logging.h>

#include <functional>
#include <mutex>
#include <string>

#include "base/environment.h"

namespace accelerate {

void leave_out_stack_frames() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string wanted = environment_variable("TORCH_SHOW_CPP_STACKTRACES").value_or("0");
    if (wanted == "1") return;
    c10::SetStackTraceFetcher(std::function<std::string()>(
        [] { return std::string("(TORCH_SHOW_CPP_STACKTRACES=1 shows the frames)"); }));
  });
}

}  // namespace accelerate
