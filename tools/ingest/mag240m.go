package ingest

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// isMAG240M tells whether a folder is laid out as MAG240M.
func isMAG240M(fsys vfs.FS, dir string) bool {
	there, err := exists(fsys, filepath.Join(dir, "processed", "paper", "node_feat.npy"))
	return there && err == nil
}

// openMAG240M opens MAG240M, of OGB's large-scale challenge:
//
//	processed/paper/node_feat.npy        [n,768] float16
//	processed/paper/node_label.npy       [n] floats, NaN is unlabelled
//	processed/paper/node_year.npy        [n] integers: the column year
//	processed/<source>___<relation>___<destination>/edge_index.npy    [2,E]
//	split_dict.pt                        which Python has to unpack to processed/paper/{train,valid,test}_idx.npy
//
// A type without features has the nodes that its edges name.
func openMAG240M(ctx context.Context, fsys vfs.FS, dir string, o OGBOptions) (_ Source, err error) {
	if o.Features != "" {
		return nil, badOptions("--features is for graphs with one type of nodes (--missing-features is for several)")
	}
	s := &typedSource{name: "mag240m"}
	defer closeOnError(&err, s)
	processed := filepath.Join(dir, "processed")
	types, relations, err := typedFolders(fsys, processed)
	if err != nil {
		return nil, err
	}
	nodes, err := countNodes(ctx, fsys, processed, types, relations)
	if err != nil {
		return nil, err
	}
	if err := s.openTypes(fsys, "ogb", processed, nodes, NPYOptions{LabelsAs: o.LabelsAs}); err != nil {
		return nil, err
	}
	if err := s.openRelations(fsys, "ogb", processed, relations, nodes, "2xE"); err != nil {
		return nil, err
	}
	paper := s.types[slices.IndexFunc(s.types, func(t typedPart[string]) bool { return t.id == "paper" })]
	if splits := paper.source.(*arraySource).splits; len(splits) == 0 {
		if err := refusePickled(fsys, filepath.Join(dir, pickledSplits), "for part, ids in split.items(): "+
			"numpy.save(f\"processed/paper/{part}_idx.npy\", ids)"); err != nil {
			return nil, err
		}
	}
	return s, s.complete(processed, o.Direction, o.TypedOptions)
}

// countNodes returns the number of nodes of each type: rows of its features or, without them, one more than its largest
// id in the edges.
func countNodes(ctx context.Context, fsys vfs.FS, dir string, types, relations []string) (map[string]int64, error) {
	nodes, withFeatures := map[string]int64{}, map[string]bool{}
	for _, name := range types {
		path := filepath.Join(dir, name, "node_feat.npy")
		a, err := npy.Open(fsys, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := checkArray(path, &a.Header, "floats [n,F]"); err != nil {
			return nil, errors.Join(err, a.Close())
		}
		nodes[name], withFeatures[name] = a.Shape[0], true
		if err := a.Close(); err != nil {
			return nil, err
		}
	}
	for _, name := range relations {
		r, err := parseRelation(filepath.Join(dir, name), name)
		if err != nil {
			return nil, err
		}
		ends := [2]string{r.Source, r.Destination}
		if withFeatures[ends[0]] && withFeatures[ends[1]] {
			continue
		}
		largest, err := largestIDs(ctx, fsys, filepath.Join(dir, name, "edge_index.npy"))
		if err != nil {
			return nil, err
		}
		for k, end := range ends {
			if !withFeatures[end] {
				nodes[end] = max(nodes[end], largest[k]+1)
			}
		}
	}
	return nodes, nil
}

// largestIDs is the largest id of a source and of a destination in an array of edges [2,E]; -1: there are none.
func largestIDs(ctx context.Context, fsys vfs.FS, path string) (largest [2]int64, err error) {
	a, err := npy.Open(fsys, path)
	if err != nil {
		return largest, err
	}
	defer a.Close()
	if err := checkArray(path, &a.Header, "integers [2,E]"); err != nil {
		return largest, err
	}
	largest, edges := [2]int64{-1, -1}, a.Shape[1]
	return largest, each(ctx, a.Stream(), func(i, id int64) error {
		end := i / edges
		if a.Fortran {
			end = i % 2
		}
		largest[end] = max(largest[end], id)
		return nil
	})
}
