// What the calls in a pickle of torch.save mean. Nothing is called: a fixed list of classes and
// functions is known, and each stands for a plain value.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "files/pickle/pickle_document.h"

namespace accelerate::files {

// Every member throws CheckpointError, with `where` as its place, for whatever is not in the list
// or is not used as torch.save uses it.
class PickleCalls {
 public:
  // Document and `where` outlive the object. What calls copy is limited by the size of the pickle:
  // a short one could otherwise copy a long text again and again. `classes` are known besides, as
  // records.
  PickleCalls(PickleDocument& document, const std::string& where, size_t pickle_bytes,
              std::span<const PickleClass> classes)
      : document_(document),
        where_(where),
        classes_(classes),
        copies_left_(16 * pickle_bytes + (size_t{1} << 16U)) {}

  // The class, function or type of that name.
  PickleValue find_global(std::string_view module, std::string_view name) const;
  // What callable(*arguments) would be: a new value, or one that is there already.
  PickleIndex call(PickleIndex callable, PickleIndex arguments);
  // What type.__new__(type, *arguments) would be: a record.
  PickleIndex make(PickleIndex type, PickleIndex arguments);
  // A storage: what torch puts aside while it pickles.
  PickleIndex persistent(PickleIndex id);
  // object.__setstate__(state), in place.
  void build(PickleIndex object, PickleIndex state);

  PickleIndex add(PickleValue value);
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const std::vector<PickleIndex>& tuple(PickleIndex index, size_t least, size_t most) const;
  int64_t integer(PickleIndex index) const;
  bool boolean(PickleIndex index) const;
  const std::string& text(PickleIndex index) const;
  const std::string& bytes(PickleIndex index) const;
  std::vector<int64_t> sizes(PickleIndex index);
  const PickleNumpyType& numpy_type(PickleIndex index) const;

  PickleValue encoded(const std::vector<PickleIndex>& arguments);
  PickleValue device(const std::vector<PickleIndex>& arguments);
  PickleValue tensor(const std::vector<PickleIndex>& arguments, bool names_dtype);
  PickleIndex tensor_with_attributes(const std::vector<PickleIndex>& arguments);
  PickleIndex record(const PickleGlobal& global, PickleIndex arguments);
  void check_inside(const PickleTensor& tensor) const;
  PickleValue new_numpy_type(const std::vector<PickleIndex>& arguments) const;
  PickleValue numpy_scalar(const std::vector<PickleIndex>& arguments) const;
  void check_numpy_type(PickleIndex state) const;
  void fill_numpy_array(PickleNumpyArray& array, PickleIndex state);

  void charge(size_t copied_bytes);

  PickleDocument& document_;
  const std::string& where_;
  std::span<const PickleClass> classes_;
  size_t copies_left_;  // bytes
};

}  // namespace accelerate::files
