package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Typed is a typed graph that is open for a training, whose batches devices share, or for inference, on one device.
// Rows are the nodes of its target. Training samples in-neighbours by relation; other nodes are computed from all
// in-neighbours, batch after batch, on the first device.
type Typed struct {
	o        Options
	dir      *format.Dir // of the nodes of the target
	shape    *typedShape
	first    uint32 // the number of the first of them among the nodes of all types
	plan     *typedPlan
	devices  []gds.Device
	numbers  gds.Memory // of rows
	topology sampling.Topology
	sources  [][]features.Source // of each device, of each type; of the first alone, unless they are on the devices
	stored   []*format.Dir       // of types, whose features are read from files
	methods  []*sampling.Method  // that samples, unless nothing is trained, and, last, that takes all in-neighbours
	loaders  []*sampling.Loader  // of each device
	sets     Sets                // of earlier runs: but for samples, they are the same in each
}

// TypedShape is what a model reads of a graph or store: its matrices and layout and, of a typed graph (Dir.Typed), the
// features of each type, whose name is the operator of their matrix, and the relations.
func TypedShape(dir *format.Dir) (matrices []trainer.MatrixID, layout format.Layout, relations []trainer.Relation) {
	matrices, layout = dir.Matrices(), dir.Layout()
	if dir.Typed == nil {
		return matrices, layout, nil
	}
	matrices, layout.Widths = nil, map[string]int{}
	for _, n := range dir.Typed.Types {
		matrices = append(matrices, trainer.MatrixID{Operator: n.Name})
		layout.Widths[n.Name] = n.Features
	}
	for _, r := range dir.Typed.Relations {
		relations = append(relations, trainer.Relation{Source: r.Source, Name: r.Name, Destination: r.Destination})
	}
	return matrices, layout, relations
}

// bareTypes are the types without features, with the number of their nodes; nil: there are none.
func bareTypes(t *format.Typed) (nodes map[string]int) {
	for _, n := range t.Types {
		if n.Features == 0 {
			if nodes == nil {
				nodes = map[string]int{}
			}
			nodes[n.Name] = int(n.Nodes)
		}
	}
	return nodes
}

// CheckRelations refuses a graph whose relations are not those of the training of a model, or which has other nodes
// than those whose rows it has learned.
func CheckRelations(dir *format.Dir, spec trainer.Spec) error {
	_, _, relations := TypedShape(dir)
	if slices.Equal(relations, spec.Relations) {
		for name, nodes := range spec.Nodes {
			if n, _ := dir.Typed.Type(name); n.Features > 0 || n.Nodes != int64(nodes) {
				return session.Refuse("the model has learned rows of %d nodes of %s, and this graph has %d, with %d "+
					"features (train a model on this graph, or one without --embedding)", nodes, name, n.Nodes, n.Features)
			}
		}
		return nil
	}
	text := func(all []trainer.Relation) string {
		var names []string
		for _, r := range all {
			names = append(names, r.String())
		}
		return cmp.Or(strings.Join(names, ", "), "none, as it has one type")
	}
	return session.Refuse("the relations of the model's graph were %s, and those of this one are %s", text(spec.Relations),
		text(relations))
}

// checkTyped refuses a typed graph that no model can be trained on.
func checkTyped(input string, t *format.Typed) error {
	if len(t.Relations) == 0 {
		return session.Refuse("%s has no relations", input)
	}
	return nil
}

// checkFeatures refuses types without features unless their nodes learn rows.
func checkFeatures(input string, spec trainer.Spec) error {
	if spec.Settings["embedding"] > 0 {
		return nil
	}
	for _, id := range spec.Matrices {
		if spec.Nodes[id.Operator] > 0 {
			return session.Refuse("%s has no features of %s: import it with --missing-features, or give --embedding, how many "+
				"columns each node learns", input, id.Operator)
		}
	}
	return nil
}

// checkTyped refuses what is for graphs of one type.
func (o *Options) checkTyped() error {
	s := &o.Sampling
	for _, c := range []struct {
		refused bool
		what    string
	}{
		{o.Train && s.Sampler != "neighbor" && s.Sampler != FullSampler, "--sampler " + s.Sampler},
		{s.divides(), "--partitions and --partition-file"},
		{o.Schedule.Name != "", "--schedule"}, {o.Scratch != "", "--scratch"},
		{o.Stages.Paced(), "--emulate with durations of stages"},
	} {
		if c.refused {
			return session.Refuse("%s: that is for graphs of one type; typed ones are sampled by neighbor or full", c.what)
		}
	}
	if d := &o.Machine.Devices; !o.Train && d.Name == "emulated" && d.Count > 1 {
		return session.Refuse("--emulate gpu=%d: a model is applied to a graph on one device", d.Count)
	}
	return nil
}

