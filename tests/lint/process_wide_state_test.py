"""docs/architecture.md lists every file of src that keeps state for the whole process or for a thread, and no other."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
TITLE = "## State of the whole process"

# A variable at the scope of a file or a function that outlives the call. Values that are computed once and never change
# are none, unless they follow from the environment.
STATE = re.compile(
    r"^\s*(?:"
    r"(?:static\s+|inline\s+)*thread_local\s"
    r"|static\s+(?!const\b|constexpr\b|inline\b)[^(;={]*\w\s*[;={]"
    r"|static\s+const\s[^(;={]*=.*environment"
    r"|(?:std::atomic<\w+>|volatile sig_atomic_t)\s+\w+\s*[={]"
    r")"
)


def is_member(line: str):
    """Members of classes are indented and have no static."""
    return line.startswith(" ") and "static" not in line and "thread_local" not in line


def files_with_state():
    found = set()
    for path in (ROOT / "src").rglob("*"):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if STATE.match(line) and not is_member(line) and not line.lstrip().startswith("static_assert"):
                found.add(path.relative_to(ROOT / "src").as_posix())
    return found


def listed_files():
    section = PAGE.read_text(encoding="utf-8").split(TITLE, 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"`([\w/]+/\w+\.(?:cpp|h|cu|cuh))`", section))


class ProcessWideState(unittest.TestCase):
    def test_the_pattern_sees_what_it_should(self):
        for line in (
            "static std::mutex mutex;",
            "  static auto& plans = *new std::map<Shape, Plan>();",
            "  thread_local at::Generator generator = make();",
            "thread_local int kept = 0;",
            "std::atomic<bool> launch_under_way{false};",
            '  static const bool on = environment_flag("X");',
            "  static std::array<Watched, kSignals> all;",
        ):
            self.assertTrue(STATE.match(line) and not is_member(line), line)
        for line in (
            "  static RankEnvironment read(const EnvironmentLookup& lookup);",
            "  static constexpr size_t kDeepest = 64;",
            "  static const FlagTable table = [] {",
            "static void update(int value) {",
            "  std::atomic<unsigned> count{0};",
            "  static StoreEnd end_of_store(std::optional<StoreState> end) {",
        ):
            self.assertFalse(STATE.match(line) and not is_member(line), line)

    def test_the_page_lists_all_of_it(self):
        self.assertEqual(sorted(files_with_state() - listed_files()), [])

    def test_the_page_lists_nothing_else(self):
        by_hand = {"comm/groups/communicator_impl.cpp"}  # the handler of a signal
        self.assertEqual(sorted(listed_files() - files_with_state() - by_hand), [])


if __name__ == "__main__":
    unittest.main()
