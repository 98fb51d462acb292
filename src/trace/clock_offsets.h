// How far the clocks of machines are apart, by exchanges in which all ranks wait for all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace accelerate::trace {

// What a rank saw of one exchange. All ranks leave it at about the same moment, however long each
// of them waited: after the last one has come.
struct RankMeetings {
  std::string machine{};  // ranks of one machine share its clock; "": a machine of its own
  std::map<std::string, double> ends{};  // microseconds on its clock, by a name that ranks share
};

struct ClockOffset {
  double us = 0;         // to be taken from its times
  int64_t meetings = 0;  // by which it was found; 0 for the first machine, and where there are none
  double deviation_us = 0;  // of single exchanges from it, in the median
};

// Of each rank, against the clock of the first one. The median of all exchanges counts: the end of
// a single one is late where a thread came late to its core. Machines that share no exchange with
// the first are reached over others; those that share none with any keep their clock.
std::vector<ClockOffset> clock_offsets(const std::vector<RankMeetings>& ranks);

}  // namespace accelerate::trace
