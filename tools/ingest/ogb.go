package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// OGBOptions say what an OGB data set does not say itself.
type OGBOptions struct {
	Direction Direction // Undirected adds inverse edges; for data sets that are not known
	// Features, for data sets without: as in NodeFiles, or EdgeMeans, the default of known ones with features of edges
	Features string
	// EdgeColumns, if None, leaves out the features of edges, which otherwise become the column edge_attr
	EdgeColumns  string
	EdgeFeatures bool // nodes get some by EdgeFeatures
	LabelsAs     LabelsAs
	TypedOptions
}

// EdgeMeans is the name of features that are the means of the features of a node's edges, as OGB's own models of
// ogbn-proteins have them: of its incoming edges, added reverses included.
const EdgeMeans = "edges"

// ogbSets says of each data set whether inverse edges are added and whether nodes have features. OGB keeps this in its
// Python package.
var ogbSets = []struct {
	name      string
	alias     string // of the folder in its archive
	nodes     int64
	direction Direction
	features  bool
}{
	{"ogbn-arxiv", "arxiv", 169_343, Directed, true},
	{"ogbn-products", "products", 2_449_029, Undirected, true},
	{"ogbn-proteins", "proteinfunc", 132_534, Undirected, false},
	{"ogbn-papers100M", "papers100M-bin", 111_059_956, Directed, true},
}

// ogbSource is a homogeneous data set of the Open Graph Benchmark for predicting properties of nodes. Text (.csv, maybe
// packed) has neither header nor ids:
//
//	raw/edge.csv.gz                        source, destination
//	raw/node-feat.csv.gz                   [n,F] numbers; maybe raw/edge-feat.csv.gz, [E,F]
//	raw/node-label.csv.gz                  [n,L]
//	raw/num-node-list.csv.gz               n; raw/num-edge-list.csv.gz: E
//
// or, for large ones, arrays, which are usually deflated:
//
//	raw/data.npz                           edge_index [2,E], node_feat [n,F], maybe edge_feat [E,F],
//	                                       num_nodes_list, num_edges_list
//	raw/node-label.npz                     node_label [n,L], NaN is unlabelled
//
// and, of either, lists of nodes: split/<name>/{train,valid,test}.csv.gz.
type ogbSource struct {
	*edgeList
	dir string
	raw ogbFolder
}

