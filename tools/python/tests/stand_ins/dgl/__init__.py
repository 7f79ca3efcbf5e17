"""What hopfeed and examples/ports/sage_dgl.py call of DGL, for tests where DGL is not installed."""

import random
import types

EID = "_ID"


class Graph:
    """A graph that is one block, or one with features."""

    ntypes, etypes = ["_N"], ["_E"]

    def __init__(self, ends, nodes):
        self._ends, self._nodes = ends, nodes
        self.ndata, self.srcdata, self.dstdata, self.edata = {}, {}, {}, {}

    def edges(self):
        return self._ends

    def num_nodes(self):
        return self._nodes

    def num_edges(self):
        return len(self._ends[0])


class Hetero:
    """A graph with several types of nodes, or a block of one."""

    class Edges(dict):
        def __call__(self, etype):
            return self[etype].graph.edges()

    def __init__(self, relations, sources, destinations):
        self.canonical_etypes, self.etypes, self.ntypes = list(relations), [e[1] for e in relations], sorted(sources)
        self.srcnodes, self.dstnodes = ({t: types.SimpleNamespace(data={}, count=n) for t, n in counts.items()} for counts in (sources, destinations))
        self.nodes = self.srcnodes
        self.edges = self.Edges({e: types.SimpleNamespace(data=g.edata, graph=g) for e, g in relations.items()})

    def __getitem__(self, etype):
        return self.edges[etype].graph

    def num_nodes(self, ntype):
        return self.nodes[ntype].count

    def num_dst_nodes(self, ntype):
        return self.dstnodes[ntype].count


def graph(ends, num_nodes):
    return Graph(ends, num_nodes)


def heterograph(data, num_nodes_dict):
    return Hetero({e: Graph(ends, num_nodes_dict[e[0]]) for e, ends in data.items()}, num_nodes_dict, num_nodes_dict)


def create_block(data, num_src_nodes, num_dst_nodes):
    if isinstance(data, dict):
        parts = {e: create_block(part, num_src_nodes[e[0]], num_dst_nodes[e[2]]) for e, part in data.items()}
        return Hetero(parts, num_src_nodes, num_dst_nodes)
    kind, (indptr, indices, edge_ids) = data
    assert kind == "csc" and len(edge_ids) == 0 and len(indptr) == num_dst_nodes + 1 and (indices < num_src_nodes).all()
    return Graph((indptr, indices), num_src_nodes)


seed = random.seed
