#include "cli/wizard/wizard_prompter.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "cli/wizard/wizard_input.h"
#include "cli/wizard/wizard_terminal.h"
#include "config/value.h"

namespace accelerate::cli {

void print_to_person(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
}

void refuse_end_of_input() {
  throw DataError({.what = "the input ended before the last question; nothing was written",
                   .hint = "accelerate config default asks nothing"});
}

namespace {

constexpr const char* kBackWord = "<";

// A line without its end. What the person does not see as it is typed is shown here: a transcript
// holds the answers, and no question stands behind another.
std::string read_line(const WizardInput& input) {
  std::string line;
  while (true) {
    const std::optional<char> c = input.read_byte();
    if (input.stop_signal() != 0) {
      print_to_person("\n");
      throw Interrupted(input.stop_signal());
    }
    if (!c && line.empty()) {
      print_to_person("\n");
      refuse_end_of_input();
    }
    if (!c || *c == '\n') break;
    if (*c != '\r') line += *c;
  }
  if (!isatty(STDIN_FILENO)) print_to_person(printable_text(line) + "\n");
  if (line == kBackWord) throw WentBack();
  return line;
}

class LinePrompter : public Prompter {
 public:
  void tell(const std::string& sentence) override { print_to_person(sentence + "\n"); }

  size_t choose(const std::string& question, const std::vector<std::string>& options,
                size_t preset) override {
    std::string text = question + "\n";
    for (size_t i = 0; i < options.size(); ++i) {
      text += "  " + std::to_string(i) + "  " + options[i] + "\n";
    }
    print_to_person(text);
    while (true) {
      print_to_person("Number or name [" + std::to_string(preset) + "]: ");
      const std::string answer = read_line(input_);
      if (answer.empty()) return preset;
      const std::optional<bool> truth = config::truth_of(answer);  // y is as good as yes
      for (size_t i = 0; i < options.size(); ++i) {
        const bool is_meant = truth && options[i] == (*truth ? "yes" : "no");
        if (answer == std::to_string(i) || answer == options[i] || is_meant) return i;
      }
      print_to_person("'" + answer + "' is not one of the choices.\n");
    }
  }

  std::string ask(const std::string& question, const std::string& preset,
                  const std::function<std::string(const std::string&)>& complaint) override {
    while (true) {
      const std::string answer = ask_once(question, preset);
      const std::string problem = complaint ? complaint(answer) : "";
      if (problem.empty()) return answer;
      print_to_person(problem + "\n");
    }
  }

 protected:
  const WizardInput& input() const { return input_; }

  virtual std::string ask_once(const std::string& question, const std::string& preset) {
    print_to_person(question + (preset.empty() ? ": " : " [" + preset + "]: "));
    const std::string answer = read_line(input_);
    return answer.empty() ? preset : answer;
  }

 private:
  WizardInput input_;
};

class TerminalPrompter : public LinePrompter {
 public:
  size_t choose(const std::string& question, const std::vector<std::string>& options,
                size_t preset) override {
    return choose_in_terminal(input(), question, options, preset);
  }

 protected:
  std::string ask_once(const std::string& question, const std::string& preset) override {
    return edit_line_in_terminal(input(), question, preset);
  }
};

}  // namespace

bool Prompter::confirm(const std::string& question, bool preset) {
  return choose(question, {"no", "yes"}, preset ? 1 : 0) == 1;
}

std::unique_ptr<Prompter> make_prompter() {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !is_dumb) {
    return std::make_unique<TerminalPrompter>();
  }
  return std::make_unique<LinePrompter>();
}

}  // namespace accelerate::cli
