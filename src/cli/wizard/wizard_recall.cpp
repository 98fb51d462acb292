#include "cli/wizard/wizard_recall.h"

#include <algorithm>

namespace accelerate::cli {

void RecallingPrompter::tell(const std::string& sentence) {
  if (++told_ <= heard_) return;
  heard_ = told_;
  asker_.tell(sentence);
}

std::optional<std::string> RecallingPrompter::recalled(const std::string& question) {
  if (next_ == answers_.size()) return std::nullopt;
  if (answers_[next_].question == question) return answers_[next_++].text;
  answers_.resize(next_);  // another answer before it has led elsewhere
  return std::nullopt;
}

void RecallingPrompter::remember(const std::string& question, const std::string& text) {
  answers_.push_back({question, text});
  next_ = answers_.size();
  proposal_.reset();
}

size_t RecallingPrompter::choose(const std::string& question,
                                 const std::vector<std::string>& options, size_t preset) {
  const auto place_of = [&](const std::string& text, size_t otherwise) {
    const auto found = std::find(options.begin(), options.end(), text);
    return found == options.end() ? otherwise : static_cast<size_t>(found - options.begin());
  };
  if (const auto answer = recalled(question)) return place_of(*answer, preset);
  if (proposal_ && proposal_->question == question) preset = place_of(proposal_->text, preset);
  const size_t chosen = asker_.choose(question, options, preset);
  remember(question, options[chosen]);
  return chosen;
}

std::string RecallingPrompter::ask(
    const std::string& question, const std::string& preset,
    const std::function<std::string(const std::string&)>& complaint) {
  if (const auto answer = recalled(question)) return *answer;
  const bool is_known = proposal_ && proposal_->question == question;
  std::string answer = asker_.ask(question, is_known ? proposal_->text : preset, complaint);
  remember(question, answer);
  return answer;
}

void RecallingPrompter::forget_last() {
  next_ = 0;
  told_ = 0;
  if (answers_.empty()) return;
  proposal_ = answers_.back();
  answers_.pop_back();
}

}  // namespace accelerate::cli
