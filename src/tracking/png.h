// Images as the bytes of a PNG file.
#pragma once

#include <string>

#include "accelerate/tracker.h"

namespace accelerate::tracking {

// Throws TrackerError for an image whose size does not fit its pixels, or that has none.
std::string png_of(const TrackedImage& image);

// Throws TrackerError as png_of() does.
void require_whole(const TrackedImage& image);

}  // namespace accelerate::tracking
