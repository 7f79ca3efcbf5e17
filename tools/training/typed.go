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
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
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

// sharing is how many devices share the batches of a typed graph.
func (o *Options) sharing() int {
	if !o.Train {
		return 1
	}
	return o.Machine.Devices.Count
}

// typedPlan is what a typed graph takes.
type typedPlan struct {
	where     string // the features are: placement.Device, Host or Storage
	terms     need.Terms
	evaluated int // rows of a batch whose in-neighbours are all taken
	samples   int // at a time
	rows      int // of the largest batch
	input     int64
	device    int64 // of model, batches and activations
	reasons   []string
}

// typedPlaces are the places for features, the fastest first.
var typedPlaces = []string{placement.Device, placement.Host, placement.Storage}

// leastEvaluated is the fewest rows of a batch in evaluations, if memory is scarce.
const leastEvaluated = 64

// typedShape is what a typed graph, whose target's nodes are in Dir, is planned by.
type typedShape struct {
	*format.Dir
	all  *format.Manifest        // the graph, as sampling.TypedManifest has it
	rows []sampling.ExpectedRows // of each type, as they are stored
}

func newTypedShape(dir *format.Dir) (*typedShape, error) {
	t := dir.Typed
	weighted, err := t.Weighted(dir.FS(), dir.TypedPath)
	if err != nil {
		return nil, err
	}
	s := &typedShape{Dir: dir, all: sampling.TypedManifest(t, weighted)}
	for _, n := range t.Types {
		rows := sampling.ExpectedRows{Features: n.Features, DType: gds.Float32}
		if n.Features > 0 {
			d, err := t.OpenNodes(dir.FS(), dir.TypedPath, n.Name)
			if err != nil {
				return nil, err
			}
			rows.DType = d.Layout().DType
			if err := d.Close(); err != nil {
				return nil, err
			}
		}
		s.rows = append(s.rows, rows)
	}
	return s, nil
}

// cached are the rows of each type, as they are stored.
func (s *typedShape) cached() []cache.Rows {
	rows := make([]cache.Rows, len(s.rows))
	for i, r := range s.rows {
		rows[i] = cache.Rows{Nodes: s.Typed.Types[i].Nodes, Bytes: gds.Bytes(1, r.Features, r.DType)}
	}
	return rows
}

// rowBytes are the sizes of a row of each type, as stored.
func (s *typedShape) rowBytes() (bytes []int64) {
	for _, r := range s.cached() {
		bytes = append(bytes, r.Bytes)
	}
	return bytes
}

// traceRows is how many rows optimal caches look ahead.
func (s *typedShape) traceRows() int64 { return max(s.all.Nodes, cache.TraceRows(optimalTraceBytes)) }

// cacheSpec is --cache, which has room for a row.
func (s *typedShape) cacheSpec(o *Options) (cache.Spec, error) {
	spec, err := cache.Parse(o.Sampling.Cache)
	if err == nil {
		err = spec.CheckRoom(s.cached())
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", session.ErrOptions, err)
	}
	return spec, err
}

