// A text to learn letters from.
#pragma once

#include <string_view>

inline constexpr std::string_view kText =
    "The tide came in and the boats came in, and the tide went out and the boats went out. "
    "Who counts the boats that the tide takes out counts the boats that the tide brings in. "
    "A boat at the pier is one that waits, a boat at sea is one that goes; the tide that waits "
    "is no tide at all, and the sea that goes comes in again. So the boats went out when the "
    "tide went out, and the boats came in when the tide came in, and the one that counts at the "
    "pier counts on: one that waits, one that goes, one that comes in with the tide again. ";
