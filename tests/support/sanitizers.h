// Which sanitizers this program is compiled with.
#pragma once

#if defined(__has_feature)
#define ACCELERATE_TEST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define ACCELERATE_TEST_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || ACCELERATE_TEST_HAS_FEATURE(address_sanitizer)
#define ACCELERATE_TEST_ADDRESS_SANITIZER 1
#else
#define ACCELERATE_TEST_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || ACCELERATE_TEST_HAS_FEATURE(thread_sanitizer)
#define ACCELERATE_TEST_THREAD_SANITIZER 1
#else
#define ACCELERATE_TEST_THREAD_SANITIZER 0
#endif
