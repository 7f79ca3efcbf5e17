package ingest

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
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

// wantOGBRoot says what SRC must be.
const wantOGBRoot = "(want the root folder of a data set: raw/edge.csv.gz for text, raw/data.npz for arrays)"

// OpenOGB opens the root folder of an OGB data set.
func OpenOGB(ctx context.Context, fsys vfs.FS, dir string, w ScratchOptions, o OGBOptions) (_ Source, err error) {
	d, err := openOGBData(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		if isMAG240M(fsys, dir) {
			return openMAG240M(ctx, fsys, dir, o)
		}
		if _, err := stat(fsys, dir); err != nil {
			return nil, err
		}
		return nil, invalid(dir, "no folder raw%s %s", ogbRootHint(fsys, dir), wantOGBRoot)
	}
	if err != nil {
		return nil, err
	}
	if o.EdgeColumns != "" && o.EdgeColumns != None {
		return nil, badOptions("--%s %s: want %s, or the flag left out", edgeColumnsFlag, o.EdgeColumns, None)
	}
	if d.typed() {
		return openTypedOGB(ctx, d, w, o)
	}
	if err := o.refuse(); err != nil {
		return nil, err
	}
	l, err := newEdgeList(fsys, "ogb", dir, w, NodeFiles{Features: o.Features, LabelsAs: o.LabelsAs})
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, l)
	s := &plainOGB{l, d, o}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return s, s.openSplits()
}

// plainOGB is a data set with one type of nodes.
type plainOGB struct {
	*edgeList
	*ogbData
	o OGBOptions
}

// read reads what lies in raw.
func (s *plainOGB) read(ctx context.Context) error {
	nodes, err := s.count(ogbNodeCount, "", MaxNodes)
	if err != nil {
		return err
	}
	if s.info.Edges, err = s.count(ogbEdgeCount, "", format.MaxEdges); err != nil {
		return err
	}
	own, err := s.find(ogbFeatures, "")
	if err != nil {
		return err
	}
	ofEdges, err := s.find(ogbEdgeFeatures, "")
	if err != nil {
		return err
	}
	if err := s.identify(nodes, own.path != "", ofEdges.path != ""); err != nil {
		return err
	}
	for _, piece := range []ogbPiece{ogbLabels, ogbEdges} {
		if _, err := s.need(piece, ""); err != nil {
			return err
		}
	}
	pieces, left := []ogbPiece{ogbLabels, ogbEdges}, s.o.EdgeColumns == None
	if !left || s.o.EdgeFeatures || s.files.Features == EdgeMeans {
		pieces = append(pieces, ogbEdgeFeatures)
	}
	pieces = append(pieces, ogbSpecies, ogbYears, ogbFeatures)
	if err := s.ogbData.open(ctx, s.edgeList, "", pieces...); err != nil {
		return err
	}
	for _, c := range s.columns {
		c.left = left && c.Of == format.OfEdges
	}
	s.noteLeft(&s.info)
	switch {
	case own.path != "":
		return nil
	case s.files.Features == EdgeMeans:
		s.info.EdgeFeatures = statMean
		return nil
	}
	return s.openFeatures(ctx)
}

// identify looks a data set of n nodes up among the known ones, and decides where its features come from. own and
// ofEdges tell whether it has features of nodes and of edges.
func (s *plainOGB) identify(n int64, own, ofEdges bool) (err error) {
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
	if s.info.Direction == UnknownDirection && s.o.Direction == UnknownDirection {
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
		return invalid(s.raw, "no features of edges (edge-feat.csv.gz, or edge_feat in data.npz)")
	case from == EdgeMeans:
		s.info.note("the features of a node are the means of the features of its edges")
	case from == "" && !own && features:
		return invalid(s.raw,
			"no features (node-feat.csv.gz, or node_feat in data.npz); --features FILE gives some, --features %s "+
				"a single 1, --features %s the means of the features of edges", Ones, EdgeMeans)
	}
	return nil
}

func (s *plainOGB) openSplits() error {
	names, err := s.splitFolders()
	if err != nil || len(names) == 0 {
		s.info.note("the graph has no splits: there is no split/<name>/train.csv.gz")
		return err
	}
	s.info.Input["splits"] = strings.Join(names, " ")
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(s.dir, "split", name))
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
--directed is given. Features of edges are then left out.` + scratchHelp,
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
