// The files of the page, which are part of the program.
#pragma once

#include <string_view>

namespace accelerate::monitor {

struct PageAsset {
  std::string_view path;  // "/monitor.js"
  std::string_view type;
  std::string_view content;
};

// By the path of a request; nullptr if there is none.
const PageAsset* find_asset(std::string_view path);

}  // namespace accelerate::monitor
