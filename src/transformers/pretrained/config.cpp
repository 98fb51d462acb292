#include "accelerate/transformers/config.h"
