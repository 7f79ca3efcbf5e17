"""Draws a3gnn Figure 7: hit rate, time of an epoch and accuracy against the bias towards cached nodes.

    for b in 1 2 4 8 16 64; do hopfeed train GRAPH --sampler locality --bias $b --cache ... --json > $b.json; done
    python tools/bench/locality.py locality.svg 1.json 2.json 4.json 8.json 16.json 64.json [--seconds 0.16 ...]

The names of the files are the biases. Prints the table; --seconds are epochs that were measured apart, one a file.
"""

import argparse
import json
import pathlib

COLORS = {"epoch": "#cccccc", "hit rate": "#009e73", "accuracy": "#d55e00"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("svg", type=pathlib.Path)
    p.add_argument("results", type=pathlib.Path, nargs="+")
    p.add_argument("--seconds", type=float, nargs="+")
    o = p.parse_args()
    rows = []
    for i, path in enumerate(o.results):
        r = json.loads(path.read_text())
        t = r["epoch_traffic"]
        rows.append({"bias": path.stem.split("-")[-1], "hit rate": t["cached_rows"] / t["rows"], "nodes": t["rows"],
                     "MiB": t["host_bytes"] / 2**20, "accuracy": r["test_metric"], "std": r["test_metric_std"],
                     "epoch": o.seconds[i] if o.seconds else r["epoch_seconds"]})
    print("| bias | hit rate | feature rows an epoch | MiB from host memory | epoch | test accuracy |\n| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        print(f"| {r['bias']} | {100 * r['hit rate']:.1f} % | {r['nodes']:,} | {r['MiB']:.1f} | {r['epoch']:.3f} s | {100 * r['accuracy']:.2f} ± {100 * r['std']:.2f} % |")
    o.svg.write_text(draw(rows))


def draw(rows):
    width, height, left, right, top, bottom = 640, 300, 50, 100, 40, 40
    step = (width - left - right) / len(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
           f'<rect width="{width}" height="{height}" fill="white"/>']
    text = lambda x, y, s, anchor="middle", color="#333": out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{s}</text>')
    y = lambda v, low, high: height - bottom - (height - top - bottom) * (v - low) / (high - low)
    most = 1.25 * max(r["epoch"] for r in rows)
    for i, r in enumerate(rows):
        at = y(r["epoch"], 0, most)
        out.append(f'<rect x="{left + (i + 0.25) * step:.1f}" y="{at:.1f}" width="{step / 2:.1f}" height="{height - bottom - at:.1f}" fill="{COLORS["epoch"]}"/>')
        text(left + (i + 0.5) * step, height - bottom - 6, f"{r['epoch']:.2f} s")
        text(left + (i + 0.5) * step, height - bottom + 16, r["bias"])
    for name, low, high in (("hit rate", 0, 1.25 * max(r["hit rate"] for r in rows)), ("accuracy", 0.9, 1)):
        points = [(left + (i + 0.5) * step, y(r[name], low, high)) for i, r in enumerate(rows)]
        out.append(f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" fill="none" stroke="{COLORS[name]}" stroke-width="2"/>')
        for (a, b), r in zip(points, rows):
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{COLORS[name]}"/>')
            text(a, b + (18 if name == "hit rate" else -8), f"{100 * r[name]:.1f} %", color=COLORS[name])
        text(points[-1][0] + step / 2, points[-1][1] + 4, name, "start", COLORS[name])
    text(left + step * len(rows) / 2, height - 6, "bias towards cached nodes (bars: time of an epoch)")
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    main()
