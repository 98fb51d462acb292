#!/usr/bin/env python3
"""accelerate trace: the traces of several ranks as one."""

import json
import unittest

from config_program import ProgramTest


def trace(rank, host, ahead_us):
    """Of a rank whose clock is ahead: eleven exchanges that end at the same moments on all ranks."""
    events = [
        {"ph": "X", "cat": "accelerate_exchange", "name": "backward", "pid": 7, "tid": 1, "ts": 100.0 * i + ahead_us, "dur": 50.0,
         "args": {"group": 0, "exchange": i, "operation": 5}}
        for i in range(11)
    ]  # fmt: skip
    about = {"distributedInfo": {"rank": rank, "world_size": 2}, "accelerate": {"host": host}}
    return json.dumps({**about, "baseTimeNanoseconds": 0, "traceEvents": events})


class Trace(ProgramTest):
    def test_traces_are_merged_and_clocks_brought_together(self):
        (self.folder / "traces").mkdir()
        self.write("traces/profile_0.json", trace(0, "node0", 0))
        self.write("traces/profile_1.json", trace(1, "node1", 812.5))
        result = self.run_program("trace", "merge", "traces")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(
            result.stdout,
            "RANK  HOST   CLOCK AHEAD  EXCHANGES  DEVIATION\n"
            "0     node0       0.0 us          0     0.0 us\n"
            "1     node1     812.5 us         11     0.0 us\n"
            "22 events: traces/profile_merged.json\n",
        )
        merged = json.loads((self.folder / "traces/profile_merged.json").read_text(encoding="utf-8"))
        times = {}
        for event in merged["traceEvents"]:
            times.setdefault(event["args"]["exchange"], set()).add((event["ts"], event["pid"]))
        for number, of_ranks in times.items():
            self.assertEqual({time for time, _ in of_ranks}, {100.0 * number})
            self.assertEqual(len(of_ranks), 2, "a process for each rank")

    def test_the_trace_goes_where_it_is_asked_for(self):
        self.write("profile_0.json", trace(0, "node0", 0))
        self.assertEqual(self.run_program("trace", "merge", ".", "--output", "all.json").returncode, 0)
        self.assertTrue((self.folder / "all.json").exists())
        self.assertFalse((self.folder / "profile_merged.json").exists())

    def test_what_is_not_a_trace_is_named(self):
        self.write("profile_0.json", "{}")
        result = self.run_program("trace", "merge", ".")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("not a trace: it has no list of events\n  at   ./profile_0.json\n", result.stderr)
        self.assertEqual(self.run_program("trace").returncode, 2)


if __name__ == "__main__":
    unittest.main()
