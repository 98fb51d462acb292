// Under which keys the ranks of a job keep, in their store, what somebody from outside may ask. The
// library writes them, the program `accelerate` reads them.
//
// Who asks puts a question under kCallKey of a group, unless something else is there, and reads
// what each rank answers within its next look at the store. Nothing else of the job is touched.
#pragma once

#include <cstdint>
#include <string>

namespace accelerate::inquiry {

// Of the whole store: "WORLD_SIZE JOB" of the ranks that met last.
inline constexpr const char* kJobKey = "accelerate/job";

inline std::string job_prefix(int world_size, const std::string& job) {
  return "accelerate/" + std::to_string(world_size) + "/" + job;
}
// Behind that prefix: how many groups a rank has opened, and the prefix of each, from 1 on.
inline std::string groups_key(int rank) { return "/groups/" + std::to_string(rank); }
inline std::string group_key(int64_t index) { return "/group/" + std::to_string(index); }

// Of a group: what all ranks are told; kQuestion with a number is a question.
inline constexpr const char* kCallKey = "event";
inline constexpr const char* kQuestion = "question/";
// The question, a line end, and a RankReport.
inline std::string answer_key(int rank) { return "answer/" + std::to_string(rank); }
inline std::string goodbye_key(int rank) { return "goodbye/" + std::to_string(rank); }
// Once a rank has failed: what the first one found out, in its first line.
inline constexpr const char* kDiagnosisKey = "diagnosis";

}  // namespace accelerate::inquiry
