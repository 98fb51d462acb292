#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_distilbert() {}

}  // namespace accelerate::transformers
