// Asking a person, in a terminal or through a pipe.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace accelerate::cli {

// The person pressed Ctrl-C, or the program was told to stop. Whoever catches it leaves things as
// they were.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal() const { return signal_; }  // SIGINT for Ctrl-C

 private:
  int signal_;
};

// The person wants to answer the question before this one again.
class WentBack : public std::exception {
 public:
  const char* what() const noexcept override { return "went back"; }
};

// Throws DataError: nobody will answer any more.
[[noreturn]] void refuse_end_of_input();

// Writes all of `text` to descriptor 1, at once; gives up where that is closed.
void print_to_person(const std::string& text);

class Prompter {
 public:
  virtual ~Prompter() = default;

  // Says something that needs no answer.
  virtual void tell(const std::string& sentence) = 0;

  // One of `options`, by position. Blocks until the person has chosen. Throws WentBack,
  // Interrupted, and DataError if the input ends.
  virtual size_t choose(const std::string& question, const std::vector<std::string>& options,
                        size_t preset) = 0;

  // A line of text; an empty one means `preset`. Asks again, with the reason, while `complaint`
  // returns one. Throws as choose().
  virtual std::string ask(const std::string& question, const std::string& preset,
                          const std::function<std::string(const std::string&)>& complaint) = 0;

  bool confirm(const std::string& question, bool preset);
};

// Numbered lines where input or output is no terminal; a menu moved by arrow keys where both are.
// Where an answer is a line, "<" goes back.
// The terminal is as it was after every call, also after one that throws. While the prompter lives,
// a signal to stop waits for the next question, which throws Interrupted. One at a time.
std::unique_ptr<Prompter> make_prompter();

}  // namespace accelerate::cli
