package ingest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// GraphSAINTOptions choose between what a folder of GraphSAINT has.
type GraphSAINTOptions struct {
	Adjacency string // "full" (the default) or "train": only edges between training nodes
}

const (
	saintFeatures = "feats.npy"
	saintRoles    = "role.json"
	saintClasses  = "class_map.json"
)

// OpenGraphSAINT opens a folder in the layout of GraphSAINT (Zeng et al. 2020):
//
//	adj_full.npz      scipy CSR [n,n]; a value other than 0 in row v, column u is an edge from u to v, since GraphSAINT
//	                  multiplies the matrix by features. It takes values for true and false, and so does this
//	adj_train.npz     the same, with the edges between training nodes alone
//	feats.npy         [n,F] numbers
//	role.json         {"tr": [nodes], "va": [nodes], "te": [nodes]}
//	class_map.json    an entry for each node: {"0": 3}, or {"0": [0, 1, 1]} where nodes have several labels
func OpenGraphSAINT(ctx context.Context, fsys vfs.FS, dir string, w ScratchOptions,
	o GraphSAINTOptions) (_ Source, err error) {
	if o.Adjacency = cmp.Or(o.Adjacency, "full"); o.Adjacency != "full" && o.Adjacency != "train" {
		return nil, badOptions("--adjacency %s: want full or train", o.Adjacency)
	}
	if _, err := stat(fsys, dir); err != nil {
		return nil, err
	}
	adjacency := "adj_" + o.Adjacency + ".npz"
	for _, name := range []string{adjacency, saintFeatures, saintRoles, saintClasses} {
		if there, err := exists(fsys, filepath.Join(dir, name)); err != nil {
			return nil, err
		} else if !there {
			return nil, invalid(dir, "no %s (want a folder of GraphSAINT: adj_full.npz or adj_train.npz, %s, %s, %s)", name,
				saintFeatures, saintRoles, saintClasses)
		}
	}
	l, err := newEdgeList(fsys, "graphsaint", dir, w, NodeFiles{Features: filepath.Join(dir, saintFeatures)})
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, l)
	l.info.Input["adjacency"], l.info.Input["splits"] = adjacency, saintRoles
	if err := l.readAdjacency(ctx, filepath.Join(dir, adjacency)); err != nil {
		return nil, err
	}
	if err := l.openFeatures(ctx); err != nil {
		return nil, err
	}
	if err := l.openClasses(filepath.Join(dir, saintClasses)); err != nil {
		return nil, err
	}
	roles := filepath.Join(dir, saintRoles)
	return l, l.addSplits(roles, 1, func(_ context.Context, to *format.RowTable, split int64) error {
		return readRoles(l.fsys, roles, to, split)
	})
}

