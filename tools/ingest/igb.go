package ingest

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// IGBOptions choose between what the Illinois graph benchmark ships.
type IGBOptions struct {
	Classes   string    // "19" (the default) or "2K"
	Direction Direction // that was asked for: Directed leaves out the reverses of relations
}

const igbFeatures = 1024

// igbNames are the graphs that there are, by their number of nodes.
var igbNames = map[int64]string{100_000: "igb-tiny", 1_000_000: "igb-small", 10_000_000: "igb-medium",
	100_000_000: "igb-large", igbFull: "igb-full"}

const igbFull = 269_346_174 // nodes

// igbSize names a graph, and tells how many of its nodes have a label.
func igbSize(n int64, classes string) (name string, labeled int64) {
	switch {
	case n == igbFull && classes == "2K":
		labeled = 157_675_969
	case n == igbFull:
		labeled = 227_130_858
	default:
		labeled = n
	}
	return cmp.Or(igbNames[n], "igb"), labeled
}

// igbFeature and igbEdge are the files of nodes and of edges.
const igbFeature, igbEdge = "node_feat.npy", "edge_index.npy"

// OpenIGB opens a graph of the Illinois graph benchmark (IGB): the folder of one size, or the same files side by side,
// as the download script of IGB-large leaves them:
//
//	processed/paper/node_feat.npy                      [n,1024] float32
//	processed/paper/node_label_19.npy, _2K.npy         [n] numbers
//	processed/paper__cites__paper/edge_index.npy       [E,2] int64
//
// The features and labels of IGB-large and IGB-full are float32 without a header, whatever their names say. In IGB-full
// only the first nodes have labels. There are no split files: the first 60 % of the labelled nodes train, the next 20 %
// validate, and the others test. With other relations than this one, as IGBH has them, the graph has several types.
func OpenIGB(fsys vfs.FS, dir string, o IGBOptions) (_ Source, err error) {
	if o.Classes = cmp.Or(o.Classes, "19"); o.Classes != "19" && o.Classes != "2K" {
		return nil, badOptions("labels of %q classes (want 19 or 2K)", o.Classes)
	}
	processed := filepath.Join(dir, "processed")
	paper, cites := filepath.Join(processed, "paper"), filepath.Join(processed, "paper__cites__paper")
	if there, err := exists(fsys, paper); err != nil {
		return nil, err
	} else if !there {
		paper, cites = dir, dir
	}
	if there, err := exists(fsys, filepath.Join(paper, igbFeature)); err != nil {
		return nil, err
	} else if !there && paper == dir {
		return nil, invalid(dir,
			"neither processed/paper/%s nor %s (want the folder of one size, such as igb/small)", igbFeature, igbFeature)
	}
	if paper != dir {
		types, relations, err := typedFolders(fsys, processed)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(relations, []string{"paper__cites__paper"}) && len(relations) > 0 {
			return openTypedIGB(fsys, processed, types, relations, o)
		}
	}
	s := newArraySource(fsys, "igb", dir)
	defer closeOnError(&err, s)
	if err := s.openIGBFeatures(paper); err != nil {
		return nil, err
	}
	if err := s.openEdges(filepath.Join(cites, igbEdge), "Ex2"); err != nil {
		return nil, err
	}
	s.info.Name, _ = igbSize(s.info.Nodes, o.Classes)
	return s, s.openIGBLabels(paper, o.Classes)
}

// openIGBFeatures opens the features of a folder, which tell how many nodes there are.
func (s *arraySource) openIGBFeatures(folder string) error {
	features, err := s.openMaybeRaw(filepath.Join(folder, igbFeature), "floats [n,F]", float32Rows(igbFeatures))
	if err != nil {
		return err
	}
	s.shards = []*npy.Array{features}
	s.readShards()
	return s.setFeatures(features.Path(), features.Shape[0], features.Shape[1])
}

// typedFolders lists the folders of types and of relations.
func typedFolders(fsys vfs.FS, dir string) (types, relations []string, err error) {
	types, err = foldersIn(fsys, dir)
	for _, name := range types {
		if strings.Contains(name, "__") {
			relations = append(relations, name)
		}
	}
	return slices.DeleteFunc(types, func(name string) bool { return slices.Contains(relations, name) }), relations, err
}

