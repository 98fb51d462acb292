#include "compat/xla/file_symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>

#include "accelerate/errors.h"
#include "base/unique_fd.h"

namespace accelerate::compat {
namespace {

[[noreturn]] void refuse_symbols(const std::filesystem::path& file, const std::string& what) {
  throw ConfigError({.what = what, .where = file.string(), .hint = "install it anew"});
}

// A file in memory, read only.
class MappedLibrary {
 public:
  explicit MappedLibrary(const std::filesystem::path& file) : file_(file) {
    const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) refuse_symbols(file, "it cannot be read");
    size_ = static_cast<size_t>(info.st_size);
    begin_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (begin_ == MAP_FAILED) refuse_symbols(file, "it cannot be mapped");
  }
  ~MappedLibrary() { munmap(begin_, size_); }
  MappedLibrary(const MappedLibrary&) = delete;
  MappedLibrary& operator=(const MappedLibrary&) = delete;

  // `count` values from `offset` on.
  template <class T>
  std::span<const T> at(uint64_t offset, uint64_t count) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T)) {
      refuse_symbols(file_, "it is cut off");
    }
    return {reinterpret_cast<const T*>(static_cast<const char*>(begin_) + offset), count};
  }

 private:
  const std::filesystem::path& file_;
  void* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

std::vector<void*> functions_in_symtab(const std::filesystem::path& file, void* handle,
                                       const std::vector<std::string_view>& names) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) refuse_symbols(file, "it is not loaded");
  const MappedLibrary library(file);
  const Elf64_Ehdr& header = library.at<Elf64_Ehdr>(0, 1)[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    refuse_symbols(file, "it is not a library of this machine");
  }
  const auto sections = library.at<Elf64_Shdr>(header.e_shoff, header.e_shnum);
  const auto table =
      std::ranges::find(sections, static_cast<Elf64_Word>(SHT_SYMTAB), &Elf64_Shdr::sh_type);
  if (table == sections.end() || table->sh_link >= sections.size()) {
    refuse_symbols(file, "it was stripped of its symbols");
  }
  const Elf64_Shdr& text = sections[table->sh_link];
  const auto strings = library.at<char>(text.sh_offset, text.sh_size);
  std::unordered_map<std::string_view, size_t> wanted;
  for (size_t i = 0; i < names.size(); ++i) wanted.emplace(names[i], i);
  std::vector<void*> found(names.size());
  const auto symbols = library.at<Elf64_Sym>(table->sh_offset, table->sh_size / sizeof(Elf64_Sym));
  for (const Elf64_Sym& symbol : symbols) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
    if (symbol.st_name >= strings.size()) continue;
    const char* name = strings.data() + symbol.st_name;
    const auto known = wanted.find({name, strnlen(name, strings.size() - symbol.st_name)});
    if (known == wanted.end()) continue;
    found[known->second] = reinterpret_cast<void*>(map->l_addr + symbol.st_value);
  }
  return found;
}

}  // namespace accelerate::compat
