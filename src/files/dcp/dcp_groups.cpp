#include "files/dcp/dcp_groups.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "files/pickle/pickle_archive.h"

namespace accelerate::files {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kDeepestValue = 8;
constexpr size_t kMostItems = size_t{1} << 20U;  // parameters of a group

// None if JSON does not have such a value.
std::optional<Json> option_json(const PickleDocument& document, PickleIndex index,
                                size_t& items_left, int depth = 0) {
  const PickleValue& value = document.at(index);
  if (std::holds_alternative<std::monostate>(value)) return Json();
  if (const auto* truth = std::get_if<bool>(&value)) return Json(*truth);
  if (const auto* integer = std::get_if<int64_t>(&value)) return Json(*integer);
  if (const auto* number = std::get_if<double>(&value)) {
    if (!std::isfinite(*number)) return std::nullopt;
    return Json(*number);
  }
  if (const auto* text = std::get_if<PickleText>(&value)) return Json(text->text);
  const auto* sequence = std::get_if<PickleSequence>(&value);
  if (sequence == nullptr || sequence->kind == PickleSequence::Kind::kSet) return std::nullopt;
  if (depth == kDeepestValue || sequence->items.size() > items_left) return std::nullopt;
  items_left -= sequence->items.size();
  Json list = Json::array();
  for (const PickleIndex item : sequence->items) {
    auto element = option_json(document, item, items_left, depth + 1);
    if (!element) return std::nullopt;
    list.push_back(*std::move(element));
  }
  return list;
}

}  // namespace

bool DcpGroups::add(const std::vector<std::string>& keys, std::span<const std::byte> archive,
                    const std::string& where) {
  const PickleArchive opened(archive, where);
  if (keys.size() != 2) return false;
  size_t group = 0;
  const std::string& number = keys.front();
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), group);
  if (error != std::errc() || end != number.data() + number.size()) return false;
  size_t items_left = kMostItems;
  auto value = option_json(opened.document(), opened.document().root, items_left);
  if (!value) return false;
  groups_[group][keys.back()] = *std::move(value);
  return true;
}

std::string DcpGroups::text() const {
  Json all = Json::array();
  for (const auto& [number, group] : groups_) all.push_back(group);
  return all.dump(-1, ' ', /*ensure_ascii=*/true);
}

}  // namespace accelerate::files
