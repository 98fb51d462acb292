// The classes of models that are known by name, without their parameters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::model_config {

// What a model has on top of its body.
enum class Head {
  kNone,
  kEncoderAlone,  // no head, and of two bodies the first
  kCausalLm,
  kMaskedLm,
  kSeq2SeqLm,
  kSequenceClassification,
  kTokenClassification,
  kQuestionAnswering,
  kMultipleChoice,
  kNextSentencePrediction,
  kPreTraining,
};

struct ModelClass {
  std::string_view model_type{};  // as in config.json: "bert"
  Head head = Head::kNone;
  std::string_view name{};  // "BertForSequenceClassification"
};

// All of them, those of a type together, the one without a head first.
std::span<const ModelClass> model_classes();

// nullptr where no class has that name.
const ModelClass* find_class(std::string_view name);
// That there is none is a bug: throws std::logic_error.
const ModelClass& class_of(std::string_view model_type, Head head);
// The type itself, for as long as the program runs, if it is known; else empty.
std::string_view known_type(std::string_view model_type);

}  // namespace accelerate::model_config
