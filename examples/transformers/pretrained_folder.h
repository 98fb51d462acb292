// Looks for a checkpoint before anything else is done, and says how to get one.
#pragma once

#include <accelerate/errors.h>
#include <accelerate/transformers/pretrained.h>

#include <string>

inline bool has_model(const std::string& name_or_folder) {
  try {
    accelerate::transformers::find_pretrained(name_or_folder);
    return true;
  } catch (const accelerate::Error&) {
    return false;
  }
}

// Throws what find_pretrained() throws; for the folder that the examples use if nothing else is
// said, with the command that makes it.
inline void need_model(const std::string& name_or_folder) {
  if (has_model(name_or_folder)) return;
  if (name_or_folder == ".deps/minilm") {
    throw accelerate::UsageError(
        {.what = "the pretrained model was not found",
         .where = name_or_folder,
         .hint = "make transformers, in the clone of the project; or --model"});
  }
  if (name_or_folder == "gpt2") {
    throw accelerate::UsageError({.what = "GPT-2 is not in the cache of the hub",
                                  .where = "--model gpt2",
                                  .hint = "--model FOLDER, or --untrained 1 for random values"});
  }
  accelerate::transformers::find_pretrained(name_or_folder);
}
