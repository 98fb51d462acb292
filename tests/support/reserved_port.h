// A TCP port for the rendezvous of one group of ranks.
#pragma once

namespace accelerate::test {

// Holds a free port of this machine: while the object lives the kernel hands the port to nobody
// else, yet a rank that binds it by number with SO_REUSEADDR (as every store does) succeeds.
// Movable, not copyable. The constructor throws std::system_error if no port can be had.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&& other) noexcept;

  int number() const { return number_; }

 private:
  int socket_ = -1;
  int number_ = 0;
};

}  // namespace accelerate::test
