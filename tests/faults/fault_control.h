// How a program that is linked with the interposer, in front of the C library, steers it.
#pragma once

// Reads the variables of fault_plan.h again and begins to count at 1.
extern "C" void faults_reload();
