#!/usr/bin/env python3
"""Builds the documentation site: pages of docs/, examples, API reference, search; then checks every link of it.

    build_site.py [--out build/site] [--no-api]

--no-api leaves the API reference out, for which Doxygen is needed. What is in the folder is replaced. The exit status is 1 if a
link leads nowhere, each of which is printed. The pages need no network and no server: index.html opens as a file.
"""

import argparse
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

try:
    import markdown_it  # noqa: F401
    import pygments  # noqa: F401
except ImportError:
    # Debian's packages belong to Debian's Python; the one in PATH may be another.
    if os.path.realpath(sys.executable) == os.path.realpath("/usr/bin/python3") or os.environ.get("ACCELERATE_SITE_PYTHON"):
        sys.exit("python3 lacks markdown-it or Pygments: scripts/setup.sh docs installs them")
    os.environ["ACCELERATE_SITE_PYTHON"] = "1"
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

sys.path.insert(0, str(Path(__file__).resolve().parent))
from docs_site.site import Site  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build/site")
    parser.add_argument("--no-api", action="store_true")
    arguments = parser.parse_args()
    site = Site(REPOSITORY, arguments.out.resolve(), with_api=not arguments.no_api)
    problems = site.build()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(site.pages)} pages: {site.out / 'index.html'}")


if __name__ == "__main__":
    main()
