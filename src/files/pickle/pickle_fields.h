// Typed reading of what a pickle holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/pickle/pickle_document.h"

namespace accelerate::files {

// Each call throws CheckpointError, with `where` as its place, where something else is than is
// asked for; `subject` says in the message what it is ("the size of a tensor"). Document and
// `where` outlive the object, and so do results.
//
// What a pickle has once it can name again and again, and a short one could fill the memory of
// whoever copies all of it: copies are limited by what the pickle has.
class PickleFields {
 public:
  // `kind` is what the file should be: "the .metadata of torch.distributed.checkpoint".
  PickleFields(const PickleDocument& document, const std::string& where, std::string kind);

  const PickleDocument& document() const { return document_; }
  const PickleValue& at(PickleIndex index) const { return document_.at(index); }
  bool is_none(PickleIndex index) const;

  // nullptr where there is something else.
  const PickleRecord* find_record(PickleIndex index, std::string_view name) const;
  const PickleDict* find_dict(PickleIndex index) const;
  const PickleTensor* find_tensor(PickleIndex index) const;
  const std::string* find_text(PickleIndex index) const;

  const PickleDict& dict(PickleIndex index, const std::string& subject) const;
  const std::vector<PickleIndex>& list(PickleIndex index, const std::string& subject) const;
  const PickleTensor& tensor(PickleIndex index, const std::string& subject) const;
  const std::string& text(PickleIndex index, const std::string& subject) const;
  int64_t integer(PickleIndex index, const std::string& subject) const;
  uint64_t natural(PickleIndex index, const std::string& subject) const;

  // Copies, which are counted. Sizes are those of a torch.Size, a tuple or a list; none is
  // negative.
  std::string copied_text(PickleIndex index, const std::string& subject);
  std::vector<uint64_t> shape(PickleIndex index, const std::string& subject);
  void count_copy(size_t bytes);

  // The value of a key that is a string.
  std::optional<PickleIndex> find(const PickleDict& dict, std::string_view key) const;
  PickleIndex need(const PickleDict& dict, std::string_view key) const;

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const PickleDocument& document_;
  const std::string& where_;
  std::string kind_;
  size_t copies_left_;  // bytes
};

}  // namespace accelerate::files
