"""The programs of examples/ as pages: what each shows, how it is built and started, its source and the files beside it."""

import html
import re
from pathlib import Path

from .comments import Comments
from .layout import Page
from .markdown import Section

FOLDERS = [
    (".", "The first loop", "A convnet on Fashion-MNIST: a plain loop, and the same one ported."),
    ("by_feature", "One feature each", "Small programs with data that they make themselves: each shows one thing."),
    ("data", "Data", "Streams, token files, and a loader that goes on where it stopped."),
    ("gpt2", "GPT-2", "A language model trained from token files, on one process or many."),
    ("transformers", "Pretrained models", "Fine-tuning, generation and embeddings with checkpoints of Hugging Face."),
    ("notebook", "Without a launcher", "Several processes from inside of a program."),
    ("cluster", "On a cluster", "A script for each way to start: SLURM, MPI, ssh, by hand."),
]
# Where the first sentence of a program does not tell it from another.
ABOUT = {"plain_libtorch": "A convnet in plain libtorch, for one process.", "fashion_mnist": "The same program, with Accelerate."}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
LOADED_BY = re.compile(r"add_executable\((\S+) (\S+)\.cpp\)")


def leading_comment(text):
    """The comment at the top of a source, without its marks; the source without it."""
    lines = text.split("\n")
    count = next((index for index, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return [re.sub(r"^// ?", "", line) for line in lines[:count]], "\n".join(lines[count:])


def first_sentence(text):
    found = re.match(r"(.+?[.!?])(?=\s|$)", " ".join(text.split()))
    return found.group(1) if found else " ".join(text.split())


def target_of(path: Path):
    """The CMake target of a program."""
    for name, stem in LOADED_BY.findall((path.parent / "CMakeLists.txt").read_text()):
        name, stem = (re.sub(r"\$\{example\}", path.stem, text) for text in (name, stem))
        if stem == path.stem:
            return name
    return path.stem


class Examples:
    def __init__(self, repository: Path, renderer, highlighter):
        self.repository, self.renderer, self.highlighter = repository, renderer, highlighter
        self.comments = Comments(highlighter)

    def pages(self):
        """The overview first."""
        found, overview = [], []
        for folder, title, about in FOLDERS:
            entries = self.cluster_pages() if folder == "cluster" else [
                self.program(path) for path in sorted((self.repository / "examples" / folder).glob("*.cpp"),
                                                      key=lambda path: (path.stem != "plain_libtorch", path.stem))]
            found += entries
            overview.append((title, about, entries))
        return [self.overview(overview), *found]

    def overview(self, groups):
        page = Page("examples/index.html", "All examples", "Examples", "Every program of the folder examples, with its source.", "examples")
        page.heading = "Examples"
        parts = ["<h1>Examples</h1>",
                 "<p>Programs to read, to run and to copy from. All are compiled by <code>make build</code> and run by the tests, most of them "
                 "on one process and on two.</p>"]
        for title, about, entries in groups:
            anchor = re.sub(r"\W+", "-", title.lower())
            page.headings.append((2, anchor, title))
            cards = "".join(f'<li><a href="{page.root}{entry.address}"><strong>{html.escape(entry.title)}</strong>'
                            f"<span>{html.escape(entry.about)}</span></a></li>" for entry in entries)
            parts.append(f'<h2 id="{anchor}">{html.escape(title)}</h2>\n<p>{html.escape(about)}</p>\n<ul class="cards">{cards}</ul>')
        page.body = "\n".join(parts)
        page.sections = [Section("", "Examples", " ".join(about for _, about, _ in groups))]
        return page

    def program(self, path: Path):
        source = path.relative_to(self.repository).as_posix()
        comment, code = leading_comment(path.read_text(encoding="utf-8"))
        target = target_of(path)
        page = Page("examples/" + source.removeprefix("examples/").removesuffix(".cpp") + ".html", path.stem.replace("_", " "), "Examples",
                    ABOUT.get(path.stem) or first_sentence(" ".join(comment)), source, kind="example")
        page.heading = path.stem
        build = f"cmake --build --preset release --target {target}\nbuild/bin/{target} --help\n"
        beside = self.beside(path, path.read_text(encoding="utf-8"))
        parts = [f"<h1>{html.escape(path.stem)}</h1>", f'<div class="about">{self.comments.html(comment, page.root)}</div>',
                 f'<h2 id="build">Build it</h2>{self.highlighter.block(build, "sh", page.root)}',
                 f'<h2 id="source">The source</h2>{self.file(source, code.lstrip(), page.root)}']
        page.headings = [(2, "build", "Build it"), (2, "source", "The source")]
        if beside:
            parts.append('<h2 id="beside">Beside it</h2><p>What it includes from this folder.</p>')
            page.headings.append((2, "beside", "Beside it"))
        for name in beside:
            text = (self.repository / name).read_text(encoding="utf-8")
            parts.append(f"<details><summary><code>{html.escape(name)}</code></summary>{self.file(name, text, page.root)}</details>")
        page.body = "\n".join(parts)
        page.sections = [Section("", path.stem, " ".join(comment)), Section("source", f"{path.stem}: the source", code)]
        return page

    def beside(self, path: Path, text):
        """The files of examples/ that a source includes, and those that they include."""
        found = []
        for name in INCLUDE.findall(text):
            other = (path.parent / name).resolve()
            if not other.is_file():
                continue
            source = other.relative_to(self.repository).as_posix()
            found += [entry for entry in [source, *self.beside(other, other.read_text(encoding="utf-8"))] if entry not in found]
        return found

    def file(self, name, text, root):
        language = {".cpp": "cpp", ".h": "cpp", ".sh": "bash", ".sbatch": "bash"}.get(Path(name).suffix, "text")
        return f'<p class="file-name"><code>{html.escape(name)}</code></p>{self.highlighter.block(text, language, root)}'

    def cluster_pages(self):
        folder = self.repository / "examples/cluster"
        page = Page("examples/cluster/index.html", "Starting on a cluster", "Examples", "A script for each way to start a job.",
                    "examples/cluster/README.md", kind="example")
        rendered = self.renderer.render((folder / "README.md").read_text(encoding="utf-8"), page, page.root)
        page.heading, page.headings, page.sections = rendered.title, list(rendered.headings), rendered.sections
        parts = [rendered.body]
        for path in sorted(folder.iterdir()):
            if path.suffix in (".sbatch", ".sh") or path.name == "hostfile":
                anchor = re.sub(r"\W+", "-", path.name)
                page.headings.append((2, anchor, path.name))
                parts.append(f'<h2 id="{anchor}">{html.escape(path.name)}</h2>'
                             + self.file(f"examples/cluster/{path.name}", path.read_text(encoding="utf-8"), page.root))
        page.body = "\n".join(parts)
        return [page]
