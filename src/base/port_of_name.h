// A port that several processes choose alike without a word between them.
#pragma once

#include <cstdint>
#include <string_view>

namespace accelerate {

// From 20000 to 29999, the same on all machines and in every build: it follows from `name` by
// FNV-1a of 32 bits.
constexpr uint16_t port_of_name(std::string_view name) {
  constexpr uint32_t kFirstPort = 20000;
  constexpr uint32_t kPorts = 10000;
  uint32_t hash = 2166136261U;
  for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
  return static_cast<uint16_t>(kFirstPort + hash % kPorts);
}

}  // namespace accelerate