// OpenTyped opens a typed graph, whose target's nodes are in dir, on the devices of the machine if it is trained, else
// on the first.
func OpenTyped(ctx context.Context, dir *format.Dir, o Options) (_ *Typed, err error) {
	if o.Spec, err = o.Spec.Normalized(); err != nil {
		return nil, err
	}
	if err := o.checkTyped(); err != nil {
		return nil, err
	}
	if o.Train {
		o.BatchRows = min(o.BatchRows, len(o.Part.Train.List))
	}
	g := &Typed{o: o, dir: dir, first: sampling.FirstNodes(dir.Typed)[dir.Typed.Target]}
	if g.shape, err = newTypedShape(dir); err != nil {
		return nil, err
	}
	if g.plan, err = planTyped(g.shape, &g.o); err != nil {
		return nil, err
	}
	m := o.Machine
	if m.Devices.Info.Unified { // batches that are larger than estimated may take what the host leaves, and no more
		memory := g.plan.memory(&g.o)
		m = m.Less(units.Bytes(memory.HostBytes - session.Program.Bytes))
	}
	if g.devices, err = m.Devices.Open(o.sharing()); err != nil {
		return nil, err
	}
	g.numbers.Device = g.devices[0]
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Typed) open(ctx context.Context) (err error) {
	files, t, at, threads := g.dir.FS(), g.dir.Typed, g.dir.TypedPath, g.o.Machine.Threads
	if g.topology, err = sampling.OpenTypedTopology(ctx, files, at, t, g.o.Mapped, threads); err != nil {
		return err
	}
	if err = g.openFeatures(ctx); err != nil {
		return err
	}
	method := func(sampler string, fanouts []int) {
		if err != nil {
			return
		}
		var opened *sampling.Method
		if opened, err = sampling.NewMethod(ctx, sampler, g.topology, sampling.Options{Fanouts: fanouts, ByType: true,
			Aggregation: sampling.Mean, Replace: g.o.Sampling.Replace && sampler != FullSampler, Threads: threads}); err == nil {
			g.methods = append(g.methods, opened)
		}
	}
	if g.o.Train {
		method(g.o.Sampling.Sampler, g.o.fanouts())
	}
	if method(FullSampler, g.o.allFanouts()); err != nil {
		return err
	}
	labels, err := loader.ReadLabels(ctx, g.dir)
	if err != nil {
		return err
	}
	for rank, device := range g.devices {
		types, err := g.typesOf(ctx, rank)
		if err != nil {
			return err
		}
		opened, err := sampling.Open(sampling.LoaderOptions{
			Device: device, Types: types, Labels: labels, First: g.first, Buffers: g.o.buffers(),
			Workers: g.o.workers(len(g.devices)), Samples: g.plan.samples, NodeIDs: len(g.o.Spec.Nodes) > 0,
		})
		if err != nil {
			return err
		}
		g.loaders = append(g.loaders, opened)
	}
	return nil
}

// typesOf are the rows of types for a device, with caches of its own. These do not depend on the seed of a run: see
// Graph.openSamplers.
func (g *Typed) typesOf(ctx context.Context, rank int) ([]sampling.TypeRows, error) {
	types := make([]sampling.TypeRows, len(g.dir.Typed.Types))
	for i, source := range g.sources[min(rank, len(g.sources)-1)] {
		types[i].Features = source
	}
	if g.o.Sampling.Cache == "" {
		return types, nil
	}
	spec, err := session.CacheSpec(g.o.Sampling.Cache, g.shape.cached())
	if err != nil {
		return nil, err
	}
	opened, err := sampling.OpenCaches(ctx, spec, sampling.CacheOptions{Topology: g.topology,
		RowBytes: g.shape.rowBytes(), Method: g.methods[0], Nodes: g.nodes(g.o.Part.Train.List), Plan: g.order(0, rank),
		Workers: g.o.workers(len(g.devices)), Samples: g.plan.samples, TraceRows: g.shape.traceRows()})
	for i := range opened {
		types[i].Cache = opened[i].Cache
	}
	return types, err
}

