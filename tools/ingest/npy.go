package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// NPYOptions say what the files of the npy layout do not say themselves.
type NPYOptions struct {
	// EdgeLayout is "2xE" or "Ex2"; empty: as the shape says, which it does for
	// any number of edges but two.
	EdgeLayout string
	// FeatureType is BFloat16 for features stored as uint16 or int16, or the type
	// of a raw feature file.
	FeatureType npy.Type
	// FeatureShape [n,F] is that of features without header, in C order, over all
	// shards; without it, meta.json may say it (num_nodes, num_features).
	FeatureShape []int64
	LabelsAs     LabelsAs // where node_label.npy does not show what its numbers are
}

// npySource is a directory in the npy layout:
//
//	edge_index.npy       [2,E] or [E,2] integers: source, destination
//	node_feat.npy        [n,F] numbers; or in shards node_feat_0.npy, node_feat_1.npy, ... of rows;
//	                     or node_feat.npz, a scipy CSR matrix
//	node_label.npy       optional [n], [n,1] or [n,L] numbers: -1 or NaN is unlabelled
//	splits.npy           optional [k,n] or [n] integers: 0 train, 1 valid, 2 test, -1 none
//	train_idx.npy        optional, with valid_idx.npy and test_idx.npy: node ids of one split; beside
//	                     splits.npy they must say the same as its first
//	splits_<name>.npy    optional [k,n]: further splits, in order of their names
//	edge_weight.npy      optional [E] or [E,1] numbers
//	orig_id.npy          optional [n] strings: ids of the nodes elsewhere
//	meta.json            optional: name, num_nodes, num_features, directed (false: each edge is stored
//	                     once), reverses_stored (true: undirected, but both directions are stored),
//	                     feature_dtype (bfloat16, or that of features without header), edge_layout (2xE, Ex2)
type npySource struct {
	fsys     vfs.FS
	dir      string
	names    map[string]bool // files there
	info     Info
	edges    *npy.Array
	weights  *npy.Array
	pairs    bool // source and destination of an edge lie side by side
	features []*npy.Array
	labels   *npy.Array
	splits   []*npy.Array
	indices  []splitList
	origIDs  *npy.Array
	labelsAs LabelsAs
	classes  []string // names of the classes, as meta.json says
}

// splitList is a list of the nodes of one part of a split.
type splitList struct {
	*npy.Array
	split uint8
}

