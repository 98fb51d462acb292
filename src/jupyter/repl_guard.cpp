// Preloaded into clang-repl, so that a cell of a notebook that fails leaves the session alive.
//
// clang-repl has no handler for exceptions: one that leaves a cell would end it, with all
// variables. This replaces the call with which it runs a line, Interpreter::ParseAndExecute, by the
// same two steps inside a try block, and tells the kernel how each line ended. Only names of
// functions are used, no headers of LLVM: it is built without them. The layouts below are those of
// version 19.
//
// An interrupt (SIGINT) while a cell runs becomes an exception too, thrown where compiled code of a
// cell calls into a library and regains control, so that destructors of the cell run.
#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace {

// Of an exception: a message is one write of at most PIPE_BUF, escapes included.
constexpr size_t kLongestText = 1'000;

struct Interrupted {};  // no std::exception: cells that catch those do not swallow an interrupt

std::string* channel_path = nullptr;
volatile sig_atomic_t is_running = 0;
volatile sig_atomic_t was_interrupted = 0;
pid_t repl_process = 0;
thread_local bool is_repl_thread = false;
sigjmp_buf way_out;

// --- What the kernel is told ---------------------------------------------------------------------

void append_text(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : text.substr(0, kLongestText)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (byte < 0x20) {
      json += ' ';
    } else {
      json += c;  // the kernel replaces what is not valid UTF-8
    }
  }
  json += '"';
}

void tell(const std::string& line) {
  const int channel = open(channel_path->c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (channel < 0) return;  // the kernel is gone, and ends this process if it still can
  fcntl(channel, F_SETFL, 0);
  [[maybe_unused]] const ssize_t written = write(channel, line.data(), line.size());
  close(channel);
}

void tell_end(std::string_view outcome, std::string_view type = {}, std::string_view what = {}) {
  std::fflush(nullptr);
  std::cout.flush();
  std::string line = R"({"ended":")" + std::string(outcome) + R"(","type":)";
  append_text(line, type);
  line += R"(,"what":)";
  append_text(line, what);
  tell(line + "}\n");
}

std::string current_type_name() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "unknown exception";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string readable = status == 0 ? name : type->name();
  std::free(name);
  return readable;
}

// Of libtorch's errors the message alone: the addresses behind it tell a user of a notebook
// nothing.
std::string_view without_backtrace(std::string_view what) {
  for (const char* mark : {"\nException raised from ", "\nC++ CapturedTraceback:"}) {
    what = what.substr(0, what.find(mark));
  }
  return what;
}

void tell_exception() {
  // Also where it is another one by now: of a launch whose workers were told to end.
  if (was_interrupted) return tell_end("interrupted");
  try {
    throw;
  } catch (const std::exception& error) {
    tell_end("threw", current_type_name(), without_backtrace(error.what()));
  } catch (const std::string& text) {
    tell_end("threw", "std::string", text);
  } catch (const char* text) {
    tell_end("threw", "const char*", text);
  } catch (...) {
    tell_end("threw", current_type_name(), "");
  }
}

// --- Ends that no handler sees -------------------------------------------------------------------

// An exception that nothing can catch, such as one that leaves a noexcept function. The cell is
// left without its destructors.
[[noreturn]] void end_of_cell_without_unwinding() {
  if (!is_running || !is_repl_thread || getpid() != repl_process) std::abort();
  if (std::current_exception() != nullptr) {
    tell_exception();
  } else {
    tell_end("threw", "std::terminate", "std::terminate was called");
  }
  siglongjmp(way_out, 1);
}

// --- Interrupts ----------------------------------------------------------------------------------

// Code that was compiled for a cell belongs to no file.
bool is_code_of_a_cell(uintptr_t address) {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(address), &info) == 0;
}

uintptr_t* hijacked = nullptr;  // the place on the stack of a return address that was replaced
[[maybe_unused]] uintptr_t return_address = 0;  // the one that was there

}  // namespace

#if defined(__x86_64__)
// Where a library returns to instead of to the cell: as if the call had thrown.
extern "C" void accelerate_guard_return();
extern "C" __attribute__((visibility("hidden"), used)) uintptr_t
accelerate_guard_take_return_address() {
  hijacked = nullptr;
  return return_address;
}
extern "C" __attribute__((visibility("hidden"), used)) void accelerate_guard_throw() {
  throw Interrupted();
}
asm(R"(
  .text
  .type accelerate_guard_return, @function
accelerate_guard_return:
  subq $16, %rsp
  call accelerate_guard_take_return_address
  addq $8, %rsp
  movq %rax, (%rsp)
  jmp accelerate_guard_throw
  .size accelerate_guard_return, .-accelerate_guard_return
)");
#endif

namespace {

#if defined(__x86_64__)
_Unwind_Reason_Code replace_return_to_cell(_Unwind_Context* frame, void*) {
  if (!is_code_of_a_cell(_Unwind_GetIP(frame))) return _URC_NO_REASON;
  auto* place = reinterpret_cast<uintptr_t*>(_Unwind_GetCFA(frame)) - 1;
  if (*place != _Unwind_GetIP(frame)) return _URC_END_OF_STACK;
  hijacked = place;
  return_address = *place;
  *place = reinterpret_cast<uintptr_t>(&accelerate_guard_return);
  return _URC_END_OF_STACK;
}
#endif

void leave_cell(ucontext_t* context) {
#if defined(__x86_64__)
  if (is_code_of_a_cell(static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]))) {
    // Compiled code need not have a place for an exception here. It holds no lock of a library, so
    // what follows may allocate.
    tell_end("interrupted");
    siglongjmp(way_out, 1);
  }
  if (hijacked == nullptr) _Unwind_Backtrace(replace_return_to_cell, nullptr);
