// A terminal in which progress bars are drawn.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace accelerate::test {

// Standard error is a terminal that shows ASCII and is 60 columns wide.
class ProgressInTerminal : public testing::Test {
 protected:
  void SetUp() override {
    setenv("LC_ALL", "C", 1);
    setenv("COLUMNS", "200", 1);  // what the shell said at the start; the terminal itself knows
    ASSERT_EQ(openpty(&terminal_, &worker_side_, nullptr, nullptr, nullptr), 0);
    termios settings{};
    tcgetattr(worker_side_, &settings);
    cfmakeraw(&settings);
    tcsetattr(worker_side_, TCSANOW, &settings);
    resize(60);
    original_ = dup(STDERR_FILENO);
    dup2(worker_side_, STDERR_FILENO);
    reader_ = std::thread([this] {
      char buffer[4096];
      ssize_t count = 0;
      // Ends with an error when no one holds the other side any more.
      while ((count = read(terminal_, buffer, sizeof buffer)) > 0) {
        screen_.append(buffer, static_cast<size_t>(count));
      }
    });
  }
  void TearDown() override {
    screen();
    close(terminal_);
    close(original_);
    for (const char* name : {"LC_ALL", "COLUMNS"}) unsetenv(name);
  }

  void resize(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(worker_side_, TIOCSWINSZ, &size), 0);
  }

  // All that was drawn. Standard error is what it was before from now on.
  std::string screen() {
    if (reader_.joinable()) {
      dup2(original_, STDERR_FILENO);
      close(worker_side_);
      reader_.join();
    }
    return screen_;
  }

  std::vector<int> items_{1, 2, 3, 4};

 private:
  int terminal_ = -1;
  int worker_side_ = -1;
  int original_ = -1;
  std::thread reader_;
  std::string screen_;  // the reader's until it is joined
};

}  // namespace accelerate::test
