#include "files/pickle/pickle_reader.h"

#include <bit>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "files/pickle/pickle_calls.h"
#include "files/pickle/pickle_keys.h"
#include "files/pickle/pickle_opcodes.h"
#include "files/pickle/pickle_text.h"
#include "files/pickle/zip_format.h"

namespace accelerate::files {
namespace {

using Opcode = PickleOpcode;
using Kind = PickleSequence::Kind;

constexpr size_t kLargestPickle = std::numeric_limits<uint32_t>::max() / 2;
constexpr size_t kLongestInteger = 256;  // bytes

// A machine with a stack of values and a memo, as every reader of pickles.
class Machine {
 public:
  Machine(std::span<const std::byte> pickle, const std::string& where,
          std::span<const PickleClass> classes)
      : rest_(pickle),
        calls_(document_, where, pickle.size(), classes),
        makes_objects_(!classes.empty()) {
    none_ = calls_.add({});
    false_ = calls_.add(false);
    true_ = calls_.add(true);
    empty_tuple_ = calls_.add(PickleSequence{.kind = Kind::kTuple, .items = {}});
  }

  PickleDocument run() && {
    if (rest_.size() > kLargestPickle) calls_.refuse("it is longer than 2 GiB");
    if (opcode() != Opcode::kProtocol) calls_.refuse("it does not begin like a pickle");
    const auto protocol = number<uint8_t>();
    if (protocol < 2 || protocol > 5) {
      calls_.refuse("it is of protocol " + std::to_string(protocol) + ", 2 to 5 are known");
    }
    while (!ended_) step();
    document_.root = pop();
    if (!stack_.empty() || !marks_.empty() || !rest_.empty()) {
      calls_.refuse("it goes on after its end");
    }
    check_pickle_keys(document_, calls_);
    return std::move(document_);
  }

