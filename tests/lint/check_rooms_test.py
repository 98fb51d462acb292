"""scripts/check_rooms.py names each wrong include of a small tree, and nothing in a right one."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/check_rooms.py"

RIGHT = {
    "include/accelerate/errors.h": "#include <string>\n",
    "include/accelerate/batch.h": '#include <ATen/core/Tensor.h>\n#include "accelerate/errors.h"\n',
    "src/compat/c10d.h": "#include <torch/csrc/distributed/c10d/Store.hpp>\n",
    "src/base/environment.h": "#include <string>\n",
    "src/comm/group.h": '#include "accelerate/batch.h"\n#include "base/environment.h"\n#include "compat/c10d.h"\n',
    "src/core/accelerator.cpp": '#include "comm/group.h"\n',
    "src/launch/plan.h": "#include <accelerate/errors.h>\n",
    "src/cli/main.cpp": '#include <CLI/CLI.hpp>\n#include "launch/plan.h"\n',
}


class CheckRooms(unittest.TestCase):
    def run_on(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**RIGHT, **extra}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=60)
            return result.returncode, result.stdout.splitlines()

    def assert_refused(self, path, text, finding):
        self.assertEqual(self.run_on({path: text}), (1, [f"{path}:1: {finding}"]))

    def test_right_tree_passes(self):
        status, lines = self.run_on({})
        self.assertEqual((status, lines), (0, ["every include points the way that the rooms allow"]))

    def test_upward_include_is_refused(self):
        self.assertEqual(
            self.run_on({"src/core/state.h": "", "src/comm/store.cpp": '#include "core/state.h"\n'}),
            (1, ['src/comm/store.cpp:1: src/comm must not include "core/state.h" (it may include base, compat)']),
        )

    def test_internal_header_outside_compat_is_refused(self):
        name = "torch/csrc/distributed/c10d/Store.hpp"
        self.assert_refused("src/data/x.cpp", f"#include <{name}>\n", f"only src/compat and src/cuda may include <{name}>")

    def test_launcher_that_reaches_libtorch_through_a_public_header_is_refused(self):
        self.assert_refused(
            "src/launch/run.cpp",
            '#include "accelerate/batch.h"\n',
            "src/launch must not know libtorch: accelerate/batch.h -> ATen/core/Tensor.h",
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

    def test_unknown_room_is_refused(self):
        self.assert_refused("src/utils/x.h", "", "src/utils is not a room that scripts/check_rooms.py knows")

    def test_example_that_uses_a_room_is_refused(self):
        self.assert_refused(
            "examples/train.cpp", '#include "comm/group.h"\n', 'an example uses the public API alone, not "comm/group.h"'
        )


if __name__ == "__main__":
    unittest.main()
