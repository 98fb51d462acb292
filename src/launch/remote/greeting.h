// How a launcher introduces itself to the one of the main machine.
#pragma once

namespace accelerate::launch {

// Both sides must speak the same. A member says
//   hello version= machine= machines= processes= host= identity= [run=]
// and is answered by `welcome` or `refuse text=`. Then orders go one way, events the other, and
// `alive` both ways.
constexpr int kProtocolVersion = 1;

}  // namespace accelerate::launch
