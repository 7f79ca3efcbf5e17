"""Runs five training scripts of PyTorch Geometric and DGL, and the same fed by Hopfeed, by turns.

    python tools/bench/peers/ports.py DATA [--scripts sign_pyg ...] [--data amazon_photo] [--epochs 20] [--seeds 5] [--stand-in]

DATA is a folder of data sets in the npy layout. Each script of tools/python/examples/ports is an original with few of
its lines changed. The originals are in --originals (../shared/peers/ports) or beside ours, in ports/originals:

- sign_pyg: SIGN on features that T.SIGN propagated
- sage_pyg: GraphSAGE by NeighborLoader, with inference layer by layer
- sage_dgl: GraphSAGE on blocks of DGL, with inference layer by layer
- links_pyg: link prediction by LinkNeighborLoader; what it prints as test is the area under the ROC curve
- lightning_pyg: GraphSAGE in Lightning with DDP, two processes

Needs the wheel of tools/python, torch-geometric, lightning and torchmetrics; the originals that sample also pyg-lib or
torch-sparse, and sage_dgl DGL. An original that lacks something is skipped, which the program says. With --stand-in,
originals sample by stand_in/pyg_lib, which is slow: then accuracies are compared alone, of scripts that run in this
process, but for lightning_pyg.

Prints the lines of code that ours has and the original does not, and the other way round; of the seeds, the test
accuracy (mean and standard deviation), and ratios of the median time of an epoch (wall and processor), of the
time of inference, and of peak memory (of process 0). Status 1: an accuracy is more than two deviations from the original's
or below --least, or ours has more than 8 lines that are new.
"""

import argparse
import contextlib
import difflib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import runpy
import statistics
import sys
import warnings

from rounds import THREADS, measure, ratio, run

PROJECT = pathlib.Path(__file__).resolve().parents[3]
OURS = PROJECT / "tools/python/examples/ports"
STAND_IN = pathlib.Path(__file__).parent / "stand_in"
MOST_LINES = 8
SAMPLING = (("torch_geometric",), ("pyg_lib", "torch_sparse"))
# What a script and, beyond that, its original import: one of each.
NEEDS = {
    "sign_pyg": (SAMPLING[:1], ()),
    "sage_pyg": (SAMPLING[:1], SAMPLING[1:]),
    "sage_dgl": ((("dgl",),), (("dgl.dataloading",),)),
    "links_pyg": (SAMPLING[:1], SAMPLING[1:]),
    "lightning_pyg": ((*SAMPLING[:1], ("lightning",), ("torchmetrics",)), SAMPLING[1:]),
}
FIGURES = {"epoch_wall_med": "epoch", "epoch_cpu_med": "processor time of an epoch", "inference": "inference", "rss_mib": "peak memory"}


def missing(needs):
    """What is not installed of several alternatives, in words."""
    lacking = [names for names in needs if not any(importlib.util.find_spec(name) for name in names)]
    return " and ".join(" or ".join(names) for names in lacking)


def code(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def changed(original, ours):
    """The lines of code of ours that the original does not have, and of the original that ours does not."""
    marks = [line[0] for line in list(difflib.unified_diff(code(original), code(ours), n=0, lineterm=""))[2:]]
    return marks.count("+"), marks.count("-")


def in_process(arguments):
    """What a script prints, run in this process."""
    sys.argv, out = arguments, io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(arguments[0], run_name="__main__")
    return json.loads(out.getvalue().splitlines()[-1])


def side(script, o):
    """A function that runs a script with the next seed and returns its figures."""
    seeds = itertools.count()
    path = os.pathsep.join(map(str, [o.originals, *([STAND_IN] if o.stand_in else []), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "DATA": str(o.folder), "OMP_NUM_THREADS": str(o.threads), "PYTHONPATH": path}

    def figures():
        arguments = [str(script), o.data, str(o.epochs), str(next(seeds))]
        if o.stand_in and script.stem != "lightning_pyg":
            line = in_process(arguments)
        else:
            (line,) = run(sys.executable, "-W", "ignore", *arguments, env=environment)
        return {key: float(line[key]) for key in (["test"] if o.stand_in else ["test", "prep", *FIGURES]) if key in line}

    return figures


def compare(name, o):
    """Runs a script and its original, and returns what is wrong."""
    original = next((path for path in (o.originals / f"{name}.py", OURS / "originals" / f"{name}.py") if path.exists()), None)
    ours, wrong = OURS / f"{name}.py", []
    if original is None:
        print(f"{name}: there is no original in {o.originals}: it is not compared")
    else:
        new, gone = changed(original, ours)
        print(f"{name}: {new} lines of code are new, {gone} of the original are gone")
        if new > MOST_LINES:
            wrong.append(f"{name} has {new} new lines: want at most {MOST_LINES}")
    lacking = missing(NEEDS[name][0])
    if lacking or not (o.originals / "common.py").exists():
        print(f"{name} is SKIPPED: it needs {lacking or 'common.py of the originals'}")
        return wrong
    sides = {f"{name} hopfeed": side(ours, o)}
    lacking_original = missing(NEEDS[name][1])
    if original is None or lacking_original:
        print(f"the original of {name} is SKIPPED: it needs {lacking_original or 'its file'}")
    else:
        sides = {f"{name} original": side(original, o), **sides}
    results = measure(o.seeds, *(lambda label=label, figures=figures: {label: figures()} for label, figures in sides.items()))
    means = {label: statistics.mean(r["test"]) for label, r in results.items()}
    deviations = {label: statistics.stdev(r["test"]) if o.seeds > 1 else 0.0 for label, r in results.items()}
    for label in results:
        print(f"{label}: test {means[label]:.4f} +- {deviations[label]:.4f}")
        if means[label] < o.least:
            wrong.append(f"{label} has {means[label]:.4f}: want at least {o.least}")
    if len(results) == 2:
        original_label, label = results
        for figure in FIGURES:
            if figure in results[label]:
                ratio(results, figure, label, original_label)
        pooled = statistics.mean(d * d for d in deviations.values()) ** 0.5
        if o.seeds > 1 and abs(means[label] - means[original_label]) > 2 * pooled:
            wrong.append(f"{name}: accuracies differ by {means[label] - means[original_label]:+.4f}: want at most {2 * pooled:.4f}, two deviations")
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=lambda path: pathlib.Path(path).resolve(), metavar="DATA")
    p.add_argument("--scripts", nargs="+", choices=NEEDS, default=list(NEEDS))
    p.add_argument("--data", default="amazon_photo", help="name of a data set in DATA; syn is made by make_synthetic.py of the originals")
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--least", type=float, default=0, help="the least test accuracy that a script may have")
    p.add_argument("--stand-in", action="store_true", help="compare accuracies where pyg-lib is not installed")
    p.add_argument("--originals", type=pathlib.Path, default=PROJECT.parent / "shared/peers/ports")
    o = p.parse_args()
    o.originals = o.originals.resolve()
    if o.stand_in:
        sys.path[:0] = [str(STAND_IN), str(o.originals)]
        os.environ |= {"DATA": str(o.folder), "OMP_NUM_THREADS": str(o.threads)}
    wrong = [text for name in o.scripts for text in compare(name, o)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
