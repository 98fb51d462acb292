// What a tokenizer is made of.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerate/tokenizers.h"
#include "transformers/tokenizers/added_tokens.h"
#include "transformers/tokenizers/decoders/decoders.h"
#include "transformers/tokenizers/models/models.h"
#include "transformers/tokenizers/normalizers/normalizers.h"
#include "transformers/tokenizers/pre_tokenizers/pre_tokenizers.h"
#include "transformers/tokenizers/processors/processors.h"

namespace accelerate::tokenizers {

// Workspaces that wait for the next text: as many as there were texts at once.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void put_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

// A workspace for as long as the object lives.
class BorrowedWorkspace {
 public:
  explicit BorrowedWorkspace(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
  ~BorrowedWorkspace() {
    workspace_->forget_large();
    pool_.put_back(std::move(workspace_));
  }
  BorrowedWorkspace(const BorrowedWorkspace&) = delete;
  BorrowedWorkspace& operator=(const BorrowedWorkspace&) = delete;
  Workspace& operator*() { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace accelerate::tokenizers

namespace accelerate {

// Shared by all copies of a tokenizer and by the tokenizers that add_tokens() makes of it.
struct Tokenizer::Parts {
  std::shared_ptr<const tokenizers::Normalizer> normalizer{};
  std::shared_ptr<const tokenizers::PreTokenizer> pre_tokenizer{};
  std::shared_ptr<const tokenizers::Model> model{};
  std::string model_type{};
  std::shared_ptr<const tokenizers::Processor> processor{};
  std::shared_ptr<const tokenizers::Decoder> decoder{};
  std::vector<AddedToken> added_list{};  // in the order in which they were added
  tokenizers::AddedTokens added{};
  std::shared_ptr<tokenizers::WorkspacePool> workspaces =
      std::make_shared<tokenizers::WorkspacePool>();
};

}  // namespace accelerate
