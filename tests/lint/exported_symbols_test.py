#!/usr/bin/env python3
"""Checks exported_symbols.py on lists of symbols with and without leaks."""

import unittest

import exported_symbols
from exported_symbols import name_of

HEADER = """
// A class ACCELERATE_EXPORT Commented { is none.
namespace accelerate {
class StateDict;
ACCELERATE_EXPORT bool operator==(const StateDict& left, const StateDict& right);
class ACCELERATE_EXPORT Error : public std::runtime_error {
 public:
  void set_rank(int rank);
};
class [[nodiscard]] ACCELERATE_EXPORT Guard final {
  struct ACCELERATE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};
struct Plain { int width = 0; };
inline int twice(int x) { return 2 * x; }
ACCELERATE_EXPORT std::map<std::string, int> load(const std::string& path,
                                                  bool strict = true);
namespace detail {
[[noreturn]] ACCELERATE_EXPORT void refuse(const char* what);
}  // namespace detail
}  // namespace accelerate
"""
TOKENIZERS = """
namespace accelerate {
class ACCELERATE_EXPORT Tokenizer {
  int size() const;
};
}  // namespace accelerate
"""
PUBLIC = [
    ("T", "accelerate::operator==(accelerate::StateDict const&, accelerate::StateDict const&)"),
    ("T", "accelerate::Error::set_rank(int)"),
    ("V", "vtable for accelerate::Error"),
    ("V", "typeinfo for accelerate::Error"),
    ("V", "typeinfo name for accelerate::Error"),
    ("T", "accelerate::Guard::~Guard()"),
    ("T", "accelerate::Guard::operator=(accelerate::Guard&&)"),
    ("T", "accelerate::load[abi:cxx11](std::__cxx11::basic_string<char> const&, bool)"),
    ("T", "accelerate::detail::refuse(char const*)"),
    ("W", "std::vector<at::Tensor, std::allocator<at::Tensor> >::~vector()"),
    ("W", "void std::__adjust_heap<int*, long>(int*, long)"),
    ("V", "typeinfo for torch::nn::Module"),
    ("u", "guard variable for c10::detail::getTypeName<int>()::name"),
    ("W", "std::vector<accelerate::Error, std::allocator<accelerate::Error> >::~vector()"),
    ("W", "decltype (::new ((void*)(0)) accelerate::Error((std::declval<int>)())) std::construct_at<accelerate::Error, int>"
          "(accelerate::Error*, int&&)"),
    ("W", "decltype(new ((void*)(0))accelerate::Error(std::declval<int>())) std::construct_at<accelerate::Error, int>"
          "(accelerate::Error*, int&&)"),
    ("V", "typeinfo name for long (*)(long)"),
    ("T", "_init"),
]


class ExportedSymbolsTest(unittest.TestCase):
    def setUp(self):
        self.names = exported_symbols.PublicNames()
        self.names.read("accelerate/errors.h", HEADER)
        self.names.read("accelerate/tokenizers.h", TOKENIZERS)

    def problems(self, symbols, tier_two=(), library="libaccelerate.so"):
        return list(exported_symbols.problems_of(library, symbols, self.names, set(tier_two)))

    def test_public_symbols_pass(self):
        self.assertEqual(self.problems(PUBLIC), [])

    def test_headers_say_what_is_exported(self):
        self.assertEqual(set(self.names.classes), {"accelerate::Error", "accelerate::Guard", "accelerate::Tokenizer"})
        self.assertEqual(set(self.names.functions),
                         {"accelerate::operator==", "accelerate::load", "accelerate::detail::refuse"})
        self.assertEqual(self.names.hidden, {"accelerate::Guard::Impl"})

    def test_an_internal_symbol_is_found_among_public_ones(self):
        for kind, leak in [
            ("T", "accelerate::files::read_manifest(std::filesystem::__cxx11::path const&)"),
            ("T", "accelerate::twice(int)"),
            ("W", "accelerate::Plain::~Plain()"),
            ("B", "accelerate::(anonymous namespace)::counter"),
            ("V", "vtable for accelerate::comm::Meeting"),
            ("T", "accelerate::Guard::Impl::close()"),
            ("T", "accelerate::Errors::count()"),
        ]:
            with self.subTest(leak):
                self.assertEqual(self.problems([*PUBLIC, (kind, leak)]), [(leak, "is not part of the public API")])

    def test_symbols_of_other_projects_are_found(self):
        for kind, leak, why in [
            ("W", "nlohmann::basic_json<>::dump() const", "is of a namespace that this library does not export"),
            ("W", "YAML::Node::Node()", "is of a namespace that this library does not export"),
            ("T", "some_c_function", "is of a namespace that this library does not export"),
            ("W", "std::vector<nlohmann::json>::~vector()", "is of a namespace that this library does not export"),
            ("W", "std::vector<accelerate::Plain>::~vector()", "names a type that is not part of the public API"),
            ("T", "at::add(at::Tensor const&)", "is defined here, but belongs to another library"),
        ]:
            with self.subTest(leak):
                self.assertEqual(self.problems([*PUBLIC, (kind, leak)]), [(leak, why)])

    def test_a_library_does_not_define_what_another_one_exports(self):
        size = "accelerate::Tokenizer::size() const"
        self.assertEqual(self.problems([("T", size)]), [(size, "belongs to libaccelerate_transformers.so")])
        self.assertEqual(self.problems([("W", size)]), [])
        self.assertEqual(self.problems([("T", size)], library="libaccelerate_transformers.so"), [])

    def test_the_second_tier_is_listed_and_the_list_is_not_stale(self):
        text = "# comment\nlibaccelerate.so accelerate::compat::open_door  # why\nlibother.so other\n"
        tier_two = exported_symbols.tier_two_of("libaccelerate.so", text)
        self.assertEqual(tier_two, {"accelerate::compat::open_door"})
        symbols = [("T", "accelerate::compat::open_door(int)")]
        self.assertEqual(self.problems(symbols, tier_two), [])
        self.assertEqual(self.problems(PUBLIC, tier_two),
                         [("accelerate::compat::open_door", "is on the list plugin_symbols.txt, but not exported")])

    def test_names_of_demangled_symbols(self):
        for symbol, name in [
            ("bool const& accelerate::StateValue::get<bool>(char const*) const", "accelerate::StateValue::get"),
            ("std::map<int, accelerate::Plain>::operator[](int const&)", "std::map::operator[]"),
            ("accelerate::Guard::operator()(std::vector<int> const&)", "accelerate::Guard::operator()"),
            ("guard variable for accelerate::log(int)::state", "accelerate::log"),
            ("non-virtual thunk to accelerate::Error::what() const", "accelerate::Error::what"),
            ("construction vtable for std::ostream-in-accelerate::Stream", "std::ostream"),
            ("std::function<int (accelerate::Plain)>::~function()", "std::function::~function"),
        ]:
            with self.subTest(symbol):
                self.assertEqual(name_of(symbol), name)


if __name__ == "__main__":
    unittest.main()
