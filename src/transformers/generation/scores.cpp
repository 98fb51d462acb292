#include "transformers/generation/scores.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace accelerate::transformers {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

void penalise_repetition(at::Tensor& scores, const at::Tensor& seen, double penalty) {
  const at::Tensor found = scores.gather(1, seen);
  scores.scatter_(1, seen, at::where(found < 0, found * penalty, found / penalty));
}

void keep_top_k(at::Tensor& scores, int64_t k) {
  const at::Tensor best = std::get<0>(scores.topk(std::min(k, scores.size(1)), 1));
  scores.masked_fill_(scores < best.slice(1, best.size(1) - 1), kNever);
}

void keep_top_p(at::Tensor& scores, double p) {
  const auto [sorted, places] = scores.sort(1, /*descending=*/false);
  at::Tensor dropped = sorted.softmax(1).cumsum(1) <= 1 - p;
  dropped.select(1, -1).fill_(false);
  scores.masked_fill_(dropped.scatter(1, places, dropped), kNever);
}

void process_scores(at::Tensor& scores, const at::Tensor& seen,
                    const GenerationSettings& settings) {
  if (settings.repetition_penalty != 1) {
    penalise_repetition(scores, seen, settings.repetition_penalty);
  }
  if (seen.size(1) < settings.min_length) {
    for (const int64_t token : settings.eos_token_ids) {
      if (token < scores.size(1)) scores.select(1, token).fill_(kNever);
    }
  }
  if (!settings.do_sample) return;
  if (settings.temperature != 1) scores.div_(settings.temperature);
  if (settings.top_k > 0) keep_top_k(scores, settings.top_k);
  if (settings.top_p < 1) keep_top_p(scores, settings.top_p);
}

at::Tensor choose_tokens(const at::Tensor& scores, bool sample,
                         const std::optional<at::Generator>& generator) {
  if (!sample) return scores.argmax(1);
  return scores.softmax(1).multinomial(1, /*replacement=*/false, generator).squeeze(1);
}

}  // namespace accelerate::transformers
