#include <algorithm>
#include <cctype>
#include <cstdio>

#include "config/file_node.h"
#include "config/value.h"

namespace accelerate::config {
namespace {

bool is_null_word(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// Digits, signs, dots, colons and what else numbers, dates and times of YAML 1.1 are made of.
bool looks_like_number(const std::string& text) {
  if (text.empty()) return false;
  if (!std::isdigit(static_cast<unsigned char>(text[0])) && text[0] != '.' && text[0] != '-' &&
      text[0] != '+') {
    return false;
  }
  return text.find_first_not_of("0123456789abcdefABCDEFxXoO_.:+-TZinfINFNaA ") == std::string::npos;
}

// Whether a reader would take the text, unquoted, for something else than this string. An address
// such as 10.0.0.1 is none: three dots make no number.
bool needs_quotes(const std::string& text) {
  if (is_null_word(text) || truth_of(text)) return true;
  if (looks_like_number(text)) return std::count(text.begin(), text.end(), '.') < 2;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`= ").find(text.front()) != std::string_view::npos) {
    return true;
  }
  return text.back() == ' ' || text.back() == ':' || text.find(": ") != std::string::npos ||
         text.find(" #") != std::string::npos;
}

bool is_printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string double_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      result += escape;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

std::string yaml_scalar(const FileNode& node) {
  if (!is_printable(node.text)) return double_quoted(node.text);
  if (node.is_string && needs_quotes(node.text)) return single_quoted(node.text);
  return node.text;
}

std::vector<const FileEntry*> sorted_entries(const FileNode& node) {
  std::vector<const FileEntry*> entries;
  for (const FileEntry& entry : node.entries) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const FileEntry* a, const FileEntry* b) { return a->key < b->key; });
  return entries;
}

bool is_block(const FileNode& node) {
  return (node.kind == FileNode::Kind::kMap && !node.entries.empty()) ||
         (node.kind == FileNode::Kind::kList && !node.items.empty());
}

std::string yaml_inline(const FileNode& node) {
  switch (node.kind) {
    case FileNode::Kind::kNull:
      return "null";
    case FileNode::Kind::kScalar:
      return yaml_scalar(node);
    case FileNode::Kind::kList:
      return "[]";
    case FileNode::Kind::kMap:
      return "{}";
  }
  return "";
}

void write_yaml(const FileNode& node, int indent, std::string& text) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  for (const FileEntry* entry : sorted_entries(node)) {
    text += margin + yaml_scalar(FileNode::string(entry->key)) + ":";
    if (!is_block(entry->value)) {
      text += " " + yaml_inline(entry->value) + "\n";
      continue;
    }
    text += "\n";
    // As Python does, a list stands no deeper than its key.
    write_yaml(entry->value, entry->value.kind == FileNode::Kind::kList ? indent : indent + 2,
               text);
  }
  for (const FileNode& item : node.items) {
    if (!is_block(item)) {
      text += margin + "- " + yaml_inline(item) + "\n";
      continue;
    }
    std::string block;
    write_yaml(item, indent + 2, block);
    block.replace(static_cast<size_t>(indent), 1, "-");
    text += block;
  }
}

// Whether JSON takes `text` for a number: -1, 0.5, 1e-5, but not 01, .5, 1. or nan.
bool is_json_number(std::string_view text) {
  const auto skip_digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count > 0;
  };
  if (text.starts_with("-")) text.remove_prefix(1);
  if (text.starts_with("0")) {
    text.remove_prefix(1);
  } else if (!skip_digits()) {
    return false;
  }
  if (text.starts_with(".")) {
    text.remove_prefix(1);
    if (!skip_digits()) return false;
  }
  if (text.starts_with("e") || text.starts_with("E")) {
    text.remove_prefix(1);
    if (text.starts_with("+") || text.starts_with("-")) text.remove_prefix(1);
    if (!skip_digits()) return false;
  }
  return text.empty();
}

// A plain scalar that JSON can say without quotes: a number, true, false.
std::string json_scalar(const FileNode& node) {
  if (node.is_string) return double_quoted(node.text);
  if (node.text == "true" || node.text == "True") return "true";
  if (node.text == "false" || node.text == "False") return "false";
  return is_json_number(node.text) ? node.text : double_quoted(node.text);
}

void write_json(const FileNode& node, int indent, std::string& text) {
  const std::string margin(static_cast<size_t>(indent) + 2, ' ');
  const std::string end(static_cast<size_t>(indent), ' ');
  switch (node.kind) {
    case FileNode::Kind::kNull:
      text += "null";
      return;
    case FileNode::Kind::kScalar:
      text += json_scalar(node);
      return;
    case FileNode::Kind::kMap: {
      if (node.entries.empty()) {
        text += "{}";
        return;
      }
      const auto entries = sorted_entries(node);
      text += "{\n";
      for (const FileEntry* entry : entries) {
        text += margin + double_quoted(entry->key) + ": ";
        write_json(entry->value, indent + 2, text);
        text += entry == entries.back() ? "\n" : ",\n";
      }
      text += end + "}";
      return;
    }
    case FileNode::Kind::kList: {
      if (node.items.empty()) {
        text += "[]";
        return;
      }
      text += "[\n";
      for (const FileNode& item : node.items) {
        text += margin;
        write_json(item, indent + 2, text);
        text += &item == &node.items.back() ? "\n" : ",\n";
      }
      text += end + "]";
      return;
    }
  }
}

}  // namespace

std::string yaml_text(const FileNode& node) {
  if (!is_block(node)) return yaml_inline(node) + "\n";
  std::string text;
  write_yaml(node, 0, text);
  return text;
}

std::string json_text(const FileNode& node) {
  std::string text;
  write_json(node, 0, text);
  return text + "\n";
}

}  // namespace accelerate::config
