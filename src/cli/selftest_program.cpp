#include "cli/selftest_program.h"

namespace accelerate::cli {

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path();
}

std::optional<fs::path> find_selftest_program() {
  const fs::path here = own_folder();
  const fs::path libexec = here / ACCELERATE_LIBEXEC_FROM_BIN;
  for (const fs::path& folder : {here, libexec / "accelerate", libexec}) {
    const fs::path candidate = folder / kSelftestProgram;
    std::error_code none;
    if (fs::exists(candidate, none)) return candidate.lexically_normal();
  }
  return std::nullopt;
}

}  // namespace accelerate::cli
