"""What examples/ports/sage_dgl.py calls of DGL, for tests where DGL is not installed."""

import random

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


def graph(ends, num_nodes):
    return Graph(ends, num_nodes)


def create_block(data, num_src_nodes, num_dst_nodes):
    kind, (indptr, indices, edge_ids) = data
    assert kind == "csc" and len(edge_ids) == 0 and len(indptr) == num_dst_nodes + 1 and indices.max() < num_src_nodes
    return Graph((indptr, indices), num_src_nodes)


seed = random.seed
