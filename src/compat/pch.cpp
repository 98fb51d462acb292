// Carries the precompiled header that every file with libtorch shares; holds no code.
