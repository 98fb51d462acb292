// expect: Nested
#include <accelerate/nested.h>

struct Tokens {
  at::Tensor ids{};
  at::Tensor mask{};
#ifndef MUST_FAIL
  ACCELERATE_FIELDS(ids, mask)
#endif
};

Tokens first_row(const Tokens& tokens);
Tokens first_row(const Tokens& tokens) { return accelerate::slice_rows(tokens, 0, 1); }
