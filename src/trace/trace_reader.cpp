#include "trace/trace_reader.h"

#include <cstdint>
#include <exception>
#include <utility>

#include "accelerate/profiler.h"
#include "base/message_text.h"
#include "files/durable/mapped_file.h"
#include "files/json_tree.h"

namespace accelerate::trace {
namespace {

using nlohmann::json;

constexpr const char* kEventsKey = "traceEvents";

// Takes the events of nlohmann's parser. What stands in the outermost object is handed on when it
// is complete; of the list of events, each of these.
class TraceEvents {
 public:
  TraceEvents(const std::filesystem::path& path, const TraceVisitor& visitor)
      : path_(path), visitor_(visitor) {}

  bool has_events() const { return has_events_; }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& /*text*/) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { return false; }  // JSON has none
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (tree_.is_at_top()) {
      name_ = std::move(name);
    } else {
      tree_.key(std::move(name));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& error) {
    refuse("it is not valid JSON: " + json_complaint(error, position));
  }

 private:
  enum class Place { kBefore, kTop, kEvents, kAfter };

  [[noreturn]] void refuse(const std::string& what) const {
    throw ProfileError({.what = "not a trace: " + what,
                        .where = path_.string(),
                        .hint = "name traces that Profile or torch.profiler has written"});
  }

  bool put(json value) {
    if (!tree_.is_at_top()) {
      tree_.put(std::move(value));
      return true;
    }
    if (place_ == Place::kBefore) refuse("it is not an object");
    return complete(std::move(value));
  }

  bool open(json value) {
    if (place_ == Place::kBefore) {
      if (!value.is_object()) refuse("it is not an object");
      place_ = Place::kTop;
      return true;
    }
    if (tree_.is_at_top() && place_ == Place::kTop && name_ == kEventsKey && value.is_array()) {
      place_ = Place::kEvents;
      has_events_ = true;
      return true;
    }
    if (tree_.is_full()) refuse("it is nested too deeply");
    tree_.open(std::move(value));
    return true;
  }

  bool close() {
    if (tree_.is_at_top()) {  // the list of events, or all of it
      place_ = place_ == Place::kEvents ? Place::kTop : Place::kAfter;
      return true;
    }
    tree_.close();
    return tree_.is_at_top() ? complete(tree_.take()) : true;
  }

  bool complete(json value) {
    if (place_ == Place::kEvents) {
      if (!value.is_object()) refuse("an event is not an object");
      if (visitor_.event) visitor_.event(value);
    } else if (visitor_.value) {
      visitor_.value(name_, std::move(value));
    }
    return true;
  }

  const std::filesystem::path& path_;
  const TraceVisitor& visitor_;
  files::JsonTree tree_;
  Place place_ = Place::kBefore;
  std::string name_;
  bool has_events_ = false;
};

}  // namespace

void read_trace(const std::filesystem::path& path, const TraceVisitor& visitor) {
  try {
    const MappedFile file(path, "the trace");
    file.begin_scan();
    TraceEvents events(path, visitor);
    const auto* text = reinterpret_cast<const char*>(file.bytes().data());
    json::sax_parse(text, text + file.size(), &events);
    if (events.has_events()) return;
  } catch (const DataError& error) {  // of the mapping
    throw ProfileError({.what = error.message(), .where = path.string(), .hint = error.hint()});
  }
  throw ProfileError({.what = "not a trace: it has no list of events",
                      .where = path.string(),
                      .hint = "name traces that Profile or torch.profiler has written"});
}

}  // namespace accelerate::trace
