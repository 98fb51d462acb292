// What the sanitizers take for their default settings in a sanitised build: linked into each
// program, so that it holds however a program is started, by ssh or in an empty environment too.
// The variables of the sanitizers come on top: TSAN_OPTIONS=symbolize=1 gives the reports of the
// thread sanitizer names and lines.
namespace {

constexpr const char* kAddressOptions =
    "detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1";
constexpr const char* kUndefinedOptions = "print_stacktrace=1:halt_on_error=1";
// libtorch is not instrumented, so it is not seen how it synchronises: mutexes that it unlocks look
// locked for ever to a search for deadlocks. Notebook workers are forked from processes with
// threads. Reports that are suppressed are made first; with the names of their functions each of
// them takes a second, and so does the end of a process without 20 ms.
constexpr const char* kThreadOptions =
    "halt_on_error=1:detect_deadlocks=0:ignore_noninstrumented_modules=1:die_after_fork=0:atexit_"
    "sleep_ms=20:"
    "symbolize=0:allocator_may_return_null=1";
constexpr const char* kThreadSuppressions =
    "called_from_lib:libtorch_cpu.so\n"
    "called_from_lib:libc10.so\n"
    "called_from_lib:libgomp.so\n"
    "race:libtorch_cpu.so\n"
    "race:libgomp.so\n";
// libtorch keeps registries and thread pools until the process ends.
constexpr const char* kLeakSuppressions =
    "leak:libtorch_cpu.so\n"
    "leak:libc10.so\n"
    "leak:libgomp.so\n";

}  // namespace

#define ACCELERATE_SANITIZER_HOOK __attribute__((visibility("default"), used)) const char*

extern "C" {
ACCELERATE_SANITIZER_HOOK __asan_default_options() { return kAddressOptions; }
ACCELERATE_SANITIZER_HOOK __ubsan_default_options() { return kUndefinedOptions; }
ACCELERATE_SANITIZER_HOOK __lsan_default_options() { return "print_suppressions=0"; }
ACCELERATE_SANITIZER_HOOK __lsan_default_suppressions() { return kLeakSuppressions; }
ACCELERATE_SANITIZER_HOOK __tsan_default_options() { return kThreadOptions; }
ACCELERATE_SANITIZER_HOOK __tsan_default_suppressions() { return kThreadSuppressions; }
}
