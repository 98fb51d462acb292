"""scripts/check_rooms.py names each wrong include of a small tree, and nothing in a right one."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from rooms import Map, MapError  # noqa: E402


def room(*may_include, libtorch="yes", area="library"):
    return {"holds": "things", "area": area, "libtorch": libtorch, "may_include": list(may_include)}


ROOMS = {
    "base": room(libtorch="no"),
    "files": room("files/durable", libtorch="no"),
    "files/durable": {"holds": "bytes", "may_include": []},
    "compat": room(libtorch="internals"),
    "comm": room("compat"),
    "data": room("files"),
    "core": room("comm"),
    "launch": room(libtorch="no"),
    "cli": room("launch", libtorch="no"),
}
HEADERS = {"CLI11": {"begin": ["CLI/"], "rooms": ["cli"]}}
RIGHT = {
    "include/accelerate/errors.h": "#include <string>\n",
    "include/accelerate/batch.h": '#include <ATen/core/Tensor.h>\n#include "accelerate/errors.h"\n',
    "src/compat/c10d.h": "#include <torch/csrc/distributed/c10d/Store.hpp>\n",
    "src/base/environment.h": "#include <string>\n",
    "src/files/text.h": '#include "files/durable/file.h"\n',
    "src/files/durable/file.h": "#include <string>\n",
    "src/data/rows.h": '#include "files/durable/file.h"\n',
    "src/comm/group.h": '#include "accelerate/batch.h"\n#include "base/environment.h"\n#include "compat/c10d.h"\n',
    "src/core/accelerator.cpp": '#include "comm/group.h"\n',
    "src/launch/plan.h": "#include <accelerate/errors.h>\n",
    "src/cli/main.cpp": '#include <CLI/CLI.hpp>\n#include "launch/plan.h"\n',
}
MARKS = "<!-- rooms: made by scripts/draw_rooms.py from rooms.json -->\n<!-- end of rooms -->\n"


def map_text(rooms=(), headers=()):
    return json.dumps(
        {"areas": {"library": "all", "shared": "below"}, "rooms": {**ROOMS, **dict(rooms)}, "headers": {**HEADERS, **dict(headers)}}
    )


class CheckRooms(unittest.TestCase):
    def run_on(self, extra, drawn=True):
        """Runs the check on the right tree with `extra` in it, whose map is `drawn` before."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"docs/rooms.json": map_text(), **RIGHT, **extra}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            if drawn:  # a map that is refused cannot be
                subprocess.run([sys.executable, SCRIPTS / "draw_rooms.py", folder], capture_output=True, timeout=60)
            result = subprocess.run(
                [sys.executable, SCRIPTS / "check_rooms.py", folder], capture_output=True, text=True, timeout=60
            )
            return result.returncode, result.stdout.splitlines()

    def assert_refused(self, path, text, finding):
        self.assertEqual(self.run_on({path: text}), (1, [f"{path}:1: {finding}"]))

    def assert_map_refused(self, text, finding, sources=()):
        self.assertEqual(self.run_on({"docs/rooms.json": text, **dict(sources)}), (1, [f"docs/rooms.json:1: {finding}"]))

    def test_right_tree_passes(self):
        status, lines = self.run_on({})
        self.assertEqual((status, lines), (0, ["every include points the way that the rooms allow"]))

    def test_upward_include_is_refused(self):
        self.assertEqual(
            self.run_on({"src/core/state.h": "", "src/comm/store.cpp": '#include "core/state.h"\n'}),
            (1, ['src/comm/store.cpp:1: src/comm must not include "core/state.h" (it may include base, compat)']),
        )

    def test_folders_of_a_room_point_one_way(self):
        self.assert_refused(
            "src/files/durable/lock.cpp",
            '#include "files/text.h"\n',
            'src/files/durable must not include "files/text.h" (it may include base)',
        )

    def test_internal_header_outside_compat_is_refused(self):
        name = "torch/csrc/distributed/c10d/Store.hpp"
        self.assert_refused("src/data/x.cpp", f"#include <{name}>\n", f"only src/compat may include <{name}>")

    def test_launcher_that_reaches_libtorch_through_a_public_header_is_refused(self):
        self.assert_refused(
            "src/launch/run.cpp",
            '#include "accelerate/batch.h"\n',
            "src/launch must not know libtorch: accelerate/batch.h -> ATen/core/Tensor.h",
        )

    def test_a_room_in_another_knows_libtorch_as_that_does(self):
        self.assert_refused(
            "src/files/durable/x.h",
            "#include <c10/util/Exception.h>\n",
            "src/files/durable must not know libtorch: c10/util/Exception.h",
        )

    def test_whole_of_torch_in_a_public_header_is_refused(self):
        self.assert_refused(
            "include/accelerate/model.h",
            "#include <torch/torch.h>\n",
            "a public header must not include <torch/torch.h>: name the headers that it uses",
        )

    def test_third_party_in_a_public_header_is_refused(self):
        self.assert_refused(
            "include/accelerate/config.h",
            "#include <nlohmann/json.hpp>\n",
            "a public header must not include <nlohmann/json.hpp>: users need std and libtorch alone",
        )

    def test_a_library_outside_its_rooms_is_refused(self):
        self.assert_refused("src/launch/x.cpp", "#include <CLI/CLI.hpp>\n", "<CLI/CLI.hpp> belongs into src/cli")

    def test_unknown_room_is_refused(self):
        for name in ("utils", "files/other"):
            self.assert_refused(f"src/{name}/x.h", "", f"src/{name} is not a room of docs/rooms.json")

    def test_example_that_uses_a_room_is_refused(self):
        self.assert_refused(
            "examples/train.cpp", '#include "comm/group.h"\n', 'an example uses the public API alone, not "comm/group.h"'
        )

    def test_what_the_map_allows_and_nobody_uses_is_refused(self):
        self.assert_map_refused(
            map_text({"core": room("comm", "data")}), "src/core may include data and does not: take the permission away"
        )
        # The wide permission hides behind the narrow one.
        self.assert_map_refused(
            map_text({"data": room("files", "files/durable")}),
            "src/data may include files and does not: take the permission away",
        )
        self.assert_map_refused(
            map_text({"comm": room("compat", libtorch="internals")}),
            "src/comm may name libtorch's internals and does not: take the permission away",
        )
        self.assert_map_refused(
            map_text(headers={"CLI11": {"begin": ["CLI/"], "rooms": ["cli", "launch"]}}),
            "src/launch may name headers of CLI11 and does not: take the permission away",
        )
        self.assert_map_refused(map_text({"empty": room()}), "there is no source in src/empty")

    def test_a_room_of_sixty_files_is_refused(self):
        few = {f"src/core/part_{i}.cpp": "" for i in range(58)}
        self.assertEqual(self.run_on(few)[0], 0)
        many = {**few, "src/core/part_58.cpp": ""}
        finding = "src/core has 60 files: make rooms in it by what they are about"
        self.assertEqual(self.run_on(many), (1, [f"docs/rooms.json:1: {finding}"]))

    def test_a_picture_or_a_table_of_yesterday_is_refused(self):
        old = {"docs/architecture.md": f"# Rooms\n{MARKS}more\n", "docs/architecture.svg": "<svg/>\n"}
        unmarked = {"docs/architecture.md": "# Rooms\n"}  # and no picture
        for tree in (old, unmarked, {}):
            status, lines = self.run_on(tree, drawn=False)
            self.assertEqual(status, 1)
            self.assertEqual(
                lines,
                [
                    f"docs/architecture.{kind}:1: does not show what docs/rooms.json says: run scripts/draw_rooms.py"
                    for kind in ("md", "svg")
                ],
            )
            status, _ = self.run_on(tree)
            self.assertEqual(status, 0)


class TheMap(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "docs").mkdir()
            (Path(folder) / "docs/rooms.json").write_text(text)
            return Map(Path(folder))

    def test_rooms_in_a_circle_are_refused(self):
        with self.assertRaisesRegex(MapError, "files -> files/durable -> files"):
            self.read(map_text({"files/durable": {"holds": "bytes", "may_include": ["files"]}}))

    def test_names_of_rooms_that_are_not_there_are_refused(self):
        with self.assertRaisesRegex(MapError, "core may not name nothing"):
            self.read(map_text({"core": room("nothing")}))

    def test_from_outside_a_name_stands_for_all_in_it(self):
        rooms = self.read(map_text())
        self.assertEqual(rooms.permission("data", "files/durable"), "files")
        self.assertEqual(rooms.permission("files", "files/durable"), "files/durable")
        self.assertIsNone(rooms.permission("files/durable", "files"))


if __name__ == "__main__":
    unittest.main()
