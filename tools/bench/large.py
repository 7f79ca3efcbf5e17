"""Propagation of a graph that no cache holds: an older build against this one, by turns, with the same memory.

    python tools/bench/large.py ./hopfeed WORK --before ./older-hopfeed [--shape papers|twitter|web] [--scale 1]
        [--memory 17GiB] [--rounds 1]

Generates the graph in WORK (once), propagates it by each program in turn, kills this one's job once after a panel is
finished and goes on with it, and compares all stores byte for byte. Prints what each job took, and the ratio of times.
Whole: 100 GB of disk, 75 of them at a time, and an hour on two cores; --scale 0.25 takes a quarter of each.
"""
import argparse, filecmp, json, os, re, shutil, signal, subprocess, sys, time

SHAPES = {  # nodes, edges, quadrants: those of web have most links within nested groups of nodes
    "papers": (111_059_956, 1_615_685_872, "0.57,0.19,0.19,0.05", 0.014),
    "twitter": (41_652_230, 1_500_000_000, "0.57,0.19,0.19,0.05", 0.014),
    "web": (60_000_000, 1_500_000_000, "0.48,0.04,0.04,0.44", 0.014),
}


def run(command, **options):
    """Runs a command, and returns its JSON and the processor's seconds."""
    before = os.times()
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout
    after = os.times()
    cores = after.children_user - before.children_user + after.children_system - before.children_system
    return json.loads(out), cores


def propagate(program, a, graph, store):
    return [program, "propagate", graph, "-o", store, "--hops", "3", "--operator", a.operator, "--memory", a.memory,
            "--quiet", "--json"]


def same(one, other):
    """Tells whether two folders have the same files with the same bytes."""
    names = [sorted(os.path.relpath(os.path.join(at, f), top) for at, _, files in os.walk(top) for f in files)
             for top in (one, other)]
    return names[0] == names[1] and filecmp.cmpfiles(one, other, names[0], shallow=False)[1:] == ([], [])


def killed(program, a, graph, store):
    """Kills a job when the first panel of a hop is finished, and goes on with it; returns what the second start says."""
    job = subprocess.Popen(propagate(program, a, graph, store), stdout=subprocess.DEVNULL)
    finished = re.compile(r"result-3-\d+-\d+\.scratch$")  # the last hop of a panel
    while job.poll() is None:
        if any(finished.match(f) for _, _, files in os.walk(os.path.join(store, ".job")) for f in files):
            job.send_signal(signal.SIGKILL)
            break
        time.sleep(0.2)
    if job.wait() == 0:
        sys.exit("the job ended before it could be killed: use less --memory, or a larger --scale")
    return run(propagate(program, a, graph, store))[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("work")
    p.add_argument("--before", help="the program of an older build")
    p.add_argument("--shape", choices=SHAPES, default="papers")
    p.add_argument("--scale", type=float, default=1)
    p.add_argument("--memory", default="17GiB")
    p.add_argument("--operator", default="sym")
    p.add_argument("--features", type=int, default=128)
    p.add_argument("--dtype", default="float16")
    p.add_argument("--rounds", type=int, default=1)
    a = p.parse_args()
    nodes, edges, quadrants, labeled = SHAPES[a.shape]
    graph = os.path.join(a.work, f"{a.shape}-{a.scale}-{a.features}-{a.dtype}")
    if not os.path.exists(os.path.join(graph, "manifest.json")):
        took, _ = run([a.program, "generate", "rmat", "-o", graph, "--nodes", str(int(nodes * a.scale)), "--edges",
                       str(int(edges * a.scale)), "--features", str(a.features), "--dtype", a.dtype, "--classes", "172",
                       "--labeled", str(labeled), "--quadrants", quadrants, "--quiet", "--json"])
        print(f"generated {took['edges']} edges in {took['seconds']:.0f} s", flush=True)
    programs = {"this": a.program} | ({"before": a.before} if a.before else {})
    stores = {name: os.path.join(a.work, f"store-{name}") for name in programs}
    seconds = {name: [] for name in programs}
    for round in range(a.rounds):
        for name in sorted(programs):  # before, then this
            shutil.rmtree(stores[name], ignore_errors=True)
            r, cores = run(propagate(programs[name], a, graph, stores[name]))
            seconds[name].append(r["seconds"])
            print(f"{name}: {r['seconds']:.1f} s, {cores:.1f} s of the processor, {r['predicted_seconds']:.0f} s "
                  f"predicted, {r['panels']} panels of {r['panel_columns']}, hops {sum(r['hop_seconds']):.1f} s, "
                  f"{r['peak_rss_bytes'] / 2**30:.2f} GiB resident, {r['time']}", flush=True)
            if name == "this" and not r["peak_rss_bytes"] <= r["memory_budget_bytes"]:
                sys.exit("more memory is resident than the job may use")
    if a.before:
        ratios = [new / old for new, old in zip(seconds["this"], seconds["before"])]
        print("this / before:", ", ".join(f"{x:.2f}" for x in ratios), flush=True)
        if not same(stores["this"], stores["before"]):
            sys.exit("the stores differ")
        shutil.rmtree(stores["before"])
    again = os.path.join(a.work, "store-killed")
    shutil.rmtree(again, ignore_errors=True)
    r = killed(a.program, a, graph, again)
    if not r["resumed"] or not same(stores["this"], again):
        sys.exit("the store of a job that was killed differs, or the job began anew")
    print(f"killed once: {r['seconds']:.1f} s more, the same bytes", flush=True)
    for store in (stores["this"], again):
        shutil.rmtree(store)


if __name__ == "__main__":
    main()
