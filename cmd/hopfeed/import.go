package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/npy"
)

type importOptions struct {
	format, source string
	graphOptions
	undirected   bool
	directed     bool // said so by --undirected=false
	edgeLayout   string
	featureDType string
	featureShape string
	classes      string
	ids          string
	edgeList     ingest.CSVOptions
}

// graphOptions are those of import and generate.
type graphOptions struct {
	output     string
	normalize  bool
	selfLoops  string
	duplicates string
	dtype      string
	force      bool
}

func (o *graphOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "graph directory to write")
	f.StringVar(&o.selfLoops, "self-loops", string(ingest.KeepLoops), "keep or drop edges from a node to itself")
	f.StringVar(&o.duplicates, "duplicates", string(ingest.MergeDuplicates), "merge: one edge of several is left; sum: one, with the sum of weights; keep")
	f.StringVar(&o.dtype, "dtype", "float32", "type to store features in: float32, float16 or bfloat16")
	f.BoolVar(&o.force, "force", false, "replace a graph that is there")
	c.MarkFlagRequired("output")
}

// importFormats are the formats that there are: how to open each as a source.
var importFormats = map[string]func(ctx context.Context, a *app, o *importOptions) (ingest.Source, error){
	"npy": openNPY,
	"igb": openIGB,
	"csv": openCSV,
	"mtx": openMTX,
	"ogb": openOGB,
}

func newImportCommand(a *app) *cobra.Command {
	var o importOptions
	names := slices.Sorted(maps.Keys(importFormats))
	c := &cobra.Command{
		Use:   "import " + strings.Join(names, "|") + " SRC -o GRAPH",
		Short: "Make a graph directory from data in another format",
		Long: "Import reads a graph in a format that others write and makes a graph directory of it.\n\n" +
			"npy: SRC holds edge_index.npy [2,E] (row 0 source, row 1 destination), node_feat.npy [n,F] or\n" +
			"node_feat.npz (scipy CSR), and optionally node_label.npy [n] or [n,L], splits.npy [k,n] (0 train,\n" +
			"1 valid, 2 test, -1 none) or train_idx.npy, valid_idx.npy and test_idx.npy, further splits_*.npy,\n" +
			"edge_weight.npy [E], and meta.json, which says whether edges are directed.\n\n" +
			"igb: SRC is the folder of one size of the homogeneous Illinois graph benchmark (with processed/paper in\n" +
			"it, or with all files side by side). The first 60 % of the labelled nodes train, the next 20 % validate.\n\n" +
			"csv: SRC is a text file, maybe packed by gzip or zstd, with an edge a line: source, destination and\n" +
			"maybe a weight, separated by commas, semicolons, tabs or spaces. Lines that begin with # or % are comments.\n\n" +
			"mtx: SRC is a square MatrixMarket file. Rows are sources and columns destinations; a symmetric matrix is\n" +
			"an undirected graph.\n\n" +
			"ogb: SRC is the root folder of a homogeneous data set for node properties of the Open Graph Benchmark, as text\n" +
			"(raw/edge.csv.gz) or arrays (raw/data.npz). Whether inverse edges are added is known of arxiv, papers100M (no),\n" +
			"products and proteins (yes); of others --undirected or --undirected=false says it.\n\n" +
			"For csv and mtx, --features, --labels and --splits name files about the nodes: .npy arrays with a row a node\n" +
			"(splits: as splits.npy), or text with the id of a node in the first field of a line. Splits may also be a folder\n" +
			"with the lists train.csv, valid.csv and test.csv.\n\n" +
			"The edges of csv, mtx and ogb are read once and kept in GRAPH.scratch until the graph is written, 8 bytes each,\n" +
			"12 with weights; so are features of --features that are text, 4 bytes a value.",
		Args: cobra.ExactArgs(2),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) {
			o.format, o.source = args[0], args[1]
			return runImport(ctx, a, o)
		}),
	}
	o.flags(c)
	f := c.Flags()
	f.BoolVar(&o.undirected, "undirected", false, "add the reverse of every edge")
	f.BoolVar(&o.normalize, "normalize-features", false, "divide each row of features by its sum, where that is positive")
	f.StringVar(&o.edgeLayout, "edge-layout", "", "npy: 2xE or Ex2, where the shape of edge_index.npy does not tell")
	f.StringVar(&o.featureDType, "feature-dtype", "", "npy: type of the features where the file does not tell (bfloat16, or that of a raw array)")
	f.StringVar(&o.featureShape, "shape", "", "npy: rows,columns of a node_feat.npy without header")
	f.StringVar(&o.classes, "classes", "19", "igb: labels of 19 or of 2K classes")
	f.StringVar(&o.edgeList.Features, "features", "", "csv, mtx, ogb without its own: file with the features of the nodes, or ones for a single 1")
	f.StringVar(&o.edgeList.Labels, "labels", "", "csv, mtx: file with the labels of the nodes")
	f.StringVar(&o.edgeList.Splits, "splits", "", "csv, mtx: file or folder with splits of the nodes")
	f.StringVar(&o.ids, "ids", "keep", "csv: keep ids, which must be the numbers of nodes, or map any ids to numbers, as they are first seen")
	f.StringVar(&o.edgeList.Header, "header", "", "csv: yes or no, where it does not show whether the first line names the columns")
	f.IntVar(&o.edgeList.WeightColumn, "weight-column", -1, "csv: column of weights, from 1; 0: none (default: the one named weight, or the third of three)")
	f.Lookup("weight-column").DefValue = "0" // which is not shown
	f.Int64Var(&o.edgeList.Nodes, "nodes", 0, "csv: number of nodes, where edges and features do not tell")
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		o.directed = f.Changed("undirected") && !o.undirected
		for _, flag := range slices.Sorted(maps.Keys(importFlags)) {
			if formats := importFlags[flag]; f.Changed(flag) && importFormats[args[0]] != nil && !slices.Contains(formats, args[0]) {
				return usagef("--%s is not for %s, but for %s", flag, args[0], strings.Join(formats, ", "))
			}
		}
		return nil
	}
	return c
}

