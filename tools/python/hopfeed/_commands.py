"""The commands as functions. A Go test generates this file from their flags: TestThePythonFunctionsAreThoseOfTheCommands."""

from __future__ import annotations

from typing import Any, Literal, Sequence, Union

from ._call import call
from ._dataset import Dataset
from ._progress import Progress
from ._types import Memory, Path

Data = Union[Path, Dataset]


def import_npy(
    source: Path,
    output: Path,
    *,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_features: str | None = None,
    edge_layout: str | None = None,
    edge_time: str | None = None,
    feature_dtype: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    labels_as: Literal["auto", "classes", "multi", "values"] | None = None,
    missing_features: str | None = None,
    name: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    shape: str | None = None,
    target: str | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import a folder of numpy arrays. ``hopfeed import npy --help`` says more.

    :param source: the file or folder to import
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_layout: layout of edge_index.npy if its shape is [2,2]: 2xE or Ex2
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param feature_dtype: type of the features if the file does not say: bfloat16, or the type of an array without
        header
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param labels_as: what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or
        auto (by their content) (default auto)
    :param missing_features: with several types of nodes, features of types that have none: ones (a column of them),
        one-hot (the number of the node, for up to 4096 nodes) or degree (log(1 + edges) of each relation, in and out)
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param shape: ROWS,COLUMNS of node_feat.npy, or of all its shards together, if it has no header
    :param target: with several types of nodes, the one to classify (default: the only one with labels)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "npy"], ["source"], locals(), ["source"])
    return Dataset(output)


def import_csv(
    source: Path,
    output: Path,
    *,
    destination_column: str | None = None,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_columns: str | Sequence[str] | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    feature_columns: str | Sequence[str] | None = None,
    features: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    header: Literal["yes", "no"] | None = None,
    id_column: str | None = None,
    ids: str | None = None,
    label_column: str | Sequence[str] | None = None,
    labels: str | None = None,
    labels_as: Literal["auto", "classes", "multi", "values"] | None = None,
    missing_features: str | None = None,
    name: str | None = None,
    node_columns: str | Sequence[str] | None = None,
    node_table: str | None = None,
    node_time: str | None = None,
    nodes: int | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    source_column: str | None = None,
    split_column: str | Sequence[str] | None = None,
    splits: Path | None = None,
    target: str | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    weight_column: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import text tables of edges and nodes. ``hopfeed import csv --help`` says more.

    :param source: the file or folder to import
    :param destination_column: column of edges: destination
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_columns: further columns of edges that the graph keeps, as NAME or NAME:TYPE, separated by commas, such
        as time:int64 (default: Parquet's own type, else float32)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param feature_columns: columns of nodes: features, as names and globs, separated by commas
    :param features: file with the features of the nodes; ones: every node gets a single feature, 1; none:
        ``edge_features`` alone
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param header: whether the first line of the edges names the columns: yes or no (default: by its content)
    :param id_column: column of nodes: id; none: row i is node i
    :param ids: keep: ids are node numbers; map: number any ids in the order of their first occurrence; bipartite: as
        map, with COLUMN: before each id, so that sources and destinations are different nodes (default keep)
    :param label_column: columns of nodes: label; several (names and globs, separated by commas) are several labels a
        node
    :param labels: file with the labels of the nodes
    :param labels_as: what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or
        auto (by their content) (default auto)
    :param missing_features: with several types of nodes, features of types that have none: ones (a column of them),
        one-hot (the number of the node, for up to 4096 nodes) or degree (log(1 + edges) of each relation, in and out)
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_columns: further columns of nodes, of numbers or lists of numbers, that the graph keeps, as NAME or
        NAME:TYPE, separated by commas, such as time:int64 (default: Parquet's own type, else float32)
    :param node_table: table with a row for each node: id, labels, splits and features
    :param node_time: column of nodes: time, before which edges count
    :param nodes: number of nodes, if edges and features show fewer
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param source_column: column of edges: source
    :param split_column: columns of nodes: split; several are several splits, or the train, valid and test masks of one
    :param splits: file or folder with the splits of the nodes
    :param target: with several types of nodes, the one to classify (default: the only one with labels)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param weight_column: column of edges: weight; none: edges have no weights
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "csv"], ["source"], locals(), ["source", "splits"])
    return Dataset(output)


def import_mtx(
    source: Path,
    output: Path,
    *,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    feature_columns: str | Sequence[str] | None = None,
    features: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    id_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    labels: str | None = None,
    labels_as: Literal["auto", "classes", "multi", "values"] | None = None,
    name: str | None = None,
    node_table: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    split_column: str | Sequence[str] | None = None,
    splits: Path | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import a MatrixMarket file. ``hopfeed import mtx --help`` says more.

    :param source: the file or folder to import
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param feature_columns: columns of nodes: features, as names and globs, separated by commas
    :param features: file with the features of the nodes; ones: every node gets a single feature, 1; none:
        ``edge_features`` alone
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param id_column: column of nodes: id; none: row i is node i
    :param label_column: columns of nodes: label; several (names and globs, separated by commas) are several labels a
        node
    :param labels: file with the labels of the nodes
    :param labels_as: what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or
        auto (by their content) (default auto)
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_table: table with a row for each node: id, labels, splits and features
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param split_column: columns of nodes: split; several are several splits, or the train, valid and test masks of one
    :param splits: file or folder with the splits of the nodes
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "mtx"], ["source"], locals(), ["source", "splits"])
    return Dataset(output)


