// What the writer and the reader of a manifest agree on beyond JSON.
#pragma once

#include <string>
#include <string_view>

#include "files/durable/checksum.h"

namespace accelerate::files {

inline constexpr std::string_view kManifestFormat = "accelerate-checkpoint";

// A manifest ends with this, 16 digits and kManifestEnd. The digits are the checksum of all bytes
// before: a reader knows that it has the whole manifest before it looks at any of it.
inline constexpr std::string_view kManifestSeal = ",\n\"checksum\": \"";
inline constexpr std::string_view kManifestEnd = "\"\n}\n";
inline constexpr size_t kManifestTailBytes = kManifestSeal.size() + 16 + kManifestEnd.size();

// The end of a manifest that begins with `body`.
inline std::string manifest_tail(std::string_view body) {
  return std::string(kManifestSeal) +
         checksum_text(checksum_of(std::as_bytes(std::span(body.data(), body.size())))) +
         std::string(kManifestEnd);
}

}  // namespace accelerate::files
