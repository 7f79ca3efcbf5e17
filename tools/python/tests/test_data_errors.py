"""Calls that are wrong in every way that comes to mind, and what their errors say."""

import os
import unittest

import numpy as np

import hopfeed
import stores

OPTION, TYPE, MISSING, FAILED = hopfeed.OptionError, TypeError, FileNotFoundError, hopfeed.Error
NEVER = ("--", "hopfeed-arrays", " options: ", "from device", "goroutine", "\n")


class Data:
    """What from_pyg uses of a ``Data`` of PyTorch Geometric."""

    def __init__(self, **items):
        self.__dict__.update(items)

    def is_undirected(self):
        return False

    def to_dict(self):
        return self.__dict__


class Errors(stores.WithStore):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.new = os.path.join(cls.folder.name, "new")

    def check(self, cases):
        for call, kind, *says in cases:
            with self.subTest(says=says):
                with self.assertRaises(kind) as raised:
                    call()
                text = str(raised.exception)
                for part in says:
                    self.assertIn(part, text)
                for part in NEVER:
                    self.assertNotIn(part, text)
                self.assertFalse(os.path.exists(self.new), text)

    def test_loaders_of_stores(self):
        def open(**options):
            return lambda: hopfeed.Loader(options.pop("store", self.store), **options)

        self.check([
            (open(store="nowhere"), MISSING, "nowhere"),
            (open(store=self.graph), OPTION, "is a graph", "hopfeed.propagate"),
            (open(store=self.folder.name), FAILED, self.folder.name),
            (open(store=5), TYPE, "int", "want a path"),
            (open(store=Data(edge_index=1)), TYPE, "Data", "hopfeed.from_pyg"),
            (open(store=Data(edge_types=[])), TYPE, "Data", "hopfeed.from_pyg"),
            (open(batch_size=0), OPTION, "batch_size 0"),
            (open(batch_size="many"), TYPE, "batch_size is 'many', of type str"),
            (open(batch_size=2.5), TYPE, "batch_size is 2.5, of type float"),
            (open(shuffle="sometimes"), OPTION, "shuffle 'sometimes'", "'rr'"),
            (open(shuffle=3), OPTION, "shuffle 3"),
            (open(placement="disk"), OPTION, "placement 'disk'", "'storage'"),
            (open(placement="device", memory="49MiB", batch_size=10**6, buffers=10**6), hopfeed.DoesNotFit, "memory"),
            (open(shuffle="rr", placement="storage"), OPTION, "shuffle", "chunk"),
            (open(split="night"), OPTION, "split 'night'", "'val'"),
            (lambda: hopfeed.Loader.from_arrays(np.ones((5, 2)), split="val", progress=False), OPTION, "split 'val'", "it has 5 train"),
            (open(store=os.path.join(self.store, "index.arrow")), NotADirectoryError, "index.arrow"),
            (lambda: hopfeed.Loader(self.store).set_epoch("one"), TYPE, "epoch is 'one'"),
            (lambda: hopfeed.Loader.from_arrays(np.ones(5)), OPTION, "x has arrays [[5]]"),
            (open(split=1), OPTION, "split 1"),
            (open(split_index=7), OPTION, "split"),
            (open(split_index="a"), TYPE, "split_index is 'a'"),
            (open(input_nodes=[stores.NODES]), OPTION, "input_nodes", str(stores.NODES)),
            (open(input_nodes="val"), OPTION, "input_nodes"),
            (open(hops=9), OPTION, "no hop"),
            (open(hops=1.5), TYPE, "hops is 1.5"),
            (open(operators="sym"), OPTION, "operator", "sym", "rw"),
            (open(operators=3), TYPE, "operators is 3"),
            (open(dtype="float64"), OPTION, "dtype 'float64'", "'stored'"),
            (open(seed=-1), OPTION, "seed -1"),
            (open(rank=1, world_size=1), OPTION, "rank 1 of 1"),
            (open(rank=0), OPTION, "rank 0 without world_size"),
            (open(world_size=2), OPTION, "world_size 2 without rank"),
            (open(memory="lots"), OPTION, "memory"),
            (open(memory=-5), OPTION, "memory -5"),
            (open(memory=1.5), TYPE, "memory is 1.5"),
            (open(memory=1), hopfeed.DoesNotFit, "memory"),
            (open(threads=-1), OPTION, "threads -1"),
            (open(buffers=0), OPTION, "buffers 0"),
            (open(device="cpu"), OPTION, "device", "hopfeed.torch"),
            (open(bach_size=3), TYPE, "bach_size"),
        ])

    def test_loaders_of_graphs(self):
        def open(**options):
            return lambda: hopfeed.NeighborLoader(options.pop("graph", self.graph), **options)

        def links(*given, **options):
            return lambda: hopfeed.LinkNeighborLoader(self.graph, *given, **options)

        edges = self.arrays["edge_index"]
        self.check([
            (open(graph="nowhere"), MISSING, "nowhere"),
            (open(graph=self.store), OPTION, "hop store", "hopfeed.Loader"),
            (open(num_neighbors=5), TYPE, "num_neighbors is 5", "each layer"),
            (open(num_neighbors=[2.5]), TYPE, "num_neighbors"),
            (open(num_neighbors=[0]), OPTION, "num_neighbors [0]"),
            (open(input_nodes="night"), OPTION, "input_nodes 'night'", "'val'"),
            (open(input_nodes=None), OPTION, "input_nodes"),
            (open(input_nodes=[1, 1]), OPTION, "twice"),
            (open(sampler="magic"), OPTION, "sampler 'magic'"),
            (open(sampler="locality"), OPTION, "cache"),
            (open(placement="device"), OPTION, "placement 'device'", "'host'"),
            (open(cache="lru"), OPTION, "cache", "lru"),
            (open(cache="magic:9rows"), OPTION, "magic"),
            (open(aggregation="max"), OPTION, "aggregation 'max'"),
            (open(by_weight=True), OPTION, "by_weight"),
            (open(subgraph_type="bidirectional"), OPTION, "subgraph_type", "'induced'"),
            (open(disjoint=True), OPTION, "disjoint", "subgraph_type"),
            (open(time_attr="age"), OPTION, "input_time"),
            (open(time_attr="age", input_nodes=[1], input_time=[2]), OPTION, "age"),
            (open(input_time=[1]), OPTION, "input_time", "time_attr"),
            (open(temporal_strategy="first"), OPTION, "temporal_strategy 'first'"),
            (open(columns=["age"]), OPTION, "no column 'age'"),
            (open(columns="age"), TYPE, "columns is 'age'"),
            (open(shuffle="chunk"), OPTION, "shuffle 'chunk'"),
            (open(memory="1MiB"), hopfeed.DoesNotFit, "memory"),
            (links([3], [1, 2]), OPTION, "edge_label_index", "[2, edges]"),
            (links([3]), OPTION, "edge_label_index", "[2, edges]"),
            (links([3], edges, [1]), OPTION, "edge_label is [1]"),
            (links([3], edges, neg_sampling="hard"), OPTION, "neg_sampling 'hard'", "'binary'"),
            (links([3], edges, neg_sampling="triplet", neg_sampling_ratio=1.5), OPTION, "neg_sampling_ratio 1.5"),
            (links([3], edges, neg_sampling_ratio="two"), TYPE, "neg_sampling_ratio is 'two'"),
            (links([3], edges, time_attr="age"), OPTION, "edge_label_time"),
            (lambda: hopfeed.PairLoader(self.graph, edges), OPTION, "is a graph", "LinkNeighborLoader"),
            (lambda: hopfeed.PairLoader(self.store, edges, batch_size="a"), TYPE, "batch_size is 'a'"),
            (lambda: hopfeed.PairLoader(self.store, edges + stores.NODES), OPTION, "pairs", str(stores.NODES)),
        ])

    def test_data_sets(self):
        data, graph = hopfeed.open(self.store), hopfeed.open(self.graph)
        self.check([
            (lambda: hopfeed.open(None), TYPE, "path is of type NoneType"),
            (lambda: data.matrix("sym/hop-1"), OPTION, "no matrix 'sym/hop-1'", "rw/hop-1"),
            (lambda: data.matrix(3), OPTION, "no matrix 3"),
            (lambda: graph.column("age"), OPTION, "no column 'age'"),
            (lambda: graph.x[stores.NODES], IndexError, str(stores.NODES)),
            (lambda: graph.x["a"], OPTION, "index"),
            (lambda: data.folds(1), OPTION, "k 1"),
            (lambda: data.folds("a"), TYPE, "k is 'a'"),
            (lambda: graph.loader(split="val", input_nodes=[1]), TYPE, "split and input_nodes"),
            (lambda: graph.loader(bach_size=1), TYPE, "bach_size"),
            (lambda: hopfeed.plan("nowhere"), MISSING, "nowhere"),
            (lambda: hopfeed.plan(self.store, batch=3), TYPE, "batch"),
        ])

    def test_graphs_of_pyg(self):
        x, edges = np.ones((3, 2), np.float32), np.array([[0, 1], [1, 2]])

        def make(data, **options):
            return lambda: hopfeed.from_pyg(data, self.new, progress=False, **options)

        self.check([
            (make([1, 2]), OPTION, "data has no edge_index"),
            (make(Data(node_types=["a"], edge_types=[], a={"x": x})), OPTION, "no relations", "'a'"),
            (make(Data(adj_t=object(), x=x)), OPTION, "no edge_index", "adj_t"),
            (make(Data(edge_index=edges)), OPTION, "data has no x", "torch.ones"),
            (make(Data(edge_index=edges, x=x[0])), OPTION, "data.x is [2]", "[nodes, features]"),
            (make(Data(edge_index=edges + 2, x=x)), OPTION, "data.edge_index", "3 nodes"),
            (make(Data(edge_index=edges[0], x=x)), OPTION, "data.edge_index", "[2, edges]"),
            (make(Data(edge_index=edges * 1.0, x=x)), OPTION, "data.edge_index", "float64"),
            (make(Data(edge_index=edges, x=x.astype(str))), OPTION, "x is an array", "want numbers"),
            (make(Data(edge_index=edges, x=x * np.nan)), OPTION, "x"),
            (make(Data(edge_index=edges, x=x, y=np.arange(4))), OPTION, "y"),
            (make(Data(edge_index=edges, x=x, edge_weight=np.ones(5))), OPTION, "edge_weight"),
            (make(Data(edge_index=edges, x=x, edge_weight=-np.ones(2))), OPTION, "edge_weight"),
            (make(Data(edge_index=edges, x=x, train_mask=np.ones(4, bool))), OPTION, "train_mask", "[3]"),
            (make(Data(edge_index=edges, x=x, train_mask=np.arange(3))), OPTION, "train_mask", "int64"),
            (make(Data(edge_index=edges, x=x), dtyp="float16"), TYPE, "dtyp"),
            (make(Data(edge_index=edges, x=x), dtype="float64"), OPTION, "dtype", "float64"),
            (make(Data(edge_index=edges, x=x), features_in_place=True), OPTION, "features_in_place"),
            (lambda: hopfeed.from_dgl(5, self.new), TYPE, "graph is of type int"),
            (lambda: hopfeed.from_ogb([Data(x=x)], self.new), OPTION, "NodePropPredDataset"),
            (lambda: hopfeed.from_edges(5, self.new), TYPE, "edges is of type int"),
            (lambda: hopfeed.from_pyg(Data(edge_index=edges, x=x), self.graph, progress=False), OPTION, "force"),
        ])
        with self.assertWarnsRegex(UserWarning, "1 nodes are in val_mask and in a mask before it"):
            graph = hopfeed.from_pyg(Data(edge_index=edges, x=x, train_mask=np.ones(3, bool), val_mask=np.arange(3) == 1), self.new + "-masks", progress=False)
        self.assertEqual(graph.splits[:, 0].tolist(), [0, 1, 0])

    def test_commands(self):
        self.check([
            (lambda: hopfeed.import_npy("nowhere", self.new), MISSING, "nowhere"),
            (lambda: hopfeed.import_csv(os.path.join(self.folder.name, "arrays", "node_feat.npy"), self.new, features="nowhere", progress=False), Exception),
            (lambda: hopfeed.import_npy(os.path.join(self.folder.name, "arrays"), self.graph, progress=False), OPTION, "force"),
            (lambda: hopfeed.propagate(self.graph, self.new, hops=-1, progress=False), OPTION, "hops"),
            (lambda: hopfeed.propagate(self.graph, self.new, operator="magic", progress=False), OPTION, "operator", "magic"),
            (lambda: hopfeed.propagate(self.graph, self.new, memory="lots", progress=False), OPTION, "memory"),
            (lambda: hopfeed.propagate(self.graph, self.new, threads="all", progress=False), OPTION, "threads"),
            (lambda: hopfeed.propagate(self.graph, self.new, hop=2), TYPE, "hop"),
            (lambda: hopfeed.train(self.store, model="magic", progress=False), OPTION, "model", "magic"),
            (lambda: hopfeed.train(self.store, lr="fast", progress=False), OPTION, "lr"),
            (lambda: hopfeed.train(self.store, config="nowhere", progress=False), MISSING, "nowhere"),
            (lambda: hopfeed.evaluate(self.store, "nowhere", progress=False), MISSING, "nowhere"),
            (lambda: hopfeed.sample(self.graph, sampler="magic", progress=False), OPTION, "sampler"),
            (lambda: hopfeed.sample(self.store, sampler="full", progress=False), OPTION, "store"),
            (lambda: hopfeed.verify(3), TYPE, "int"),
            (lambda: hopfeed.generate("tree", self.new, progress=False), OPTION, "tree"),
            (lambda: hopfeed.generate("sbm", self.new, nodes=-1, progress=False), OPTION, "nodes"),
        ])


if __name__ == "__main__":
    unittest.main()