def import_ogb(
    source: Path,
    output: Path,
    *,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_columns: str | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    features: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    labels_as: Literal["auto", "classes", "multi", "values"] | None = None,
    missing_features: str | None = None,
    name: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    target: str | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import a data set of the Open Graph Benchmark. ``hopfeed import ogb --help`` says more.

    :param source: the file or folder to import
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_columns: none: leave out the features of edges, which otherwise become their column edge_attr
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param features: file with the features of the nodes; ones: every node gets a single feature, 1; edges: the means of
        the features of its edges (default of ogbn-proteins)
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param labels_as: what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or
        auto (by their content) (default auto)
    :param missing_features: with several types of nodes, features of types that have none: ones (a column of them),
        one-hot (the number of the node, for up to 4096 nodes) or degree (log(1 + edges) of each relation, in and out)
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param target: with several types of nodes, the one to classify (default: the only one with labels)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "ogb"], ["source"], locals(), ["source"])
    return Dataset(output)


def import_igb(
    source: Path,
    output: Path,
    *,
    classes: str | None = None,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    name: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import a size of the Illinois Graph Benchmark. ``hopfeed import igb --help`` says more.

    :param source: the file or folder to import
    :param classes: labels to import: 19 or 2K classes (default 19)
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "igb"], ["source"], locals(), ["source"])
    return Dataset(output)


def import_graphsaint(
    source: Path,
    output: Path,
    *,
    adjacency: str | None = None,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    name: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import a folder of GraphSAINT. ``hopfeed import graphsaint --help`` says more.

    :param source: the file or folder to import
    :param adjacency: full: all edges (adj_full.npz); train: edges between training nodes (adj_train.npz) (default full)
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "graphsaint"], ["source"], locals(), ["source"])
    return Dataset(output)


