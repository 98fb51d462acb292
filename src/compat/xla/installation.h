// Which torch_xla this process can open: the one beside its torch, if the two are of the one pair
// that is supported.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace accelerate::compat {

// torch_xla's last release, and the only torch that it fits.
inline constexpr const char* kTorchOfXla = "2.9.0";
inline constexpr const char* kXlaRelease = "2.9.0";

// Where to look, and for whom.
struct XlaSearch {
  std::filesystem::path packages;   // the folder that holds torch/
  std::filesystem::path stand_ins;  // see stand_ins/README.md
  std::string torch = kTorchOfXla;  // that this library was built with
};
// Of this process: beside the libtorch_cpu.so that it has loaded, and beside this library.
XlaSearch own_xla_search();

struct XlaInstallation {
  std::filesystem::path library;    // _XLAC
  std::filesystem::path stand_ins;  // folder
};

// Opens nothing. Throws ConfigError, with the command that installs it, where there is none, and
// for every other pair of releases: a torch_xla of another release would end the process when it
// meets a symbol that is gone.
XlaInstallation find_xla(const XlaSearch& search);

// "2.9.0" of a file version.py that says __version__ = '2.9.0+cu128'; nothing where it says none.
std::optional<std::string> version_in(const std::filesystem::path& version_py);

}  // namespace accelerate::compat