// importFlags are those that some formats have, and which.
var importFlags = map[string][]string{
	"edge-layout":   {"npy"},
	"feature-dtype": {"npy"},
	"shape":         {"npy"},
	"classes":       {"igb"},
	"features":      {"csv", "mtx", "ogb"},
	"labels":        {"csv", "mtx"},
	"splits":        {"csv", "mtx"},
	"ids":           {"csv"},
	"header":        {"csv"},
	"weight-column": {"csv"},
	"nodes":         {"csv"},
}

// imported is the result of import and generate.
type imported struct{ *ingest.Result }

func (i imported) text(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s, %s, %s", i.Output, count(i.Nodes, "node"), count(i.Edges, "edge"), count(int64(i.Features), "feature"))
	if i.Classes > 0 {
		fmt.Fprintf(w, ", %d classes", i.Classes)
	}
	if i.Train+i.Valid+i.Test > 0 {
		fmt.Fprintf(w, "\n\tsplit 0: %d train, %d valid, %d test", i.Train, i.Valid, i.Test)
	}
	fmt.Fprintf(w, "\n\tin %.1f s\n", i.Seconds)
}

func runImport(ctx context.Context, a *app, o importOptions) (result, error) {
	open := importFormats[o.format]
	if open == nil {
		return nil, usagef("there is no import format %q (there are: %s)", o.format, strings.Join(slices.Sorted(maps.Keys(importFormats)), ", "))
	}
	start := time.Now()
	source, err := open(ctx, a, &o)
	if err != nil {
		return nil, err
	}
	r, err := a.ingest(ctx, source, o.direction(), o.graphOptions)
	if r, ok := r.(imported); ok {
		r.Seconds = time.Since(start).Seconds() // what opening reads counts too
	}
	return r, err
}

