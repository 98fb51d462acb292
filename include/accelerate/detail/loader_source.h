// What a loader reads: which kind of source it is, and who makes batches of it. Internal: users
// do not call it.
#pragma once

#include <ranges>
#include <type_traits>
#include <utility>

#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/dataset_access.h"
#include "accelerate/detail/loader_pass.h"
#include "accelerate/detail/map_maker.h"
#include "accelerate/detail/stream_maker.h"
#include "accelerate/stream.h"

namespace accelerate::detail {

template <class Source, class Collate>
struct SourceTraits {
  static_assert(MapDataset<Source>,
                "a dataset needs size() and get(size_t) or get_batch(ArrayRef<size_t>); anything "
                "else can be made a stream: see accelerate::stream()");
  static constexpr SourceKind kKind = SourceKind::kDataset;
  using Maker = MapMaker<Source, Collate>;
};
template <class T, class Collate>
struct SourceTraits<Stream<T>, Collate> {
  static constexpr SourceKind kKind = SourceKind::kStream;
  using Maker = StreamMaker<T, Collate>;
};
template <class T, class Collate>
struct SourceTraits<BatchStream<T>, Collate> {
  static constexpr SourceKind kKind = SourceKind::kBatchStream;
  using Maker = BatchStreamMaker<T, Collate>;
};

// What a loader holds of what the user gave: datasets and streams as they are, other ranges as
// streams.
template <class Given>
auto to_source(Given&& given) {
  using Owned = std::remove_cvref_t<Given>;
  if constexpr (!MapDataset<Owned> && std::ranges::input_range<Owned>) {
    return stream(std::forward<Given>(given));
  } else {
    return Owned(std::forward<Given>(given));
  }
}

template <class Given>
using SourceOf = decltype(to_source(std::declval<Given>()));

}  // namespace accelerate::detail
