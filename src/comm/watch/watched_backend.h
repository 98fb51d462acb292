// Where this library waits for collectives.
#pragma once

#include <functional>
#include <memory>

#include "comm/watch/alarm.h"
#include "comm/watch/collective_log.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A backend that starts its collectives on `backend` and hands out works that end with the work
// there or with `alarm`, whichever comes first. Work::wait() and the future of a work both do, so
// whoever waits is woken: a Communicator, a join, and c10d's reducer inside of a backward pass. The
// output of a reduce-scatter is there only after wait(): its future does not write it.
// Once the alarm has rung, a collective throws instead of starting.
//
// `abort` makes `backend` stop sending and receiving. It is called when the alarm rings, before
// anyone is woken: nothing is written any more to the tensors of a collective that has failed. It
// must not wait for other ranks. Works on `backend` that the alarm has ended may never end there.
// If one has not when the result is destroyed, `backend` is leaked: its destructor would wait.
//
// `log` is told when a work begins and when it has ended.
//
// For backends whose works have futures that complete when the data is there (Gloo). Those of NCCL
// order streams instead; it takes no more than a listener of the alarm that aborts it.
c10::intrusive_ptr<c10d::Backend> watch_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                std::function<void()> abort, Alarm& alarm,
                                                std::shared_ptr<CollectiveLog> log);

}  // namespace accelerate::comm
