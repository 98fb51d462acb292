// Pictures of bars that lie, stand or run along either diagonal, with specks in them. Made from
// their index alone, so that every run and every rank sees the same ones.
#pragma once

#include <torch/torch.h>

#include <cstdint>

class Bars : public torch::data::datasets::Dataset<Bars> {
 public:
  static constexpr int64_t kSide = 12;

  Bars(size_t first, size_t count) : first_(first), count_(count) {}

  torch::data::Example<> get(size_t index) override {
    const auto number = static_cast<uint32_t>(first_ + index);
    const int64_t label = number % 4;
    const int64_t place = 2 + mixed(number) % (kSide - 4);
    auto picture = torch::zeros({1, kSide, kSide});
    auto pixels = picture.accessor<float, 3>();
    for (int64_t row = 0; row < kSide; ++row) {
      for (int64_t column = 0; column < kSide; ++column) {
        const int64_t along[] = {row, column, (row + column) / 2, (row - column + kSide) / 2};
        const uint32_t speck = mixed(number * 1000 + static_cast<uint32_t>(row * kSide + column));
        pixels[0][row][column] = along[label] == place ? 1.0F : (speck % 100) / 250.0F;
      }
    }
    return {picture, torch::tensor(label)};
  }
  torch::optional<size_t> size() const override { return count_; }

 private:
  static uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x45d9f3bU;
    x = (x ^ (x >> 16)) * 0x45d9f3bU;
    return x ^ (x >> 16);
  }

  size_t first_;
  size_t count_;
};
