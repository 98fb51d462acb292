#include "cli/commands/status_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "cli/help/help_formatter.h"
#include "cli/reports/print_output.h"
#include "cli/reports/status_report.h"
#include "launch/remote/job_inquiry.h"

namespace accelerate::cli {
namespace {

constexpr int kHighestPort = 65'535;

struct StatusOptions {
  std::string address;
  int last = 0;
  double timeout_s = 3;
  bool json = false;
};

constexpr const char* kStatusFooter =
    R"(ADDRESS is that of rank 0, MASTER_ADDR:MASTER_PORT of the ranks. Without it, all jobs of yours are asked that have ranks on this machine.
Nothing of a job changes. The exit code is 0 if every rank answered, else 1.

Examples:
  accelerate status
  accelerate status node7:41234 --last 20
)";

launch::StoreAddress parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = 0;
  }
  if (port < 1 || port > kHighestPort) {
    throw UsageError({.what = "'" + text + "' is not an address with a port",
                      .where = "ADDRESS",
                      .hint = "accelerate status node7:41234"});
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);  // of IPv6
  }
  return {.host = host, .port = port};
}

JobStatus ask(launch::LocalJob job, std::chrono::milliseconds patience) {
  JobStatus status{.store = job.store, .pids = std::move(job.pids)};
  try {
    status.answer = launch::ask_job(status.store, patience);
  } catch (const CommError& error) {
    status.problem = error.message();
  }
  return status;
}

std::vector<launch::LocalJob> chosen_jobs(const StatusOptions& options) {
  std::vector<launch::LocalJob> jobs = launch::find_local_jobs();
  if (options.address.empty()) return jobs;
  const launch::StoreAddress named = parse_address(options.address);
  std::erase_if(jobs, [&](const launch::LocalJob& job) { return job.store != named; });
  if (jobs.empty()) jobs.push_back({.store = named});
  return jobs;
}

int run_status(const StatusOptions& options) {
  const std::vector<launch::LocalJob> chosen = chosen_jobs(options);
  if (chosen.empty()) {
    throw CommError({.what = "no job of yours with several ranks runs on this machine",
                     .hint = "for one elsewhere, or started by mpirun or srun alone, name the "
                             "address of rank 0: accelerate status node7:41234"});
  }
  const auto patience = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  std::vector<JobStatus> jobs;
  for (const launch::LocalJob& job : chosen) jobs.push_back(ask(job, patience));
  const auto last = static_cast<size_t>(std::max(options.last, 0));
  print_output(options.json ? status_json(jobs, last) : status_text(jobs, last));
  return std::all_of(jobs.begin(), jobs.end(), has_full_answer) ? 0 : 1;
}

}  // namespace

Command setup_status(CLI::App& app) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* status = add_command(app, "status", "Show what each rank of a running job waits for",
                                 "accelerate status [ADDRESS] [flags]");
  status->footer(kStatusFooter);
  status->add_option("ADDRESS", options->address, "Of rank 0, such as node7:41234")->type_name("");
  status->add_option("--last", options->last, "Also the last entries of each rank's log [0]")
      ->type_name("NUMBER")
      ->check(CLI::Range(0, 64));
  status->add_option("--timeout", options->timeout_s, "How long ranks may take to answer [3]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  status->add_flag("--json", options->json, "Print JSON, for other programs");
  return {status, [options] { return run_status(*options); }};
}

}  // namespace accelerate::cli
