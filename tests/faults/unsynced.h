// Keeps account of what would be lost if the power failed now: bytes that were written and names
// that were made, changed or removed, and not synced since.
#pragma once

#include <string>

namespace faults {

// Which names are lost. Bytes that were not synced are lost in any case.
enum class LostNames {
  kNone,
  kAll,      // every change is taken back, the last one first
  kFolders,  // those of folders, while the files inside are as they were left
  kFiles,    // those of files, while the folders are as they were left
};

// To be called after the call has succeeded; paths are absolute. Unlinking is told before it
// happens: it keeps a second name of the file, in the folder FAULTS_GRAVES, to bring it back.
void note_written(const std::string& path);
void note_synced(const std::string& path, bool is_directory);
void note_created(const std::string& path);
void note_made_directory(const std::string& path);
void note_removed_directory(const std::string& path);
void note_renamed(const std::string& from, const std::string& to);
void note_exchanged(const std::string& a, const std::string& b);
void note_unlinking(const std::string& path);

// Loses it, and kills this process.
[[noreturn]] void forget_unsynced(LostNames lost);

}  // namespace faults
