"""Pre-propagation against message passing: accuracy, time and bytes of an epoch, epochs to converge.

    python tools/bench/pp_mp.py ./hopfeed WORK --data DATA/tolokers [--metric roc-auc]
    python tools/bench/pp_mp.py ./hopfeed WORK --nodes 2000000

Trains SGC, SIGN and HOGA on a store of --hops hops, and GraphSAGE (samplers neighbor, LABOR, LADIES, GraphSAINT's
nodes) and GAT on the graph, with as many layers, each --runs times: the experiment of preprop-gnn sections 3.2, 3.3 and
6.2 and its appendices B, D and I, whose fanouts and nodes a layer these are. The graph is a folder in the npy layout, or
a generated one (sbm) of --nodes nodes. Prints a table, writes it to WORK/NAME/results.jsonl, and draws accuracy against
the time of an epoch in WORK/NAME/tradeoff.svg. A training that is there is not done again. Needs nothing but Python.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

STORE, GRAPH = "store", "graph"
BYTES = ("device_bytes", "cache_bytes", "host_bytes", "storage_bytes")


def trainings(o):
    """Name, input and flags of each."""
    sage = ["--model", "sage", "--layers", o.hops, "--hidden", o.hidden]
    fanout = lambda *sizes: ["--fanout", ",".join(str(n) for n in sizes[:o.hops])]
    batch = ["--batch", o.batch]
    return {
        "SGC": (STORE, ["--model", "sgc", "--hops", o.hops, *batch]),
        "SIGN": (STORE, ["--model", "sign", "--layers", 3, "--hidden", 2 * o.hidden, *batch]),
        "HOGA": (STORE, ["--model", "hoga", "--hidden", o.hidden, *batch]),
        "SAGE-neighbor": (GRAPH, [*sage, *batch, "--sampler", "neighbor", *fanout(15, 10, 5, 3, 3, 3)]),
        "SAGE-LABOR": (GRAPH, [*sage, *batch, "--sampler", "labor", *fanout(15, 10, 5, 3, 3, 3)]),
        "SAGE-LADIES": (GRAPH, [*sage, *batch, "--sampler", "ladies", *fanout(*[512] * 6)]),
        "SAGE-SAINT": (GRAPH, [*sage, *batch, "--sampler", "saint-node-paper"]),
        "GAT-neighbor": (GRAPH, ["--model", "gat", "--layers", o.hops, "--hidden", o.hidden, "--heads", 4, *batch,
                                 *fanout(10, 10, 10, 5, 5, 5)]),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--data", type=pathlib.Path, help="a folder in the npy layout")
    p.add_argument("--nodes", type=int, default=2_000_000)
    p.add_argument("--labeled", type=float, default=0.01, help="share of the nodes that are generated with a label")
    p.add_argument("--hops", type=int, default=3)
    p.add_argument("--hidden", type=int, default=64, help="units; SIGN has twice as many")
    p.add_argument("--batch", type=int, default=500)
    p.add_argument("--epochs", type=int, default=6, help="of models that read the graph; the others have 4 times as many")
    p.add_argument("--eval-every", type=int, default=3, help="epochs from one validation to the next, of models that read the graph")
    p.add_argument("--lr", type=float, default=0.01, help="of models that read the graph")
    p.add_argument("--dropout", type=float, default=0.2, help="of models that read the graph")
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("--metric", default="accuracy")
    p.add_argument("--only", nargs="+", help="names of trainings")
    o = p.parse_args()
    hopfeed = o.hopfeed.resolve()
    folder = o.work.resolve() / (o.data.name if o.data else f"sbm-{o.nodes}-{o.labeled}")
    folder.mkdir(parents=True, exist_ok=True)

    def run(*command):
        text = subprocess.run([str(hopfeed), *map(str, command), "--json", "--quiet"], check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
        return json.loads(text)

    if not (folder / GRAPH).exists():
        if o.data:
            run("import", "npy", o.data.resolve(), "-o", GRAPH)
        else:
            run("generate", "sbm", "-o", GRAPH, "--nodes", o.nodes, "--edges", 8 * o.nodes, "--features", 64, "--classes", 16,
                "--labeled", o.labeled, "--homophily", 0.5, "--separation", 2.5)
    store = run("propagate", GRAPH, "-o", STORE, "--hops", o.hops, "--operator", "sym")
    results, chosen = {}, trainings(o)
    for name in o.only or chosen:
        source, flags = chosen[name]
        reads_graph = source == GRAPH
        epochs, every = (o.epochs, o.eval_every) if reads_graph else (4 * o.epochs, 1)
        flags += ["--lr", o.lr, "--dropout", o.dropout] if reads_graph else []
        r = run("train", source, *flags, "--epochs", epochs, "--eval-every", every, "--patience", 0, "--runs", o.runs, "--metric", o.metric, "--run", name)
        seconds = [json.loads(line)["train_seconds"] for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        results[name] = {"name": name, "test": r["test_metric"], "test_std": r["test_metric_std"], "epoch_seconds": statistics.median(seconds),
                         "convergence_epoch": r["convergence_epoch"], "epoch_bytes": sum(r["epoch_traffic"][k] for k in BYTES), "seconds": r["seconds"],
                         "pre_propagation": not reads_graph}
        print(json.dumps(results[name]), flush=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results.values()))
    if len(results) > 1:
        run("report", *results, "-o", "tradeoff.svg", "--force")
    print_table(results, o, store)


def print_table(results, o, store):
    """Bytes and epoch times as multiples of those of SIGN, which reads all hops."""
    sign = results.get("SIGN")
    times = lambda r, key: f"{r[key] / sign[key]:.3g} x" if sign else "-"
    print(f"\n{store['nodes']} nodes, {store['edges']} edges, {store['features']} features, {store['rows']} stored rows; propagation {store['seconds']:.3g} s\n")
    print(f"| model | test {o.metric} | an epoch | / SIGN | epochs to 99 % of the best | features of an epoch | / SIGN, 8 to 26 x in App. I |\n|---|---|---|---|---|---|---|")
    for name, r in results.items():
        spread = f" ± {100 * r['test_std']:.2f}" if o.runs > 1 else ""
        print(f"| {name} | {100 * r['test']:.2f}{spread} % | {r['epoch_seconds']:.3g} s | {times(r, 'epoch_seconds')} | {r['convergence_epoch']:.0f} | "
              f"{r['epoch_bytes'] / 1e6:.4g} MB | {times(r, 'epoch_bytes')} |")


if __name__ == "__main__":
    main()
