#include "model_config/model_classes.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace accelerate::model_config {
namespace {

constexpr std::array<ModelClass, 33> kModelClasses{{
    {"bert", Head::kNone, "BertModel"},
    {"bert", Head::kMaskedLm, "BertForMaskedLM"},
    {"bert", Head::kMultipleChoice, "BertForMultipleChoice"},
    {"bert", Head::kNextSentencePrediction, "BertForNextSentencePrediction"},
    {"bert", Head::kPreTraining, "BertForPreTraining"},
    {"bert", Head::kQuestionAnswering, "BertForQuestionAnswering"},
    {"bert", Head::kSequenceClassification, "BertForSequenceClassification"},
    {"bert", Head::kTokenClassification, "BertForTokenClassification"},
    {"distilbert", Head::kNone, "DistilBertModel"},
    {"distilbert", Head::kMaskedLm, "DistilBertForMaskedLM"},
    {"distilbert", Head::kQuestionAnswering, "DistilBertForQuestionAnswering"},
    {"distilbert", Head::kSequenceClassification, "DistilBertForSequenceClassification"},
    {"distilbert", Head::kTokenClassification, "DistilBertForTokenClassification"},
    {"gpt2", Head::kNone, "GPT2Model"},
    {"gpt2", Head::kCausalLm, "GPT2LMHeadModel"},
    {"gpt2", Head::kQuestionAnswering, "GPT2ForQuestionAnswering"},
    {"gpt2", Head::kSequenceClassification, "GPT2ForSequenceClassification"},
    {"gpt2", Head::kTokenClassification, "GPT2ForTokenClassification"},
    {"llama", Head::kNone, "LlamaModel"},
    {"llama", Head::kCausalLm, "LlamaForCausalLM"},
    {"llama", Head::kQuestionAnswering, "LlamaForQuestionAnswering"},
    {"llama", Head::kSequenceClassification, "LlamaForSequenceClassification"},
    {"llama", Head::kTokenClassification, "LlamaForTokenClassification"},
    {"roberta", Head::kNone, "RobertaModel"},
    {"roberta", Head::kMaskedLm, "RobertaForMaskedLM"},
    {"roberta", Head::kQuestionAnswering, "RobertaForQuestionAnswering"},
    {"roberta", Head::kSequenceClassification, "RobertaForSequenceClassification"},
    {"roberta", Head::kTokenClassification, "RobertaForTokenClassification"},
    {"t5", Head::kNone, "T5Model"},
    {"t5", Head::kEncoderAlone, "T5EncoderModel"},
    {"t5", Head::kSeq2SeqLm, "T5ForConditionalGeneration"},
    {"t5", Head::kSequenceClassification, "T5ForSequenceClassification"},
    {"t5", Head::kTokenClassification, "T5ForTokenClassification"},
}};

const ModelClass* first_class(const auto& is_wanted) {
  const auto* found = std::ranges::find_if(kModelClasses, is_wanted);
  return found == kModelClasses.end() ? nullptr : found;
}

}  // namespace

std::span<const ModelClass> model_classes() { return kModelClasses; }

const ModelClass* find_class(std::string_view name) {
  return first_class([&](const ModelClass& each) { return each.name == name; });
}

const ModelClass& class_of(std::string_view model_type, Head head) {
  const ModelClass* found = first_class(
      [&](const ModelClass& each) { return each.model_type == model_type && each.head == head; });
  if (found == nullptr) {
    throw std::logic_error("no class of the type " + std::string(model_type) + " has that head");
  }
  return *found;
}

std::string_view known_type(std::string_view model_type) {
  const ModelClass* found =
      first_class([&](const ModelClass& each) { return each.model_type == model_type; });
  return found == nullptr ? std::string_view() : found->model_type;
}

}  // namespace accelerate::model_config
