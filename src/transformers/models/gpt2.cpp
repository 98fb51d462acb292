#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_gpt2() {}

}  // namespace accelerate::transformers