// planTyped finds a place for the features for which there is memory: a device that has its own, the host, storage.
func planTyped(shape *typedShape, o *Options) (*typedPlan, error) {
	o.Placement = cmp.Or(o.Placement, placement.Auto)
	places := []string{o.Placement}
	if o.Placement == placement.Auto {
		if places = typedPlaces; o.Machine.Devices.Info.Unified {
			places = places[1:]
		}
	}
	plans := map[string]*typedPlan{}
	chosen, why := placement.First(places, func(where string) (err error) {
		plans[where], err = planTypedIn(shape, o, where)
		return err
	})
	if chosen < 0 {
		least := len(why) - 1 // storage, unless its buffers take more than few features do in host memory
		if least > 0 && plans[places[least-1]].hostBytes(o) < plans[places[least]].hostBytes(o) {
			least--
		}
		return nil, why[least]
	}
	p := plans[places[chosen]]
	for i, err := range why {
		p.reasons = append(p.reasons, "not from "+places[i]+": "+err.Error())
	}
	if o.Placement != placement.Auto {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	lists := "in host memory"
	if o.Mapped {
		lists = "mapped from disk"
	}
	p.reasons = append(p.reasons, fmt.Sprintf("features of %d types are read from %s, lists by relation are %s: %s of "+
		"memory", len(shape.Typed.Types), p.where, lists, units.Bytes(p.input)),
		fmt.Sprintf("evaluation takes all in-neighbours of up to %d nodes at a time", p.evaluated))
	return p, nil
}

// planTypedIn finds how many rows and samples there is memory for beside features in a place. What batches take is an
// estimate. If it fails, the plan is the smallest.
func planTypedIn(shape *typedShape, o *Options, where string) (p *typedPlan, err error) {
	what := fmt.Sprintf("%s on %d nodes and %d edges of %d types, with features from %s,", o.Spec.Model,
		shape.all.Nodes, shape.all.Edges, len(shape.Typed.Types), where)
	for rows := InferenceRows; ; rows /= 2 {
		for samples := sampling.MostSamples(o.workers(o.sharing()), o.buffers()); samples > 0; samples /= 2 {
			p = &typedPlan{where: where, evaluated: rows, samples: samples}
			if err = p.count(shape, o); err != nil {
				return p, err
			}
			if err = o.Machine.Fits(what, p.memory(o)); err == nil {
				return p, nil
			}
		}
		if rows == leastEvaluated {
			return p, err
		}
	}
}

func (o *Options) buffers() int { return cmp.Or(o.Sampling.Buffers, placement.Buffers) }

// allFanouts takes all in-neighbours in each layer.
func (o *Options) allFanouts() []int {
	return slices.Repeat([]int{sampling.All}, int(o.Spec.Settings["layers"]))
}

// fanouts are those of training.
func (o *Options) fanouts() []int {
	if o.Sampling.TakesAllEdges() {
		return o.allFanouts()
	}
	return o.Sampling.Fanouts
}

// count lists what the graph, its model and its batches take.
func (p *typedPlan) count(shape *typedShape, o *Options) (failed error) {
	bytes := func(bytes int64, err error) int64 {
		failed = cmp.Or(failed, err)
		return bytes
	}
	t, m, all, unified := shape.Typed, &shape.Manifest, shape.all, o.Machine.Devices.Info.Unified
	devices, share := o.sharing(), (o.BatchRows+o.sharing()-1)/o.sharing()
	workers := min(p.samples, o.workers(devices))
	// each adds terms of which each device has its own.
	each := func(terms need.Terms) {
		for _, t := range terms.During(need.Profile, "") {
			if t.Place != need.Device {
				t.Bytes *= int64(devices)
			}
			p.terms = append(p.terms, t)
		}
	}
	rows, there := slices.Clone(shape.rows), p.where == placement.Device
	var rowBytes, widest int64
	var staging need.Term
	for i, n := range t.Types {
		r := &rows[i]
		stored := gds.Aligned(gds.Bytes(int(n.Nodes), n.Features, r.DType))
		if r.There = there && n.Features > 0; r.There {
			r.DType = gds.Float32
		}
		rowBytes += gds.Aligned(gds.Bytes(int(n.Nodes), n.Features, r.DType))
		widest = max(widest, stored)
		if one := features.UploadNeed(n.Nodes, n.Features); one.Bytes > staging.Bytes {
			staging = one
		}
	}
	copies := bytes(o.Spec.HostBytes(devices))
	topology, evaluated, methods := sampling.TypedTopologyNeed(t, all.Weighted, o.Mapped), int(m.Nodes), int64(1)
	if o.Train {
		evaluated, methods = max(1, len(o.Part.Valid.List), len(o.Part.Test.List)), 2
	}
	seeds := min(p.evaluated, evaluated)
	p.rows = max(share, seeds)
	if p.input = topology.Bytes + sampling.LabelsNeed(m).Bytes; p.where != placement.Storage {
		p.input += rowBytes
	}
	device := bytes(o.Spec.DeviceBytes(p.rows, o.Train))
	p.terms = append(slices.Clone(o.Held), session.Program, topology, sampling.LabelsNeed(m),
		need.OnHeap("lists of nodes", 16*m.Nodes+(methods+1)*all.Nodes/8),
		need.OnHeap(copiesTerm, copies),
		need.Term{Name: "parameters on their way", Place: need.Pinned, Bytes: 4 * bytes(o.Spec.Parameters())},
		need.Term{Name: modelTerm, Place: need.Pinned, Bytes: bytes(o.Spec.PinnedBytes(p.rows, devices, 0, o.Train))},
		need.Term{Name: modelTerm, Place: need.Device, Bytes: device},
		need.Term{Name: "numbers of rows", Place: need.FirstDevice, Bytes: 4*m.Nodes + 3*gds.Align})
	switch p.where {
	case placement.Device:
		p.terms = append(p.terms, staging, need.Term{Name: "features on the device", Place: need.Device, Bytes: rowBytes},
			need.Term{Name: "features while they are read", Place: need.OffHeap, Bytes: widest, From: need.Features,
				Until: need.Features})
	case placement.Host:
		p.terms = append(p.terms, need.Term{Name: "features", Place: need.OffHeap, Bytes: rowBytes})
	default:
		for _, r := range shape.cached() {
			if r.Bytes > 0 {
				p.terms = append(p.terms, features.StorageNeed(r.Nodes, r.Bytes)...)
			}
		}
	}
	// Of training and of evaluation, the larger. Epochs take the largest buffers first, so that of each number has the
	// largest batches of the epochs that have as many.
	var activations, work, samples, pinned int64
	buffers, batchRows := make([]int64, o.buffers()), make([]int64, len(rows))
	add := func(sampler string, fanouts []int, seeds, batches int) {
		blocks, parts, inputs := sampling.ExpectedTypedBlocks(t, fanouts, int64(seeds))
		var shapes []loader.Block
		for _, b := range blocks {
			shapes = append(shapes, loader.Block{Destinations: int(b.Destinations), Sources: int(b.Sources), Parts: parts})
			if o.Machine.Devices.Info.EdgeWork {
				work = max(work, o.Spec.EdgeWorkBytes(b.Sources, b.Edges))
			}
		}
		for i, n := range inputs {
			rows[i].Inputs, batchRows[i] = n, max(batchRows[i], n)
			rows[i].Cached = o.Sampling.Cache != "" && !rows[i].There
		}
		one := sampling.ExpectedBatch(m, rows, sampler, blocks, unified)
		for k := range min(len(buffers), batches) {
			buffers[k] = max(buffers[k], one.Device)
		}
		pinned = max(pinned, one.Pinned)
		samples = max(samples, one.Sample*int64(min(p.samples, batches)))
		activations = max(activations, gds.Room(bytes(o.Spec.BlockBytes(seeds, shapes, inputs, false))))
		samplers := workers
		if sampler == o.Sampling.Sampler && o.Train { // whose method devices share, as they do factors
			samplers *= devices
		}
		p.terms = append(p.terms, sampling.SamplersNeed(sampler, sampling.Mean, all, samplers))
	}
	batches := func() need.Terms { // as far as they were added
		held := int64(0)
		for _, bytes := range buffers {
			held += bytes
		}
		p.device = device + activations + work + held
		return need.Terms{need.OnHeap("samples", samples),
			{Name: "activations", Place: need.Device, Bytes: activations},
			{Name: "work along edges", Place: need.Device, Bytes: work},
			{Name: "batches", Place: need.Device, Bytes: held},
			{Name: "batches on their way to the device", Place: need.Pinned,
				Bytes: int64(pipelinedMoves(o.buffers()-1)) * pinned}}
	}
	if o.Train {
		add(o.Sampling.Sampler, o.fanouts(), share, (len(o.Part.Train.List)+o.BatchRows-1)/o.BatchRows)
	}
	trained := batches()
	add(FullSampler, o.allFanouts(), seeds, (evaluated+seeds-1)/seeds)
	if most := batches(); devices == 1 {
		each(most)
	} else { // the first alone evaluates
		each(trained)
		for i, t := range most.During(need.Profile, "") {
			if t.Bytes -= trained[i].Bytes; t.Place == need.Device {
				t.Place = need.FirstDevice
			}
			p.terms = append(p.terms, t)
		}
	}
	if o.Sampling.Cache != "" {
		spec, err := shape.cacheSpec(o)
		if err != nil {
			return err
		}
		caches := sampling.CacheNeed(spec, shape.cached(), shape.traceRows())
		if p.where == placement.Storage || p.where == placement.Host && !unified { // else rows elsewhere gain nothing
			caches = append(caches, sampling.RowCacheNeed(spec, shape.cached(), batchRows, unified, false)...)
		}
		if spec.Policy == "optimal" { // it looks ahead by samplers of its own
			caches = append(caches, sampling.SamplersNeed(o.Sampling.Sampler, sampling.Mean, all, workers),
				need.OnHeap("samples", samples))
		}
		each(caches)
	}
	return failed
}

// memory is the memory of the plan.
func (p *typedPlan) memory(o *Options) need.Memory {
	return p.terms.Sum(o.sharing(), o.Machine.Devices.Info.Unified)
}

// hostBytes is the memory of the plan without that of a device that has its own.
func (p *typedPlan) hostBytes(o *Options) int64 {
	memory := p.memory(o)
	if o.Machine.Devices.Info.Unified {
		memory.HostBytes += memory.DeviceBytes
	}
	return memory.HostBytes
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
	spec, err := g.shape.cacheSpec(&g.o)
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
