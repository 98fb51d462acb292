#include "comm/watch/lifelines.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/random_id.h"
#include "comm/rendezvous/loopback_listener.h"
#include "comm/rendezvous/tcp_probe.h"

namespace accelerate::comm {
namespace {

constexpr const char* kLifelineKey = "lifeline";  // "port token" of rank 0; port 0: there is none
constexpr std::chrono::seconds kLifelineKeyTimeout{1};
constexpr std::chrono::milliseconds kLifelinePatience{500};
constexpr std::chrono::seconds kLifelineRetry{1};

// A message of rank 0: a rank that has gone, or the complement of one that is back.
constexpr int32_t back_again(int rank) { return ~static_cast<int32_t>(rank); }

// A socket of both kinds of addresses, bound to a free port.
UniqueFd bind_anywhere() {
  UniqueFd bound(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int off = 0;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  const bool is_bound = bound &&
                        setsockopt(bound.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
                        bind(bound.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  return is_bound ? std::move(bound) : UniqueFd();
}

// A socket that listens at a free port, or nothing.
UniqueFd listen_anywhere(const std::string& host) {
  UniqueFd listener = bind_loopback(host, 0);
  if (!listener) listener = bind_anywhere();
  if (!listener) {  // a machine without IPv6: bound to any address by listen()
    listener = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  const bool listens = listener && ::listen(listener.get(), SOMAXCONN) == 0;
  return listens ? std::move(listener) : UniqueFd();
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

enum class ReadResult { kNothing, kBytes, kEnd };

// Reads up to `size` bytes without waiting; `count` is how many came.
ReadResult read_available(int fd, void* into, size_t size, size_t& count) {
  while (true) {
    const ssize_t result = recv(fd, into, size, MSG_DONTWAIT);
    count = result > 0 ? static_cast<size_t>(result) : 0;
    if (result > 0) return ReadResult::kBytes;
    if (result == 0) return ReadResult::kEnd;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? ReadResult::kNothing : ReadResult::kEnd;
  }
}

}  // namespace

Lifelines::Lifelines(c10::intrusive_ptr<c10d::Store> store, const RankEnvironment& ranks)
    : store_(std::move(store)), ranks_(ranks) {
  if (ranks_.rank == 0) listen();
}

void Lifelines::listen() {
  token_ = random_bits();
  listener_ = listen_anywhere(ranks_.master_address);
  port_ = listener_ ? port_of(listener_.get()) : 0;
  store_->set(kLifelineKey, std::to_string(*port_) + " " + std::to_string(token_));
}

void Lifelines::open() {
  if (ranks_.rank == 0) return;
  store_->wait({kLifelineKey}, kLifelineKeyTimeout);
  learn_port();
  connect();
}

void Lifelines::learn_port() {
  const std::vector<uint8_t> bytes = store_->get(kLifelineKey);
  std::istringstream in(std::string(bytes.begin(), bytes.end()));
  uint16_t port = 0;
  in >> port >> token_;
  port_ = port;
}

void Lifelines::connect() {
  if (port_.value_or(0) == 0) return;
  UniqueFd line = connect_within(ranks_.master_address, *port_, kLifelinePatience);
  if (!line) return;
  const Greeting greeting{.token = token_, .rank = static_cast<int32_t>(ranks_.rank)};
  if (send(line.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) return;
  lines_[0] = std::move(line);
  unread_.clear();
  // Rank 0 repeats who is gone. If it was gone itself, it is back.
  gone_since_.clear();
}

void Lifelines::try_to_connect() {
  if (Clock::now() < next_attempt_) return;
  try {
    if (!port_ && store_->check({kLifelineKey})) learn_port();
    connect();
  } catch (const std::exception&) {  // NOLINT: without the store there is nobody to connect to
  }
  if (lines_.empty()) next_attempt_ = Clock::now() + kLifelineRetry;
}

void Lifelines::look() {
  if (ranks_.rank != 0) {
    read_rank_zero();
    return;
  }
  if (*port_ == 0) return;
  accept_peers();
  check_lines();
  read_greetings();
}

void Lifelines::accept_peers() {
  while (true) {
    pollfd waiting{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 0) != 1) return;
    UniqueFd line(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!line) return;
    pending_.push_back({.line = std::move(line)});
  }
}

void Lifelines::read_greetings() {
  std::erase_if(pending_, [this](PendingPeer& peer) {
    size_t count = 0;
    const ReadResult result =
        read_available(peer.line.get(), reinterpret_cast<char*>(&peer.greeting) + peer.received,
                       sizeof(Greeting) - peer.received, count);
    if (result == ReadResult::kNothing) return false;
    peer.received += count;
    if (result == ReadResult::kBytes && peer.received < sizeof(Greeting)) return false;
    const int rank = peer.greeting.rank;
    const bool is_peer = result == ReadResult::kBytes && peer.greeting.token == token_ &&
                         rank > 0 && rank < ranks_.world_size;
    if (!is_peer) return true;
    lines_[rank] = std::move(peer.line);
    note_open(rank);
    for (const auto& [gone, since] : gone_since_) tell(rank, gone);
    return true;
  });
}

void Lifelines::check_lines() {
  std::vector<int> closed;
  for (const auto& [rank, line] : lines_) {
    char byte = 0;
    size_t count = 0;
    const ReadResult result = read_available(line.get(), &byte, sizeof byte, count);
    if (result == ReadResult::kEnd) closed.push_back(rank);
  }
  for (const int rank : closed) {
    lines_.erase(rank);
    note_closed(rank);
  }
}

void Lifelines::read_rank_zero() {
  if (lines_.empty()) {
    try_to_connect();
    return;
  }
  char bytes[256];
  size_t count = 0;
  ReadResult result = ReadResult::kNothing;
  while ((result = read_available(lines_[0].get(), bytes, sizeof bytes, count)) ==
         ReadResult::kBytes) {
    unread_.insert(unread_.end(), bytes, bytes + count);
  }
  size_t used = 0;
  for (; unread_.size() - used >= sizeof(int32_t); used += sizeof(int32_t)) {
    int32_t message = 0;
    std::memcpy(&message, unread_.data() + used, sizeof message);
    if (message >= 0) {
      note_closed(message);
    } else {
      note_open(back_again(message));
    }
  }
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(used));
  if (result != ReadResult::kEnd) return;
  lines_.clear();
  note_closed(0);
}

void Lifelines::note_closed(int rank) {
  gone_since_.emplace(rank, Clock::now());
  if (ranks_.rank != 0) return;
  for (const auto& [other, line] : lines_) tell(other, rank);
}

void Lifelines::note_open(int rank) {
  if (gone_since_.erase(rank) == 0 || ranks_.rank != 0) return;
  for (const auto& [other, line] : lines_) tell(other, back_again(rank));
}

// A peer that does not read has its own line to notice that: what it is told is lost then.
void Lifelines::tell(int rank, int32_t message) const {
  (void)send(lines_.at(rank).get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool Lifelines::is_gone(int rank, std::chrono::milliseconds time) const {
  const auto found = gone_since_.find(rank);
  return found != gone_since_.end() && Clock::now() - found->second >= time;
}

}  // namespace accelerate::comm
