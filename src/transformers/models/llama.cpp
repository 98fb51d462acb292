#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_llama() {}

}  // namespace accelerate::transformers
