package ingest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"golang.org/x/sync/errgroup"
)

// Loops says whether edges from a node to itself are kept.
type Loops string

const (
	KeepLoops Loops = "keep"
	DropLoops Loops = "drop"
)

// Duplicates says how several edges with one source and destination are merged.
type Duplicates string

const (
	MergeDuplicates Duplicates = "merge" // one is left, the first in the input
	SumDuplicates   Duplicates = "sum"   // one is left, with the sum of weights; an edge without weight counts 1
	KeepDuplicates  Duplicates = "keep"  // all stay, in the order of the input
)

// Options govern how a source becomes a graph. The zero value of each field is its default.
type Options struct {
	Name              string       // of the data set; default: the source's
	DType             format.DType // of stored features; default Float32
	Direction         Direction    // asked for: UnknownDirection (as the source says), Directed or Undirected
	SelfLoops         Loops        // default KeepLoops
	Duplicates        Duplicates   // default MergeDuplicates
	NormalizeFeatures bool         // divide each row by its sum, where that is positive
	// refer to the arrays of the features, which must be as they are to be stored, and do not copy them
	FeaturesInPlace bool
	EdgeFeatures    EdgeFeatures
	Threads         int    // default parallel.Threads
	MemoryBytes     int64  // most that may be used; 0: no limit
	Scratch         string // folder for scratch files, in a folder of their own; default: within the output
	Force           bool   // replace a directory that is there
	Progress        progress.Reporter

	held     int64     // by the source, of the memory
	ofATyped bool      // the graph is a part of a typed one, and need not have features
	into     []inEdges // of a type of nodes: relations that features come from
}

func (o Options) withDefaults() (Options, error) {
	o.DType = cmp.Or(o.DType, format.Float32)
	o.SelfLoops = cmp.Or(o.SelfLoops, KeepLoops)
	o.Duplicates = cmp.Or(o.Duplicates, MergeDuplicates)
	if o.Threads <= 0 {
		o.Threads = parallel.Threads()
	}
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	switch {
	case !printable(o.Name):
		return o, badOptions("name %q has a character that cannot be printed", o.Name)
	case !o.DType.IsFloat():
		return o, badOptions("features cannot be stored as %s", o.DType)
	case o.SelfLoops != KeepLoops && o.SelfLoops != DropLoops:
		return o, badOptions("self-loops %q (want keep or drop)", o.SelfLoops)
	case o.Duplicates != MergeDuplicates && o.Duplicates != SumDuplicates && o.Duplicates != KeepDuplicates:
		return o, badOptions("duplicates %q (want merge, sum or keep)", o.Duplicates)
	case o.Direction == Symmetric || o.Direction > Symmetric:
		return o, badOptions("direction %d (want unknown, directed or undirected)", o.Direction)
	}
	return o, nil
}

// Check returns the error that Run would, before a source is opened.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

// Result counts the contents of the new graph. Train, Valid and Test count the first split.
type Result struct {
	Nodes        int64    `json:"nodes"`
	Edges        int64    `json:"edges"` // as stored
	Features     int      `json:"features"`
	Classes      int      `json:"classes"`
	LabelColumns int      `json:"label_columns"`
	LabelValues  bool     `json:"label_values"` // the labels are numbers to predict
	Train        int64    `json:"train"`
	Valid        int64    `json:"valid"`
	Test         int64    `json:"test"`
	Seconds      float64  `json:"seconds"`
	Output       string   `json:"output"`
	Notes        []string `json:"notes"`
	// Types and Relations are set for a typed graph. Nodes and Edges are then sums, and the other fields those of the
	// target type.
	Target    string            `json:"target,omitempty"`
	Types     []format.NodeType `json:"node_types,omitempty"`
	Relations []format.Relation `json:"relations,omitempty"`

	fingerprint string
}

