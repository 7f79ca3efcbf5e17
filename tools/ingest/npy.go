package ingest

import (
	"bytes"
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
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/jsontext"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// NPYOptions say what the files of the npy layout do not say themselves.
type NPYOptions struct {
	// EdgeLayout is "2xE" or "Ex2"; empty: as the shape says, which it does for any number of edges but two.
	EdgeLayout string
	// FeatureType is BFloat16 for features stored as uint16 or int16, or the type of a raw feature file.
	FeatureType npy.Type
	// FeatureShape [n,F] is that of features without header, in C order, over all shards; without it, meta.json may say
	// it (num_nodes, num_features).
	FeatureShape []int64
	LabelsAs     LabelsAs // where node_label.npy does not show the kind of its numbers
	// WithoutFeatures accepts that there are none, if meta.json has num_nodes
	WithoutFeatures bool
	TypedOptions
}

// arraySource is edges, features, labels and splits in arrays, read by position: IGB's (igb.go), or a directory in the
// npy layout:
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
//	edge_<name>.npy      optional [E] or [E,k] numbers: the column edge_<name> of the edges
//	node_<name>.npy      optional [n] or [n,k] numbers: the column <name> of the nodes
//	orig_id.npy          optional [n] strings: ids of the nodes elsewhere
//	meta.json            optional: name, num_nodes, num_features, directed (false: each edge is stored
//	                     once), reverses_stored (true: undirected, but both directions are stored),
//	                     feature_dtype (bfloat16, or that of features without header), edge_layout (2xE, Ex2)
type arraySource struct {
	source
	dir     string
	names   map[string]bool // files there
	used    map[string]bool // of these
	edges   *npy.Array      // nil: none, of a type of nodes
	weights *npy.Array
	pairs   bool         // source and destination of an edge lie side by side
	shards  []*npy.Array // of features
	columns []inputColumn
}

func newArraySource(fsys vfs.FS, format, dir string) *arraySource {
	return &arraySource{source: newSource(vfs.NewPastCache(fsys), format), dir: dir, names: map[string]bool{},
		used: map[string]bool{}}
}

// OpenNPY opens a directory in the npy layout and compares its shapes.
func OpenNPY(fsys vfs.FS, dir string, o NPYOptions) (_ Source, err error) {
	s := newArraySource(fsys, "npy", dir)
	if err := s.list(); err != nil {
		return nil, err
	}
	s.info.Name = nameOf(fsys, dir)
	defer closeOnError(&err, s)
	if s.names[npy.LockName] && !s.names["meta.json"] {
		return nil, invalid(dir,
			"the file %s says that an export to this folder is running or was killed: export again", npy.LockName)
	}
	if !s.has("edge_index.npy") {
		return nil, invalid(dir, "no edge_index.npy%s (want a folder of numpy arrays; see hopfeed import npy --help)",
			arrayHint(s.names, "edge_index.npy"))
	}
	meta, err := s.readMeta(&o)
	if err != nil {
		return nil, err
	}
	if o.EdgeLayout == "" {
		o.EdgeLayout = meta.EdgeLayout
	} else if meta.EdgeLayout != "" && o.EdgeLayout != meta.EdgeLayout {
		return nil, badOptions("%s says that the edge layout is %s; leave out --edge-layout",
			s.path("meta.json"), meta.EdgeLayout)
	}
	if err := s.openEdgeFiles(o.EdgeLayout); err != nil {
		return nil, err
	}
	if err := s.openFeatures(o, meta); err != nil {
		return nil, err
	}
	if err := s.openNodeFiles(o, meta); err != nil {
		return nil, err
	}
	if s.labels == nil {
		s.info.note("the graph has no labels: there is no node_label.npy")
	}
	if s.splits == nil {
		s.info.note("the graph has no splits: there is no splits.npy and no train_idx.npy")
	}
	s.noteLeft()
	return s, s.checkMeta(meta)
}

// openEdgeFiles opens the edges, their weights and columns.
func (s *arraySource) openEdgeFiles(layout string) error {
	if err := s.openEdges(s.path("edge_index.npy"), layout); err != nil {
		return err
	}
	if err := s.openWeights(); err != nil {
		return err
	}
	return s.openColumns(format.OfEdges)
}

// openNodeFiles opens what there is of nodes beside features, which tell how many nodes there are.
func (s *arraySource) openNodeFiles(o NPYOptions, meta npyMeta) error {
	if err := s.openLabels(o.LabelsAs, meta.ClassNames); err != nil {
		return err
	}
	if err := s.openSplits(); err != nil {
		return err
	}
	if err := s.openOrigIDs(); err != nil {
		return err
	}
	return s.openColumns(format.OfNodes)
}

// has tells whether a file is there, and that it is read.
func (s *arraySource) has(name string) bool {
	s.used[name] = true
	return s.names[name]
}

func (s *arraySource) noteLeft() {
	var left []string
	for name := range s.names {
		if isArray := strings.HasSuffix(name, ".npy") || strings.HasSuffix(name, ".npz"); isArray && !s.used[name] {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	s.info.noteLeft(s.dir, left)
	if hint := arrayHint(s.names, "node_label.npy"); s.labels == nil && hint != "" {
		s.info.note(s.dir + ": no node_label.npy" + hint)
	}
}

func (s *arraySource) path(name string) string { return filepath.Join(s.dir, name) }

// openEdges opens the array of edges, whose layout is "2xE", "Ex2" or, if empty, to be seen from its shape.
func (s *arraySource) openEdges(path, layout string) (err error) {
	shapes := map[string]string{"": "[2,E] or [E,2]", "2xE": "[2,E]", "Ex2": "[E,2]"}[layout]
	if shapes == "" {
		return badOptions("--edge-layout %q (want 2xE or Ex2)", layout)
	}
	if s.edges, err = s.openArray(path, "integers "+shapes); err != nil {
		return err
	}
	a := s.edges
	if layout == "" && slices.Equal(a.Shape, []int64{2, 2}) {
		return invalid(path, "shape [2 2] can be [2,E] or [E,2]: give --edge-layout 2xE or Ex2")
	}
	s.pairs = (layout == "Ex2" || layout == "" && a.Shape[1] == 2) != a.Fortran
	s.info.Edges = a.Elements() / 2
	return nil
}

func (s *arraySource) openWeights() (err error) {
	if !s.has("edge_weight.npy") {
		return nil
	}
	s.info.Weighted, s.info.WeightsFrom = true, s.path("edge_weight.npy")
	s.weights, err = s.openArray(s.info.WeightsFrom,
		fmt.Sprintf("numbers [%d] or [%[1]d,1]: one for each edge", s.info.Edges))
	return err
}

func (s *arraySource) openLabels(as LabelsAs, classes []string) error {
	if !s.has("node_label.npy") {
		return nil
	}
	if err := s.openLabelArray(s.path("node_label.npy"), s.info.Nodes, as, asNode); err != nil || classes == nil {
		return err
	}
	read := s.labels
	s.labels = func(ctx context.Context, to *format.RowTable) (labelResult, error) {
		found, err := read(ctx, to)
		if err == nil && to.Labels != nil && found.names == nil {
			found.names = classes
			if most := slices.Max(append([]int32{-1}, to.Labels...)); int(most) != len(classes)-1 {
				err = invalid(s.path("meta.json"), "class_names has %d names, but the greatest label is %d",
					len(classes), most)
			}
		}
		return found, err
	}
	return nil
}

// openSplits opens splits.npy or the lists of one split, and after these the further splits.
func (s *arraySource) openSplits() error {
	var names, said []string
	for name := range s.names {
		if !strings.HasPrefix(name, "splits_") || !strings.HasSuffix(name, ".npy") {
			continue
		}
		if !printable(name) {
			return fmt.Errorf("%w: %q: the file name has a character that cannot be printed: rename the file",
				ErrInvalid, s.path(name))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	whole := s.has("splits.npy")
	if whole {
		names = slices.Insert(names, 0, "splits.npy")
	}
	var lists []*npy.Array
	var parts []uint8
	for i, name := range []string{"train_idx.npy", "valid_idx.npy", "test_idx.npy"} {
		if !s.has(name) {
			continue
		}
		a, err := s.openArray(s.path(name), "integers [k]: ids of nodes; numpy.flatnonzero makes them of a mask")
		if err != nil {
			return err
		}
		lists, parts = append(lists, a), append(parts, format.SplitTrain+uint8(i))
	}
	// Lists are a split, or are compared with the first split of splits.npy.
	readLists := func(ctx context.Context, to *format.RowTable, _ int64) error {
		return s.readLists(ctx, to, lists, parts, whole)
	}
	if lists != nil && !whole {
		said = append(said, "*_idx.npy")
		if err := s.addSplits(s.dir, 1, readLists); err != nil {
			return err
		}
	}
	for _, name := range names {
		s.used[name] = true
		if err := s.addSplitArray(s.path(name), s.info.Nodes, asNode); err != nil {
			return err
		}
		said = append(said, fmt.Sprintf("%s[%d]", name, s.splits[len(s.splits)-1].count))
	}
	if said == nil {
		return nil
	}
	s.info.Input["splits"] = strings.Join(said, " ")
	if lists != nil && whole {
		return s.addSplits(s.dir, 0, readLists)
	}
	return nil
}

// readLists puts the nodes of lists into the parts of split 0, or compares these.
func (s *arraySource) readLists(ctx context.Context, to *format.RowTable,
	lists []*npy.Array, parts []uint8, compare bool) error {
	for k, list := range lists {
		err := each(ctx, list.Stream(), func(i, v int64) error {
			if uint64(v) >= uint64(s.info.Nodes) {
				return invalid(list.Path(), "entry %d is %s, but there are %d nodes", i, list.Element(i), s.info.Nodes)
			}
			switch part := &to.Splits[v*int64(to.NumSplits)]; {
			case compare && *part != parts[k]:
				return invalid(list.Path(),
					"node %d is in another set in the first split of splits.npy: remove one of the two files", v)
			case !compare && *part != format.SplitNone:
				return invalid(list.Path(), "node %d is listed twice", v)
			default:
				*part = parts[k]
				return nil
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *arraySource) openOrigIDs() error {
	if !s.has("orig_id.npy") {
		return nil
	}
	a, err := s.openArray(s.path("orig_id.npy"), ofNodes("text [n] or [n,1]: a string for each node", s.info.Nodes))
	if err != nil {
		return err
	}
	s.info.RowBytes += 16 + a.Width // of ASCII
	s.origIDs = func() ([]string, error) { return a.Stream().Strings() }
	return nil
}

// edgeBlock is the number of edges that are read in one go.
const edgeBlock = 1 << 16

type edgeBuffer struct {
	ids      []int64
	src, dst []uint32
	weights  []float32
}

func (s *arraySource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	if s.edges == nil {
		return nil
	}
	m := s.edges.Elements() / 2
	block := min(edgeBlock, m)
	buffers := sync.Pool{New: func() any {
		return &edgeBuffer{make([]int64, 2*block), make([]uint32, block), make([]uint32, block), make([]float32, block)}
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

func (s *arraySource) readEdges(b *edgeBuffer, first int64, n int) (Edges, error) {
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
	sources, destinations := cmp.Or(s.info.SourceNodes, s.info.Nodes), s.info.Nodes
	for i := range n {
		u, v := ids[i*step], ids[i*step+dst]
		if uint64(u) >= uint64(sources) {
			return e, s.badEdge(first+int64(i), 0, sources)
		}
		if uint64(v) >= uint64(destinations) {
			return e, s.badEdge(first+int64(i), 1, destinations)
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
			return e, invalid(s.weights.Path(), "edge %d has weight %s (want finite float32, not negative)",
				first+int64(i), s.weights.Element(first+int64(i)))
		}
	}
	return e, nil
}

// badEdge names the end of an edge that is none of the nodes there.
func (s *arraySource) badEdge(edge, end, nodes int64) error {
	at := end*s.edges.Elements()/2 + edge
	if s.pairs {
		at = 2*edge + end
	}
	return errNoNode(s.edges.Path(), edge, end, s.edges.Element(at), nodes)
}

// errNoNode is the error of an end of an edge (0: its source, 1: its destination) that is no node.
func errNoNode(path string, edge, end int64, id string, nodes int64) error {
	what := [2]string{"source", "destination"}[end]
	return invalid(path, "edge %d has %s %s, but there are %d nodes", edge, what, id, nodes)
}

var npyFormat = Format{
	Name:  "npy",
	Short: "a folder of numpy arrays",
	Help: `SRC holds edge_index.npy [2,E] (row 0 source, row 1 destination), node_feat.npy [n,F] or
node_feat.npz (scipy CSR), and optionally node_label.npy [n] or [n,L], splits.npy [k,n] (0 train,
1 valid, 2 test, -1 none) or train_idx.npy, valid_idx.npy and test_idx.npy, further splits_*.npy,
edge_weight.npy [E], columns of edges and nodes (edge_attr.npy, edge_<name>.npy [E] or [E,k],
node_<name>.npy [n] or [n,k], numbers of any type), and meta.json, which says whether edges are directed.

With several types of nodes, SRC holds nodes/<type>/ with node_feat (optional), node_label and splits,
edges/<source>__<destination>/ or edges/<source>__<relation>__<destination>/ with edge_index.npy, whose rows
number the nodes of either type, columns as above, and meta.json with node_types (type: number of nodes) and target. The
reverse of each relation is added, unless one goes back already, or --directed is given.`,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o NPYOptions
		var dtype, shape string
		o.LabelsAs.declare(flags)
		flags.StringVar(&o.EdgeLayout, "edge-layout", "", "layout of edge_index.npy if its shape is [2,2]: 2xE or Ex2")
		flags.StringVar(&dtype, "feature-dtype", "",
			"type of the features if the file does not say: bfloat16, or the type of an array without header")
		flags.StringVar(&shape, "shape", "",
			"ROWS,COLUMNS of node_feat.npy, or of all its shards together, if it has no header")
		o.TypedOptions.declare(flags)
		return func(_ context.Context, in Input) (Source, error) {
			if dtype != "" {
				t, err := npy.ParseType(dtype)
				if err != nil {
					return nil, badOptions("--feature-dtype: %w", err)
				}
				o.FeatureType = t
			}
			if shape != "" {
				rows, columns, ok := strings.Cut(shape, ",")
				for _, field := range []string{rows, columns} {
					size, err := strconv.ParseInt(strings.TrimSpace(field), 10, 64)
					if !ok || err != nil || size < 0 {
						return nil, badOptions("--shape %s: want ROWS,COLUMNS", shape)
					}
					o.FeatureShape = append(o.FeatureShape, size)
				}
			}
			if isTypedNPY(in.FS, in.Path) {
				return OpenTypedNPY(in.FS, in.Path, in.Direction, o)
			}
			if err := o.refuse(); err != nil {
				return nil, err
			}
			o.WithoutFeatures = in.EdgeFeatures
			return OpenNPY(in.FS, in.Path, o)
		}
	},
}

type npyMeta struct {
	Name           string   `json:"name"`
	Nodes          *int64   `json:"num_nodes"`
	Features       *int64   `json:"num_features"`
	Directed       *bool    `json:"directed"`
	ReversesStored bool     `json:"reverses_stored"`
	FeatureDType   string   `json:"feature_dtype"`
	EdgeLayout     string   `json:"edge_layout"`
	LabelsAs       LabelsAs `json:"labels_as"`
	ClassNames     []string `json:"class_names"`
	Normalized     bool     `json:"normalize_features"` // they were, before they were exported
}

const maxMeta = 16 << 20 // bytes of meta.json

// readMeta reads meta.json, if it is there. It completes the options of features and labels.
func (s *arraySource) readMeta(o *NPYOptions) (meta npyMeta, err error) {
	path := s.path("meta.json")
	if s.names["meta.json"] {
		text, err := vfs.ReadFile(s.fsys, path, maxMeta)
		if errors.Is(err, vfs.ErrSize) {
			err = invalid(path, "more than %d bytes long", maxMeta)
		}
		if err != nil {
			return meta, err
		}
		if err := meta.parse(text); err != nil {
			return meta, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
		}
	}
	s.info.Name = cmp.Or(meta.Name, s.info.Name)
	if meta.Normalized {
		s.info.Input[format.NormalizeFeatures] = "true"
	}
	switch {
	case meta.ReversesStored:
		s.info.Direction, s.info.DirectionFrom = Symmetric, path
	case meta.Directed != nil && *meta.Directed:
		s.info.Direction, s.info.DirectionFrom = Directed, path
	case meta.Directed != nil:
		s.info.Direction, s.info.DirectionFrom = Undirected, path
	}
	if meta.FeatureDType == npy.BFloat16.String() && o.FeatureType == 0 {
		o.FeatureType = npy.BFloat16
	}
	if o.LabelsAs.auto() {
		o.LabelsAs = meta.LabelsAs
	}
	return meta, o.LabelsAs.check()
}

// parseJSON reads an object in UTF-8. The errors do not name the file.
func parseJSON(text []byte, into any) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8")
	}
	return jsontext.Decode(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), into)
}

// parse reads JSON. The errors do not name the file.
func (m *npyMeta) parse(text []byte) error {
	switch err := parseJSON(text, m); {
	case err != nil:
		return err
	case !printable(m.Name):
		return fmt.Errorf("name %q has a character that cannot be printed", m.Name)
	case m.EdgeLayout != "" && m.EdgeLayout != "2xE" && m.EdgeLayout != "Ex2":
		return fmt.Errorf("edge_layout is %.100q (want 2xE or Ex2)", m.EdgeLayout)
	case m.LabelsAs.check() != nil:
		return fmt.Errorf("labels_as is %.100q (want classes, multi or values)", string(m.LabelsAs))
	case len(m.ClassNames) > format.MaxClassNames:
		return fmt.Errorf("class_names has more than %d names", format.MaxClassNames)
	case m.ReversesStored && m.Directed != nil && *m.Directed:
		return errors.New("reverses_stored is true, and so is directed (want directed: false)")
	}
	seen := map[string]bool{}
	for _, name := range m.ClassNames {
		if err := format.CheckClassName(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("class_names has %q twice", name)
		}
		seen[name] = true
	}
	return nil
}

func (s *arraySource) checkMeta(meta npyMeta) error {
	if meta.Nodes != nil && *meta.Nodes != s.info.Nodes {
		return invalid(s.path("meta.json"), "num_nodes is %d, but the features have %d rows", *meta.Nodes, s.info.Nodes)
	}
	if meta.Features != nil && *meta.Features != int64(s.info.Features) {
		return invalid(s.path("meta.json"), "num_features is %d, but the features have %d columns",
			*meta.Features, s.info.Features)
	}
	return nil
}