// openFeatures opens the features of all types: for each device if they are in its memory, else for all.
func (g *Typed) openFeatures(ctx context.Context) error {
	for _, device := range g.devices {
		g.sources = append(g.sources, nil)
		if err := g.openTypes(ctx, device); err != nil || g.plan.where != placement.Device {
			return err
		}
	}
	return nil
}

// openTypes adds the features of all types to the last of g.sources.
func (g *Typed) openTypes(ctx context.Context, device gds.Device) error {
	sources := &g.sources[len(g.sources)-1]
	for _, n := range g.dir.Typed.Types {
		if n.Features == 0 {
			*sources = append(*sources, features.NewNone(n.Nodes))
			continue
		}
		d, err := g.dir.Typed.OpenNodes(g.dir.FS(), g.dir.TypedPath, n.Name)
		if err == nil {
			var one features.Source
			if one, err = g.openType(ctx, device, d); err == nil {
				*sources = append(*sources, one)
			}
			if err == nil && g.plan.where == placement.Storage {
				g.stored = append(g.stored, d)
			} else {
				err = errors.Join(err, d.Close())
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openType brings the features of a type to their place.
func (g *Typed) openType(ctx context.Context, device gds.Device, d *format.Dir) (features.Source, error) {
	switch g.plan.where {
	case placement.Device:
		return sourceOf(features.LoadDevice(ctx, d, device, g.o.Machine.Threads))
	case placement.Storage:
		return sourceOf(features.OpenStorage(ctx, d, device, g.o.Machine.Threads))
	}
	return sourceOf(features.LoadHost(ctx, d, nil, g.o.Machine.Threads))
}

// sourceOf is a source, and no nil pointer in it.
func sourceOf[S features.Source](opened S, err error) (features.Source, error) {
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Close closes all, the device too.
func (g *Typed) Close() error {
	var errs []error
	for _, l := range g.loaders {
		errs = append(errs, l.Close())
	}
	for _, m := range g.methods {
		errs = append(errs, m.Close())
	}
	for _, sources := range g.sources {
		for _, s := range sources {
			errs = append(errs, s.Close())
		}
	}
	for _, d := range g.stored {
		errs = append(errs, d.Close())
	}
	if g.topology != nil {
		errs = append(errs, g.topology.Close())
	}
	return errors.Join(append(errs, g.numbers.Free(), devices.Close(g.devices))...)
}

// Sets are the nodes of a run.
func (g *Typed) Sets(ctx context.Context, seed uint64, test bool) (d Sets, err error) {
	d = g.sets
	if d.Valid == nil {
		if d.Valid, err = g.InOrder(g.o.Part.Valid); err == nil && test {
			d.Test, err = g.InOrder(g.o.Part.Test)
		}
		if err != nil {
			return d, err
		}
	}
	d.Train = nil
	for rank := range g.devices {
		set, err := g.set(rank, g.o.Part.Train.List, g.methods[0], g.order(seed, rank))
		if err != nil {
			return d, err
		}
		d.Train = append(d.Train, set)
	}
	g.sets = d
	return d, nil
}

// order is the order of the training nodes of a device.
func (g *Typed) order(seed uint64, rank int) chunk.Plan {
	return shuffled(g.o.BatchRows, seed, rank, len(g.devices))
}

// InOrder is nodes in their order.
func (g *Typed) InOrder(rows loader.Rows) ([]RowSet, error) {
	plan := chunk.Plan{BatchRows: min(g.plan.evaluated, max(1, len(rows.List))), ChunkRows: 1, Order: chunk.Sequential}
	set, err := g.set(0, rows.List, g.methods[len(g.methods)-1], plan)
	if err != nil {
		return nil, err
	}
	numbers := make([]uint32, len(rows.List))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	set.numbers = g.numbers.Matrix("numbers of rows", 1, len(numbers), gds.Uint32)
	if err = g.numbers.Err; err != nil {
		return nil, err
	}
	stream, err := g.devices[0].NewStream()
	if err != nil {
		return nil, err
	}
	err = gds.Upload(g.devices[0], stream, set.numbers, numbers)
	sets := []RowSet{set}
	for range g.devices[1:] {
		sets = append(sets, g.idle(set))
	}
	return sets, errors.Join(err, stream.Close())
}

// typedSet is rows of the target. In order, they are numbered by their places.
type typedSet struct {
	*sampling.Set
	first   uint32
	batch   int
	numbers gds.Tensor
}

// nodes are the numbers of rows of the target among the nodes of all types.
func (g *Typed) nodes(rows []uint32) []uint32 {
	nodes := make([]uint32, len(rows))
	for i, row := range rows {
		nodes[i] = g.first + row
	}
	return nodes
}

func (g *Typed) set(rank int, rows []uint32, method *sampling.Method, plan chunk.Plan) (*typedSet, error) {
	set, err := g.loaders[rank].Set(g.nodes(rows), method, plan)
	return &typedSet{Set: set, first: g.first, batch: plan.BatchRows}, err
}

// idleTyped has no row of the batches that the first device evaluates.
type idleTyped struct {
	*typedSet
	x      []gds.Tensor // of each type, without rows
	labels gds.Tensor
}

func (g *Typed) idle(set *typedSet) (s idleTyped) {
	s.typedSet = set
	for _, n := range g.dir.Typed.Types {
		s.x = append(s.x, gds.NewTensor(nil, 0, n.Features, gds.Float32))
	}
	labels := loader.LabelsOf(&g.dir.Manifest)
	if s.labels = gds.NewTensor(nil, 0, labels.Columns, labels.Type); labels.Type == gds.Int32 {
		s.labels = gds.NewTensor(nil, 1, 0, labels.Type)
	}
	return s
}

func (s idleTyped) RowNumbers(int, int) []uint32 { return nil }

func (s idleTyped) EpochFrom(_ context.Context, _ gds.Stream, _, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for k := first; k < s.Batches(); k++ {
			rows := min(s.batch, int(s.Rows())-k*s.batch) // of all devices
			if !yield(&loader.Batch{Index: k, GlobalRows: rows, X: s.x, Labels: s.labels}, nil) {
				return
			}
		}
	}
}

// RowNumbers are the rows of a batch.
func (s *typedSet) RowNumbers(epoch, batch int) []uint32 {
	rows := slices.Clone(s.Set.RowNumbers(epoch, batch))
	for i := range rows {
		rows[i] -= s.first
	}
	return rows
}

// EpochFrom yields the batches of an epoch.
func (s *typedSet) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range s.Set.EpochFrom(ctx, stream, n, first) {
			if err == nil && s.numbers.Cols > 0 {
				b.RowNumbers = s.numbers.Columns(b.Index*s.batch, b.Index*s.batch+b.Rows)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// Devices train.
func (g *Typed) Devices() []gds.Device { return g.devices }

// ShareRows is the most rows of a batch.
func (g *Typed) ShareRows() int { return g.plan.rows }

// Batches says how training nodes are shuffled.
func (g *Typed) Batches() checkpoint.Batches {
	return checkpoint.Batches{Rows: g.o.BatchRows, Shuffle: placement.RR, ChunkRows: 1, Placement: g.plan.where,
		Devices: len(g.devices)}
}

// Report says where the graph lies.
func (g *Typed) Report() Report {
	memory := g.plan.memory(&g.o)
	r := Report{Memory: &memory, Placement: g.plan.where, Shuffle: placement.RR,
		Devices: len(g.devices), Reasons: g.plan.reasons, Load: g.loaders[0].Stats().Stats}
	r.setDevice(g.devices[0])
	return r
}

// Explain says what to do where there was too little device memory for a batch.
func (g *Typed) Explain(err error) error {
	if !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w (give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err)
}

// PeakBytes is the peak memory of the fullest device.
func (g *Typed) PeakBytes() int64 { return session.PeakBytes(g.devices) }

// InputBytes is the graph in memory, WorkBytes the device memory of model, batches and activations.
func (g *Typed) InputBytes() int64 { return g.plan.input }
func (g *Typed) WorkBytes() int64  { return g.plan.device }

// Alternatives are the places where the features may be, with what each takes, or why it is impossible.
func (g *Typed) Alternatives() (all []placement.Alternative) {
	for _, where := range typedPlaces {
		a := placement.Alternative{Placement: where, Shuffle: placement.RR, Devices: len(g.devices)}
		if p, err := planTypedIn(g.shape, &g.o, where); err != nil {
			a.Obstacle = err.Error()
		} else {
			memory := p.memory(&g.o)
			a.DeviceBytes, a.HostBytes = units.Bytes(memory.DeviceBytes), units.Bytes(memory.HostBytes)
		}
		all = append(all, a)
	}
	return all
}

// Measure trains on some batches: see Graph.Measure.
func (g *Typed) Measure(ctx context.Context) (batches float64, costs trainer.EpochCosts, err error) {
	return measure(ctx, g, g.o)
}
