#!/usr/bin/env python3
"""The whole documentation site, opened as files in a headless Chromium: search, choices of loops, light and dark, a phone.

With PICTURES=folder it also writes pictures of some pages there.
"""

import html
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("tests/monitor", "tests/lint", "scripts")]
from browser import Browser, find_chromium  # noqa: E402
from docs_site import loops  # noqa: E402
from public_names_test import public_names  # noqa: E402


@unittest.skipUnless(find_chromium(), "there is no Chromium: apt-get install chromium")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="accelerate-site-")
        cls.site = Path(cls.folder.name) / "site"
        # Fails where a link is broken, those to the API reference included.
        subprocess.run([sys.executable, REPOSITORY / "scripts/build_site.py", "--out", cls.site], check=True, timeout=300)
        cls.browser = Browser()
        cls.browser.call("Network.enable")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def open(self, page, **how):
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.show((self.site / page.split("#")[0]).as_uri() + "".join("#" + part for part in page.split("#")[1:]), **how)
        self.browser.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")

    def picture(self, name):
        if "PICTURES" in os.environ:
            time.sleep(0.5)
            self.browser.picture(Path(os.environ["PICTURES"]) / f"{name}.png")

    def type_search(self, words):
        self.browser.evaluate("{ const find = document.getElementById('search-text'); find.value = " + json.dumps(words)
                              + "; find.dispatchEvent(new Event('input')); }")

    def test_every_page_fits_a_phone_and_loads_nothing_from_elsewhere(self):
        self.browser.events.clear()
        self.browser.show("about:blank", width=390, height=844, is_phone=True)
        for path in sorted(self.site.rglob("*.html")):
            page = path.relative_to(self.site).as_posix()
            with self.subTest(page):
                self.browser.call("Page.navigate", url=path.as_uri())
                self.browser.wait_for(f"location.pathname.endsWith({page!r}) && document.readyState === 'complete'")
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 390)
                self.assertEqual(self.browser.evaluate("document.getElementById('main').clientWidth"), 390)
                self.assertEqual(self.browser.evaluate("document.querySelectorAll('h1').length"), 1)
        asked = {event["params"]["request"]["url"] for event in self.browser.events if event["method"] == "Network.requestWillBeSent"}
        self.assertEqual([url for url in asked if not url.startswith(("file:", "data:", "about:"))], [])
        self.assertEqual(self.browser.problems(), [])

    def test_the_search_leads_to_a_name_by_keyboard_alone(self):
        self.open("training.html", width=1360, height=900)
        self.browser.press("/")
        self.browser.wait_for("document.getElementById('search').open && window.searchIndex")
        self.type_search("clip_grad_norm_")
        self.browser.wait_for("document.querySelectorAll('#search-results li').length > 3")
        self.assertIn("Accelerator::clip_grad_norm_", self.text("#search-results li"))
        self.picture("search")
        self.browser.press("Enter")
        self.browser.wait_for("location.pathname.endsWith('/api/accelerator.html') && document.readyState === 'complete'")
        self.assertIn("clip_grad_norm_", self.text(":target"))

    def test_the_search_finds_words_of_texts_and_says_when_there_are_none(self):
        self.open("api/index.html", width=1360, height=900)
        self.browser.evaluate("document.getElementById('search-open').click()")
        self.browser.wait_for("window.searchIndex")
        self.type_search("short last window")
        self.browser.wait_for("document.querySelectorAll('#search-results li').length > 0")
        self.assertIn("The short last window", self.text("#search-results li"))
        self.type_search("<b>zzzzq")
        self.assertEqual(self.text("#search-state"), "Nothing was found.")

    def test_light_and_dark(self):
        self.open("index.html", width=1360, height=900, dark=True)
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "dark")
        self.picture("dark")
        self.browser.evaluate("document.getElementById('theme').click()")
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "light")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        self.browser.evaluate("localStorage.clear()")
        self.picture("light")

    def test_the_page_composes_the_loops_that_the_tests_compile(self):
        self.open("migrate.html", width=1360, height=900)
        lines = loops.read_lines()
        shown = self.browser.evaluate("""(() => {
            const all = {};
            for (let bits = 0; bits < 1 << window.loop.options.length; ++bits) {
              const names = window.loop.options.filter((_, at) => bits & (1 << at));
              all[names.join(' ')] = ['before', 'after'].map((side) => window.composeLoop(names, side));
            }
            return all; })()""")
        self.assertEqual(len(shown), 1 << len(loops.OPTIONS))
        for names, programs in shown.items():
            expected = ["\n".join(loops.compose(lines, set(names.split()), side)) for side in ("before", "after")]
            self.assertEqual(programs, expected, names)
        sizes = range(len(loops.OPTIONS) + 1)
        self.assertEqual(set(shown), {" ".join(some) for size in sizes for some in itertools.combinations(loops.OPTIONS, size)})

    def test_boxes_change_the_loop_and_the_command(self):
        self.open("migrate.html", width=1360, height=900)
        self.assertIn("accelerate::Accelerator accelerator;", self.text("#loop-lines"))
        self.assertEqual(self.text("#command").split()[0], "./train")
        for name in ("clipping", "sharding"):
            self.browser.evaluate(f"document.querySelector('[name={name}]').click()")
        self.assertEqual(self.browser.evaluate("document.getElementById('needs').elements.where.value"), "gpus")
        self.assertIn("ZeroOptions{.stage = 2}", self.text("#loop-lines"))
        self.assertIn("accelerator.clip_grad_norm_(model->parameters(), 1.0);", self.text("#loop-lines"))
        self.assertIn("accelerate launch --num_processes 4 ./train", self.text("#command"))
        self.assertEqual(self.browser.evaluate("location.hash"), "#clipping,sharding,gpus")
        # What differs is marked, and what is shown on each side is the whole program.
        sides = self.browser.evaluate("""[...'01'].map((side) => [...document.querySelectorAll('#loop-lines .rows')]
            .flatMap((group) => [...group.children].filter((_, at) => at % 2 == side))
            .filter((cell) => !cell.classList.contains('none')).map((cell) => cell.querySelector('code').textContent.trimEnd()).join('\\n'))""")
        chosen = {"clipping", "sharding", "several"}
        for side, text in zip(("before", "after"), sides):
            self.assertEqual(text, "\n".join(loops.compose(loops.read_lines(), chosen, side)))
        self.browser.evaluate("document.querySelector('[value=one]').click()")
        self.assertFalse(self.browser.evaluate("document.querySelector('[name=sharding]').checked"))

    def test_the_launcher_takes_the_commands(self):
        for where in ("gpus", "machines"):
            self.open(f"migrate.html#{where}", width=1360, height=900)
            command = self.text("#command").replace("\\\n", " ")
            words = shlex.split(next(line for line in command.splitlines() if line.startswith("accelerate")))
            words[:2] = [os.environ["ACCELERATE_PROGRAM"], "launch", "--dry_run"]
            words[words.index("./train")] = "/bin/true"
            result = subprocess.run(words, capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"WORLD_SIZE={4 if where == 'gpus' else 8}", result.stdout)

    def test_a_choice_can_be_linked_to(self):
        self.open("migrate.html#tracking,machines", width=1360, height=900)
        self.assertTrue(self.browser.evaluate("document.querySelector('[name=tracking]').checked"))
        self.assertIn("--num_machines 2 --machine_rank 0", self.text("#command"))
        self.assertIn("tensorboard", self.text("#command"))
        self.picture("migrate")

    def test_notes_lead_to_parts_of_pages(self):
        for where in ("gpus", "machines"):
            self.open(f"migrate.html#{','.join(loops.OPTIONS)},{where}", width=1360, height=900)
            links = self.browser.evaluate("[...document.querySelectorAll('#notes a')].map((link) => link.getAttribute('href'))")
            self.assertGreaterEqual(len(links), 7)
            for link in links:
                page, _, anchor = link.partition("#")
                self.assertIn(f'id="{anchor}"' if anchor else "<article>", (self.site / page).read_text(encoding="utf-8"), link)

    def test_a_phone_shows_old_lines_above_new_ones(self):
        self.open("migrate.html#clipping", width=390, height=844, scale=1.5, is_phone=True)
        order = self.browser.evaluate("""['net->to(device);', 'adamw.step();', 'optimizer.step();'].map((text) =>
            [...document.querySelectorAll('.cell')].find((cell) => cell.innerText.includes(text)).getBoundingClientRect().top)""")
        self.assertEqual(order, sorted(order))
        self.browser.evaluate("document.getElementById('menu').click()")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.getElementById('pages')).display"), "block")

    def test_a_pasted_message_is_found(self):
        self.open("messages.html", width=1360, height=900)
        self.browser.evaluate("""{ const printed = document.getElementById('printed');
            printed.value = '[rank 0 of 4] CommError: ranks 2 and 3 did not join within 30 s (2 of 4 are here)\\n  at   rendezvous';
            printed.dispatchEvent(new Event('input')); }""")
        self.assertIn("did not join", self.text("#which a"))

    def test_the_reference_has_every_public_name(self):
        pages = "".join(path.read_text(encoding="utf-8") for path in (self.site / "api").glob("*.html"))
        words = set(re.findall(r"\w+", html.unescape(re.sub(r"<[^>]+>", "", pages))))
        missing = public_names() - words
        # The pattern takes some variables of inline functions for declarations.
        self.assertLess(len(missing), 8, missing)

    def test_names_in_pages_lead_to_the_reference(self):
        self.open("training.html", width=1360, height=900)
        self.assertTrue(self.browser.evaluate("[...document.querySelectorAll('.code a')].some((link) => link.href.endsWith('/api/accelerator.html#Accelerator::backward'))"))
        self.assertTrue(self.browser.evaluate("[...document.querySelectorAll('a.name')].some((link) => link.href.endsWith('/api/accelerator.html#Accelerator'))"))

    def test_everything_has_a_name_for_screen_readers(self):
        for page in ("index.html", "migrate.html", "api/zero.html", "messages.html"):
            self.open(page, width=1360, height=900)
            nameless = self.browser.evaluate("""[...document.querySelectorAll('button, input, textarea, a, summary')]
                .filter((node) => !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.[0]?.textContent.trim() || node.querySelector('img')?.alt))
                .map((node) => node.outerHTML.slice(0, 120))""")
            self.assertEqual(nameless, [], page)


if __name__ == "__main__":
    unittest.main()
