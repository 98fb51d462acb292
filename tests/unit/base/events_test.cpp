// The stream of events and its board, with one thread and with many.
#include "base/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace accelerate {
namespace {

using testing::ElementsAre;

Event numbered(int64_t number, std::string_view text = {}) {
  Event event(EventKind::kStep, text);
  event.number = number;
  return event;
}

std::vector<std::string> texts_of(const std::vector<Event>& events) {
  std::vector<std::string> texts;
  for (const Event& event : events) texts.emplace_back(event.text());
  return texts;
}

TEST(Events, AreReadInTheOrderInWhichTheyWereEmitted) {
  const auto stream = std::make_shared<EventStream>();
  stream->emit(numbered(0, "before anyone reads"));
  EventStream::Reader reader(stream);
  Event span(EventKind::kSpanBegin, "loader: next batch");
  span.group = 3;
  stream->emit(numbered(7));
  stream->emit(span);

  Event event;
  ASSERT_TRUE(reader.next(event));
  EXPECT_EQ(event.kind, EventKind::kStep);
  EXPECT_EQ(event.number, 7);
  EXPECT_EQ(event.text(), "");
  const int64_t first_time = event.time_ns;
  ASSERT_TRUE(reader.next(event));
  EXPECT_EQ(event.kind, EventKind::kSpanBegin);
  EXPECT_EQ(event.group, 3);
  EXPECT_EQ(event.number, 0);
  EXPECT_EQ(event.text(), "loader: next batch");
  EXPECT_GE(event.time_ns, first_time);
  EXPECT_FALSE(reader.next(event));
  EXPECT_EQ(reader.lost(), 0U);
}

TEST(Events, TheLastOnesCanBeAskedForAtAnyTime) {
  EventStream stream;
  EXPECT_TRUE(stream.last_events(10).empty());
  for (int i = 0; i < 3; ++i) stream.emit(numbered(i, "event " + std::to_string(i)));
  EXPECT_THAT(texts_of(stream.last_events(2)), ElementsAre("event 1", "event 2"));
  EXPECT_THAT(texts_of(stream.last_events(10)), ElementsAre("event 0", "event 1", "event 2"));
  for (size_t i = 0; i < 2 * EventStream::kCapacity; ++i) stream.emit(numbered(7));
  EXPECT_EQ(stream.last_events(2 * EventStream::kCapacity).size(), EventStream::kCapacity);
}

TEST(Events, KnowTheThreadsThatEmittedThem) {
  const auto stream = std::make_shared<EventStream>();
  EventStream::Reader reader(stream);
  stream->emit(numbered(1));
  stream->emit(numbered(2));
  std::thread([&] { stream->emit(numbered(3)); }).join();
  Event one, two, three;
  ASSERT_TRUE(reader.next(one) && reader.next(two) && reader.next(three));
  EXPECT_EQ(one.thread, two.thread);
  EXPECT_NE(one.thread, three.thread);
}

TEST(Events, TextIsPutTogetherAndCutWhereItIsTooLong) {
  Event event(EventKind::kCollectiveBegin, "broadcast from ");
  event.append(int64_t{-12}).append(" Float[").append(int64_t{3}).append("]");
  EXPECT_EQ(event.text(), "broadcast from -12 Float[3]");

  Event exact(EventKind::kStep, std::string(Event::kMostText, 'x'));
  EXPECT_EQ(exact.text(), std::string(Event::kMostText, 'x'));
  exact.append("y");
  EXPECT_EQ(exact.text(), std::string(Event::kMostText - 3, 'x') + "...");
}

TEST(Events, AReaderThatFallsBehindCountsWhatPassedUnseen) {
  const auto stream = std::make_shared<EventStream>();
  EventStream::Reader reader(stream);
  constexpr int64_t kEmitted = EventStream::kCapacity + 5;
  for (int64_t i = 0; i < kEmitted; ++i) stream->emit(numbered(i));
  Event event;
  ASSERT_TRUE(reader.next(event));
  EXPECT_EQ(event.number, 5);
  EXPECT_EQ(reader.lost(), 5U);
  int64_t last = event.number;
  while (reader.next(event)) EXPECT_EQ(event.number, ++last);
  EXPECT_EQ(last, kEmitted - 1);
}

// A text that a torn copy would not have: the number again and again.
std::string text_of_number(int64_t number) {
  std::string text;
  for (int i = 0; i < 1 + number % 17; ++i) text += std::to_string(number) + ",";
  return text;
}

constexpr int kWriters = 8;
constexpr int kReaders = 2;
constexpr int64_t kEach = 20000;

struct Witness {
  uint64_t seen = 0;
  uint64_t lost = 0;
  uint64_t torn = 0;
  uint64_t out_of_order = 0;
};

// Until `done` holds and nothing is left.
Witness watch_stream(EventStream::Reader reader, const std::atomic<bool>& done) {
  Witness witness;
  std::map<uint16_t, int64_t> latest;
  while (true) {
    const bool was_done = done;
    Event event;
    while (reader.next(event)) {
      ++witness.seen;
      if (event.text() != text_of_number(event.number)) ++witness.torn;
      const auto [place, is_new] = latest.emplace(event.group, event.number);
      if (!is_new && place->second >= event.number) ++witness.out_of_order;
      place->second = event.number;
    }
    if (was_done) break;
    std::this_thread::yield();
  }
  witness.lost = reader.lost();
  return witness;
}

TEST(Events, EightWritersAndTwoReadersNeverSeeHalfAnEvent) {
  const auto stream = std::make_shared<EventStream>();
  std::atomic<bool> done = false;
  std::vector<Witness> witnesses(kReaders);
  std::vector<std::thread> readers;
  for (Witness& witness : witnesses) {
    readers.emplace_back([&witness, &done, reader = EventStream::Reader(stream)] {
      witness = watch_stream(reader, done);
    });
  }
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&stream, writer] {
      for (int64_t i = 0; i < kEach; ++i) {
        Event event = numbered(i, text_of_number(i));
        event.group = static_cast<uint16_t>(writer);
        stream->emit(event);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (const Witness& witness : witnesses) {
    EXPECT_EQ(witness.torn, 0U);
    EXPECT_EQ(witness.out_of_order, 0U);
    EXPECT_GT(witness.seen, 0U);
    EXPECT_EQ(witness.seen + witness.lost, static_cast<uint64_t>(kWriters * kEach));
  }
}

TEST(Events, TheBoardShowsWhatGoesOnTheOldestFirst) {
  EventStream stream;
  const int first = stream.open_line();
  const int second = stream.open_line();
  const int empty = stream.open_line();
  stream.show(second, Event(EventKind::kWaitBegin, "all_reduce"));
  stream.show(first, Event(EventKind::kCollectiveBegin, "barrier"));
  EXPECT_THAT(texts_of(stream.board()), ElementsAre("all_reduce", "barrier"));

  stream.show_as(first, EventKind::kCollectiveEnd);
  Event event;
  ASSERT_TRUE(stream.read_line(first, event));
  EXPECT_EQ(event.kind, EventKind::kCollectiveEnd);
  EXPECT_EQ(event.text(), "barrier");
  EXPECT_FALSE(stream.read_line(empty, event));
  stream.show_as(empty, EventKind::kCollectiveEnd);
  EXPECT_FALSE(stream.read_line(empty, event));

  stream.close_line(second);
  EXPECT_THAT(texts_of(stream.board()), ElementsAre("barrier"));
  const int again = stream.open_line();
  EXPECT_EQ(again, second);
  EXPECT_FALSE(stream.read_line(again, event));
}

TEST(Events, ABoardWithoutAFreeLineShowsWhatItHas) {
  EventStream stream;
  for (int line = 0; line < EventStream::kLines; ++line) {
    ASSERT_EQ(stream.open_line(), line);
  }
  const int none = stream.open_line();
  EXPECT_EQ(none, EventStream::kNoLine);
  stream.show(none, Event(EventKind::kWaitBegin, "nowhere"));
  stream.show_as(none, EventKind::kWaitEnd);
  Event event;
  EXPECT_FALSE(stream.read_line(none, event));
  stream.close_line(none);
  EXPECT_TRUE(stream.board().empty());
  stream.close_line(70);
  EXPECT_EQ(stream.open_line(), 70);
}

// Events to choose from: made before, so that the threads do nothing but write and read.
std::vector<Event> prepared_events() {
  std::vector<Event> events;
  for (int64_t i = 0; i < 64; ++i) events.push_back(numbered(i, text_of_number(i)));
  return events;
}

TEST(Events, EightThreadsThatUseTheBoardNeverShowHalfALine) {
  EventStream stream;
  const std::vector<Event> events = prepared_events();
  std::atomic<bool> done = false;
  std::vector<Witness> witnesses(kReaders);
  const auto look_at = [&](Witness& witness, const Event& event) {
    const Event& whole = events[static_cast<size_t>(event.number) % events.size()];
    if (event.text() != whole.text()) ++witness.torn;
    ++witness.seen;
  };
  std::vector<std::thread> readers;
  for (Witness& witness : witnesses) {
    readers.emplace_back([&] {
      while (!done) {
        for (const Event& event : stream.board()) look_at(witness, event);
        Event event;
        for (int i = 0; i < 1000; ++i) {
          if (stream.read_line(i % (2 * kWriters), event)) look_at(witness, event);
        }
      }
    });
  }
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&] {
      const int own = stream.open_line();
      for (int64_t i = 0; i < kEach; ++i) {
        stream.show(own, events[static_cast<size_t>(i) % events.size()]);
        const int passing = stream.open_line();
        stream.show(passing, events[static_cast<size_t>(i + 7) % events.size()]);
        stream.close_line(passing);
        stream.show_as(own, EventKind::kCheckpointEnd);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (const Witness& witness : witnesses) EXPECT_EQ(witness.torn, 0U);
  EXPECT_EQ(stream.board().size(), static_cast<size_t>(kWriters));
}

TEST(Events, ASpanIsShownWhileItLastsAndItsEndsAreEmitted) {
  const auto stream = std::make_shared<EventStream>();
  EventStream::Reader reader(stream);
  {
    const EventSpan span(stream, EventKind::kCheckpointBegin, "save a");
    ASSERT_EQ(stream->board().size(), 1U);
    EXPECT_EQ(stream->board()[0].kind, EventKind::kCheckpointBegin);
    EXPECT_EQ(stream->board()[0].text(), "save a");
  }
  EXPECT_TRUE(stream->board().empty());
  Event begin, end, none;
  ASSERT_TRUE(reader.next(begin) && reader.next(end));
  EXPECT_EQ(begin.kind, EventKind::kCheckpointBegin);
  EXPECT_EQ(end.kind, EventKind::kCheckpointEnd);
  EXPECT_EQ(end.text(), "save a");
  EXPECT_FALSE(reader.next(none));
}

TEST(Events, TheEndOfASpanSaysWhetherItWentWell) {
  const auto stream = std::make_shared<EventStream>();
  EventStream::Reader reader(stream);
  const auto outcome_of_last = [&] {
    Event last;
    for (Event event; reader.next(event);) last = event;
    EXPECT_EQ(last.kind, EventKind::kCheckpointEnd);
    return last.outcome();
  };
  { const EventSpan well(stream, EventKind::kCheckpointBegin, "save a"); }
  EXPECT_EQ(outcome_of_last(), EventOutcome::kWell);
  try {
    const EventSpan failed(stream, EventKind::kCheckpointBegin, "save b");
    throw std::runtime_error("disk full");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(outcome_of_last(), EventOutcome::kFailed);
    // A span that is whole while another exception is handled has not failed.
    { const EventSpan well(stream, EventKind::kCheckpointBegin, "save c"); }
    EXPECT_EQ(outcome_of_last(), EventOutcome::kWell);
  }
}

// Ends while an exception is on its way that has nothing to do with it.
struct SavesWhenItGoes {
  std::shared_ptr<EventStream> stream;
  ~SavesWhenItGoes() {
    const EventSpan well(stream, EventKind::kCheckpointBegin, "save at the end");
  }
};

TEST(Events, ASpanInsideOfWhatAnExceptionDestroysMayGoWell) {
  const auto stream = std::make_shared<EventStream>();
  EventStream::Reader reader(stream);
  EXPECT_THROW(
      {
        const SavesWhenItGoes saves{stream};
        throw std::runtime_error("disk full");
      },
      std::runtime_error);
  Event begin, end;
  ASSERT_TRUE(reader.next(begin) && reader.next(end));
  EXPECT_EQ(end.outcome(), EventOutcome::kWell);
}

TEST(Events, GroupsGetNumbersInTurn) {
  EventStream stream;
  EXPECT_EQ(stream.open_group(), 0);
  EXPECT_EQ(stream.open_group(), 1);
}

}  // namespace
}  // namespace accelerate
