// The instructions of a pickle that torch.save uses, after Python's pickletools.
#pragma once

#include <cstdint>

namespace accelerate::files {

enum class PickleOpcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDuplicate = '2',
  kBinaryFloat = 'G',
  kInteger32 = 'J',
  kInteger8 = 'K',
  kInteger16 = 'M',
  kNone = 'N',
  kPersistentId = 'Q',
  kReduce = 'R',
  kText32 = 'X',
  kBytes32 = 'B',
  kBytes8 = 'C',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kGet8 = 'h',
  kGet32 = 'j',
  kPut8 = 'q',
  kPut32 = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProtocol = 0x80,
  kNewObject = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong8 = 0x8a,
  kLong32 = 0x8b,
  kText8 = 0x8c,
  kText64 = 0x8d,
  kBytes64 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kBytearray64 = 0x96,
};

}  // namespace accelerate::files
