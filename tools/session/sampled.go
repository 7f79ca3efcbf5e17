package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
)

// SampledOptions say how mini-batches of a graph are sampled and, if there is a Device, how they get features and
// labels. In a typed graph, Seeds are nodes of the one graph of all types (sampling.FirstNodes); batches are by type
// (sampling.Options.ByType), with the features of types and the labels of the target; or they have NoFeatures, and no
// labels.
type SampledOptions struct {
	Machine Machine // its Budget and Threads
	Sampler string  // one of sampling.Names
	// Sampling are the options of the sampler. Its Targets, Cached and Threads are set here.
	Sampling sampling.Options
	Seeds    []uint32        // distinct nodes, unless Sampling.Disjoint
	Links    *sampling.Links // seeds instead of nodes
	// Times is a column of the graph by which seeds with times are limited (see sampling.Limits), the latest edges being
	// chosen with Newest; "": there are no limits.
	Times  string
	Newest bool
	Plan   chunk.Plan // of the seeds; its Rows are set here, unless they are the rank's own
	// Held tells which nodes are of the device's partitions; nil: all.
	Held   func(node uint32) bool
	Cache  string // of rows of features, POLICY:SIZE; "": none
	Mapped bool   // map the topology from disk instead of loading it

	// Device is where batches are assembled; nil: they are sampled only, and there is no Loader.
	Device gds.Device
	// Placement is where the features live: placement.Host or Storage; "" or placement.Auto: host memory, if they fit.
	Placement  string
	Buffers    int  // batches on the device, held ones included; 0: placement.Buffers
	Workers    int  // threads that sample; 0: all of the Machine
	Samples    int  // at a time; 0: as many as the workers can have on their way, and memory allows
	NodeIDs    bool // batches tell which nodes their rows and inputs are
	NoFeatures bool // batches have none
	// MostBuffers is how many there may be after calls of Loader.Grow, as far as the budget allows; 0: Buffers.
	MostBuffers int

	// Opened are open already, and stay the caller's, as does the memory of everything: Mapped and
	// Placement do not count then. nil: the session opens them, and plans memory.
	Opened *OpenedGraph
	// Routed: the Device may prepare batches by itself, by which the adjacency lists of a joint cache are on it too.
	Routed bool
}

// OpenedGraph is a topology, and features, that are open.
type OpenedGraph struct {
	Topology sampling.Topology
	// Method samples on several devices, unless it prefers what is cached; nil: each device has a method of its own.
	Method   *sampling.Method
	Labels   *loader.Labels // nil: they are read
	Features *Features      // nil: without a Device
	// TraceRows is how many rows of batches an optimal cache looks ahead; 0: cache.MostTraceRows.
	TraceRows int64
}

// Sampled is a graph that is open for sampling.
type Sampled struct {
	OpenedGraph
	Caches []cache.Opened // of each type; nil: there are none
	// Lists are those that a joint cache has chosen, on a Device that samples them; nil: none. Without a Device, they are
	// only counted.
	Lists     *sampling.DeviceLists
	Loader    *sampling.Loader // with a Device
	Placement string           // placement.Host or Storage
	Reason    string           // of it, in words
	Memory    need.Memory      // of the host, without batches

	maxBatchBytes int64       // 0: as much as the device has
	samples       int         // at a time; 0: as many as can be
	own           []io.Closer // topology, features and method, if the session opened them
}