// Run writes the graph directory dir from a source. It leaves either the whole directory or nothing. The bytes depend
// on the source and on the options that say what the graph is; not on Threads or MemoryBytes.
func Run(ctx context.Context, fsys vfs.FS, src Source, dir string, o Options) (*Result, error) {
	start := time.Now()
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if typed, ok := src.(*typedSource); ok {
		return typed.run(ctx, fsys, dir, o)
	}
	defer parallel.Beside()()
	info := src.Info()
	if info.Nodes > MaxNodes {
		return nil, fmt.Errorf("%w: %d nodes (at most %d fit node ids of 32 bits)",
			ErrInvalid, info.Nodes, int64(MaxNodes))
	}
	if info.Nodes == 0 {
		return nil, fmt.Errorf("%w: the input has no nodes: is it the right file, and is it complete?", ErrInvalid)
	}
	ofEdges, err := planEdgeFeatures(src, info, o)
	if err != nil {
		return nil, err
	}
	own := info.Features
	info.Features, info.FeatureBytes = own+ofEdges.columns(), info.FeatureBytes+ofEdges.readMemory()
	if info.Features < 1 && !o.ofATyped || info.Features > format.MaxFeatures {
		return nil, fmt.Errorf("%w: %d features a node (want 1 to %d)", ErrInvalid, info.Features, format.MaxFeatures)
	}
	if o.MemoryBytes > 0 {
		o.MemoryBytes, o.held = max(1, o.MemoryBytes-info.HeldBytes), info.HeldBytes
	}
	reverses, notes, err := directions(info, o.Direction)
	if err != nil {
		return nil, err
	}
	if err := o.checkMemory(fmt.Sprintf("labels and features of %d nodes", info.Nodes),
		max(rowMemory(info), featureMemory(info, o))); err != nil {
		return nil, err
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: info.Nodes}},
		0, info.Features, o.DType)
	layout.SourceNodes = info.SourceNodes
	matrixBytes := info.Nodes * int64(info.Features) * int64(o.DType.Size())
	var arrays []*npy.Array
	if o.FeaturesInPlace {
		if arrays, err = inPlace(src, layout, o); err != nil {
			return nil, err
		}
		matrixBytes = 0
		notes = append(notes, fmt.Sprintf("the features stay in %s, which the graph needs as it is", arrays[0].Path()))
	}
	if err := checkEdgeColumns(src, info, o); err != nil {
		return nil, err
	}
	shared := sharedBy(src)
	if shared.graph != nil && shared.features == info.Nodes {
		matrixBytes = 0
	}
	t := newTopology(src, info, reverses, o)
	sorts, err := t.planColumns(ofEdges)
	if err != nil {
		return nil, err
	}
	matrixBytes += columnSpace(src, t.recordCount, info.Nodes)
	if o.Scratch == "" {
		matrixBytes += sortBytes(sorts)
	} else if err := machine.CheckSpace(fsys, o.Scratch, sortBytes(sorts)); err != nil {
		return nil, err
	}
	if err := machine.CheckSpace(fsys, dir, matrixBytes+t.outputBytes(0)); err != nil {
		return nil, err
	}

	w, err := format.Create(fsys, dir, layout, format.CreateOptions{Force: o.Force})
	if err != nil {
		return nil, err
	}
	defer w.Abort()

	res := &Result{Nodes: info.Nodes, Features: info.Features, Output: dir}
	m := &format.Manifest{
		Kind:     format.KindGraph,
		Name:     cmp.Or(o.Name, info.Name),
		Nodes:    info.Nodes,
		Directed: !reverses && info.Direction != Symmetric,
		Input:    maps.Clone(info.Input),
	}
	m.Input["self_loops"] = string(o.SelfLoops)
	m.Input["duplicates"] = string(o.Duplicates)
	if ofEdges != nil {
		m.Input[format.EdgeFeatures] = ofEdges.said()
	}
	if o.NormalizeFeatures || m.Input[format.NormalizeFeatures] == "" { // else the source says
		m.Input[format.NormalizeFeatures] = strconv.FormatBool(o.NormalizeFeatures)
	}

	// Labels come first: they are small, and what is wrong shows early.
	large := rowMemory(info) > o.workingBytes()/8
	if err := writeRows(ctx, src, w, m, res, large, shared); err != nil {
		return nil, err
	}
	if large {
		debug.FreeOSMemory() // the row table is garbage now, and the memory plan counts on its room
	}
	m.Weighted = t.weighted
	edges := func(ctx context.Context, other int64) (err error) {
		if shared.topology {
			m.Edges = info.Edges
			return w.AdoptTopology(shared.graph)
		}
		m.Edges, err = t.write(ctx, fsys, dir, w, other)
		return err
	}
	features := func(ctx context.Context) error {
		in, err := openFeatures(src, o, own, ofEdges)
		if err != nil {
			return err
		}
		defer in.Close()
		o := o
		o.NormalizeFeatures = o.NormalizeFeatures && ofEdges == nil // else the reader has done so with those of nodes
		return writeFeatures(ctx, info, w, o, shared, in)
	}
	switch {
	case info.Features == 0:
		features = func(context.Context) error { return nil }
	case arrays != nil:
		features = func(ctx context.Context) error { return referFeatures(ctx, w, arrays, o) }
	}
	if arrays == nil && ofEdges == nil && t.beside(fsys, dir, matrixBytes) {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return edges(ctx, 0) })
		g.Go(func() error { return features(ctx) })
		err = g.Wait()
	} else if err = edges(ctx, matrixBytes); err == nil && ofEdges == nil {
		err = features(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := writeNodeColumns(ctx, src, w); err != nil {
		return nil, err
	}
	if err := t.writeColumns(ctx, fsys, dir, w, sorts, m.Edges, func() error {
		if ofEdges == nil {
			return nil
		}
		return features(ctx)
	}); err != nil {
		return nil, err
	}
	if err := shared.adoptColumns(src, w); err != nil {
		return nil, err
	}
	res.Edges = m.Edges
	if err := w.Publish(m); err != nil {
		return nil, err
	}
	res.fingerprint = m.Fingerprint
	res.Notes = append([]string{}, slices.Concat(src.Info().Notes, notes, t.notes(res.Edges))...)
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// directions decides whether the reverse of every edge is to be added: where the input says so, or it was asked for.
// Nothing takes the reverses away that an undirected input stands for.
func directions(info Info, asked Direction) (reverses bool, notes []string, err error) {
	from := cmp.Or(info.DirectionFrom, "the input")
	switch {
	case asked == Undirected && info.Direction == Directed:
		return true, []string{fmt.Sprintf("the reverse of every edge is added (--undirected), though %s says that "+
			"edges are directed", from)}, nil
	case asked == Directed && (info.Direction == Undirected || info.Direction == Symmetric):
		return false, nil, badOptions("%s says that the edges are undirected; leave out --directed", from)
	case asked == UnknownDirection && info.Direction == UnknownDirection:
		return false, []string{"edges are taken as directed, since the input does not say (--undirected adds the " +
			"reverse of every edge, --directed accepts this)"}, nil
	}
	return asked == Undirected && info.Direction != Symmetric || info.Direction == Undirected, nil, nil
}

// workingBytes bounds the memory of the program itself and of the buffers for reading and writing.
func (o Options) workingBytes() int64 { return 32<<20 + int64(o.Threads)*4<<20 }

// checkMemory fails if a phase of an import takes more memory than there is beside workingBytes and what the source
// holds. The phases are rows (rowMemory), edges (topology.sortMemory) and features (featureMemory); what one takes is
// freed before the next, but for edges and features that are written at a time (topology.beside).
func (o Options) checkMemory(what string, bytes int64) error {
	needed := bytes + o.workingBytes()
	if o.MemoryBytes == 0 || needed <= o.MemoryBytes {
		return nil
	}
	return fmt.Errorf("%s: %w: needs %v at least, and %v may be used (raise --memory)", what, machine.ErrDoesNotFit,
		units.AtLeast(units.Bytes(needed+o.held)), units.Bytes(o.MemoryBytes+o.held))
}

// rowMemory is the memory of writeRows: the table, reading it, and the stream that writes it, which is
// smaller for files of less than 8 MiB (a row may have 64 bytes there).
func rowMemory(info Info) int64 {
	return info.Nodes*info.RowBytes + info.RowReadBytes + vfs.StreamBytes(64*info.Nodes)
}

// writeRows writes labels and splits and counts them.
func writeRows(ctx context.Context, src Source, w *format.Writer, m *format.Manifest, res *Result, large bool,
	shared sharedParts) error {
	if large { // the row table is the one large thing on the heap, which may not double it
		defer debug.SetGCPercent(debug.SetGCPercent(20))
	}
	t, err := src.Rows(ctx)
	if err != nil {
		return err
	}
	for _, label := range t.Labels {
		m.Classes = max(m.Classes, int(label)+1)
	}
	m.ClassNames = src.Info().ClassNames
	switch {
	case t.Labels != nil:
		m.Labels = 1
	case t.MultiLabels != nil:
		m.Labels = t.LabelColumns
	case t.LabelValues != nil:
		m.Labels, res.LabelValues = t.LabelColumns, true
	}
	m.Splits = t.NumSplits
	var inPart [256]int64
	for v := int64(0); t.NumSplits > 0 && v < t.Rows; v++ {
		inPart[t.Splits[v*int64(t.NumSplits)]]++
	}
	res.Train, res.Valid, res.Test = inPart[format.SplitTrain], inPart[format.SplitValid], inPart[format.SplitTest]
	res.Classes, res.LabelColumns = m.Classes, m.Labels
	if shared.rows {
		return w.AdoptRows(shared.graph)
	}
	return w.Rows(t)
}
