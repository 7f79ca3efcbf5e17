package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// IGBOptions choose between what the Illinois graph benchmark ships.
type IGBOptions struct {
	Classes string // "19" (the default) or "2K"
}

// igbSource is a homogeneous graph of the Illinois graph benchmark (IGB): the
// folder of one size, or the same files side by side, as the download script of
// IGB-large leaves them:
//
//	processed/paper/node_feat.npy                      [n,1024] float32
//	processed/paper/node_label_19.npy, _2K.npy         [n] numbers
//	processed/paper__cites__paper/edge_index.npy       [E,2] int64
//
// The features and labels of IGB-large and IGB-full are float32 without a header,
// whatever their names say. There are no split files: of the labelled nodes the
// first 60 % train, the next 20 % validate, and the others test.
type igbSource struct {
	npySource
	labeled int64 // nodes from the first on that have a label
}

const igbFeatures = 1024

// igbSizes are the graphs that there are, and how many of their nodes have a label.
var igbSizes = []struct {
	name                       string
	nodes, labeled19, labeled2 int64
}{
	{"igb-tiny", 100_000, 100_000, 100_000},
	{"igb-small", 1_000_000, 1_000_000, 1_000_000},
	{"igb-medium", 10_000_000, 10_000_000, 10_000_000},
	{"igb-large", 100_000_000, 100_000_000, 100_000_000},
	{"igb-full", 269_346_174, 227_130_858, 157_675_969},
}

// igbSize names a graph of n nodes, and tells how many have a label.
func igbSize(n int64, classes string) (name string, labeled int64) {
	for _, s := range igbSizes {
		if s.nodes == n && classes == "2K" {
			return s.name, s.labeled2
		} else if s.nodes == n {
			return s.name, s.labeled19
		}
	}
	return "igb", n
}

// OpenIGB opens a homogeneous graph of IGB.
func OpenIGB(fsys vfs.FS, dir string, o IGBOptions) (_ Source, err error) {
	if o.Classes == "" {
		o.Classes = "19"
	}
	if o.Classes != "19" && o.Classes != "2K" {
		return nil, fmt.Errorf("%w: labels of %q classes (want 19 or 2K)", ErrOptions, o.Classes)
	}
	paper, cites := filepath.Join(dir, "processed", "paper"), filepath.Join(dir, "processed", "paper__cites__paper")
	const feature, edge = "node_feat.npy", "edge_index.npy"
	if there, err := exists(fsys, paper); err != nil {
		return nil, err
	} else if !there {
		if there, err := exists(fsys, filepath.Join(dir, feature)); err != nil {
			return nil, err
		} else if !there {
			return nil, fmt.Errorf("%w: %s: neither processed/paper/%s nor %s (want the folder of one size, such as igb/small)", ErrInvalid, dir, feature, feature)
		}
		paper, cites = dir, dir
	}
	s := &igbSource{npySource: npySource{fsys: vfs.NewPastCache(fsys), dir: dir, info: Info{
		Beside: true,
		Input:  map[string]string{"source": "igb", "classes": o.Classes, "splits": "60/20/20 by position"},
	}}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	features, err := openHeaderless(fsys, filepath.Join(paper, feature), igbFeatures)
	if err != nil {
		return nil, err
	}
	s.features = []*npy.Array{features}
	if !features.Type.IsFloat() || len(features.Shape) != 2 {
		return nil, fmt.Errorf("%w: %s: %s array of shape %v (want [n,%d] floats)", ErrInvalid, features.Path(), features.Type, features.Shape, igbFeatures)
	}
	if err := s.setFeatures(features.Path(), features.Shape[0], features.Shape[1]); err != nil {
		return nil, err
	}
	if err := s.openEdges(filepath.Join(cites, edge), "Ex2"); err != nil {
		return nil, err
	}
	s.info.Name, s.labeled = igbSize(s.info.Nodes, o.Classes)
	return s, s.openLabels(filepath.Join(paper, "node_label_"+o.Classes+".npy"))
}

// openHeaderless opens a .npy file, or, where it does not begin as one, takes it
// for nothing but float32 in rows of the given length.
func openHeaderless(fsys vfs.FS, path string, rowLength int64) (*npy.Array, error) {
	if ok, err := npy.HasHeader(fsys, path); err != nil {
		return nil, err
	} else if ok {
		return npy.Open(fsys, path)
	}
	file, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	rows := file.Size() / (4 * rowLength)
	if rows == 0 || rows*4*rowLength != file.Size() {
		return nil, fmt.Errorf("%w: %s: %d bytes without a .npy header are no float32 in rows of %d (truncated?)", ErrInvalid, path, file.Size(), rowLength)
	}
	if rowLength == 1 {
		return npy.OpenRaw(fsys, path, npy.Float32, rows)
	}
	return npy.OpenRaw(fsys, path, npy.Float32, rows, rowLength)
}

// exists tells whether there is a file or folder of that name.
func exists(fsys vfs.FS, path string) (bool, error) {
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// openLabels opens the labels. In IGB-full, only the labelled nodes need have one.
func (s *igbSource) openLabels(path string) (err error) {
	if s.labels, err = openHeaderless(s.fsys, path, 1); err != nil {
		return err
	}
	a, n := s.labels, s.info.Nodes
	if !a.Type.IsNumber() || !isColumn(a.Shape) || a.Shape[0] != n && a.Shape[0] != s.labeled {
		return fmt.Errorf("%w: %s: %s array of shape %v (want a number for each of %d nodes)", ErrInvalid, path, a.Type, a.Shape, n)
	}
	s.info.RowBytes = 5
	s.info.Input["labeled"] = strconv.FormatInt(s.labeled, 10)
	return nil
}

func (s *igbSource) Rows(ctx context.Context) (*format.RowTable, error) {
	t := &format.RowTable{Rows: s.info.Nodes, NumSplits: 1, Splits: make([]uint8, s.info.Nodes)}
	a := s.labels
	found, err := readLabelArray(ctx, LabelsAsClasses, a, t, func(row int64) (int64, bool) { return row, row < s.labeled })
	if err != nil {
		return nil, err
	}
	s.info.foundLabels(found)
	// IGB takes the whole part of 0.6 n and of 0.2 n in float64.
	train, valid := int64(float64(s.labeled)*0.6), int64(float64(s.labeled)*0.2)
	for v := range s.labeled {
		switch {
		case v < train:
			t.Splits[v] = format.SplitTrain
		case v < train+valid:
			t.Splits[v] = format.SplitValid
		default:
			t.Splits[v] = format.SplitTest
		}
	}
	return t, nil
}

var igbFormat = Format{
	Name: "igb",
	Help: `SRC is the folder of one size of the homogeneous Illinois Graph Benchmark (with processed/paper in it, or
with all files in one folder). Of the labelled nodes the first 60 % train, the next 20 % validate, the rest test.`,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o IGBOptions
		flags.StringVar(&o.Classes, "classes", "19", "which labels to import: those of 19 or of 2K classes")
		return func(_ context.Context, in Input) (Source, error) { return OpenIGB(in.FS, in.Path, o) }
	},
}