// readAdjacency copies the edges of a sparse matrix to scratch, whose rows are destinations.
func (l *edgeList) readAdjacency(ctx context.Context, path string) error {
	n, columns, err := l.sparseShape(path)
	switch {
	case err != nil:
		return err
	case n != columns:
		return invalid(path, "shape: a matrix of %d rows and %d columns (want a square one)", n, columns)
	case n > MaxNodes:
		return invalid(path, "%d nodes (at most %d fit node ids of 32 bits)", n, int64(MaxNodes))
	}
	l.ids.nodes, l.ids.fixed = n, true
	m, err := l.openSparse(path, n, n)
	if err != nil {
		return err
	}
	defer m.Close()
	if l.edges, err = l.scratch.newEdges(false, m.data.Elements()); err != nil {
		return err
	}
	for v := range uint32(n) {
		if err := m.next(func(sources []int64, values []float32) error {
			for i, u := range sources {
				if values[i] == 0 {
					continue
				}
				if err := l.edges.add(ctx, uint32(u), v, 0); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return l.edges.finish(ctx)
}

// openClasses opens class_map.json. Its first entry tells how many labels a node has.
func (l *edgeList) openClasses(path string) error {
	lists, err := openNumberLists(l.fsys, path)
	if err != nil {
		return err
	}
	defer lists.Close()
	if _, err := lists.key(); err != nil && err != io.EOF {
		return err
	} else if err == io.EOF {
		return invalid(path, "it has no entries (want one for each node)")
	}
	columns, err := lists.numbers(func(i int64, _ float64) error {
		if i >= format.MaxLabelColumns {
			return fmt.Errorf("more than %d labels a node", format.MaxLabelColumns)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case columns == 0:
		return lists.errorf("an empty list (want the labels of a node)")
	}
	as := LabelsAsClasses
	if l.info.RowBytes += 1 + 4; columns > 1 { // a byte to find nodes that come twice
		as = LabelsAsMulti
		l.info.RowBytes += columns - 4
	}
	l.labels = func(ctx context.Context, to *format.RowTable) (labelResult, error) {
		return readLabels(as, path, columns, to, func(sink *labelSink) error { return l.readClasses(ctx, path, sink) })
	}
	return nil
}

// readClasses reads the labels of all nodes, each once.
func (l *edgeList) readClasses(ctx context.Context, path string, sink *labelSink) error {
	seen := make([]bool, l.info.Nodes)
	err := eachNumberList(l.fsys, path, func(lists *numberLists, key string) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		v, ok := parseUint([]byte(key))
		if !ok || v >= uint64(len(seen)) {
			return lists.errorf("key %q (want a node, 0 to %d)", key, len(seen)-1)
		}
		if seen[v] {
			return lists.errorf("node %d is there twice", v)
		}
		seen[v] = true
		count, err := lists.numbers(func(i int64, label float64) error {
			if i >= sink.columns {
				return fmt.Errorf("node %d has more labels than others (want %d)", v, sink.columns)
			}
			return sink.number(int64(v), i, label)
		})
		if err != nil {
			return err
		}
		if count != sink.columns {
			return lists.errorf("node %d has %d labels, others have %d", v, count, sink.columns)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if v := slices.Index(seen, false); v >= 0 {
		return invalid(path, "node %d has no class (want an entry for each of the %d nodes)", v, len(seen))
	}
	return nil
}

// saintRoleNames are the keys of role.json, in the order of the parts of a split.
var saintRoleNames = []string{"tr", "va", "te"}

// readRoles puts the nodes of each list into its part of a split. A node may be in none.
func readRoles(fsys vfs.FS, path string, to *format.RowTable, split int64) error {
	var found [3]bool
	err := eachNumberList(fsys, path, func(lists *numberLists, key string) error {
		role := slices.Index(saintRoleNames, key)
		if role < 0 || found[role] {
			return lists.errorf(`key %q (want "tr", "va" and "te", each once)`, key)
		}
		found[role] = true
		_, err := lists.numbers(func(_ int64, v float64) error {
			node := int64(v)
			if float64(node) != v || node < 0 || node >= to.Rows {
				return fmt.Errorf("%q lists node %v (want whole numbers, 0 to %d)", key, v, to.Rows-1)
			}
			part := &to.Splits[node*int64(to.NumSplits)+split]
			if *part != format.SplitNone {
				return fmt.Errorf("%q lists node %d, which is listed already", key, node)
			}
			*part = format.SplitTrain + uint8(role)
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	if role := slices.Index(found[:], false); role >= 0 {
		return invalid(path, "no list %q (want \"tr\", \"va\" and \"te\")", saintRoleNames[role])
	}
	return nil
}

var graphSAINTFormat = Format{
	Name:  "graphsaint",
	Short: "a folder of GraphSAINT",
	Help: `SRC is a folder of a data set of GraphSAINT (reddit, yelp, amazon, flickr, ppi): adj_full.npz, feats.npy,
role.json and class_map.json. Row v of the matrix holds the in-neighbours of node v; its values only tell whether
there is an edge.` + scratchHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o GraphSAINTOptions
		flags.StringVar(&o.Adjacency, "adjacency", "full",
			"full: all edges (adj_full.npz); train: edges between training nodes (adj_train.npz)")
		return func(ctx context.Context, in Input) (Source, error) {
			return OpenGraphSAINT(ctx, in.FS, in.Path, in.Scratch, o)
		}
	},
}
