#include "checkpoint/model/piece_exchange.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "comm/agreement.h"
#include "tensor/tensor_boxes.h"

namespace accelerate::checkpoint {
namespace {

std::string numbers_text(at::IntArrayRef numbers) {
  std::string text;
  for (const int64_t number : numbers) text += std::to_string(number) + ' ';
  return text;
}

std::vector<int64_t> parse_numbers(const std::string& text) {
  std::istringstream numbers(text);
  std::vector<int64_t> parsed;
  for (int64_t number = 0; numbers >> number;) parsed.push_back(number);
  return parsed;
}

// Box after box, start before shape.
std::string boxes_text(const std::vector<TensorBox>& boxes) {
  std::string text = std::to_string(boxes.size()) + ' ';
  for (const TensorBox& box : boxes) text += numbers_text(box.start) + numbers_text(box.shape);
  return text;
}

std::vector<TensorBox> parse_boxes(const std::string& text, size_t dimensions) {
  const std::vector<int64_t> numbers = parse_numbers(text);
  std::vector<TensorBox> boxes(static_cast<size_t>(numbers.at(0)));
  auto next = numbers.begin() + 1;
  for (TensorBox& box : boxes) {
    const auto middle = next + static_cast<std::ptrdiff_t>(dimensions);
    const auto end = middle + static_cast<std::ptrdiff_t>(dimensions);
    box = {.start = {next, middle}, .shape = {middle, end}};
    next = end;
  }
  return boxes;
}

constexpr size_t kFieldsOfATensor = 4;  // name, type, shape, boxes

}  // namespace

std::string PieceTable::text_of(const ModelState& own) {
  std::vector<std::string> fields;
  for (const auto& [name, layout] : own.layout) {
    fields.push_back(name);
    fields.emplace_back(c10::toString(own.tensors[name].scalar_type()));
    fields.push_back(numbers_text(layout.shape));
    fields.push_back(boxes_text(layout.boxes));
  }
  return comm::to_fields(fields);
}

PieceTable::PieceTable(const std::vector<std::string>& texts, const char* where) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError({.what = what,
                      .where = where,
                      .hint = "let ModelStrategy::layout() name the same tensors on all ranks, and "
                              "boxes that make up each of them"});
  };
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::vector<std::string> fields = comm::from_fields(texts[rank]);
    if (rank > 0 && fields.size() != kFieldsOfATensor * tensors_.size()) {
      refuse("rank " + std::to_string(rank) +
             " has other tensors of a model in pieces than rank 0");
    }
    for (size_t i = 0; i + kFieldsOfATensor <= fields.size(); i += kFieldsOfATensor) {
      const std::vector<int64_t> shape = parse_numbers(fields[i + 2]);
      if (rank == 0) tensors_[fields[i]] = {.type = fields[i + 1], .shape = shape};
      const auto found = tensors_.find(fields[i]);
      if (found == tensors_.end() || found->second.type != fields[i + 1] ||
          found->second.shape != shape) {
        refuse("rank " + std::to_string(rank) + " has " + in_quotes(fields[i]) +
               " in pieces of another tensor than rank 0");
      }
      found->second.boxes.push_back(parse_boxes(fields[i + 3], shape.size()));
    }
  }
  for (auto& [name, tensor] : tensors_) {
    std::vector<TensorBox> all;
    for (auto boxes = tensor.boxes.begin(); boxes != tensor.boxes.end(); ++boxes) {
      all.insert(all.end(), boxes->begin(), boxes->end());
      // What a rank before it sends.
      if (std::find(tensor.boxes.begin(), boxes, *boxes) != boxes) boxes->clear();
    }
    all = distinct_boxes(std::move(all));
    if (any_overlap(all)) refuse("pieces of " + in_quotes(name) + " overlap");
    int64_t elements = 0;
    for (const TensorBox& box : all) elements += box.numel();
    if (elements == c10::multiply_integers(tensor.shape)) continue;
    refuse("all ranks together hold " + std::to_string(elements) + " of " +
           std::to_string(c10::multiply_integers(tensor.shape)) + " elements of " +
           in_quotes(name));
  }
}

PieceExchange::PieceExchange(Communicator& ranks, const ModelState& own, const PieceTable& table,
                             std::vector<std::string> order, bool keeps)
    : ranks_(ranks), own_(own), table_(table), order_(std::move(order)), keeps_(keeps) {
  std::erase_if(order_, [&](const std::string& name) { return !own_.layout.contains(name); });
}

at::Tensor PieceExchange::next() {
  const at::NoGradGuard no_grad;
  const std::string& name = order_[taken_++];
  const PieceTable::Tensor& tensor = table_.tensors_.at(name);
  at::Tensor held = own_.tensors[name].detach().reshape({-1});
  if (tensor.boxes[static_cast<size_t>(ranks_.rank())].empty()) held = held.narrow(0, 0, 0);
  const std::vector<at::Tensor> parts = ranks_.all_gather_ragged(held);
  if (!keeps_) return {};
  at::Tensor whole = at::empty(tensor.shape, held.options().device(at::kCPU));
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    int64_t offset = 0;
    for (const TensorBox& box : tensor.boxes[rank]) {
      box_of(whole, box).copy_(parts[rank].narrow(0, offset, box.numel()).view(box.shape));
      offset += box.numel();
    }
  }
  return whole;
}

at::Tensor PieceExchange::take(const std::string& name) {
  if (!own_.layout.contains(name)) return own_.tensors[name];
  if (taken_ == order_.size() || order_[taken_] != name) {
    throw std::logic_error("the turn of " + name + " has not come");
  }
  return next();
}

void PieceExchange::finish() {
  while (taken_ < order_.size()) next();
}

ModelStateDict described_tensors(const ModelState& state) {
  ModelStateDict described;
  for (const auto& item : state.tensors) {
    const auto layout = state.layout.find(item.key());
    if (layout == state.layout.end()) {
      described.insert(item.key(), item.value());
      continue;
    }
    const auto tied = state.tied.find(item.key());
    // Of one element that stands for all; what is tied stays one tensor.
    described.insert(item.key(), tied != state.tied.end()
                                     ? described[tied->second]
                                     : at::empty({}, at::TensorOptions(item.value().scalar_type()))
                                           .expand(layout->second.shape));
  }
  return described;
}

}  // namespace accelerate::checkpoint
