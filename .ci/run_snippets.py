#!/usr/bin/env python3
"""Runs the snippets of a page, one after another, in the folder that the page speaks of.

    run_snippets.py PAGE

Snippets of Python are one program. Each snippet of sh is a script, which must succeed; a block of text after it shows
lines of its output, where numbers may differ and "..." stands for lines that are left out. A snippet that imports
torch is skipped where torch is not installed, and that is said: on Linux, pip downloads gigabytes for it.
"""

import importlib.util
import re
import subprocess
import sys


def plain(line):
    """A line without what differs from run to run: numbers and the width of columns."""
    return " ".join(re.sub(r"\d+(\.\d+)?", "#", line).split())


path = sys.argv[1]
page = open(path, encoding="utf-8").read()
snippets = list(re.finditer(r"^```(python|sh|text)\n(.*?)^```$", page, re.M | re.S))
if not any(s[1] == "python" for s in snippets):
    sys.exit(f"{path}: no snippets")
names, printed = {"__name__": "__main__"}, ""
for snippet in snippets:
    line = page[: snippet.start(2)].count("\n")
    if snippet[1] == "text":
        lines = {plain(printed_line) for printed_line in printed.splitlines()}
        missing = [shown for shown in snippet[2].splitlines() if shown != "..." and plain(shown) not in lines]
        if missing:
            sys.exit(f"{path}:{line}: the output has no line like {missing[0]!r}:\n{printed}")
    elif snippet[1] == "sh":
        done = subprocess.run(["bash", "-euc", snippet[2]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        printed = done.stdout
        if done.returncode:
            sys.exit(f"{path}:{line}: exit status {done.returncode}:\n{printed}")
    else:
        missing = [m for m in re.findall(r"^import (\w+)", snippet[2], re.M) if importlib.util.find_spec(m) is None]
        if missing == ["torch"]:
            print(f"SKIPPED: the snippet at line {line}, which needs torch")
        elif missing:
            sys.exit(f"{path}: {missing} are not installed")
        else:
            exec(compile("\n" * line + snippet[2], path, "exec"), names)
print(f"{path}: {len(snippets)} snippets")
