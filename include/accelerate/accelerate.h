// All of Accelerate for C++: train libtorch models on any number of devices.
#pragma once

#include "accelerate/accelerator.h"
#include "accelerate/batch.h"
#include "accelerate/communicator.h"
#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/errors.h"
#include "accelerate/idx.h"
#include "accelerate/log.h"
#include "accelerate/options.h"
#include "accelerate/prepared_model.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/process_state.h"
#include "accelerate/progress.h"
#include "accelerate/strategy.h"