// OpenNPY opens a directory in the npy layout and compares its shapes.
func OpenNPY(fsys vfs.FS, dir string, o NPYOptions) (_ Source, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &npySource{fsys: vfs.NewPastCache(fsys), dir: dir, names: map[string]bool{}, info: Info{
		Beside: true,
		Name:   nameOf(fsys, dir),
		Nodes:  -1,
		Input:  map[string]string{"source": "npy"},
	}}
	for _, e := range entries {
		s.names[e.Name()] = true // opening a folder by one of these names fails by name
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.names[npy.LockName] && !s.names["meta.json"] {
		return nil, fmt.Errorf("%w: %s: the file %s says that an export to this folder is running or was killed: export again", ErrInvalid, dir, npy.LockName)
	}
	if !s.names["edge_index.npy"] {
		return nil, fmt.Errorf("%w: %s: no edge_index.npy%s (want a folder of numpy arrays; see hopfeed import npy --help)", ErrInvalid, dir, arrayHint(s.names, "edge_index.npy"))
	}
	meta, err := s.readMeta()
	if err != nil {
		return nil, err
	}
	if meta.FeatureDType == npy.BFloat16.String() && o.FeatureType == 0 {
		o.FeatureType = npy.BFloat16
	}
	if s.labelsAs = cmp.Or(o.LabelsAs, LabelsByContent); s.labelsAs.auto() {
		s.labelsAs = meta.LabelsAs
	}
	if err := s.labelsAs.check(); err != nil {
		return nil, err
	}
	s.classes = meta.ClassNames
	if o.EdgeLayout == "" {
		o.EdgeLayout = meta.EdgeLayout
	} else if meta.EdgeLayout != "" && o.EdgeLayout != meta.EdgeLayout {
		return nil, fmt.Errorf("%w: %s says that the edge layout is %s; leave out --edge-layout", ErrOptions, s.path("meta.json"), meta.EdgeLayout)
	}
	for _, open := range []func() error{
		func() error { return s.openEdges(s.path("edge_index.npy"), o.EdgeLayout) },
		s.openWeights,
		func() error { return s.openFeatures(o, meta) },
		s.openLabels,
		s.openSplits,
		s.openOrigIDs,
	} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	s.noteLeft()
	return s, s.checkMeta(meta)
}

// noteLeft says which arrays of the folder are not imported.
func (s *npySource) noteLeft() {
	used := map[string]bool{"edge_index.npy": true}
	arrays := append([]*npy.Array{s.weights, s.labels, s.origIDs}, slices.Concat(s.features, s.splits)...)
	for _, l := range s.indices {
		arrays = append(arrays, l.Array)
	}
	for _, a := range arrays {
		if a != nil {
			used[filepath.Base(a.Path())] = true
		}
	}
	var left []string
	for name := range s.names {
		if isArray := strings.HasSuffix(name, ".npy") || strings.HasSuffix(name, ".npz"); isArray && !used[name] && name != "node_feat.npz" {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	s.info.noteLeft(s.dir, left)
	if hint := arrayHint(s.names, "node_label.npy"); s.labels == nil && hint != "" {
		s.info.Notes = append(s.info.Notes, s.dir+": no node_label.npy"+hint)
	}
}

func (s *npySource) Info() Info { return s.info }

func (s *npySource) path(name string) string { return filepath.Join(s.dir, name) }

// Close closes all files.
func (s *npySource) Close() error {
	arrays := append([]*npy.Array{s.edges, s.weights, s.labels, s.origIDs}, s.features...)
	arrays = append(arrays, s.splits...)
	for _, l := range s.indices {
		arrays = append(arrays, l.Array)
	}
	var errs []error
	for _, a := range arrays {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	return errors.Join(errs...)
}

// openIntegers opens an array of integers with one of the given numbers of axes;
// want says the same in words.
func openIntegers(fsys vfs.FS, path, want string, axes ...int) (*npy.Array, error) {
	a, err := npy.Open(fsys, path)
	if err != nil {
		return nil, err
	}
	if !a.Type.IsInteger() || !slices.Contains(axes, len(a.Shape)) {
		a.Close()
		return nil, fmt.Errorf("%w: %s: %s array of shape %v (want %s)", ErrInvalid, a.Path(), a.Type, a.Shape, want)
	}
	return a, nil
}

// openEdges opens the array of edges, whose layout is "2xE", "Ex2" or, if empty, to
// be seen from its shape.
func (s *npySource) openEdges(path, layout string) (err error) {
	if s.edges, err = openIntegers(s.fsys, path, "integers [2,E] or [E,2]", 2); err != nil {
		return err
	}
	a := s.edges
	rows := a.Shape[0] == 2 // 2xE fits
	cols := a.Shape[1] == 2 // Ex2 fits
	switch {
	case layout == "2xE":
		cols = false
	case layout == "Ex2":
		rows = false
	case layout != "":
		return fmt.Errorf("%w: --edge-layout %q (want 2xE or Ex2)", ErrOptions, layout)
	case rows && cols:
		return fmt.Errorf("%w: %s: shape [2 2] can be [2,E] or [E,2]: give --edge-layout 2xE or Ex2", ErrInvalid, a.Path())
	}
	if !rows && !cols {
		return fmt.Errorf("%w: %s: shape %v is not that of edges%s (want [2,E] or [E,2])", ErrInvalid, a.Path(), a.Shape, map[bool]string{true: " of layout " + layout}[layout != ""])
	}
	s.pairs = cols != a.Fortran
	s.info.Edges = a.Elements() / 2
	return nil
}

func (s *npySource) openWeights() (err error) {
	if !s.names["edge_weight.npy"] {
		return nil
	}
	a := s.edges
	if s.weights, err = npy.Open(s.fsys, s.path("edge_weight.npy")); err != nil {
		return err
	}
	w := s.weights
	if !w.Type.IsNumber() || !isColumn(w.Shape) || w.Shape[0] != a.Elements()/2 {
		return fmt.Errorf("%w: %s: %s array of shape %v (want a number for each of %d edges)", ErrInvalid, w.Path(), w.Type, w.Shape, a.Elements()/2)
	}
	s.info.Weighted, s.info.WeightsFrom = true, w.Path()
	return nil
}

func (s *npySource) openLabels() (err error) {
	if !s.names["node_label.npy"] {
		s.info.Notes = append(s.info.Notes, "the graph has no labels: there is no node_label.npy")
		return nil
	}
	if s.labels, err = npy.Open(s.fsys, s.path("node_label.npy")); err != nil {
		return err
	}
	bytes, err := labelBytes(s.labels.Path(), &s.labels.Header, s.info.Nodes, s.labelsAs)
	s.info.RowBytes += bytes
	return err
}

// openSplits opens splits.npy or the lists of one split, and after these the
// further splits.
func (s *npySource) openSplits() error {
	var names []string
	for name := range s.names {
		if !strings.HasPrefix(name, "splits_") || !strings.HasSuffix(name, ".npy") {
			continue
		}
		if !printable(name) {
			return fmt.Errorf("%w: %q: the file name has a character that cannot be printed: rename the file", ErrInvalid, s.path(name))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if s.names["splits.npy"] {
		names = slices.Insert(names, 0, "splits.npy")
	}
	var said []string
	for i, name := range []string{"train_idx.npy", "valid_idx.npy", "test_idx.npy"} {
		if !s.names[name] {
			continue
		}
		a, err := openIntegers(s.fsys, s.path(name), "ids of nodes; numpy.flatnonzero makes them of a mask", 1)
		if err != nil {
			return err
		}
		s.indices = append(s.indices, splitList{a, format.SplitTrain + uint8(i)})
	}
	splits := int64(0)
	if len(s.indices) > 0 && !s.names["splits.npy"] {
		said = append(said, "*_idx.npy")
		s.info.RowBytes++
		splits++
	}
	for _, name := range names {
		a, err := openSplitArray(s.fsys, s.path(name), s.info.Nodes)
		if err != nil {
			return err
		}
		s.splits = append(s.splits, a)
		k := numSplits(a)
		s.info.RowBytes += k
		if splits += k; splits > format.MaxSplits {
			return errSplits(s.dir, splits)
		}
		said = append(said, fmt.Sprintf("%s[%d]", name, k))
	}
	if len(said) == 0 {
		s.info.Notes = append(s.info.Notes, "the graph has no splits: there is no splits.npy and no train_idx.npy")
		return nil
	}
	s.info.Input["splits"] = strings.Join(said, " ")
	return nil
}

func (s *npySource) openOrigIDs() (err error) {
	if !s.names["orig_id.npy"] {
		return nil
	}
	if s.origIDs, err = npy.Open(s.fsys, s.path("orig_id.npy")); err != nil {
		return err
	}
	a := s.origIDs
	if a.Type.IsNumber() || !isColumn(a.Shape) || a.Shape[0] != s.info.Nodes {
		return fmt.Errorf("%w: %s: %s array of shape %v (want a string for each of %d nodes)", ErrInvalid, a.Path(), a.Type, a.Shape, s.info.Nodes)
	}
	s.info.RowBytes += 16 + a.Width // of ASCII
	return nil
}

// edgeBlock is the number of edges that are read in one go.
const edgeBlock = 1 << 16

// edgeBuffer is what reading a block takes.
type edgeBuffer struct {
	ids      []int64
	src, dst []uint32
	weights  []float32
}

func (s *npySource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	m := s.edges.Elements() / 2
	buffers := sync.Pool{New: func() any {
		return &edgeBuffer{make([]int64, 2*edgeBlock), make([]uint32, edgeBlock), make([]uint32, edgeBlock), make([]float32, edgeBlock)}
	}}
	return parallel.For(ctx, threads, m, edgeBlock, func(first, end int64) error {
		b := buffers.Get().(*edgeBuffer)
		defer buffers.Put(b)
		e, err := s.readEdges(b, first, int(end-first))
		if err != nil {
			return err
		}
		return emit(e)
	})
}

func (s *npySource) readEdges(b *edgeBuffer, first int64, n int) (Edges, error) {
	e := Edges{Src: b.src[:n], Dst: b.dst[:n]}
	m := s.edges.Elements() / 2
	ids := b.ids[:2*n]
	step, dst := 1, n // where in ids the source of the next edge, and a destination, are
	if s.pairs {
		step, dst = 2, 1
		if err := npy.Read(s.edges, ids, 2*first); err != nil {
			return e, err
		}
	} else {
		if err := npy.Read(s.edges, ids[:n], first); err != nil {
			return e, err
		}
		if err := npy.Read(s.edges, ids[n:], m+first); err != nil {
			return e, err
		}
	}
	for i := range n {
		u, v := ids[i*step], ids[i*step+dst]
		if uint64(u) >= uint64(s.info.Nodes) {
			return e, s.badEdge(first+int64(i), 0)
		}
		if uint64(v) >= uint64(s.info.Nodes) {
			return e, s.badEdge(first+int64(i), 1)
		}
		e.Src[i], e.Dst[i] = uint32(u), uint32(v)
	}
	if s.weights == nil {
		return e, nil
	}
	e.Weights = b.weights[:n]
	if err := npy.Read(s.weights, e.Weights, first); err != nil {
		return e, err
	}
	for i, w := range e.Weights {
		if !(w >= 0) || math.IsInf(float64(w), 0) {
			return e, fmt.Errorf("%w: %s: edge %d has weight %s (want finite float32, not negative)", ErrInvalid, s.weights.Path(), first+int64(i), s.weights.Element(first+int64(i)))
		}
	}
	return e, nil
}

// badEdge names the end of an edge that is no node.
func (s *npySource) badEdge(edge, end int64) error {
	at := end*s.edges.Elements()/2 + edge
	if s.pairs {
		at = 2*edge + end
	}
	return fmt.Errorf("%w: %s: edge %d has %s %s, but there are %d nodes",
		ErrInvalid, s.edges.Path(), edge, [2]string{"source", "destination"}[end], s.edges.Element(at), s.info.Nodes)
}

func (s *npySource) Rows(ctx context.Context) (*format.RowTable, error) {
	t := &format.RowTable{Rows: s.info.Nodes}
	if a := s.labels; a != nil {
		found, err := readLabelArray(ctx, s.labelsAs, a, t, asNode)
		if err != nil {
			return nil, err
		}
		if s.classes != nil && t.Labels != nil && found.names == nil {
			found.names = s.classes
			if most := slices.Max(append([]int32{-1}, t.Labels...)); int(most) != len(s.classes)-1 {
				return nil, fmt.Errorf("%w: %s: class_names has %d names, but the greatest label is %d", ErrInvalid, s.path("meta.json"), len(s.classes), most)
			}
		}
		s.info.foundLabels(found)
	}
	if err := s.readSplits(ctx, t); err != nil {
		return nil, err
	}
	if s.origIDs != nil {
		var err error
		if t.OrigID, err = s.origIDs.Strings(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readSplits reads all splits: first splits.npy or the lists, then the others.
func (s *npySource) readSplits(ctx context.Context, t *format.RowTable) error {
	n := s.info.Nodes
	lists := len(s.indices) > 0 && !s.names["splits.npy"]
	if lists {
		t.NumSplits = 1
	}
	for _, a := range s.splits {
		t.NumSplits += int(numSplits(a))
	}
	if t.NumSplits == 0 {
		return nil
	}
	k := int64(t.NumSplits)
	t.Splits = make([]uint8, n*k)
	at := int64(0)
	if lists {
		at = 1
		if err := s.readLists(ctx, func(node int64, list splitList) error {
			if was := t.Splits[node*k]; was != format.SplitNone {
				return fmt.Errorf("%w: %s: node %d is listed twice", ErrInvalid, list.Path(), node)
			}
			t.Splits[node*k] = list.split
			return nil
		}); err != nil {
			return err
		}
	}
	for _, a := range s.splits {
		if err := readSplitArray(ctx, a, t, at, asNode); err != nil {
			return err
		}
		at += numSplits(a)
	}
	if lists || len(s.indices) == 0 {
		return nil
	}
	return s.readLists(ctx, func(node int64, list splitList) error {
		if t.Splits[node*k] != list.split {
			return fmt.Errorf("%w: %s: node %d is in another set in the first split of splits.npy: remove one of the two files", ErrInvalid, list.Path(), node)
		}
		return nil
	})
}

// readLists calls body with the nodes of train_idx.npy and its like.
func (s *npySource) readLists(ctx context.Context, body func(node int64, list splitList) error) error {
	for _, list := range s.indices {
		err := each(ctx, list.Elements(), fromStart[int64](list.Array), func(i, v int64) error {
			if uint64(v) >= uint64(s.info.Nodes) {
				return fmt.Errorf("%w: %s: entry %d is %s, but there are %d nodes", ErrInvalid, list.Path(), i, list.Element(i), s.info.Nodes)
			}
			return body(v, list)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var npyFormat = Format{
	Name: "npy",
	Help: `SRC holds edge_index.npy [2,E] (row 0 source, row 1 destination), node_feat.npy [n,F] or
node_feat.npz (scipy CSR), and optionally node_label.npy [n] or [n,L], splits.npy [k,n] (0 train,
1 valid, 2 test, -1 none) or train_idx.npy, valid_idx.npy and test_idx.npy, further splits_*.npy,
edge_weight.npy [E], and meta.json, which says whether edges are directed.`,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o NPYOptions
		var dtype, shape string
		o.LabelsAs.declare(flags)
		flags.StringVar(&o.EdgeLayout, "edge-layout", "", "layout of edge_index.npy if its shape is [2,2]: 2xE or Ex2")
		flags.StringVar(&dtype, "feature-dtype", "", "type of the features if the file does not say: bfloat16, or the type of an array without header")
		flags.StringVar(&shape, "shape", "", "ROWS,COLUMNS of node_feat.npy, or of all its shards together, if it has no header")
		return func(_ context.Context, in Input) (Source, error) {
			if dtype != "" {
				t, err := npy.ParseType(dtype)
				if err != nil {
					return nil, fmt.Errorf("%w: --feature-dtype: %w", ErrOptions, err)
				}
				o.FeatureType = t
			}
			if shape != "" {
				rows, columns, ok := strings.Cut(shape, ",")
				for _, field := range []string{rows, columns} {
					size, err := strconv.ParseInt(strings.TrimSpace(field), 10, 64)
					if !ok || err != nil || size < 0 {
						return nil, fmt.Errorf("%w: --shape %s: want ROWS,COLUMNS", ErrOptions, shape)
					}
					o.FeatureShape = append(o.FeatureShape, size)
				}
			}
			return OpenNPY(in.FS, in.Path, o)
		}
	},
}