// OpenSampled opens topology, sampler and cache of a graph and, for a device, features, labels and
// loader. Options that cannot be met are ErrOptions or sampling.ErrOptions; machine.ErrDoesNotFit
// says that the budget does not allow them. The graph must stay open until Close.
func OpenSampled(ctx context.Context, graph *format.Dir, o SampledOptions) (_ *Sampled, err error) {
	o.Machine = o.Machine.orThis(ctx)
	if o.Buffers < 0 || o.Workers < 0 {
		return nil, fmt.Errorf("%w: %d batch buffers and %d workers: want 1 or more", ErrOptions, o.Buffers, o.Workers)
	}
	o.Buffers = cmp.Or(o.Buffers, placement.Buffers)
	o.Workers = cmp.Or(o.Workers, o.Machine.Threads)
	if o.Plan = o.Plan.WithRows(len(o.Seeds)); o.Links != nil {
		o.Plan.Rows = int64(len(o.Links.Sources))
	}
	if err := o.Plan.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	shape, err := sampling.ShapeOf(graph)
	if err == nil {
		err = o.check(shape)
	}
	if err != nil {
		return nil, err
	}
	if sampling.ChoosesSeeds(o.Sampler) {
		if o.Plan.World > 1 {
			return nil, fmt.Errorf("%w: sampler %s chooses the seeds of a batch by itself, which %d ranks cannot share",
				ErrOptions, o.Sampler, o.Plan.World)
		}
		o.Sampling.Targets = o.Seeds
	}
	o.Sampling.Threads = o.Machine.Threads
	s := &Sampled{Placement: o.Placement, samples: o.Samples}
	if o.Opened != nil {
		s.OpenedGraph = *o.Opened
	} else if err = s.place(shape, &o); err == nil {
		err = s.openGraph(ctx, shape, &o)
	}
	if err == nil && o.Times != "" {
		o.Sampling.Limits, err = readTimes(ctx, graph, o.Times, o.Newest)
	}
	if err == nil && o.Sampler != locality {
		err = s.openMethod(ctx, &o)
	}
	if err == nil {
		err = s.openCache(ctx, shape, &o)
	}
	if err == nil {
		err = s.openMethod(ctx, &o)
	}
	if err == nil && o.Device != nil {
		err = s.openLoader(ctx, shape, &o)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// readTimes reads the times of edges or nodes.
func readTimes(ctx context.Context, graph *format.Dir, column string, newest bool) (*sampling.Limits, error) {
	m, c, err := graph.Column(column)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	defer m.Close()
	if c.Columns != 0 || m.Layout.DType != gds.Int64 {
		return nil, fmt.Errorf("%w: column %s is %s [%d] of %s: times are one int64 each", ErrOptions, column, c.DType,
			c.Columns, c.Of)
	}
	limits := &sampling.Limits{Newest: newest}
	times, rows := &limits.NodeTimes, graph.Manifest.Nodes
	if c.Of == format.OfEdges {
		times, rows = &limits.EdgeTimes, graph.Manifest.Edges
	}
	*times = make([]int64, rows)
	for k := range m.Chunks() {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		first, rows := m.ChunkRowRange(k)
		if err := m.ReadChunk(k, dtype.BytesOf((*times)[first:][:rows])); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

// check refuses seeds that the graph does not have, and what its batches cannot have.
func (o *SampledOptions) check(graph *sampling.Shape) error {
	n, typed := graph.All.Nodes, graph.Typed != nil && !o.Sampling.ByType
	switch {
	case typed && (o.Cache != "" || o.Times != "" || o.Links != nil):
		return Refuse("%s is a typed graph, which is sampled around nodes, without times and without a cache",
			graph.TypedPath)
	case typed && !o.NoFeatures:
		return Refuse("%s is a typed graph, whose features are not those of one matrix", graph.TypedPath)
	case graph.Typed != nil && o.Sampler == locality: // before its cache is opened
		return Refuse("%s is a typed graph: only neighbor and full sample it", graph.TypedPath)
	}
	if o.Cache != "" && (o.Links != nil || o.NoFeatures || o.Sampling.Disjoint) {
		return fmt.Errorf("%w: cache %s: batches of links, with a tree for each seed, or without features have no cache",
			ErrOptions, o.Cache)
	}
	if !o.Sampling.Disjoint {
		return sampling.CheckSeeds(o.Seeds, n)
	}
	for i, v := range o.Seeds {
		if int64(v) >= n {
			return fmt.Errorf("%w: seed %d is node %d: the graph has %d nodes", ErrOptions, i, v, n)
		}
	}
	return nil
}

// batchSeeds is the most seed nodes of a batch.
func (o *SampledOptions) batchSeeds() int64 {
	rows := o.Plan.MaxBatchRows()
	if o.Links != nil {
		rows = 2 * (rows + o.Links.Negatives(rows))
	}
	return int64(rows)
}

// source is the graph, with features in a place.
func (o *SampledOptions) source(graph *sampling.Shape, place string) Source {
	return Source{Shape: graph, Mapped: o.Mapped, Place: place, NoFeatures: o.NoFeatures}
}

// openGraph opens the topology and, for a device, the features.
func (s *Sampled) openGraph(ctx context.Context, graph *sampling.Shape, o *SampledOptions) (err error) {
	from := o.source(graph, s.Placement)
	if s.Topology, err = from.OpenTopology(ctx, o.Machine.Threads); err != nil {
		return err
	}
	if s.own = append(s.own, s.Topology); o.Device == nil {
		return nil
	}
	if s.Features, err = from.OpenFeatures(ctx, o.Device, false, o.Machine.Threads); err == nil {
		s.own = append(s.own, s.Features)
	}
	return err
}

// locality is the sampler that prefers cached nodes.
const locality = "locality"

// openMethod opens what samples, unless it is open.
func (s *Sampled) openMethod(ctx context.Context, o *SampledOptions) (err error) {
	if s.Method == nil {
		if s.Method, err = sampling.NewMethod(ctx, o.Sampler, s.Topology, o.Sampling); err == nil {
			s.own = append(s.own, s.Method)
		}
	}
	return err
}

// openCache opens the cache of each type, if there is one, and lets locality know it.
func (s *Sampled) openCache(ctx context.Context, graph *sampling.Shape, o *SampledOptions) (err error) {
	if o.Cache == "" {
		if o.Sampler == locality {
			return fmt.Errorf("%w: sampler locality prefers cached nodes: it needs a cache, such as degree:20000rows",
				ErrOptions)
		}
		return nil
	}
	spec, err := CacheSpec(o.Cache, graph.Rows())
	if err != nil {
		return err
	}
	method := s.Method
	if o.Sampler == locality { // what the policy looks at is sampled without the cache
		visiting := o.Sampling
		visiting.Bias, visiting.Debias = 0, false
		if method, err = sampling.NewMethod(ctx, "neighbor", s.Topology, visiting); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, method.Close()) }()
	}
	lists := sampling.OnDevice(o.Sampler) && !o.Sampling.ByType &&
		(o.Device == nil || o.Routed && method.CheckOnDevice(o.Device, nil) == nil)
	var rowBytes []int64
	for _, r := range graph.Rows() {
		rowBytes = append(rowBytes, r.Bytes)
	}
	s.Caches, err = sampling.OpenCaches(ctx, spec, sampling.CacheOptions{
		Lists: lists, Topology: s.Topology, RowBytes: rowBytes, Method: method, Nodes: o.Seeds, Plan: o.Plan,
		Workers: s.workers(o), Samples: s.samples, TraceRows: s.TraceRows, Held: o.Held,
	})
	if err != nil {
		return err
	}
	opened := s.Caches[0]
	if o.Device != nil && len(opened.Lists) > 0 {
		if s.Lists, err = sampling.CopyLists(ctx, o.Device, s.Topology, opened.Lists); err != nil {
			return err
		}
	}
	if o.Sampler == locality {
		if o.Sampling.Cached = opened.Contains; !opened.Fixed() {
			return fmt.Errorf("%w: cache %s changes from batch to batch: sampler locality needs one that does not "+
				"(degree, presampled, gns, ducati)", ErrOptions, o.Cache)
		}
	}
	return nil
}

func (s *Sampled) openLoader(ctx context.Context, graph *sampling.Shape, o *SampledOptions) (err error) {
	lo := sampling.LoaderOptions{
		Device: o.Device, Buffers: o.Buffers, MostBuffers: o.MostBuffers, MaxBatchBytes: s.maxBatchBytes,
		Workers: s.workers(o), Samples: s.samples, NodeIDs: o.NodeIDs, First: graph.Types[graph.Target()].First,
	}
	for i, f := range s.Features.Types {
		lo.Types = append(lo.Types, sampling.TypeRows{Features: f})
		if s.Caches != nil {
			lo.Types[i].Cache = s.Caches[i].Cache
		}
	}
	if lo.Labels = s.Labels; lo.Labels == nil && o.source(graph, "").labels() {
		if lo.Labels, err = loader.ReadLabels(ctx, graph.Dir); err != nil {
			return err
		}
	}
	s.Loader, err = sampling.Open(lo)
	return err
}

// place decides where the features live, and refuses what does not fit into the budget.
func (s *Sampled) place(graph *sampling.Shape, o *SampledOptions) error {
	m := graph.All
	what := fmt.Sprintf("sampling %d nodes and %d edges", m.Nodes, m.Edges)
	if !o.Mapped {
		what += " (less if the topology is mapped from disk)"
	}
	if o.Cache != "" {
		what += " with cache " + o.Cache
	}
	one, places := sampling.BatchBytes(o.Sampler, o.Sampling, o.batchSeeds(), m.Nodes, m.Edges), []string{o.Placement}
	switch {
	case o.Device == nil:
		places = []string{""}
	case o.Placement == "" || o.Placement == placement.Auto:
		places = []string{placement.Host, placement.Storage}
	case o.Placement != placement.Host && o.Placement != placement.Storage:
		return fmt.Errorf("%w: features of a graph from %q: want %s, %s or %s", ErrOptions, o.Placement,
			placement.Auto, placement.Host, placement.Storage)
	}
	seeds := 4 * int64(len(o.Seeds))
	if o.Links != nil {
		seeds = o.Links.HeldBytes()
		one += o.Links.BatchBytes(o.Plan.MaxBatchRows())
	} else if o.Times != "" {
		seeds += 8 * int64(len(o.Seeds))
	}
	chosen, why := placement.First(places, func(where string) error {
		var info gds.Info
		if o.Device != nil {
			info = o.Device.Info()
		}
		terms, err := o.SamplerTerms(graph, info, where, make([]int64, len(graph.Types)), 1)
		if err != nil {
			return err
		}
		terms = slices.Concat(o.source(graph, where).Terms(), terms,
			need.Terms{need.OnHeap("seed nodes", seeds+12*m.Nodes)}) // lists, and maps
		if where == "" { // a batch for each worker, and one that is looked up in the cache
			terms = append(terms, need.OnHeap("samples", int64(o.Workers+1)*one))
		}
		s.Memory = terms.Sum(1, false)
		return o.Machine.Fits(what+map[string]string{placement.Host: " with all features in memory",
			placement.Storage: " with features in storage"}[where], s.Memory)
	})
	if chosen < 0 {
		return why[len(why)-1]
	}
	s.TraceRows = cache.MostTraceRows
	limited, left := o.Machine.Budget.By != "", int64(o.Machine.Budget.Bytes)-s.Memory.HostBytes
	if limited {
		s.TraceRows = max(m.Nodes, cache.TraceRows(left/2))
	}
	switch s.Placement = places[chosen]; {
	case o.Device == nil:
		return nil
	case o.NoFeatures:
		s.Reason = "batches have no features"
	case s.Placement == placement.Host:
		s.Reason = fmt.Sprintf("all features fit into memory: %s", units.Bytes(o.source(graph, "").FeatureBytes()))
	case chosen > 0:
		s.Reason = why[0].Error()
	default:
		s.Reason = "as was asked for"
	}
	if !limited {
		return nil
	}
	left = s.shareOut(o, left, one)
	if s.samples < sampling.MostSamples(o.Workers, o.Buffers) {
		s.Reason += fmt.Sprintf("; samples %s at a time, up to %s each", units.Count(int64(s.samples), "batch"),
			units.Bytes(one))
	}
	if o.Device.Info().Unified {
		s.maxBatchBytes = max(1, left/int64(o.Buffers))
		if o.MostBuffers > o.Buffers {
			s.Reason += fmt.Sprintf("; batches that are kept take up to %s in all", units.Bytes(left))
		}
	}
	return nil
}

// shareOut sets how many samples of one bytes may be on their way, in half of left, and returns what is for batches.
func (s *Sampled) shareOut(o *SampledOptions, left, one int64) (batches int64) {
	sets := int64(1)
	if o.Cache != "" {
		sets = 2 // a cache looks ahead by samples of its own
	}
	s.samples = int(min(int64(sampling.MostSamples(o.Workers, o.Buffers)), max(1, left/2/sets/max(one, 1))))
	return left - min(left/2, int64(s.samples)*sets*one)
}

// workers is how many threads sample: no more than there are samples.
func (s *Sampled) workers(o *SampledOptions) int {
	if s.samples == 0 {
		return o.Workers
	}
	return min(o.Workers, s.samples)
}

// CacheSpec reads the text of --cache. It is ErrOptions if the cache has no room for a row of any of these types.
func CacheSpec(text string, types []cache.Rows) (cache.Spec, error) {
	spec, err := cache.Parse(text)
	if err == nil {
		err = spec.CheckRoom(types)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return spec, err
}

// SamplerTerms is the memory of the samplers and the caches of so many devices like info, but of device memory what
// each takes. Features are where; batches have up to inputs of their rows of each type.
func (o *SampledOptions) SamplerTerms(graph *sampling.Shape, info gds.Info, where string, inputs []int64,
	devices int) (terms need.Terms, err error) {
	m, rows, samplers := graph.All, graph.Rows(), o.Workers
	if o.Times != "" {
		terms = append(terms, need.OnHeap("times", 8*max(m.Nodes, m.Edges)))
	}
	if o.Cache != "" {
		spec, err := CacheSpec(o.Cache, rows)
		if err != nil {
			return nil, err
		}
		traceRows := m.Nodes
		if o.Opened != nil {
			traceRows = o.Opened.TraceRows
		}
		if spec.Policy == "optimal" { // it looks ahead by samplers of its own
			samplers *= 2
		}
		terms = append(terms, sampling.CacheNeed(spec, rows, traceRows)...)
		if where == placement.Storage || where != "" && !info.Unified { // else rows in other memory gain nothing
			terms = append(terms, sampling.RowCacheNeed(spec, rows, inputs, info.Unified, o.Routed)...)
		}
		if o.Routed && where != placement.Storage && sampling.OnDevice(o.Sampler) {
			terms = append(terms, sampling.CachedListsNeed(spec, m, rows[0].Bytes)...)
		}
	}
	methods := 1 // that devices share
	if o.Sampler == locality {
		methods = devices
	}
	method := sampling.SamplersNeed(o.Sampler, o.Sampling.Aggregation, m, samplers*devices/methods)
	method.Bytes *= int64(methods)
	for i := range terms {
		if terms[i].Place != need.Device {
			terms[i].Bytes *= int64(devices)
		}
	}
	return append(terms, method), nil
}

// WorkerBytes is the part of SamplerTerms that each worker adds.
func (o *SampledOptions) WorkerBytes(m *format.Manifest) int64 {
	need := func(samplers int) int64 {
		return sampling.SamplersNeed(o.Sampler, o.Sampling.Aggregation, m, samplers).Bytes
	}
	return need(1) - need(0)
}

// Close closes all that is open. While an epoch runs, or batches are held, it is loader.ErrInUse, and closes nothing.
func (s *Sampled) Close() error {
	var errs []error
	if s.Loader != nil {
		if err := s.Loader.Close(); errors.Is(err, loader.ErrInUse) {
			return err
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	if s.Lists != nil {
		errs = append(errs, s.Lists.Close())
	}
	for _, c := range slices.Backward(s.own) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// NodesOf lists the nodes of a part of a split of a graph, ascending: train, valid, test, rest, or
// format.RegionAll. It is ErrOptions if there is no such part or split, or no node in it.
func NodesOf(ctx context.Context, graph *format.Dir, part string, split int) ([]uint32, error) {
	rows, err := RowsOf(ctx, graph, part, &split)
	if err == nil && len(rows.List) == 0 {
		err = fmt.Errorf("%w: %s has no %s nodes in split %d", ErrOptions, graph.Path(), part, split)
	}
	return rows.List, err
}
