#include "files/strict_json.h"

#include <cmath>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/message_text.h"
#include "files/json_tree.h"

namespace accelerate::files {
namespace {

using nlohmann::json;

// Takes the events of nlohmann's parser.
class StrictEvents {
 public:
  explicit StrictEvents(const JsonRefusals& refusals) : refusals_(refusals) {}

  json take() { return tree_.take(); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse_range(std::to_string(value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) {
    // The parser makes a double of whole numbers that are too long for an integer.
    if (!std::isfinite(value) || text.find_first_of(".eE") == text.npos) refuse_range(text);
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { refuse("it holds binary data"); }
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (tree_.has(name)) refuse("it has the key " + in_quotes(name) + " twice");
    tree_.key(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& error) {
    refusals_.not_json(json_complaint(error, position));
    throw std::logic_error("JsonRefusals::not_json must throw");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    refusals_.not_acceptable(what);
    throw std::logic_error("JsonRefusals::not_acceptable must throw");
  }
  [[noreturn]] void refuse_range(const std::string& text) const {
    refuse("the number " + shortened(text) + " is out of range");
  }

  bool put(json value) {
    if (tree_.is_at_top()) refuse("it is not an object");
    tree_.put(std::move(value));
    return true;
  }

  bool open(json value) {
    if (tree_.is_at_top() && value.is_array()) refuse("it is a list, not an object");
    if (tree_.is_full()) {
      refuse("it is nested deeper than " + std::to_string(JsonTree::kDeepest) + " levels");
    }
    tree_.open(std::move(value));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  const JsonRefusals& refusals_;
  JsonTree tree_;
};

}  // namespace

json parse_json_object(std::string_view text, const JsonRefusals& refusals) {
  StrictEvents events(refusals);
  json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace accelerate::files
