"""Propagations by the machines of a Ray cluster: docs/cluster.md has the tasks that they do."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _commands
from ._call import existing, is_url
from ._dataset import Dataset
from ._errors import Error, OptionError
from ._progress import Bars, Progress
from ._types import Path

POLL_SECONDS = 0.5
CANCEL_SECONDS = 20  # for which tasks that are cancelled may take to end
PROCESS_BYTES = 128 << 20  # of a worker beside what the engine plans: Python, Ray and the library
DISK = "scratch_bytes"  # the resource by which a node may declare its local disk


class PassingError(Error):
    """A failure of a task that may be another one's fault, such as of a network, and is tried again."""


def propagate(
    graph: Path | Dataset,
    output: Path,
    *,
    tasks: int,
    retries: int = 8,
    ray_options: dict[str, Any] | None = None,
    progress: Progress = True,
    **options: Any,
) -> dict[str, Any]:
    """Computes propagated features on the cluster that this process is connected to (``ray.init``), and writes a hop store
    with the bytes that ``hopfeed.propagate`` writes.

    ``graph`` and ``output`` are a bucket's, or in a folder that all nodes share, and hopfeed is installed on all nodes. A
    task declares its cores and its memory to Ray and, if nodes have the resource ``scratch_bytes``, its local disk. When
    a node or a process is lost, Ray runs its task again, elsewhere; what a task has finished stays. After an error, or
    Ctrl-C, all tasks are cancelled, and the same call goes on.

    :param tasks: into how many tasks of each kind the work is divided; the same for a call that goes on
    :param retries: how often each task may be lost, or fail by what may pass, such as a network
    :param ray_options: further options of Ray for all tasks, such as ``runtime_env`` or ``label_selector``
    :param progress: as of ``hopfeed.propagate``; it has the running tasks of all nodes
    :param options: those of ``hopfeed.propagate``; ``threads`` and ``memory`` are of one task, by default what all nodes have
    :return: ``output``, ``seconds``, ``tasks`` (of each task that ran, what ``hopfeed.propagate`` returns of it, and its
        ``node``), and the sums of their ``graph_bytes_read``, ``task_bytes_read`` and ``bytes_written``
    """
    begun = time.monotonic()
    if not ray.is_initialized():
        ray.init()
    places = (_absolute(existing(graph, "graph")), _absolute(output))
    given = {name: value for name, value in options.items() if value is not None}
    if not {"threads", "memory"} <= given.keys():
        given = {**_least_node(), **given}
    todo = [task for task in _commands.propagate(*places, tasks=tasks, progress=progress, **given)["tasks"] if not task["done"]]
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    board = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(_Board).remote()
    do = ray.remote(_do)
    refs: dict[Any, str] = {}
    for task in todo:
        after = [ref for ref, name in refs.items() if name.partition("-")[0] in task["after"]]
        how = {"num_cpus": task["cores"], "memory": task["memory_bytes"] + PROCESS_BYTES, "max_retries": retries}
        if DISK in ray.cluster_resources() and task["planned_scratch_bytes"]:
            how["resources"] = {DISK: task["planned_scratch_bytes"]}
        own = {**given, "tasks": tasks, "task": task["name"], "threads": task["cores"], "memory": task["memory_bytes"]}
        run = do.options(name=task["name"], retry_exceptions=[PassingError], **how, **(ray_options or {}))
        refs[run.remote(board, places, own, *after)] = task["name"]
    try:
        with Bars(progress) as bars:
            results = _follow(refs, board, bars.report)
    finally:
        ray.kill(board)
    sums = {key: sum(result[key] for result in results) for key in ("graph_bytes_read", "task_bytes_read", "bytes_written")}
    return {"output": places[1], "seconds": time.monotonic() - begun, "tasks": results, **sums}


def _absolute(path: Path) -> str:
    text = os.fspath(path)
    return text if is_url(text) else os.path.abspath(text)


def _least_node() -> dict[str, int]:
    """The cores and the memory that each node with cores has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise OptionError("the cluster has no node with a core yet: give threads and memory of one task, by which it can grow")
    memory = int(min(node.get("memory", 0) for node in nodes)) - PROCESS_BYTES
    return {"threads": int(min(node["CPU"] for node in nodes)), "memory": max(1, memory)}


def _follow(refs: dict[Any, str], board: Any, report: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """The results of tasks, once all have ended, in the order of their ends. If one fails, the others are cancelled."""
    waiting, results = list(refs), []
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)
            for ref in ready:
                results.append(_result(ref, refs[ref]))
            try:
                state = ray.get(board.take.remote([result["task"] for result in results]))
            except ray.exceptions.RayActorError:  # the machine that had it is lost: Ray begins another
                state = {"tasks": [], "notes": []}
            whole = {"id": "tasks", "label": "tasks", "done": len(results), "total": len(refs), "bytes": False}
            report({**state, "tasks": [whole, *state["tasks"]]})
        return results
    except BaseException:
        for ref in waiting:
            ray.cancel(ref)
        for ref in ray.wait(waiting, num_returns=len(waiting), timeout=CANCEL_SECONDS)[1] if waiting else []:
            ray.cancel(ref, force=True)
        raise


def _result(ref: Any, name: str) -> dict[str, Any]:
    """The result of a task, or its error, which names it."""
    try:
        result: dict[str, Any] = ray.get(ref)
        return result
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Error):
            kind = Error if isinstance(error.cause, PassingError) else type(error.cause)
            raise kind(f"task {name}: {error.cause}") from error
        raise
    except ray.exceptions.RayError as error:  # of Ray, such as too many retries
        raise Error(f"task {name}: {error}") from error


def _do(board: Any, places: tuple[str, str], options: dict[str, Any], *_after: Any) -> dict[str, Any]:
    """Does a task. Ray begins it when the tasks whose results it gets have ended."""
    name, node, last = options["task"], ray.get_runtime_context().get_node_id(), 0.0
    board.begin.remote(name, ray.util.get_node_ip_address())

    def report(state: dict[str, Any]) -> None:
        nonlocal last
        if state["notes"] or time.monotonic() - last > POLL_SECONDS:
            last = time.monotonic()
            board.report.remote(name, state)

    try:
        return {**_commands.propagate(*places, progress=report, **options), "node": node}
    except Error as error:
        if type(error) is Error:
            raise PassingError(str(error)) from None
        raise


class _Board:
    """What the running tasks tell of themselves."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._tasks: dict[str, list[dict[str, Any]]] = {}
        self._notes: list[str] = []

    def begin(self, name: str, machine: str) -> None:
        if name in self._begun:
            self._notes.append(f"{name} was lost, or failed, and begins again on {machine}")
        self._begun.add(name)

    def report(self, name: str, state: dict[str, Any]) -> None:
        self._tasks[name] = [{**task, "id": f"{name} {task['id']}", "label": f"{name}: {task['label']}"} for task in state["tasks"]]
        self._notes += [f"{name}: {note}" for note in state["notes"]]

    def take(self, ended: list[str]) -> dict[str, Any]:
        """What runs, and what was noted since the last call."""
        notes, self._notes = self._notes, []
        return {"tasks": [task for name, tasks in self._tasks.items() if name not in ended for task in tasks], "notes": notes}