 private:
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > rest_.size()) calls_.refuse("it ends early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

  template <class Number>
  Number number() {
    return zip::number_at<Number>(take(sizeof(Number)), 0);
  }

  template <class Length>
  std::string_view counted() {
    const auto bytes = take(number<Length>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Opcode opcode() { return static_cast<Opcode>(number<uint8_t>()); }

  std::string_view line() {
    const std::string_view text(reinterpret_cast<const char*>(rest_.data()), rest_.size());
    const size_t length = text.find('\n');
    if (length == std::string_view::npos) calls_.refuse("it ends early");
    take(length + 1);
    return text.substr(0, length);
  }

  // Values above the last mark alone can be reached, as in Python.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void push(PickleIndex index) { stack_.push_back(index); }
  void push_new(PickleValue value) { push(calls_.add(std::move(value))); }

  PickleIndex top() const {
    if (stack_.size() <= floor()) calls_.refuse("it takes a value where there is none");
    return stack_.back();
  }

  PickleIndex pop() {
    const PickleIndex index = top();
    stack_.pop_back();
    return index;
  }

  std::vector<PickleIndex> pop_to_mark() {
    if (marks_.empty()) calls_.refuse("it takes values where there are none");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleIndex> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  std::vector<PickleIndex> pop_several(size_t count) {
    std::vector<PickleIndex> values(count);
    for (size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  void push_text(std::string_view text) {
    if (!is_utf8(text)) calls_.refuse("a string is not valid UTF-8");
    push_new(PickleText{.text = std::string(text)});
  }

  void push_bytes(std::string_view bytes) { push_new(PickleBytes{.bytes = std::string(bytes)}); }

  void push_tuple(std::vector<PickleIndex> items) {
    push_new(PickleSequence{.kind = Kind::kTuple, .items = std::move(items)});
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > kLongestInteger) calls_.refuse("an integer of more than 256 bytes");
    if (bytes.size() > sizeof(int64_t)) {
      return push_new(PickleBigInteger{.digits = decimal_of(bytes)});
    }
    uint64_t bits = !bytes.empty() && static_cast<unsigned char>(bytes.back()) >= 0x80 ? ~0ULL : 0;
    for (size_t i = bytes.size(); i-- > 0;) {
      bits = bits << 8U | static_cast<unsigned char>(bytes[i]);
    }
    push_new(static_cast<int64_t>(bits));
  }

  void push_global(std::string_view module, std::string_view name) {
    push_new(calls_.find_global(module, name));
  }

  std::string text_of(PickleIndex index) const {
    const auto* text = std::get_if<PickleText>(&document_.at(index));
    if (text == nullptr) calls_.refuse("the name of a class is not a string");
    return text->text;
  }

  void append(PickleIndex target, const std::vector<PickleIndex>& items, Kind kind) {
    auto* sequence = std::get_if<PickleSequence>(&document_.values[target]);
    if (sequence == nullptr || sequence->kind != kind) {
      calls_.refuse("values are added to something that is not a list");
    }
    sequence->items.insert(sequence->items.end(), items.begin(), items.end());
  }

  void set_items(PickleIndex target, const std::vector<PickleIndex>& items) {
    auto* dict = std::get_if<PickleDict>(&document_.values[target]);
    if (dict == nullptr || items.size() % 2 != 0) {
      calls_.refuse("values are added to something that is not a dict");
    }
    for (size_t i = 0; i < items.size(); i += 2) dict->entries.emplace_back(items[i], items[i + 1]);
  }

  void get(uint32_t name) {
    const auto found = memo_.find(name);
    if (found == memo_.end()) calls_.refuse("it recalls a value that it did not keep");
    push(found->second);
  }

  void step();

  std::span<const std::byte> rest_;
  PickleDocument document_;
  PickleCalls calls_;
  const bool makes_objects_;  // torch.save makes none of plain values
  std::vector<PickleIndex> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PickleIndex> memo_;
  PickleIndex none_ = 0;
  PickleIndex false_ = 0;
  PickleIndex true_ = 0;
  PickleIndex empty_tuple_ = 0;
  bool ended_ = false;
};

void Machine::step() {
  const Opcode code = opcode();
  switch (code) {
    case Opcode::kStop:
      ended_ = true;
      return;
    case Opcode::kFrame:
      if (number<uint64_t>() > rest_.size()) calls_.refuse("it ends early");
      return;
    case Opcode::kMark:
      marks_.push_back(stack_.size());
      return;
    case Opcode::kPop:
      // As in Python: a mark is popped where no value lies above it.
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return;
    case Opcode::kPopMark:
      pop_to_mark();
      return;
    case Opcode::kDuplicate:
      return push(top());
    case Opcode::kNone:
      return push(none_);
    case Opcode::kTrue:
      return push(true_);
    case Opcode::kFalse:
      return push(false_);
    case Opcode::kInteger8:
      return push_new(int64_t{number<uint8_t>()});
    case Opcode::kInteger16:
      return push_new(int64_t{number<uint16_t>()});
    case Opcode::kInteger32:
      return push_new(int64_t{static_cast<int32_t>(number<uint32_t>())});
    case Opcode::kLong8:
      return push_long(counted<uint8_t>());
    case Opcode::kLong32:
      return push_long(counted<uint32_t>());
    case Opcode::kBinaryFloat: {
      uint64_t bits = 0;  // the highest byte first
      for (const std::byte byte : take(sizeof(bits))) {
        bits = bits << 8U | std::to_integer<uint64_t>(byte);
      }
      return push_new(std::bit_cast<double>(bits));
    }
    case Opcode::kText8:
      return push_text(counted<uint8_t>());
    case Opcode::kText32:
      return push_text(counted<uint32_t>());
    case Opcode::kText64:
      return push_text(counted<uint64_t>());
    case Opcode::kBytes8:
      return push_bytes(counted<uint8_t>());
    case Opcode::kBytes32:
      return push_bytes(counted<uint32_t>());
    case Opcode::kBytes64:
    case Opcode::kBytearray64:
      return push_bytes(counted<uint64_t>());
    case Opcode::kEmptyTuple:
      return push(empty_tuple_);
    case Opcode::kTuple1:
      return push_tuple(pop_several(1));
    case Opcode::kTuple2:
      return push_tuple(pop_several(2));
    case Opcode::kTuple3:
      return push_tuple(pop_several(3));
    case Opcode::kTuple:
      return push_tuple(pop_to_mark());
    case Opcode::kEmptyList:
      return push_new(PickleSequence{.kind = Kind::kList, .items = {}});
    case Opcode::kEmptySet:
      return push_new(PickleSequence{.kind = Kind::kSet, .items = {}});
    case Opcode::kEmptyDict:
      return push_new(PickleDict{.is_ordered = false, .entries = {}});
    case Opcode::kAppend: {
      const auto items = pop_several(1);
      return append(top(), items, Kind::kList);
    }
    case Opcode::kAppends: {
      const auto items = pop_to_mark();
      return append(top(), items, Kind::kList);
    }
    case Opcode::kAddItems: {
      const auto items = pop_to_mark();
      return append(top(), items, Kind::kSet);
    }
    case Opcode::kSetItem: {
      const auto items = pop_several(2);
      return set_items(top(), items);
    }
    case Opcode::kSetItems: {
      const auto items = pop_to_mark();
      return set_items(top(), items);
    }
    case Opcode::kPut8:
      memo_[number<uint8_t>()] = top();
      return;
    case Opcode::kPut32:
      memo_[number<uint32_t>()] = top();
      return;
    case Opcode::kMemoize:
      memo_[static_cast<uint32_t>(memo_.size())] = top();
      return;
    case Opcode::kGet8:
      return get(number<uint8_t>());
    case Opcode::kGet32:
      return get(number<uint32_t>());
    case Opcode::kGlobal: {
      const std::string_view module = line();
      return push_global(module, line());
    }
    case Opcode::kStackGlobal: {
      const std::string name = text_of(pop());
      return push_global(text_of(pop()), name);
    }
    case Opcode::kPersistentId:
      return push(calls_.persistent(pop()));
    case Opcode::kReduce: {
      const PickleIndex arguments = pop();
      return push(calls_.call(pop(), arguments));
    }
    case Opcode::kBuild: {
      const PickleIndex state = pop();
      return calls_.build(top(), state);
    }
    case Opcode::kNewObject: {
      if (!makes_objects_) break;
      const PickleIndex arguments = pop();
      return push(calls_.make(pop(), arguments));
    }
    case Opcode::kProtocol:
      break;
  }
  calls_.refuse("its instruction " + std::to_string(static_cast<int>(code)) +
                " is not one that torch.save writes");
}

}  // namespace

PickleDocument read_pickle(std::span<const std::byte> pickle, const std::string& where,
                           std::span<const PickleClass> classes) {
  return Machine(pickle, where, classes).run();
}

}  // namespace accelerate::files