def import_parquet(
    source: Path,
    output: Path,
    *,
    destination_column: str | None = None,
    directed: bool | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    edge_columns: str | Sequence[str] | None = None,
    edge_features: str | None = None,
    edge_time: str | None = None,
    feature_columns: str | Sequence[str] | None = None,
    features: str | None = None,
    features_in_place: bool | None = None,
    force: bool | None = None,
    id_column: str | None = None,
    ids: str | None = None,
    label_column: str | Sequence[str] | None = None,
    labels: str | None = None,
    labels_as: Literal["auto", "classes", "multi", "values"] | None = None,
    missing_features: str | None = None,
    name: str | None = None,
    node_columns: str | Sequence[str] | None = None,
    node_table: str | None = None,
    node_time: str | None = None,
    normalize_features: bool | None = None,
    scratch: Path | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    source_column: str | None = None,
    split_column: str | Sequence[str] | None = None,
    splits: Path | None = None,
    target: str | None = None,
    undirected: bool | None = None,
    until: str | None = None,
    weight_column: str | None = None,
    windows: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> Dataset:
    """Import Parquet tables of edges and nodes. ``hopfeed import parquet --help`` says more.

    :param source: the file or folder to import
    :param destination_column: column of edges: destination
    :param directed: take edges as they are; an error if SRC says that its edges are undirected
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param edge_columns: further columns of edges that the graph keeps, as NAME or NAME:TYPE, separated by commas, such
        as time:int64 (default: Parquet's own type, else float32)
    :param edge_features: features from columns of in-edges: some of mean,sum,max,std,count, with :COLUMN,... of some
        columns (default: all but ``edge_time``)
    :param edge_time: column of edges for ``edge_features``: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d;
        default s)
    :param feature_columns: columns of nodes: features, as names and globs, separated by commas
    :param features: file with the features of the nodes; ones: every node gets a single feature, 1; none:
        ``edge_features`` alone
    :param features_in_place: refer to the array of the features instead of copying it
    :param force: replace existing output as soon as the new one is complete
    :param id_column: column of nodes: id; none: row i is node i
    :param ids: keep: ids are node numbers; map: number any ids in the order of their first occurrence; bipartite: as
        map, with COLUMN: before each id, so that sources and destinations are different nodes (default keep)
    :param label_column: columns of nodes: label; several (names and globs, separated by commas) are several labels a
        node
    :param labels: file with the labels of the nodes
    :param labels_as: what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or
        auto (by their content) (default auto)
    :param missing_features: with several types of nodes, features of types that have none: ones (a column of them),
        one-hot (the number of the node, for up to 4096 nodes) or degree (log(1 + edges) of each relation, in and out)
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param node_columns: further columns of nodes, of numbers or lists of numbers, that the graph keeps, as NAME or
        NAME:TYPE, separated by commas, such as time:int64 (default: Parquet's own type, else float32)
    :param node_table: table with a row for each node: id, labels, splits and features
    :param node_time: column of nodes: time, before which edges count
    :param normalize_features: divide each row of features by its sum, where that is positive
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param source_column: column of edges: source
    :param split_column: columns of nodes: split; several are several splits, or the train, valid and test masks of one
    :param splits: file or folder with the splits of the nodes
    :param target: with several types of nodes, the one to classify (default: the only one with labels)
    :param undirected: add the reverse of every edge, also if SRC says that its edges are directed
    :param until: time of nodes that have none, before which edges count
    :param weight_column: column of edges: weight; none: edges have no weights
    :param windows: how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w;
        or all
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["import", "parquet"], ["source"], locals(), ["source", "splits"])
    return Dataset(output)


def generate(
    kind: Literal["rmat", "sbm"],
    output: Path,
    *,
    name: str | None = None,
    self_loops: Literal["keep", "drop"] | None = None,
    duplicates: Literal["merge", "sum", "keep"] | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    scratch: Path | None = None,
    force: bool | None = None,
    nodes: int | None = None,
    edges: int | None = None,
    features: int | None = None,
    classes: int | None = None,
    labeled: float | None = None,
    quadrants: Sequence[float] | None = None,
    undirected: bool | None = None,
    homophily: float | None = None,
    separation: float | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    seed: int | None = None,
    progress: Progress = True,
) -> Dataset:
    """Make a random graph with features, labels and a split. ``hopfeed generate --help`` says more.

    :param kind: of the graph
    :param output: graph directory to write
    :param name: name of the data set, for people (default: its own, else that of SRC)
    :param self_loops: keep or drop edges from a node to itself (default keep)
    :param duplicates: merge: one edge of several is left; sum: one, with the sum of weights; keep (default merge)
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default float32)
    :param scratch: folder for scratch files (default: GRAPH/.job and GRAPH.scratch)
    :param force: replace existing output as soon as the new one is complete
    :param nodes: number of nodes (default 10000)
    :param edges: number of edges to draw (default 100000)
    :param features: features of a node (default 64)
    :param classes: number of classes (default 8)
    :param labeled: share of the nodes that have a label; of these 60 % train, 20 % validate, 20 % test (default 0.1)
    :param quadrants: rmat: probabilities a,b,c,d of the quadrants of the adjacency matrix (default
        0.570000,0.190000,0.190000,0.050000)
    :param undirected: rmat: add the reverse of every edge (sbm always does)
    :param homophily: sbm: expected share of edges within a class (default 0.8)
    :param separation: sbm: distance between the means of two classes, in standard deviations (default 2)
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param seed: number that all random draws derive from
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the graph
    """
    call(["generate"], ["kind"], locals(), [])
    return Dataset(output)


def update(
    graph: Data,
    output: Path,
    *,
    scratch: Path | None = None,
    force: bool | None = None,
    edges: Path | None = None,
    remove_edges: Path | None = None,
    nodes: Path | None = None,
    ignore_missing: bool | None = None,
    bipartite: bool | None = None,
    header: Literal["yes", "no"] | None = None,
    source_column: str | None = None,
    destination_column: str | None = None,
    weight_column: str | None = None,
    edge_columns: str | Sequence[str] | None = None,
    node_columns: str | Sequence[str] | None = None,
    id_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | Sequence[str] | None = None,
    feature_columns: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Make a graph from another one and what changed in it. ``hopfeed update --help`` says more.

    :param graph: a graph, or its path
    :param output: graph directory to write
    :param scratch: folder for scratch files (default: GRAPH2/.job and GRAPH2.scratch)
    :param force: replace existing output as soon as the new one is complete
    :param edges: table of edges to add
    :param remove_edges: table of edges to remove, before any is added; of parallel edges all go
    :param nodes: table of nodes that are new, or whose labels, splits or features change
    :param ignore_missing: count edges to remove that are not in GRAPH, instead of failing
    :param bipartite: GRAPH was imported with ``ids`` bipartite, and so are the tables
    :param header: whether the first line of the edges names the columns: yes or no (default: by its content)
    :param source_column: column of edges: source
    :param destination_column: column of edges: destination
    :param weight_column: column of edges: weight; none: edges have no weights
    :param edge_columns: further columns of edges that the graph keeps, as NAME or NAME:TYPE, separated by commas, such
        as time:int64 (default: Parquet's own type, else float32)
    :param node_columns: further columns of nodes, of numbers or lists of numbers, that the graph keeps, as NAME or
        NAME:TYPE, separated by commas, such as time:int64 (default: Parquet's own type, else float32)
    :param id_column: column of nodes: id; none: row i is node i
    :param label_column: columns of nodes: label; several (names and globs, separated by commas) are several labels a
        node
    :param split_column: columns of nodes: split; several are several splits, or the train, valid and test masks of one
    :param feature_columns: columns of nodes: features, as names and globs, separated by commas
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["update"], ["graph"], locals(), ["graph", "edges", "remove_edges", "nodes"])


def propagate(
    graph: Data,
    output: Path,
    *,
    hops: int | None = None,
    metapaths: str | Sequence[str] | None = None,
    relations_subsets: int | None = None,
    label_hops: int | None = None,
    operator: str | None = None,
    tolerance: float | None = None,
    rows: Literal["labeled", "all"] | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
    chunk_rows: int | None = None,
    split_index: int | None = None,
    device: str | None = None,
    force: bool | None = None,
    dry_run: bool | None = None,
    hardware: str | None = None,
    scratch: Path | None = None,
    max_time: str | float | None = None,
    from_: Path | None = None,
    from_graph: Path | None = None,
    tasks: int | None = None,
    task: str | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    seed: int | None = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Compute propagated features and write a hop store. ``hopfeed propagate --help`` says more.

    :param graph: a graph, or its path
    :param output: hop store to write
    :param hops: hops of each operator that the store shall have (default 2)
    :param metapaths: metapaths of a typed graph, separated by commas, such as 'paper<author<paper' (default: all of
        ``hops``)
    :param relations_subsets: draw this many subsets of the relations of a typed graph, by ``seed``, instead of
        metapaths (NARS)
    :param label_hops: propagate the labels of training nodes too, up to this hop; 0: features alone
    :param operator: operators that the store shall have, separated by commas (default sym)
    :param tolerance: sum of the coefficients of ppr and heat that may be left out; all add up to 1 (default 0.0001)
    :param rows: rows to store: labeled (nodes with a label or in a split; the default) or all
    :param dtype: type that features are stored in: float32, float16 or bfloat16 (default the graph's)
    :param chunk_rows: rows of a chunk, the unit of reading (default 1000, fewer if rows are long)
    :param split_index: number of the split, from 0, by which the store is divided into regions
    :param device: device that propagates: auto, cpu, or one of hopfeed devices, such as cuda:0 (default auto)
    :param force: replace existing output as soon as the new one is complete
    :param dry_run: print the plan and write nothing
    :param hardware: machine to plan for, described in a YAML file (default this one)
    :param scratch: folder for scratch files (default: within STORE)
    :param max_time: stop after this time, such as 3h30m; the same command goes on later; seconds, or a text such as
        "90s"
    :param from_: store of an earlier graph, from which rows that did not change are taken
    :param from_graph: graph that the store of ``from_`` was made of (default: the one that GRAPH was updated from)
    :param tasks: divide the work into this many tasks of each kind, and list them
    :param task: do one of the tasks: rows, cut-I, hops-I, write-I or publish, with I from 0 to K-1
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param seed: number that all random draws derive from
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["propagate"], ["graph"], locals(), ["graph", "from_", "from_graph"])


def status(
    store: Data,
    *,
    scratch: Path | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Tell how far a propagation is. ``hopfeed status --help`` says more.

    :param store: a store, or its path
    :param scratch: the job's ``scratch`` folder, if it has another name on this machine
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["status"], ["store"], locals(), ["store"])


def repair(
    store: Data,
    graph: Path,
    *,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Repair damaged files of a hop store. ``hopfeed repair --help`` says more.

    :param store: a store, or its path
    :param graph: graph that the store was made from
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["repair"], ["store"], locals(), ["store", "graph"])


def train(
    data: Data,
    *,
    tf32: bool | None = None,
    map: bool | None = None,
    scratch: Path | None = None,
    model: str | None = None,
    hops: int | Sequence[int] | None = None,
    operator: str | Sequence[str] | None = None,
    as_printed: int | None = None,
    alpha: float | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    dropout: float | None = None,
    hop_dropout: float | None = None,
    heads: int | None = None,
    norm: int | None = None,
    residual: int | None = None,
    embedding: int | None = None,
    bases: int | None = None,
    sampler: str | None = None,
    fanout: int | Sequence[int] | None = None,
    cache: str | None = None,
    bias: float | None = None,
    debias: bool | None = None,
    replace: bool | None = None,
    workers: int | None = None,
    buffers: int | None = None,
    partitions: int | None = None,
    partition_file: Path | None = None,
    batch: int | None = None,
    batch_per_device: int | None = None,
    split_index: int | str | None = None,
    placement: str | None = None,
    shuffle: str | None = None,
    chunk_rows: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    epochs: int | None = None,
    patience: int | None = None,
    runs: int | None = None,
    splits: Path | None = None,
    eval_every: int | None = None,
    optimizer: str | None = None,
    lr_schedule: str | None = None,
    schedule: str | None = None,
    cpu_share: float | None = None,
    profile_batches: int | None = None,
    queue: int | None = None,
    gradients: int | None = None,
    sync_every: int | None = None,
    updates: Literal["planned", "arrival"] | None = None,
    warm_up: float | None = None,
    clip_norm: float | None = None,
    loss: str | None = None,
    metric: str | None = None,
    class_weights: str | None = None,
    standardize: str | None = None,
    run: Path | None = None,
    save_every: str | float | None = None,
    max_time: str | float | None = None,
    config: Path | None = None,
    grid: Path | None = None,
    tune: int | None = None,
    importance: bool | None = None,
    force: bool | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    seed: int | None = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Train a model on a hop store or a graph. ``hopfeed train --help`` says more.

    :param data: a graph or store, or its path
    :param tf32: let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction
    :param map: map the topology of a graph from disk instead of loading it
    :param scratch: folder for scratch files (default: outputs of layers of all nodes of a graph stay in memory)
    :param model: model to train: sgc, ssgc, sign, gamlp, hoga, sehgnn, nars, gcn, sage, gat, rgcn (default sign)
    :param hops: number of hops to use: one for all operators, or one for each, separated by commas; of metapaths, the
        most relations (default all; sgc: the best on validation rows)
    :param operator: operators to use, separated by commas (default all)
    :param as_printed: the architecture as its paper prints it: features as they are; in models that read a graph the
        last layer along edges puts out the classes, without norm and residual; in gat, ELU and means of heads: 1 yes, 0
        no (default by model)
    :param alpha: share of the input in the mean of hops (default by model)
    :param hidden: number of hidden units (default by model)
    :param layers: number of layers (default by model)
    :param dropout: dropout probability (default by model)
    :param hop_dropout: dropout probability of hops, in their sum (default by model)
    :param heads: number of attention heads, which divides that of hidden units (default by model)
    :param norm: layer normalisation after each layer along edges: 1 yes, 0 no (default by model)
    :param residual: add a linear layer of a node's own features to each layer along edges: 1 yes, 0 no (default by
        model)
    :param embedding: of a typed graph: columns that each node of a type without features learns; 0: all types must have
        features (default by model)
    :param bases: of a typed graph: matrices of a layer that relations share (in the first, those from one type): a
        relation's weights are a weighted sum of them; 0: each relation has its own (default by model)
    :param sampler: sampler of batches of a graph, such as neighbor (the default), labor, ladies, fastgcn, saint-node or
        full; hopfeed help sample lists all (full, without ``batch``: all training nodes at once; saint-node,
        saint-edge, saint-rw: ``batch`` is a number of draws)
    :param fanout: in-neighbours to sample of each node (ladies, fastgcn: nodes of a layer; typed graphs: of each
        relation), a number for each layer; the first is nearest the seed nodes, -1 is all (default 15,10,5, as many as
        ``layers``)
    :param cache: cache of feature rows, POLICY:SIZE, such as degree:1GiB or lru:20000rows: degree, presampled, fifo,
        lru, gns, optimal, ducati
    :param bias: locality: how many times as likely as others cached nodes are sampled; 1: no preference
    :param debias: locality: estimates without bias
    :param replace: draw with replacement (neighbor, locality, and ladies and fastgcn without debias)
    :param workers: threads that sample batches (default as many as ``threads``)
    :param buffers: batches that the device has memory for: one is trained on, the others wait (default 2)
    :param partitions: divide the nodes into parts with few edges between them; training samples no edge between parts,
        and each device trains on its own (a3gnn Algorithm 1; default 1)
    :param partition_file: npy file [n] with the part of each node, as METIS finds them, instead of ``partitions``
    :param batch: rows of a batch (default by model)
    :param batch_per_device: rows of a batch for each device, instead of ``batch``
    :param split_index: number of the split to train on, or several, such as 0-9: ``runs`` on each of them (default the
        store's)
    :param placement: where the input lives: auto, device, host or storage (default auto)
    :param shuffle: what is reshuffled each epoch: auto, rr (rows) or chunk (default auto)
    :param chunk_rows: rows that are reshuffled together (default the rows of a stored chunk)
    :param lr: learning rate (default by model)
    :param weight_decay: L2 penalty of weights, not of biases; of adamw, decoupled from the gradient (default by model
        and number of training rows)
    :param epochs: largest number of epochs (default by model)
    :param patience: stop after this many epochs without a better validation; 0: never (default by model)
    :param runs: number of runs; their seeds are ``seed``, ``seed`` + 1, ... (default 1)
    :param splits: npy file [k,n] with k splits of the nodes; ``split_index`` chooses one
    :param eval_every: number of epochs from one validation to the next (default 1 up to 10,000 validation rows, else
        10/3 x validation rows / training rows, for about a tenth of the time)
    :param optimizer: adam, adamw or sgd (with momentum 0.9) (default adam)
    :param lr_schedule: how the learning rate changes: constant, cosine (to 0), or step (to a tenth after half of the
        epochs, to a hundredth after three quarters) (default constant)
    :param schedule: whether processor or device prepares the batches of a graph, and when: auto, cpu, gpu, mixed,
        collective, collective-paper, sequential, mode-1, mode-2, multi-queue (default: the processor, ahead of
        training)
    :param cpu_share: schedule mixed: share of the batches that the processor prepares (default the best)
    :param profile_batches: batches to measure, by processor and device each, before a schedule is planned (default 10)
    :param queue: schedule multi-queue: batches that wait for each device on the host, and as many on the device
        (default by measurement)
    :param gradients: schedule multi-queue: batches whose gradients wait on each device; 1: gradients are never stale
        (default by measurement)
    :param sync_every: schedule multi-queue: batches from one synchronisation of devices to the next; 1: gradients are
        never stale (default by measurement)
    :param updates: schedule multi-queue: when gradients that wait are applied: planned, after a fixed number of
        batches, or arrival, as soon as those of all devices are there (RaCoM as printed), so that a model depends on
        timing (default planned)
    :param warm_up: number of epochs in which the learning rate grows to its full size
    :param clip_norm: largest norm of the gradient of all parameters; 0: any
    :param loss: loss that training minimises (default by labels)
    :param metric: metric that selects epochs and evaluates rows (default by labels)
    :param class_weights: factor of the loss of a row: a number for each class, separated by commas, or balanced (rows /
        (classes * rows of the class))
    :param standardize: centre the input and scale it to one unit: by matrix (each hop of each operator), by column
        (each column of these), or none (default matrix; models as printed: none)
    :param run: directory to save the training in, and to go on with it from
    :param save_every: least time between two saves within a run; seconds, or a text such as "90s" (default 10s)
    :param max_time: stop after this time, such as 3h30m; the same command goes on later; seconds, or a text such as
        "90s"
    :param config: YAML file with the values of flags, such as config.yaml of a run
    :param grid: YAML file with a list of values for each of some flags: try all combinations
    :param tune: number of random settings to try, of the flags that are not given: learning rate, weight decay,
        dropout, hops, operators, batch
    :param importance: measure how much worse validation is if the rows of a matrix (a hop, a metapath) are replaced by
        their mean, for each
    :param force: replace existing output as soon as the new one is complete
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param seed: number that all random draws derive from
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["train"], ["data"], locals(), ["data", "partition_file", "splits", "config", "grid"])


def tune(
    data: Data,
    *,
    tf32: bool | None = None,
    map: bool | None = None,
    scratch: Path | None = None,
    model: str | None = None,
    hops: int | Sequence[int] | None = None,
    operator: str | Sequence[str] | None = None,
    as_printed: int | None = None,
    alpha: float | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    dropout: float | None = None,
    hop_dropout: float | None = None,
    heads: int | None = None,
    norm: int | None = None,
    residual: int | None = None,
    embedding: int | None = None,
    bases: int | None = None,
    sampler: str | None = None,
    fanout: int | Sequence[int] | None = None,
    cache: str | None = None,
    bias: float | None = None,
    debias: bool | None = None,
    replace: bool | None = None,
    workers: int | None = None,
    buffers: int | None = None,
    partitions: int | None = None,
    partition_file: Path | None = None,
    batch: int | None = None,
    batch_per_device: int | None = None,
    split_index: int | str | None = None,
    placement: str | None = None,
    shuffle: str | None = None,
    chunk_rows: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    epochs: int | None = None,
    patience: int | None = None,
    runs: int | None = None,
    splits: Path | None = None,
    eval_every: int | None = None,
    optimizer: str | None = None,
    lr_schedule: str | None = None,
    schedule: str | None = None,
    cpu_share: float | None = None,
    profile_batches: int | None = None,
    queue: int | None = None,
    gradients: int | None = None,
    sync_every: int | None = None,
    updates: Literal["planned", "arrival"] | None = None,
    warm_up: float | None = None,
    clip_norm: float | None = None,
    loss: str | None = None,
    metric: str | None = None,
    class_weights: str | None = None,
    standardize: str | None = None,
    max_memory: Memory = None,
    min_accuracy: float | None = None,
    min_throughput: float | None = None,
    weights: Sequence[float] | None = None,
    surrogate: str | None = None,
    budget: int | str | None = None,
    search: Literal["gaussian", "grid", "ppo", "random"] | None = None,
    throughput: Literal["wall", "processor"] | None = None,
    space: Path | None = None,
    trial_epochs: int | None = None,
    output: Path | None = None,
    config: Path | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    seed: int | None = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Search settings of a training for throughput, memory and accuracy. ``hopfeed tune --help`` says more.

    :param data: a graph or store, or its path
    :param tf32: let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction
    :param map: map the topology of a graph from disk instead of loading it
    :param scratch: folder for scratch files (default: outputs of layers of all nodes of a graph stay in memory)
    :param model: model to train: sgc, ssgc, sign, gamlp, hoga, sehgnn, nars, gcn, sage, gat, rgcn (default sign)
    :param hops: number of hops to use: one for all operators, or one for each, separated by commas; of metapaths, the
        most relations (default all; sgc: the best on validation rows)
    :param operator: operators to use, separated by commas (default all)
    :param as_printed: the architecture as its paper prints it: features as they are; in models that read a graph the
        last layer along edges puts out the classes, without norm and residual; in gat, ELU and means of heads: 1 yes, 0
        no (default by model)
    :param alpha: share of the input in the mean of hops (default by model)
    :param hidden: number of hidden units (default by model)
    :param layers: number of layers (default by model)
    :param dropout: dropout probability (default by model)
    :param hop_dropout: dropout probability of hops, in their sum (default by model)
    :param heads: number of attention heads, which divides that of hidden units (default by model)
    :param norm: layer normalisation after each layer along edges: 1 yes, 0 no (default by model)
    :param residual: add a linear layer of a node's own features to each layer along edges: 1 yes, 0 no (default by
        model)
    :param embedding: of a typed graph: columns that each node of a type without features learns; 0: all types must have
        features (default by model)
    :param bases: of a typed graph: matrices of a layer that relations share (in the first, those from one type): a
        relation's weights are a weighted sum of them; 0: each relation has its own (default by model)
    :param sampler: sampler of batches of a graph, such as neighbor (the default), labor, ladies, fastgcn, saint-node or
        full; hopfeed help sample lists all (full, without ``batch``: all training nodes at once; saint-node,
        saint-edge, saint-rw: ``batch`` is a number of draws)
    :param fanout: in-neighbours to sample of each node (ladies, fastgcn: nodes of a layer; typed graphs: of each
        relation), a number for each layer; the first is nearest the seed nodes, -1 is all (default 15,10,5, as many as
        ``layers``)
    :param cache: cache of feature rows, POLICY:SIZE, such as degree:1GiB or lru:20000rows: degree, presampled, fifo,
        lru, gns, optimal, ducati
    :param bias: locality: how many times as likely as others cached nodes are sampled; 1: no preference
    :param debias: locality: estimates without bias
    :param replace: draw with replacement (neighbor, locality, and ladies and fastgcn without debias)
    :param workers: threads that sample batches (default as many as ``threads``)
    :param buffers: batches that the device has memory for: one is trained on, the others wait (default 2)
    :param partitions: divide the nodes into parts with few edges between them; training samples no edge between parts,
        and each device trains on its own (a3gnn Algorithm 1; default 1)
    :param partition_file: npy file [n] with the part of each node, as METIS finds them, instead of ``partitions``
    :param batch: rows of a batch (default by model)
    :param batch_per_device: rows of a batch for each device, instead of ``batch``
    :param split_index: number of the split to train on, or several, such as 0-9: ``runs`` on each of them (default the
        store's)
    :param placement: where the input lives: auto, device, host or storage (default auto)
    :param shuffle: what is reshuffled each epoch: auto, rr (rows) or chunk (default auto)
    :param chunk_rows: rows that are reshuffled together (default the rows of a stored chunk)
    :param lr: learning rate (default by model)
    :param weight_decay: L2 penalty of weights, not of biases; of adamw, decoupled from the gradient (default by model
        and number of training rows)
    :param epochs: largest number of epochs (default by model)
    :param patience: stop after this many epochs without a better validation; 0: never (default by model)
    :param runs: number of runs; their seeds are ``seed``, ``seed`` + 1, ... (default 1)
    :param splits: npy file [k,n] with k splits of the nodes; ``split_index`` chooses one
    :param eval_every: number of epochs from one validation to the next (default 1 up to 10,000 validation rows, else
        10/3 x validation rows / training rows, for about a tenth of the time)
    :param optimizer: adam, adamw or sgd (with momentum 0.9) (default adam)
    :param lr_schedule: how the learning rate changes: constant, cosine (to 0), or step (to a tenth after half of the
        epochs, to a hundredth after three quarters) (default constant)
    :param schedule: whether processor or device prepares the batches of a graph, and when: auto, cpu, gpu, mixed,
        collective, collective-paper, sequential, mode-1, mode-2, multi-queue (default: the processor, ahead of
        training)
    :param cpu_share: schedule mixed: share of the batches that the processor prepares (default the best)
    :param profile_batches: batches to measure, by processor and device each, before a schedule is planned (default 10)
    :param queue: schedule multi-queue: batches that wait for each device on the host, and as many on the device
        (default by measurement)
    :param gradients: schedule multi-queue: batches whose gradients wait on each device; 1: gradients are never stale
        (default by measurement)
    :param sync_every: schedule multi-queue: batches from one synchronisation of devices to the next; 1: gradients are
        never stale (default by measurement)
    :param updates: schedule multi-queue: when gradients that wait are applied: planned, after a fixed number of
        batches, or arrival, as soon as those of all devices are there (RaCoM as printed), so that a model depends on
        timing (default planned)
    :param warm_up: number of epochs in which the learning rate grows to its full size
    :param clip_norm: largest norm of the gradient of all parameters; 0: any
    :param loss: loss that training minimises (default by labels)
    :param metric: metric that selects epochs and evaluates rows (default by labels)
    :param class_weights: factor of the loss of a row: a number for each class, separated by commas, or balanced (rows /
        (classes * rows of the class))
    :param standardize: centre the input and scale it to one unit: by matrix (each hop of each operator), by column
        (each column of these), or none (default matrix; models as printed: none)
    :param max_memory: most memory that a training may take; 0: any; bytes, or a text such as "8GiB"
    :param min_accuracy: least validation accuracy, or other ``metric``, of a trial (default any)
    :param min_throughput: least training rows a second of a trial; 0: any
    :param weights: weights of throughput, memory and accuracy, such as 0.5,0.25,0.25, by which the search chooses and
        config.yaml is chosen (default the whole front, and a balanced point)
    :param surrogate: file that bench surrogate wrote: the first trials have the settings of which it predicts most (on
        a graph)
    :param budget: time of all trials together, such as 10m, or their number, such as 40; the last trial is finished
        (default 10m0s)
    :param search: how settings are chosen: gaussian, grid, ppo, random (default gaussian)
    :param throughput: rows a second of wall time, or of processor time, which other work on the machine hardly changes,
        and which leaves out waiting: wall or processor (default wall)
    :param space: YAML file with a list of values for each of some flags, to search instead of the usual ones
    :param trial_epochs: epochs of a trial, if ``epochs`` is not given; 0: as many as a training has (default 10 on a
        graph, 0 on a store)
    :param output: folder for trials and configurations (default tuning)
    :param config: YAML file with the values of flags, such as config.yaml of a run
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param seed: number that all random draws derive from
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["tune"], ["data"], locals(), ["data", "partition_file", "splits", "space", "config"])


def evaluate(
    data: Data,
    checkpoint: Path,
    *,
    tf32: bool | None = None,
    map: bool | None = None,
    scratch: Path | None = None,
    batch: int | None = None,
    placement: Literal["auto", "device", "host", "storage"] | None = None,
    split: Literal["test", "val", "valid", "train", "all"] | None = None,
    split_index: int | None = None,
    splits: Path | None = None,
    metric: str | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Measure a trained model on labelled rows of a hop store or a graph. ``hopfeed evaluate --help`` says more.

    :param data: a graph or store, or its path
    :param tf32: let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction
    :param map: map the topology of a graph from disk instead of loading it
    :param scratch: folder for scratch files (default: outputs of layers of all nodes of a graph stay in memory)
    :param checkpoint: directory that train ``run`` has written
    :param batch: rows of a batch (default 8000)
    :param placement: where the input lives: auto, device, host or storage (default auto)
    :param split: labelled rows to evaluate on: test, val, train or all (default test)
    :param split_index: number of the split whose rows are evaluated (default the training's or, for other nodes, the
        store's)
    :param splits: npy file [k,n] with k splits of the nodes; ``split_index`` chooses one
    :param metric: metric of the rows (default the training's)
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["evaluate"], ["data"], locals(), ["data", "checkpoint", "splits"])


def predict(
    data: Data,
    checkpoint: Path,
    output: Path,
    *,
    tf32: bool | None = None,
    map: bool | None = None,
    scratch: Path | None = None,
    batch: int | None = None,
    placement: Literal["auto", "device", "host", "storage"] | None = None,
    split: Literal["all", "train", "val", "valid", "test", "rest"] | None = None,
    node_file: Path | None = None,
    split_index: int | None = None,
    changed_since: Path | None = None,
    force: bool | None = None,
    smooth: Literal["autoscale", "fixed"] | None = None,
    smooth_metapaths: str | Sequence[str] | None = None,
    correct_alpha: float | None = None,
    smooth_alpha: float | None = None,
    smooth_scale: float | None = None,
    smooth_steps: int | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Apply a trained model to unlabelled data, and write a table of predictions. ``hopfeed predict --help`` says more.

    :param data: a graph or store, or its path
    :param tf32: let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction
    :param map: map the topology of a graph from disk instead of loading it
    :param scratch: folder for scratch files (default: outputs of layers of all nodes of a graph stay in memory)
    :param checkpoint: directory that train ``run`` has written
    :param batch: rows of a batch (default 8000)
    :param placement: where the input lives: auto, device, host or storage (default auto)
    :param output: file to write: its suffix, .arrow, .parquet or .csv, chooses the format
    :param split: rows to predict: train, val, test or rest (parts of the split), or all (default all)
    :param node_file: file with the nodes of a graph to predict, one a line: orig_id if the graph has those, else
        node_id
    :param split_index: number of the split of a graph by which ``split`` chooses; a store goes by its own
    :param changed_since: store of an earlier graph: predict only rows of STORE whose features differ from those of the
        same node there
    :param force: replace existing output as soon as the new one is complete
    :param smooth: correct and smooth the classes of a graph's nodes: autoscale or fixed
    :param smooth_metapaths: of a typed graph: what predictions travel along, such as 'paper<author<paper' (default: all
        metapaths of one relation from the target to itself or, if there are none, all of two)
    :param correct_alpha: weight of neighbours when errors are propagated (default 0.8)
    :param smooth_alpha: weight of neighbours when predictions are smoothed (default 0.8)
    :param smooth_scale: factor of corrections with ``smooth`` fixed (default 1)
    :param smooth_steps: steps of each of the two propagations (default 50)
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["predict"], ["data"], locals(), ["data", "checkpoint", "node_file", "changed_since"])


def report(
    runs: Sequence[Path],
    *,
    output: Path | None = None,
    propagation: str | Sequence[str] | None = None,
    force: bool | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Write a page about trainings: curves, times, comparison. ``hopfeed report --help`` says more.

    :param runs: run folders of trainings
    :param output: file to write (default report.html)
    :param propagation: files with the output of propagate ``json``, for stores that have lost the time of their
        propagation
    :param force: replace existing output as soon as the new one is complete
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["report"], ["runs"], locals(), [])


def inspect(
    data: Data,
    *,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Say what is in a graph or hop store. ``hopfeed inspect --help`` says more.

    :param data: a graph or store, or its path
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["inspect"], ["data"], locals(), ["data"])


def verify(
    data: Data,
    *,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Read every byte of a graph or hop store and check it. ``hopfeed verify --help`` says more.

    :param data: a graph or store, or its path
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["verify"], ["data"], locals(), ["data"])


def export_npy(
    data: Data,
    output: Path,
    *,
    force: bool | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Write a graph or hop store as NumPy arrays. ``hopfeed export npy --help`` says more.

    :param data: a graph or store, or its path
    :param output: directory to write
    :param force: replace existing output as soon as the new one is complete
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["export", "npy"], ["data"], locals(), ["data"])


def sample(
    graph: Data,
    *,
    sampler: Literal["fastgcn", "fastgcn-debias", "fastgcn-debias-paper", "fastgcn-flat", "fastgcn-flat-debias", "fastgcn-flat-debias-paper", "fastgcn-flat-paper", "fastgcn-paper", "full", "labor", "labor-1", "ladies", "ladies-debias", "ladies-debias-paper", "ladies-flat", "ladies-flat-debias", "ladies-flat-debias-paper", "ladies-flat-paper", "ladies-paper", "locality", "neighbor", "saint-edge", "saint-node", "saint-node-paper", "saint-rw"] | None = None,
    fanout: int | Sequence[int] | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    max_batches: int | None = None,
    split: Literal["train", "val", "valid", "test", "rest", "all"] | None = None,
    split_index: int | None = None,
    aggregation: str | None = None,
    replace: bool | None = None,
    by_weight: bool | None = None,
    cache: str | None = None,
    bias: float | None = None,
    debias: bool | None = None,
    map: bool | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    seed: int | None = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """Sample mini-batches of a graph, and measure how fast. ``hopfeed sample --help`` says more.

    :param graph: a graph, or its path
    :param sampler: how to sample: one of the above (default neighbor)
    :param fanout: in-neighbours to sample of each node (ladies, fastgcn: nodes of a layer; typed graphs: of each
        relation), a number for each layer; the first is nearest the seed nodes, -1 is all (default 15,10,5)
    :param batch: seed nodes of a batch (default 1024)
    :param epochs: times that all seed nodes are sampled (default 1)
    :param max_batches: batches of an epoch to sample (0: all)
    :param split: seed nodes: train, val, test, rest or all (default train)
    :param split_index: split that ``split`` refers to
    :param aggregation: what the weights of edges estimate: mean, sym (as in propagation) or plain (sum) (default mean)
    :param replace: draw with replacement (neighbor, locality, and ladies and fastgcn without debias)
    :param by_weight: neighbor: draw in-neighbours by the weights of their edges
    :param cache: count how many nodes of batches a cache has: POLICY:SIZE
    :param bias: locality: how many times as likely as others cached nodes are sampled; 1: no preference
    :param debias: locality: estimates without bias
    :param map: map the topology of a graph from disk instead of loading it
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param seed: number that all random draws derive from
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["sample"], ["graph"], locals(), ["graph"])


def devices(
    *,
    tf32: bool | None = None,
    threads: int | None = None,
    memory: Memory = None,
    cache_dir: Path | None = None,
    cache_size: Memory = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """List the devices that training can compute on, and why there are no others. ``hopfeed devices --help`` says more.

    :param tf32: let GPUs multiply matrices in TF32: faster, with factors rounded to 10 bits of fraction
    :param threads: threads to use (0: CPU affinity and quota)
    :param memory: memory to use (default 80 % of what is available or the cgroup limit); bytes, or a text such as
        "8GiB"
    :param cache_dir: folder that keeps what is read from buckets (default hopfeed in the user's folder for caches)
    :param cache_size: largest size of that folder; 0: keep nothing (default half of what is free); bytes, or a text
        such as "8GiB"
    :param progress: bars of tqdm, where that is installed, or a function that is called with the state of the work
    :return: the keys that the command prints with --json (docs/json.md)
    """
    return call(["devices"], [], locals(), [])
