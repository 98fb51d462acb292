// What a host name means, asked without waiting for the answer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launch/remote/network.h"

namespace accelerate::launch {

// A question to the system's resolver, in a thread of its own: an answer may take as long as name
// servers like. An address in figures is answered at once, without a thread.
//
// Used by one thread. If it goes before the answer, nobody waits: the question is left to itself,
// and ends with the process at the latest.
class AddressLookup {
 public:
  AddressLookup(const std::string& host, int port);

  // Readable once the answer is there; belongs to this object.
  int fd() const;
  // The answer, once: nothing before it is there, and nothing afterwards.
  std::optional<ResolvedHost> answer();

 private:
  struct Question;
  std::shared_ptr<Question> question_;  // shared with the thread
};

}  // namespace accelerate::launch
