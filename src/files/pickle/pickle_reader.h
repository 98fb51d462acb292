// Reads the pickles that torch.save writes, without Python.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "files/pickle/pickle_document.h"

namespace accelerate::files {

// Reads a pickle of protocol 2 to 5. Executes nothing: only the classes and functions of
// pickle_calls.h are known, each as plain data; all else is refused by its name. Memory and time
// grow with the length of the pickle alone. Tensors lie inside their storages; keys of dicts are
// hashable and differ, but for those that are records: who knows their class compares them. Any
// thread.
//
// `classes` are known beside those of torch.save; instances and results of calls are records. They
// must live for ever. Throws CheckpointError, with `where` as its place, for anything that is not
// such a pickle.
PickleDocument read_pickle(std::span<const std::byte> pickle, const std::string& where,
                           std::span<const PickleClass> classes = {});

}  // namespace accelerate::files