// direction is what is asked for.
func (o *importOptions) direction() ingest.Direction {
	switch {
	case o.undirected:
		return ingest.Undirected
	case o.directed:
		return ingest.Directed
	}
	return ingest.UnknownDirection
}

// ingest writes a graph directory from a source, and closes the source.
func (a *app) ingest(ctx context.Context, source ingest.Source, direction ingest.Direction, o graphOptions) (result, error) {
	defer source.Close()
	t, err := parseDType(o.dtype)
	if err != nil {
		return nil, err
	}
	budget, _ := a.budget()
	r, err := ingest.Run(ctx, a.fs, source, o.output, ingest.Options{
		DType:             t,
		Direction:         direction,
		SelfLoops:         ingest.Loops(o.selfLoops),
		Duplicates:        ingest.Duplicates(o.duplicates),
		NormalizeFeatures: o.normalize,
		Threads:           a.threads,
		MemoryBytes:       int64(budget),
		Force:             o.force,
		Progress:          a.progress(),
	})
	if err != nil {
		return nil, err
	}
	for _, n := range r.Notes {
		a.note("note: %s", n)
	}
	return imported{r}, nil
}

// parseDType reads a type that features can be stored in; "" is none.
func parseDType(name string) (format.DType, error) {
	if name == "" {
		return 0, nil
	}
	t, err := dtype.Parse(name)
	if err != nil || !t.IsFloat() {
		return 0, usagef("--dtype %s: want float32, float16 or bfloat16", name)
	}
	return t, nil
}

func openNPY(_ context.Context, a *app, o *importOptions) (ingest.Source, error) {
	n := ingest.NPYOptions{EdgeLayout: o.edgeLayout}
	if o.featureDType != "" {
		t, err := npy.ParseType(o.featureDType)
		if err != nil {
			return nil, usagef("--feature-dtype: %s", err)
		}
		n.FeatureType = t
	}
	if o.featureShape != "" {
		for field := range strings.SplitSeq(o.featureShape, ",") {
			size, err := strconv.ParseInt(strings.TrimSpace(field), 10, 64)
			if err != nil || size < 0 {
				return nil, usagef("--shape %s: want rows,columns", o.featureShape)
			}
			n.FeatureShape = append(n.FeatureShape, size)
		}
		if len(n.FeatureShape) != 2 {
			return nil, usagef("--shape %s: want rows,columns", o.featureShape)
		}
	}
	return ingest.OpenNPY(a.fs, o.source, n)
}

func openIGB(_ context.Context, a *app, o *importOptions) (ingest.Source, error) {
	return ingest.OpenIGB(a.fs, o.source, ingest.IGBOptions{Classes: o.classes})
}

func openCSV(ctx context.Context, a *app, o *importOptions) (ingest.Source, error) {
	if o.ids != "keep" && o.ids != "map" {
		return nil, usagef("--ids %s: want keep or map", o.ids)
	}
	o.edgeList.MapIDs = o.ids == "map"
	return ingest.OpenCSV(ctx, a.fs, o.source, a.workspace(o), o.edgeList)
}

func openMTX(ctx context.Context, a *app, o *importOptions) (ingest.Source, error) {
	return ingest.OpenMTX(ctx, a.fs, o.source, a.workspace(o), o.edgeList.NodeFiles)
}

func openOGB(ctx context.Context, a *app, o *importOptions) (ingest.Source, error) {
	return ingest.OpenOGB(ctx, a.fs, o.source, a.workspace(o), ingest.OGBOptions{Direction: o.direction(), Features: o.edgeList.Features})
}

func (a *app) workspace(o *importOptions) ingest.Workspace {
	budget, _ := a.budget()
	return ingest.Workspace{Output: o.output, Force: o.force, MemoryBytes: int64(budget), Progress: a.progress()}
}