// OpenOGB opens the root folder of an OGB data set.
func OpenOGB(ctx context.Context, fsys vfs.FS, dir string, w ScratchOptions, o OGBOptions) (_ Source, err error) {
	raw, err := openOGBFolder(fsys, dir, "raw")
	if errors.Is(err, fs.ErrNotExist) {
		if isMAG240M(fsys, dir) {
			return openMAG240M(ctx, fsys, dir, o)
		}
		if _, err := stat(fsys, dir); err != nil {
			return nil, err
		}
		return nil, invalid(dir,
			"no folder raw%s (want the root folder of a data set: raw/edge.csv.gz for text, raw/data.npz for arrays)",
			ogbRootHint(fsys, dir))
	}
	if err != nil {
		return nil, err
	}
	if o.EdgeColumns != "" && o.EdgeColumns != None {
		return nil, badOptions("--%s %s: want %s, or the flag left out", edgeColumnsFlag, o.EdgeColumns, None)
	}
	if raw.find("triplet-type-list") != "" || raw.find(ogbArrays) != "" {
		return openTypedOGB(ctx, fsys, dir, raw, w, o)
	}
	if err := o.refuse(); err != nil {
		return nil, err
	}
	s := &ogbSource{dir: dir, raw: raw}
	if s.edgeList, err = newEdgeList(fsys, "ogb", dir, w,
		NodeFiles{Features: o.Features, LabelsAs: o.LabelsAs}); err != nil {
		return nil, err
	}
	defer closeOnError(&err, s)
	if slices.Contains(raw.names, "data.npz") {
		err = s.openBinary(ctx, o)
	} else {
		err = s.openCSV(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if o.EdgeColumns == None {
		for _, c := range s.columns {
			c.left = c.Of == format.OfEdges
		}
	}
	return s, s.openSplits()
}

// readsEdgeFeatures tells whether features of edges become a column, or features of nodes.
func (s *ogbSource) readsEdgeFeatures(o OGBOptions) bool {
	return o.EdgeColumns != None || o.EdgeFeatures || s.files.Features == EdgeMeans
}

// need finds a file in raw; its error says what SRC must be.
func (s *ogbSource) need(name string) (path string, err error) {
	if path, err = s.raw.need(name); err != nil {
		err = fmt.Errorf("%w (want the root folder of a data set: raw/edge.csv.gz for text, raw/data.npz for arrays)", err)
	}
	return path, err
}

// identify looks a data set of n nodes up among the known ones, and decides where its features come from. own and
// ofEdges tell whether it has features of nodes and of edges.
func (s *ogbSource) identify(n int64, own, ofEdges bool, o OGBOptions) (err error) {
	s.ids.nodes, s.ids.fixed = n, true
	s.info.Nodes = n
	folder := strings.ToLower(strings.ReplaceAll(filepath.Base(filepath.Clean(s.dir)), "_", "-"))
	features := true
	for _, set := range ogbSets {
		if n == set.nodes || folder == strings.ToLower(set.name) || folder == strings.ToLower(set.alias) {
			s.info.Name, s.info.Direction, features = set.name, set.direction, set.features
			s.info.DirectionFrom = "OGB, of " + set.name + ","
			break
		}
	}
	if s.info.Direction == UnknownDirection && o.Direction == UnknownDirection {
		return badOptions("%s is not a known OGB data set, so it is unknown whether its edges are stored "+
			"in both directions: give --undirected to add the reverse of every edge, or --directed to take the "+
			"edges as they are", s.dir)
	}
	if !own && !features && ofEdges {
		s.files.Features = cmp.Or(s.files.Features, EdgeMeans)
	}
	switch from := s.files.Features; {
	case own && from != "":
		return badOptions("%s has features of its own: leave out --features", s.dir)
	case from == EdgeMeans && !ofEdges:
		return invalid(s.raw.dir, "no features of edges (edge-feat.csv.gz, or edge_feat in data.npz)")
	case from == EdgeMeans:
		s.info.note("the features of a node are the means of the features of its edges")
	case from == "" && !own && features:
		return invalid(s.raw.dir,
			"no features (node-feat.csv.gz, or node_feat in data.npz); --features FILE gives some, --features %s "+
				"a single 1, --features %s the means of the features of edges", Ones, EdgeMeans)
	}
	return nil
}

func (s *ogbSource) openCSV(ctx context.Context, o OGBOptions) error {
	var sizes [2]int64
	for i, name := range []string{"num-node-list", "num-edge-list"} {
		path, err := s.need(name)
		if err != nil {
			return err
		}
		if sizes[i], err = readCount(s.fsys, path, [2]uint64{MaxNodes, format.MaxEdges}[i]); err != nil {
			return err
		}
	}
	features, ofEdges := s.raw.find("node-feat"), s.raw.find("edge-feat")
	if err := s.identify(sizes[0], features != "", ofEdges != "", o); err != nil {
		return err
	}
	s.info.noteLeft(s.raw.dir, s.raw.left(append([]string{"edge", "edge-feat", "node-feat", "node-label", "num-node-list",
		"num-edge-list"}, ogbNodeColumns...)...))
	path, err := s.need("node-label")
	if err == nil {
		err = s.openPlainLabels(path)
	}
	if err != nil {
		return err
	}
	if path, err = s.need("edge"); err != nil {
		return err
	}
	if err := s.readPlainEdges(ctx, path, sizes[1]); err != nil {
		return err
	}
	if ofEdges != "" && s.readsEdgeFeatures(o) {
		columns, open, err := s.plainRows(ofEdges, sizes[1])
		if err != nil {
			return err
		}
		in, err := open(1)
		if err != nil {
			return err
		}
		if err := s.copyEdgeFeatures(ctx, ofEdges, columns, in); err != nil {
			return err
		}
	}
	if err := s.readPlainColumns(ctx, s.raw); err != nil {
		return err
	}
	if features == "" {
		return s.openNoFeatures(ctx)
	}
	return s.openPlainFeatures(features)
}

func (l *edgeList) openPlainLabels(path string) error {
	t, err := openPlainTable(l.fsys, path)
	if err != nil {
		return err
	}
	return l.openTableLabels(t)
}

func (l *edgeList) readPlainEdges(ctx context.Context, path string, count int64) error {
	t := &textTable{header: numbered(2), fsys: l.fsys, path: path, sep: ',', id: -1}
	return l.readEdges(ctx, t, path, edgeColumns{header: t.header, destination: 1, weight: -1}, count)
}

// readPlainColumns reads the columns of nodes that a folder has.
func (l *edgeList) readPlainColumns(ctx context.Context, folder ogbFolder) error {
	for _, name := range ogbNodeColumns {
		path := folder.find(name)
		if path == "" {
			continue
		}
		t, err := openPlainTable(l.fsys, path)
		if err != nil {
			return err
		}
		if err := l.readNodeColumns(ctx, t, l.nodeColumn(name, path)); err != nil {
			return err
		}
	}
	return nil
}

// openPlainFeatures opens the features of the nodes, whose number is known.
func (l *edgeList) openPlainFeatures(path string) error {
	columns, open, err := l.plainRows(path, l.info.Nodes)
	if err != nil {
		return err
	}
	l.features = open
	return l.setFeatures(path, l.info.Nodes, columns)
}

// plainRows opens a table of count rows of numbers.
func (l *edgeList) plainRows(path string, count int64) (columns int64,
	open func(int) (FeatureReader, error), err error) {
	t, err := openPlainTable(l.fsys, path)
	if err != nil {
		return 0, nil, err
	}
	return int64(len(t.features)), func(int) (FeatureReader, error) {
		r, err := t.read(t.features)
		at := func(row int64) string { return fmt.Sprintf("%s: line %d", path, row+1) }
		return &rowReader{rows: r, width: len(t.features), nodes: count, at: at}, err
	}, nil
}

// copyEdgeFeatures makes the features of edges, which in reads, [E,columns], the column edge_attr. It closes in.
func (s *ogbSource) copyEdgeFeatures(ctx context.Context, path string, columns int64, in FeatureReader) error {
	defer in.Close()
	c := &tableColumn{Column: format.NewColumn(format.OfEdges, "edge_attr", format.Float32, int(columns)), path: path}
	if columns < 1 || c.Check() != nil {
		return invalid(path, "%d features an edge (want 1 to %d)", columns, format.MaxFeatures)
	}
	s.columns = append(s.columns, c)
	if err := s.createFiles(s.edges.edges, c); err != nil {
		return err
	}
	most := max(1, min(s.edges.edges, readBytes/(4*columns)))
	block := make([]float32, most*columns)
	for edge := int64(0); edge < s.edges.edges; edge += most {
		values := block[:min(most, s.edges.edges-edge)*columns]
		if err := in.Read(ctx, values); err != nil {
			return err
		}
		if i := slices.IndexFunc(values, func(v float32) bool { return v-v != 0 }); i >= 0 {
			return fmt.Errorf("%w: %s, column %d: %v %s", ErrInvalid, in.Place(edge+int64(i)/columns), int64(i)%columns,
				values[i], notFinite)
		}
		if err := c.put(dtype.BytesOf(values)); err != nil {
			return err
		}
	}
	return c.flush()
}

// ogbNodeColumns are integers of nodes that data sets have beside the features.
var ogbNodeColumns = []string{"node_species", "node_year"}

func (l *edgeList) nodeColumn(name, path string) *tableColumn {
	c := &tableColumn{Column: format.NewColumn(format.OfNodes, name, dtype.Int64, 0), kind: npy.Int64, path: path}
	l.columns = append(l.columns, c)
	return c
}

// openNoFeatures opens features that do not come from the data set's own of nodes.
func (s *ogbSource) openNoFeatures(ctx context.Context) error {
	if s.files.Features == EdgeMeans {
		s.info.EdgeFeatures = statMean
		return nil
	}
	return s.openFeatures(ctx)
}

// readCount reads a file of one number, up to most: that of the only graph.
func readCount(fsys vfs.FS, path string, most uint64) (int64, error) {
	t, err := openText(fsys, path, "")
	if err != nil {
		return 0, err
	}
	defer t.Close()
	line, err := t.next()
	if err != nil && err != io.EOF {
		return 0, err
	}
	n, ok := parseUint(bytes.TrimSpace(line))
	if !ok || n > most {
		return 0, invalid(path, "line 1: found %.100q (want a number, at most %d)", line, most)
	}
	return int64(n), t.end()
}

// end fails if there is another line, as there is for each further graph.
func (t *textFile) end() error {
	_, err := t.next()
	switch {
	case err == nil:
		return t.errorf("the data set has more than one graph (want one)")
	case err == io.EOF:
		return nil
	}
	return err
}

func (s *ogbSource) openSplits() error {
	splits, err := ogbSplits(s.fsys, s.dir)
	if err != nil || len(splits.names) == 0 {
		s.info.note("the graph has no splits: there is no split/<name>/train.csv.gz")
		return err
	}
	s.info.Input["splits"] = strings.Join(splits.names, " ")
	var paths []string
	for _, name := range splits.names {
		paths = append(paths, filepath.Join(splits.dir, name))
	}
	return s.addSplitFolders(paths...)
}

var ogbFormat = Format{
	Name:  "ogb",
	Short: "a data set of the Open Graph Benchmark",
	Help: `SRC is the root folder of a data set for node property prediction of the Open Graph Benchmark, as text
(raw/edge.csv.gz; with several types of nodes, as ogbn-mag, raw/triplet-type-list.csv.gz) or arrays (raw/data.npz;
with several types raw/edge_index_dict.npz), or the folder of MAG240M (processed/paper/node_feat.npy). Pickles of
Python, as split_dict.pt, are not read: the error says how Python writes their lists of nodes.

Edges of ogbn-arxiv and ogbn-papers100M are directed. Edges of ogbn-products and ogbn-proteins are not:
the reverse of each is added. For other data sets give --undirected or --directed. Nodes of ogbn-proteins get the
means of the features of their edges.

With several types of nodes, their names and those of relations get small letters, and _ for each run of other
characters than letters and digits. The reverse of each relation is added, unless one goes back already, or
--directed is given. Features of edges are left out.` + scratchHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o OGBOptions
		o.LabelsAs.declare(flags)
		o.TypedOptions.declare(flags)
		flags.StringVar(&o.Features, "features", "",
			"file with the features of the nodes; ones: every node gets a single feature, 1; edges: the means of the "+
				"features of its edges (default of ogbn-proteins)")
		flags.StringVar(&o.EdgeColumns, edgeColumnsFlag, "",
			"none: leave out the features of edges, which otherwise become their column edge_attr")
		return func(ctx context.Context, in Input) (Source, error) {
			o.Direction, o.EdgeFeatures = in.Direction, in.EdgeFeatures
			return OpenOGB(ctx, in.FS, in.Path, in.Scratch, o)
		}
	},
}

func (s *ogbSource) openBinary(ctx context.Context, o OGBOptions) error {
	path := filepath.Join(s.raw.dir, "data.npz")
	arrays, err := npy.Members(s.fsys, path)
	if err != nil {
		return err
	}
	var sizes [2]int64
	for i, name := range [2]string{"num_nodes_list", "num_edges_list"} {
		if sizes[i], err = s.readArrayCount(path, name, [2]int64{MaxNodes, format.MaxEdges}[i]); err != nil {
			return err
		}
	}
	own := slices.Contains(arrays, "node_feat")
	if err := s.identify(sizes[0], own, slices.Contains(arrays, "edge_feat"), o); err != nil {
		return err
	}
	used := append([]string{"num_nodes_list", "num_edges_list", "edge_index", "edge_feat", "node_feat"}, ogbNodeColumns...)
	s.info.noteLeft(path, slices.DeleteFunc(slices.Clone(arrays),
		func(name string) bool { return slices.Contains(used, name) }))
	labels, err := s.need("node-label.npz")
	if err == nil {
		open := func() (*npy.Stream, error) { return npy.OpenStream(s.fsys, labels, "node_label") }
		err = s.addLabels(open, s.info.Nodes, o.LabelsAs, asNode)
	}
	if err != nil {
		return err
	}
	if err := s.readArrayEdges(ctx, path, "edge_index", sizes[1]); err != nil {
		return err
	}
	if slices.Contains(arrays, "edge_feat") && s.readsEdgeFeatures(o) {
		f, err := s.openMember(path, "edge_feat", fmt.Sprintf("numbers [%d,F]", sizes[1]))
		if err != nil {
			return err
		}
		if f.Fortran && f.Shape[1] > 1 {
			return errors.Join(invalid(f.Path(), "an array in Fortran order (want C order)"), f.Close())
		}
		if err := s.copyEdgeFeatures(ctx, f.Path(), f.Shape[1], &streamReader{f}); err != nil {
			return err
		}
	}
	for _, name := range ogbNodeColumns {
		if slices.Contains(arrays, name) {
			if err := s.copyNodeColumn(ctx, path, name, name); err != nil {
				return err
			}
		}
	}
	if !own {
		return s.openNoFeatures(ctx)
	}
	return s.openArrayFeatures(ctx, path, "node_feat")
}

// openArrayFeatures opens an array of an archive as the features of the nodes, whose number is known.
func (l *edgeList) openArrayFeatures(ctx context.Context, path, name string) error {
	f, err := l.openMember(path, name, ofNodes("numbers [n,F]", l.info.Nodes))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := l.setFeatures(f.Path(), l.info.Nodes, f.Shape[1]); err != nil {
		return err
	}
	if f.Fortran && l.info.Features > 1 {
		return l.copyColumns(ctx, f)
	}
	l.info.FeatureBytes = sparseBytes
	l.features = func(int) (FeatureReader, error) {
		a, err := npy.OpenStream(l.fsys, path, name)
		return &streamReader{a}, err
	}
	return nil
}

// copyNodeColumn makes an array of integers a column of the nodes.
func (l *edgeList) copyNodeColumn(ctx context.Context, path, array, name string) error {
	a, err := l.openMember(path, array, ofNodes("integers [n] or [n,1]", l.info.Nodes))
	if err != nil {
		return err
	}
	defer a.Close()
	c := l.nodeColumn(name, a.Path())
	if err := l.createFiles(l.info.Nodes, c); err != nil {
		return err
	}
	if err := each(ctx, a, func(_, v int64) error { return c.put(dtype.BytesOf([]int64{v})) }); err != nil {
		return err
	}
	return c.flush()
}

// readArrayCount reads an array of one number, up to most, of an archive: that of the only graph.
func (s *source) readArrayCount(path, name string, most int64) (int64, error) {
	var count [1]int64
	err := s.readMember(path, name, "integers [1]: one, as there must be one graph", count[:])
	if err == nil && (count[0] < 0 || count[0] > most) {
		err = invalid(path, "%s: %d (want 0 to %d)", name, count[0], most)
	}
	return count[0], err
}

// readArrayEdges reads an array [2,E] of an archive from front to end: all sources, then all destinations, or, in
// Fortran order, edge by edge.
func (l *edgeList) readArrayEdges(ctx context.Context, path, name string, edges int64) error {
	a, err := l.openMember(path, name, fmt.Sprintf("integers [2,%d]", edges))
	if err != nil {
		return err
	}
	defer a.Close()
	if l.edges, err = l.scratch.newEdges(false, edges); err != nil {
		return err
	}
	l.edges.edges = edges
	nodes := [2]int64{cmp.Or(l.info.SourceNodes, l.info.Nodes), l.info.Nodes}
	err = each(ctx, a, func(i, v int64) error {
		column, edge := i/edges, i%edges
		if a.Fortran {
			column, edge = i%2, i/2
		}
		if uint64(v) >= uint64(nodes[column]) {
			id := fmt.Sprint(v)
			if a.Type == npy.Uint64 {
				id = fmt.Sprint(uint64(v))
			}
			return errNoNode(a.Path(), edge, column, id, nodes[column])
		}
		if column == 1 && (edge+1)%edgeBlock == 0 {
			l.edges.task.Add(edgeBlock)
		}
		return l.edges.addTo(int(column), uint32(v))
	})
	if err != nil {
		return err
	}
	return l.edges.finish(ctx)
}

// copyColumns puts features in Fortran order, whose columns come one after another, into a scratch file.
func (l *edgeList) copyColumns(ctx context.Context, a *npy.Stream) error {
	rows, columns := a.Shape[0], a.Shape[1]
	return l.copyFeatures((&streamReader{a}).Place, a.Header, func(m *scratchMatrix) error {
		block := make([]float32, min(edgeBlock, rows))
		for at, n := int64(0), int64(0); at < rows*columns; at += n {
			n = min(int64(len(block)), rows-at%rows)
			if err := errors.Join(context.Cause(ctx), npy.Next(a, block[:n])); err != nil {
				return err
			}
			if err := m.put(at%rows, at/rows, block[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}

type streamReader struct{ *npy.Stream }

func (r *streamReader) Read(ctx context.Context, dst []float32) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return npy.Next(r.Stream, dst)
}

func (r *streamReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.Path(), row) }
