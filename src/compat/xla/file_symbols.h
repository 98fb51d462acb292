// Functions of a library that it does not export.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::compat {

// The addresses, in this process, of the functions `names` of the library that `handle` of dlopen()
// stands for and that was read from `file`: from the table .symtab, which a library keeps unless it
// is stripped. Null for those that the table does not have. Throws ConfigError for a file that is
// not a 64-bit ELF file with such a table.
std::vector<void*> functions_in_symtab(const std::filesystem::path& file, void* handle,
                                       const std::vector<std::string_view>& names);

}  // namespace accelerate::compat
