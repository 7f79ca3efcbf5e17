package ingest

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Data sets with several types of nodes that OGB's DatasetSaver has written hold archives in raw, of arrays by type or,
// of edges, by <source>___<relation>___<destination>:
//
//	num_nodes_dict.npz, num_edges_dict.npz   [1]
//	edge_index_dict.npz                      [2,E]
//	node_feat_dict.npz                       [n,F]; also node_year.npz, [n,1]
//	node-label.npz                           [n,L]
//
// and splits in split/<name>/split_dict.pt, which Python has to unpack.
const (
	ogbArrays        = "edge_index_dict.npz"
	ogbArrayFeatures = "node_feat_dict.npz"
	ogbArrayLabels   = "node-label.npz"
)

// arrays lists the arrays of an archive in raw; there are none if it is missing.
func (t *typedOGB) arrays(name string) (path string, names []string, err error) {
	t.read[name] = true
	if path = t.raw.find(name); path != "" {
		names, err = npy.Members(t.fsys, path)
	}
	return path, names, err
}

func (t *typedOGB) readArrayTypes(ctx context.Context) error {
	path, err := t.raw.need("num_nodes_dict.npz")
	if err != nil {
		return err
	}
	_, names, err := t.arrays("num_nodes_dict.npz")
	if err != nil {
		return err
	}
	for _, name := range names {
		nodes, err := t.readArrayCount(path, name, MaxNodes)
		if err == nil && nodes == 0 {
			err = invalid(path, "%.100s: the type has no nodes", name)
		}
		var l *edgeList
		if err == nil {
			l, err = t.addType(path, name, nodes)
		}
		if err == nil {
			err = t.openArrays(ctx, name, l)
		}
		if err != nil {
			return err
		}
		if l.labels != nil {
			t.labelled = append(t.labelled, t.idOf[name])
		}
	}
	return nil
}

func (t *typedOGB) readArrayCount(path, name string, most int64) (int64, error) {
	in := newSource(t.fsys, "ogb")
	return in.readArrayCount(path, name, most)
}

// openArrays opens what there is of the nodes of a type.
func (t *typedOGB) openArrays(ctx context.Context, name string, l *edgeList) error {
	open := func(archive string, open func(path string) error) error {
		path, names, err := t.arrays(archive)
		if err != nil || !slices.Contains(names, name) {
			return err
		}
		return open(path)
	}
	err := open(ogbArrayFeatures, func(path string) error { return l.openArrayFeatures(ctx, path, name) })
	for _, column := range ogbNodeColumns {
		if err == nil {
			err = open(column+".npz", func(path string) error { return l.copyNodeColumn(ctx, path, name, column) })
		}
	}
	if err != nil {
		return err
	}
	return open(ogbArrayLabels, func(path string) error {
		array := func() (*npy.Stream, error) { return npy.OpenStream(t.fsys, path, name) }
		return l.addLabels(array, l.info.Nodes, t.o.LabelsAs, asNode)
	})
}

func (t *typedOGB) readArrayRelations(ctx context.Context) error {
	path, names, err := t.arrays(ogbArrays)
	if err != nil {
		return err
	}
	counts, err := t.raw.need("num_edges_dict.npz")
	if err != nil {
		return err
	}
	t.read["num_edges_dict.npz"] = true
	for _, name := range names {
		parts := strings.Split(name, "___")
		if len(parts) != 3 {
			return invalid(path, "an array %.100q (want names <source>___<relation>___<destination>)", name)
		}
		edges, err := t.readArrayCount(counts, name, format.MaxEdges)
		if err != nil {
			return err
		}
		l, err := t.addRelation(path, parts)
		if err != nil {
			return err
		}
		if err := l.readArrayEdges(ctx, path, name, edges); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return invalid(path, "no relation")
	}
	return nil
}

// noteLeftArrays says which archives are not read.
func (t *typedOGB) noteLeftArrays() error {
	var info Info
	info.noteLeft(t.raw.dir, slices.DeleteFunc(slices.Clone(t.raw.names), func(name string) bool {
		return t.read[name] || !strings.HasSuffix(name, ".npz")
	}))
	t.notes = append(t.notes, info.Notes...)
	return nil
}

const pickledSplits = "split_dict.pt"

// refusePickled fails if path is there: Python has pickled the splits, and no lists were found. It says how Python
// makes the lists.
func refusePickled(fsys vfs.FS, path, lists string) error {
	there, err := exists(fsys, path)
	if there && err == nil {
		err = invalid(path, "pickles are not read, since they may run programs: let Python write the lists, by split = "+
			"torch.load(%q, weights_only=False), and %s", filepath.Base(path), lists)
	}
	return err
}
