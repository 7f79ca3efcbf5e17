"""Measures programs in turn, so that all have the same share of what else the machine does."""

import json
import os
import statistics
import subprocess

THREADS = len(os.sched_getaffinity(0))


def run(*command, **options):
    """What a command prints, line by line, each a JSON object; others are left out."""
    text = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True, **options).stdout
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure(rounds, *programs):
    """Calls programs in turn, round by round; each returns {name: {figure: number}}.

    Returns {name: {figure: [a number a round]}}, and prints each number as it comes and then the medians.
    """
    results = {}
    for i in range(rounds):
        for program in programs:
            for name, figures in program().items():
                print(json.dumps({"round": i, "name": name, **{k: float(f"{v:.5g}") for k, v in figures.items()}}), flush=True)
                for figure, value in figures.items():
                    results.setdefault(name, {}).setdefault(figure, []).append(value)
    for name, figures in results.items():
        print(f"{name}: " + ", ".join(f"{figure} {statistics.median(values):.4g}" for figure, values in figures.items()))
    return results


def ratio(results, figure, over, under):
    """Prints the ratio of a figure of two programs: the median of the rounds, the least and the greatest."""
    ratios = sorted(a / b for a, b in zip(results[over][figure], results[under][figure]))
    print(f"{figure} of {over} / {under}: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


def best(results, figure, names, of=max):
    """The program whose median of a figure is the largest, or with of=min the least."""
    return of(names, key=lambda name: statistics.median(results[name][figure]))
