// Going back to an earlier question.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/wizard/wizard_prompter.h"

namespace accelerate::cli {

// Asks `asker`, and keeps the answers. After WentBack came out of it, forget_last() and the same
// questions again: those that were answered are answered from memory, and the one that was gone
// back to is asked with its last answer as the proposal. `asker` outlives it.
class RecallingPrompter : public Prompter {
 public:
  explicit RecallingPrompter(Prompter& asker) : asker_(asker) {}

  void tell(const std::string& sentence) override;
  size_t choose(const std::string& question, const std::vector<std::string>& options,
                size_t preset) override;
  std::string ask(const std::string& question, const std::string& preset,
                  const std::function<std::string(const std::string&)>& complaint) override;

  // Begins with the first question again, without the last answer if there is one.
  void forget_last();

 private:
  struct Answer {
    std::string question{};
    std::string text{};  // what was chosen, or the line
  };

  // The answer that is remembered for the question whose turn it is; nothing: it has to be asked.
  std::optional<std::string> recalled(const std::string& question);
  void remember(const std::string& question, const std::string& text);

  Prompter& asker_;
  std::vector<Answer> answers_;
  size_t next_ = 0;                 // the first answer that was not used again yet
  size_t told_ = 0;                 // sentences so far,
  size_t heard_ = 0;                // and those that the person has seen
  std::optional<Answer> proposal_;  // what was answered to the question that was gone back to
};

}  // namespace accelerate::cli
