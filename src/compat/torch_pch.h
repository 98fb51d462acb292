// The precompiled header of everything that sees libtorch.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#ifdef __clang__
namespace accelerate::compat {

// Whoever sees libtorch's classes instantiates the virtual functions of their templates at the end
// of its translation unit: more than a second in each, for nothing. clang instantiates what is used
// in a precompiled header once, when it is made. Nothing here is ever called.
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
}

template <typename... Convolutions>
void use_printing(void* nothing, std::ostream& out) {
  (static_cast<Convolutions*>(nothing)->Convolutions::pretty_print(out), ...);
}

// What the private clone() of an optimizer's state does.
template <typename... States>
void use_copies(void* nothing) {
  (static_cast<void>(std::make_unique<States>(*static_cast<const States*>(nothing))), ...);
}

template <typename... Attributes>
void use_clones(void* nothing) {
  (static_cast<void>(static_cast<Attributes*>(nothing)->Attributes::clone()), ...);
}

template <typename... Types>
void use_types(void* nothing) {
  (static_cast<void>(static_cast<Types*>(nothing)->Types::equals(*static_cast<Types*>(nothing))),
   ...);
}

template <typename... Datasets>
void use_datasets(void* nothing) {
  (static_cast<void>(static_cast<Datasets*>(nothing)->Datasets::get_batch({})), ...);
}

inline void use_other_classes(void* nothing) {
  using namespace torch::nn;
  using namespace torch::optim;
  using namespace torch::data::datasets;
  use_printing<Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl,
               ConvTranspose3dImpl>(nothing, *static_cast<std::ostream*>(nothing));
  use_copies<AdagradParamState, AdamParamState, AdamWParamState, LBFGSParamState, RMSpropParamState,
             SGDParamState>(nothing);
  use_clones<torch::jit::ComplexValsAttr, torch::jit::TypesAttr>(nothing);
  use_types<c10::ListType, c10::FutureType, c10::AwaitType, c10::RRefType>(nothing);
  use_datasets<MNIST, TensorDataset>(nothing);
}

inline void use_json(const std::string& text, nlohmann::json& value) {
  value = nlohmann::json::parse(text);
  value = value.dump();
}

}  // namespace accelerate::compat
#endif
