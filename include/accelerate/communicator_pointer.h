// A communicator that options may name or leave out.
#pragma once

#include <concepts>
#include <cstddef>

namespace accelerate {

class Communicator;

// Null, &communicator, or the address of an object that has one: &accelerator, &state of a
// PartialState. Does not own it. A value.
class CommunicatorPointer {
 public:
  // NOLINTBEGIN(google-explicit-constructor): options read `.communicator = &accelerator`
  CommunicatorPointer(std::nullptr_t /*none*/ = nullptr) {}
  CommunicatorPointer(Communicator* communicator) : communicator_(communicator) {}
  template <class Owner>
  requires requires(const Owner& owner) {
    { owner.communicator() } -> std::same_as<Communicator&>;
  }
  CommunicatorPointer(Owner* owner)
      : communicator_(owner == nullptr ? nullptr : &owner->communicator()) {}
  // NOLINTEND(google-explicit-constructor)

  Communicator* get() const { return communicator_; }
  Communicator* operator->() const { return communicator_; }
  Communicator& operator*() const { return *communicator_; }
  explicit operator bool() const { return communicator_ != nullptr; }
  friend bool operator==(CommunicatorPointer left, std::nullptr_t /*none*/) {
    return left.communicator_ == nullptr;
  }

 private:
  Communicator* communicator_ = nullptr;
};

}  // namespace accelerate
