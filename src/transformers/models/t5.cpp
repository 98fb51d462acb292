#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_t5() {}

}  // namespace accelerate::transformers
