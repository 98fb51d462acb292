#include "cli/reports/selftest_program.h"

namespace accelerate::cli {

namespace fs = std::filesystem;

std::optional<fs::path> find_selftest_program() {
  const fs::path libexec = find_installation().prefix / ACCELERATE_LIBEXEC_DIR;
  for (const fs::path& folder : {own_folder(), libexec / "accelerate", libexec}) {
    const fs::path candidate = folder / kSelftestProgram;
    std::error_code none;
    if (fs::exists(candidate, none)) return candidate.lexically_normal();
  }
  return std::nullopt;
}

}  // namespace accelerate::cli
