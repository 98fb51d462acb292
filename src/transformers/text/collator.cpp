#include "accelerate/tokenizers.h"