#else
  (void)context;
#endif
}

void on_interrupt(int, siginfo_t*, void* context) {
  if (!is_running || getpid() != repl_process) return;
  was_interrupted = 1;
  if (is_repl_thread) leave_cell(static_cast<ucontext_t*>(context));
}

// With `flags` 0 a call that waits returns at an interrupt, as a cell needs it; with SA_RESTART it
// goes on waiting, as clang-repl does for the next line.
void take_interrupts(int flags) {
  struct sigaction action {};
  action.sa_sigaction = on_interrupt;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

// --- clang-repl ----------------------------------------------------------------------------------

struct Text {  // llvm::StringRef
  const char* data;
  size_t size;
};

struct ParsedUnit {  // clang::PartialTranslationUnit
  void* declarations;
  void* module;
};

struct ParseResult {  // llvm::Expected<PartialTranslationUnit&>
  ParsedUnit* unit;
  unsigned char has_error;
  ~ParseResult() {}  // returned in memory, as the original is
};

struct RunResult {  // llvm::Error
  void* payload;
  ~RunResult() {}
};

namespace {

template <class Function>
Function original(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "this clang-repl has no %s: use version 19\n", name);
    _exit(1);
  }
  return reinterpret_cast<Function>(found);
}

// Whether `code` compiles, tried in a forked copy of this process, which prints what the compiler
// says. What clang-repl 19 does to undo a line that failed is not enough: it crashes at
// declarations without a name, loses templates that were instantiated first in such a line, and
// emits its variables later. So this process never sees one.
bool is_accepted(void* interpreter, Text code, ParseResult (*parse)(void*, Text)) {
  const pid_t copy = fork();
  if (copy < 0) return true;  // no room for another process: it is tried here
  if (copy == 0) {
    for (const int number : {SIGINT, SIGSEGV, SIGABRT, SIGBUS, SIGILL}) signal(number, SIG_DFL);
    const ParseResult parsed = parse(interpreter, code);
    _exit(parsed.has_error & 1);
  }
  int status = 0;
  while (waitpid(copy, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

void run_unit(void* interpreter, ParsedUnit* unit) {
  static const auto execute = original<RunResult (*)(void*, ParsedUnit*)>(
      "_ZN5clang11Interpreter7ExecuteERNS_22PartialTranslationUnitE");
  tell("{\"started\":true}\n");
  hijacked = nullptr;
  if (sigsetjmp(way_out, 1) != 0) {  // told already
    is_running = 0;
    take_interrupts(SA_RESTART);
    return;
  }
  take_interrupts(0);
  is_running = 1;
  try {
    const RunResult result = execute(interpreter, unit);
    is_running = 0;
    take_interrupts(SA_RESTART);
    if (result.payload != nullptr) {
      tell_end("not linked");
    } else if (was_interrupted) {
      tell_end("interrupted");
    } else {
      tell_end("completed");
    }
  } catch (...) {
    is_running = 0;
    take_interrupts(SA_RESTART);
    tell_exception();
  }
}

__attribute__((constructor)) void begin() {
  unsetenv("LD_PRELOAD");  // not for programs that cells start
  const char* path = std::getenv("ACCELERATE_NOTEBOOK_CHANNEL");
  channel_path = new std::string(path == nullptr ? "" : path);
  repl_process = getpid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);          // a cell may run forever, and its kernel be killed
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a pipe, but people watch it
}

}  // namespace

// llvm::Error clang::Interpreter::ParseAndExecute(llvm::StringRef, clang::Value*)
__attribute__((visibility("default"))) RunResult parse_and_execute(
    void* interpreter, Text code,
    void* value) asm("_ZN5clang11Interpreter15ParseAndExecuteEN4llvm9StringRefEPNS_5ValueE");

RunResult parse_and_execute(void* interpreter, Text code, void* /*value*/) {
  static const auto parse =
      original<ParseResult (*)(void*, Text)>("_ZN5clang11Interpreter5ParseEN4llvm9StringRefE");
  is_repl_thread = true;
  was_interrupted = 0;
  std::set_terminate(end_of_cell_without_unwinding);
  take_interrupts(SA_RESTART);
  static bool has_prelude = false;
  // The first line holds the headers of libtorch: half of the start would be a copy's.
  if (std::exchange(has_prelude, true) && !is_accepted(interpreter, code, parse)) {
    tell_end("not compiled");
    return {nullptr};
  }
  const ParseResult parsed = parse(interpreter, code);
  if ((parsed.has_error & 1) != 0) {
    tell_end("not compiled");
  } else if (parsed.unit->module == nullptr) {
    tell_end("completed");
  } else {
    run_unit(interpreter, parsed.unit);
  }
  return {nullptr};
}
