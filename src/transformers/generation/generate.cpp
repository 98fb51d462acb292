#include "accelerate/transformers/generation.h"
