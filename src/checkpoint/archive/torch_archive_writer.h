// Writes the zip format of torch.save to any sink.
#pragma once

#include <string>

#include "accelerate/torch_archive.h"
#include "files/durable/byte_sink.h"

namespace accelerate {

// What save_torch_archive() writes. The bytes depend on the value and the name alone and are handed
// over from the first to the last: beside the value nothing larger than one tensor's memory is
// held, and that only for tensors of other devices. `name` is the folder inside the archive, by
// custom the file's name without its extension. The memory of each tensor is a part of the sink,
// named after the place of the first tensor that uses it: "['state'][0]['exp_avg']".
void write_torch_archive(files::ByteSink& sink, const TorchValue& value,
                         const std::string& name = "archive");

}  // namespace accelerate
