// The precompiled header of everything that sees libtorch.
#pragma once

#include <torch/torch.h>

#ifdef __clang__
namespace accelerate::compat {

// Whoever sees the constructors of libtorch's modules instantiates the virtual functions of their
// templates at the end of its translation unit: most of a second in each, for nothing. clang
// instantiates what is used in a precompiled header once, when it is made. Never called.
template <typename... Modules>
void use_virtual_functions(Modules*... modules) {
  (static_cast<void>(modules->torch::nn::template Cloneable<Modules>::clone()), ...);
}

inline void use_modules(void* nothing) {
  using namespace torch::nn;
  const auto use = [nothing]<typename... Modules>() {
    use_virtual_functions(static_cast<Modules*>(nothing)...);
  };
  use.operator()<LinearImpl, BilinearImpl, UnflattenImpl, SequentialImpl, ModuleDictImpl>();
  use.operator()<ParameterDictImpl, SoftmaxImpl, SoftminImpl, LogSoftmaxImpl, ThresholdImpl>();
  use.operator()<MultiheadAttentionImpl, AdaptiveLogSoftmaxWithLossImpl, FoldImpl, UnfoldImpl>();
  use.operator()<Conv1dImpl, Conv2dImpl, Conv3dImpl, EmbeddingImpl, EmbeddingBagImpl>();
  use.operator()<ConvTranspose1dImpl, ConvTranspose2dImpl, ConvTranspose3dImpl, LayerNormImpl>();
  use.operator()<LocalResponseNormImpl, CrossMapLRN2dImpl, GroupNormImpl, RNNImpl, LSTMImpl>();
  use.operator()<FractionalMaxPool2dImpl, FractionalMaxPool3dImpl, GRUImpl, RNNCellImpl>();
  use.operator()<LSTMCellImpl, GRUCellImpl, TransformerEncoderLayerImpl>();
  use.operator()<TransformerDecoderLayerImpl, TransformerEncoderImpl, TransformerDecoderImpl>();
  const auto& type = *static_cast<c10::Type*>(nothing);
  static_cast<c10::FutureType*>(nothing)->c10::FutureType::equals(type);
  static_cast<torch::nn::Conv1dImpl*>(nothing)->torch::nn::Conv1dImpl::pretty_print(
      *static_cast<std::ostream*>(nothing));
}

}  // namespace accelerate::compat
#endif
