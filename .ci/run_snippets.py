#!/usr/bin/env python3
"""Runs the Python snippets of a page, one after another, as one program.

    run_snippets.py PAGE    in the folder that the page speaks of

A snippet that imports torch is skipped where torch is not installed, and that is said: on Linux, pip downloads
gigabytes for it, which took minutes where this was tried.
"""

import importlib.util
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
snippets = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
if not snippets:
    sys.exit(f"{sys.argv[1]}: no snippets")
names = {"__name__": "__main__"}
for i, snippet in enumerate(snippets):
    missing = [m for m in re.findall(r"^import (\w+)", snippet, re.M) if importlib.util.find_spec(m) is None]
    if missing:
        if missing != ["torch"]:
            sys.exit(f"{sys.argv[1]}: {missing} are not installed")
        print(f"SKIPPED: snippet {i + 1} of {len(snippets)}, which needs {missing[0]}")
        continue
    line = page[: page.index(snippet)].count("\n")
    exec(compile("\n" * line + snippet, sys.argv[1], "exec"), names)
print(f"{sys.argv[1]}: {len(snippets)} snippets")
