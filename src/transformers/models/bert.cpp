#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_bert() {}

}  // namespace accelerate::transformers
