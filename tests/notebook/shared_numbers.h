// Numbers that a test and all processes forked from it see.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>
#include <system_error>

namespace accelerate::test {

class SharedNumbers {
 public:
  static constexpr size_t kCount = 16;

  SharedNumbers() {
    void* memory = mmap(nullptr, kCount * sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    numbers_ = static_cast<std::atomic<int>*>(memory);
    for (size_t i = 0; i < kCount; ++i) new (numbers_ + i) std::atomic<int>(0);
  }
  ~SharedNumbers() { munmap(numbers_, kCount * sizeof(std::atomic<int>)); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;

  std::atomic<int>& operator[](size_t i) { return numbers_[i]; }

 private:
  std::atomic<int>* numbers_;
};

}  // namespace accelerate::test
