#!/usr/bin/env python3
"""The live page in a headless Chromium: what it draws, live, in light and dark, on a phone, by keyboard.

With PICTURES=folder it also writes the pictures of docs/monitor.md there.
"""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from browser import Browser, find_chromium  # noqa: E402

READY = "document.body && document.body.dataset.ready === 'true' && document.querySelectorAll('#values .chart path').length > 0"


@unittest.skipUnless(find_chromium(), "there is no Chromium: apt-get install chromium")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="accelerate-runs-")
        subprocess.run([os.environ["SAMPLE_RUN"], cls.folder.name], check=True, timeout=120)
        cls.server = subprocess.Popen([os.environ["ACCELERATE_PROGRAM"], "monitor", cls.folder.name, "--listen", "127.0.0.1:0"],
                                      stdout=subprocess.PIPE, text=True)
        cls.url = cls.server.stdout.readline().strip()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.terminate()
        cls.server.wait(30)
        cls.server.stdout.close()
        cls.folder.cleanup()

    def open(self, runs="gpt2-cosine", **how):
        self.browser.events.clear()
        # A page that only differs behind the # would not be loaded again.
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.show(f"{self.url}#runs={runs}", **how)
        self.browser.wait_for(READY)

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")

    def picture(self, name, whole=False):
        if "PICTURES" in os.environ:
            time.sleep(1)  # meters move
            self.browser.picture(Path(os.environ["PICTURES"]) / f"{name}.png", whole)

    def test_everything_of_a_run_is_there(self):
        self.open(width=1200, height=2040)
        self.assertEqual(self.text("#run-name"), "gpt2-cosine")
        self.assertEqual(self.text("#run-state"), "running")
        for name in ("loss", "learning_rate", "eval/perplexity", "Step time", "Samples a second, all ranks"):
            self.assertIn(name, self.text("main"))
        self.assertIn("waits in backward (all_reduce", self.text("#ranks"))
        self.assertIn("GPU 1 · NVIDIA H200", self.text("#devices"))
        self.assertIn("save_state checkpoints/checkpoint_4", self.text("#checkpoints"))
        self.assertIn("cluster.yaml:7", self.text("#settings"))
        self.assertNotIn("grace_period", self.text("#settings"))
        self.assertEqual(self.browser.problems(), [])
        self.picture("light")

    def test_it_is_dark_where_the_system_is(self):
        self.open(width=1200, height=900, dark=True)
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "dark")
        ground = self.browser.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(ground, "rgb(16, 18, 23)")
        self.picture("dark")
        self.browser.evaluate("document.getElementById('theme').click()")
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "light")
        self.browser.evaluate("localStorage.clear()")

    def test_a_phone_shows_it_without_scrolling_sideways(self):
        self.open(width=390, height=844, scale=1.5, is_phone=True)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 390)
        self.picture("phone")
        self.browser.evaluate("document.getElementById('ranks-part').scrollIntoView()")
        self.picture("phone_ranks")

    def test_runs_stand_side_by_side(self):
        self.open("gpt2-cosine,gpt2-constant,gpt2-large-steps", width=1200, height=900)
        self.browser.wait_for("document.querySelectorAll('#values figure:first-child path.curve').length === 3")
        self.assertIn("3 runs", self.text("#runs-label"))
        self.assertIn("differs", self.text("#settings"))
        self.picture("runs")

    def test_it_follows_a_run(self):
        folder = Path(self.folder.name)
        with tempfile.TemporaryDirectory(prefix="accelerate-live-") as live:
            writer = subprocess.Popen([os.environ["SAMPLE_RUN"], live, "12"])
            self.addCleanup(writer.wait, 60)
            deadline = time.monotonic() + 60
            # The last file of all that it opens.
            while not (Path(live) / "gpt2-cosine/rank_3-001.rec").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            os.rename(Path(live) / "gpt2-cosine", folder / "live")
            time.sleep(6)  # names are looked up every five seconds
            self.open("live")
            before = int(self.text("#tiles .tile:nth-child(2) .number").replace(" ", ""))
            self.browser.wait_for("document.getElementById('ranks').innerText.includes('waits in backward')")
            after = int(self.text("#tiles .tile:nth-child(2) .number").replace(" ", ""))
            self.assertGreater(after, before)
            self.assertEqual(writer.wait(60), 0)

    def test_the_keyboard_reads_a_chart(self):
        self.open()
        self.browser.evaluate("document.querySelector('#values .chart svg').focus()")
        self.assertIn("loss: 2.9", self.browser.evaluate("document.activeElement.getAttribute('aria-label')"))
        self.browser.press("Home")
        self.browser.wait_for("!document.querySelector('.tip').hidden")
        self.assertIn("step 0", self.text(".tip"))
        self.browser.press("ArrowRight")
        self.assertIn("step 1 ", self.text(".tip"))
        self.browser.press("Escape")
        self.assertTrue(self.browser.evaluate("document.querySelector('.tip').hidden"))

    def test_last_lines_open_and_settings_are_found(self):
        self.open()
        self.browser.evaluate("document.querySelector('#ranks .open-lines').click()")
        self.browser.wait_for("document.querySelector('#ranks pre.lines')?.innerText.includes('rank 0  batch of 32')")
        self.browser.evaluate("{ const find = document.getElementById('settings-find'); find.value = 'grace'; find.dispatchEvent(new Event('input')); }")
        self.browser.wait_for("document.querySelectorAll('#settings tbody tr').length === 1")
        self.assertIn("grace_period", self.text("#settings"))

    def test_everything_has_a_name_for_screen_readers(self):
        self.open()
        nameless = self.browser.evaluate("""[...document.querySelectorAll('button, input, a, svg[role=img], summary')]
            .filter((node) => !node.hidden && !(node.getAttribute('aria-label') || node.innerText?.trim() || node.labels?.[0]?.innerText.trim() || node.labels?.[0]?.textContent.trim()))
            .map((node) => node.outerHTML.slice(0, 120))""")
        self.assertEqual(nameless, [])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('h1').length"), 1)

    def test_texts_of_a_run_are_not_markup(self):
        self.open()
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('main script, main iframe').length"), 0)
        blocked = self.browser.evaluate("""new Promise((done) => {
            document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
            const image = document.createElement('img'); image.setAttribute('onerror', 'window.broken = 1'); image.src = 'x';
            document.body.append(image); setTimeout(() => done(window.broken ? 'ran' : 'nothing'), 3000); })""")
        self.assertIn(blocked, ("script-src-attr", "nothing"))


if __name__ == "__main__":
    unittest.main()
