// Stands for a libaccelerate_cuda.so of the time before plug-ins had a version.
#include "accelerate/export.h"

extern "C" ACCELERATE_EXPORT const void* accelerate_cuda_plugin() { return nullptr; }