// openTypedIGB opens a heterogeneous graph (IGBH): beside papers and citations there are <type>/node_feat.npy and
// <source>__<relation>__<destination>/edge_index.npy, of the same layouts.
func openTypedIGB(fsys vfs.FS, dir string, types, relations []string, o IGBOptions) (_ Source, err error) {
	s := &typedSource{labelled: []string{"paper"}}
	defer closeOnError(&err, s)
	nodes := map[string]int64{}
	for _, name := range types {
		at := filepath.Join(dir, name)
		if err := format.CheckTypeName(name); err != nil {
			return nil, invalid(at, "%w: rename it, and in the names of relations", err)
		}
		one := newArraySource(fsys, "igb", at)
		s.types = append(s.types, typedPart[string]{id: name, source: one})
		if there, err := exists(fsys, filepath.Join(at, igbFeature)); err != nil {
			return nil, err
		} else if !there {
			return nil, invalid(at, "no %s, which tells how many nodes there are", igbFeature)
		}
		if err := one.openIGBFeatures(at); err != nil {
			return nil, err
		}
		if one.info.Direction, nodes[name] = Directed, one.info.Nodes; name == "paper" {
			if err := one.openIGBLabels(at, o.Classes); err != nil {
				return nil, err
			}
		}
	}
	size, _ := igbSize(nodes["paper"], o.Classes)
	s.name = strings.Replace(size, "igb", "igbh", 1)
	if err := s.openRelations(fsys, "igb", dir, relations, nodes, "Ex2"); err != nil {
		return nil, err
	}
	return s, s.complete(dir, o.Direction, TypedOptions{})
}

// float32Rows says that a file without header holds rows of columns float32 values.
func float32Rows(columns int64) func() (npy.Type, int64, error) {
	return func() (npy.Type, int64, error) { return npy.Float32, columns, nil }
}

// openIGBLabels opens the labels of a folder, and splits the nodes that have some.
func (s *arraySource) openIGBLabels(folder, classes string) error {
	s.info.Input["classes"], s.info.Input["splits"] = classes, "60/20/20 by position"
	_, labeled := igbSize(s.info.Nodes, classes)
	return s.addIGBLabels(filepath.Join(folder, "node_label_"+classes+".npy"), labeled)
}

// addIGBLabels opens the labels of the first labeled nodes, and splits these nodes.
func (s *arraySource) addIGBLabels(path string, labeled int64) error {
	a, err := s.openMaybeRaw(path, "numbers [n] or [n,1]", float32Rows(1))
	if err == nil && a.Shape[0] != s.info.Nodes && a.Shape[0] != labeled {
		err = invalid(path, "array of shape %v (want a number for each of %d nodes)", a.Shape, s.info.Nodes)
	}
	if err != nil {
		return err
	}
	s.info.Input["labeled"] = strconv.FormatInt(labeled, 10)
	ofLabeled := func(row int64) (int64, bool) { return row, row < labeled }
	open := func() (*npy.Stream, error) { return a.Stream(), nil }
	if err := s.addLabels(open, -1, LabelsAsClasses, ofLabeled); err != nil {
		return err
	}
	return s.addSplits(path, 1, func(_ context.Context, to *format.RowTable, _ int64) error {
		splitIGB(to.Splits[:labeled])
		return nil
	})
}

// splitIGB splits labelled nodes as IGB does, which takes the whole part of 0.6 n and of 0.2 n in float64.
func splitIGB(splits []uint8) {
	n := float64(len(splits))
	train, valid := int(n*0.6), int(n*0.2)
	for v := range splits {
		switch {
		case v < train:
			splits[v] = format.SplitTrain
		case v < train+valid:
			splits[v] = format.SplitValid
		default:
			splits[v] = format.SplitTest
		}
	}
}

var igbFormat = Format{
	Name:  "igb",
	Short: "a size of the Illinois Graph Benchmark",
	Help: `SRC is the folder of one size of the Illinois Graph Benchmark (with processed/paper in it, or, if
homogeneous, with all files in one folder). The first 60 % of the labelled nodes train, the next 20 % validate, the
rest test.

With other relations than processed/paper__cites__paper, the graph has several types of nodes, and papers are
classified. The reverse of each relation is added, unless one goes back already, or --directed is given.`,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o IGBOptions
		flags.StringVar(&o.Classes, "classes", "19", "labels to import: 19 or 2K classes")
		return func(_ context.Context, in Input) (Source, error) {
			o.Direction = in.Direction
			return OpenIGB(in.FS, in.Path, o)
		}
	},
}
