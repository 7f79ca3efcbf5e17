package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// graphNeeds say what a command does with a graph.
type graphNeeds struct {
	spec      trainer.Spec // normalized
	placement string       // placement.Auto or where the features are to be
	held      int64        // of host memory, by the command
	train     bool
	all       bool // batches are all nodes
	// Of trainings on samples:
	sampler  string
	fanouts  []int // -1: all
	seeds    int   // of a batch
	trainSet int   // nodes
	cache    string
	workers  int // that sample
	buffers  int // batches on the device
	// Batches are prepared by a schedule: topology and features are pinned, if the device can read them so.
	scheduled bool
	devices   []gds.Device // that are open, of which the first gets the graph; nil: none is open
	// Of features that are sparse, and are kept so; nil: they are dense.
	elements *features.Elements
}

// keepsSparse tells whether sparse features may be kept as sparse rows: caches, devices that prepare batches by
// themselves, and storage have dense ones.
func (o *graphNeeds) keepsSparse() bool {
	return o.cache == "" && !o.scheduled && o.placement != placement.Storage
}

// graphPlan is where a graph lies, and why.
type graphPlan struct {
	placement string // placement.Device: as a whole on the device; else in chunks, with features in host memory or storage
	reasons   []string
	// In chunks: device memory of one, and what the model keeps of each of its nodes and edges.
	chunkBytes, nodeBytes, edgeBytes int64
	hostBytes                        int64 // host memory that is not the device's
	deviceBytes                      int64
	workBytes                        int64 // of deviceBytes: the model, its batches and what layers compute of them
	traceRows                        int64 // see graphBytes
	// What batches are expected to take at most, if there is less.
	scarceBytes int64
	elements    *features.Elements // of sparse features; nil: they are dense
}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

// graphBytes are the parts of what a graph takes, in bytes.
type graphBytes struct {
	topology  int64 // of the host, and tables of the sampler of all edges
	sampling  int64 // of the host: tables, and samples on their way
	features  int64 // as stored
	reading   int64 // of the host, to read them from storage
	opening   int64 // of the host, while the graph comes to the device as a whole
	states    int64 // of the host: what layers put out for all nodes, of a graph in chunks
	whole     int64 // of the device: the graph as a whole, and the layers of it
	model     int64 // of the device: parameters, and rows of batches
	batches   int64 // of the device: batches, and activations of their nodes; about
	cacheRows int64 // of the device, or of the host before storage
	// Of the device: what a layer of a chunk takes for each of its nodes and edges, and beside.
	nodeBytes, edgeBytes, scratch int64
	traceRows                     int64 // that an optimal cache looks ahead
}

// optimalTraceBytes is what an optimal cache may take to look ahead in trainings.
const optimalTraceBytes = 64 << 20

// planGraph decides where a graph lies. Batches of samples are estimated, as if no node were drawn twice: the memory of
// the device is what really bounds them.
func (a *app) planGraph(m session.Machine, graph *format.Dir, o graphNeeds) (p graphPlan, err error) {
	if !o.keepsSparse() {
		o.elements = nil
	}
	p, err = a.planFeatures(m, graph, o)
	if err != nil && o.elements != nil && o.placement == placement.Auto && !o.all { // from storage they are dense
		o.elements = nil
		p, err = a.planFeatures(m, graph, o)
	}
	if p.elements = o.elements; err == nil && p.elements != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s", units.Bytes(p.elements.Bytes()),
			units.Bytes(gds.Bytes(int(graph.Manifest.Nodes), graph.Manifest.Features, gds.Float32))))
	}
	return p, err
}

// planFeatures decides where a graph lies whose features are kept as needs say.
func (a *app) planFeatures(m session.Machine, graph *format.Dir, o graphNeeds) (p graphPlan, err error) {
	b, err := a.countGraph(graph, o)
	if err != nil {
		return p, err
	}
	unified := m.Devices.Info.Unified
	free := int64(math.MaxInt64)
	if !unified && m.Devices.FreeBytes > 0 {
		free = m.Devices.FreeBytes
	}
	// fits tells whether host and device have room. On a unified device both are one.
	fits := func(what string, host, device int64) error {
		if unified {
			host, device = host+device, 0
		}
		if device > free {
			return fmt.Errorf("%w: %s takes %s of device memory, and %s are free", machine.ErrDoesNotFit, what, units.Bytes(device), units.Bytes(free))
		}
		return a.budget.Fits(what, host)
	}
	name := fmt.Sprintf("%s on %d nodes and %d edges", o.spec.Model, graph.Manifest.Nodes, graph.Manifest.Edges)
	host := o.held + b.topology + b.sampling
	device := b.model + b.batches
	if b.cacheRows > 0 && !unified {
		device += b.cacheRows
	}
	scarce := false // leave batches all that there is
	try := func(where string) (graphPlan, error) {
		switch where {
		case placement.Device:
			own := b.features // beside the whole graph
			if unified && graph.Layout().DType == gds.Float32 {
				own = 0 // the same memory
			}
			if o.sampler == "" {
				own = 0
			}
			if o.elements != nil { // batches and validation take rows of them
				own = b.features
			}
			err := fits(name+", as a whole on the device,", host+own+b.opening, device+b.whole)
			return graphPlan{placement: where, traceRows: b.traceRows, hostBytes: host + own + b.opening, deviceBytes: device + b.whole, workBytes: b.model + b.batches, reasons: []string{"the whole graph fits on the device: " + units.Bytes(b.whole).String()}}, err
		case placement.Host:
			host += b.states + b.features
		case placement.Storage:
			host += b.states + b.reading
			if unified {
				host += b.cacheRows
			}
		}
		device += b.scratch
		chunk := int64(leastChunkBytes)
		if err := fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", name, map[bool]string{true: "host memory", false: "storage"}[where == placement.Host]), host, device+chunk); err != nil {
			return p, err
		}
		for !scarce && chunk < mostChunkBytes && fits("", host, device+4*chunk) == nil {
			chunk *= 2
		}
		return graphPlan{placement: where, traceRows: b.traceRows, hostBytes: host, deviceBytes: device + chunk, workBytes: b.model + b.batches,
			chunkBytes: chunk, nodeBytes: b.nodeBytes, edgeBytes: b.edgeBytes,
			reasons: []string{"layers of all nodes are computed in chunks of up to " + units.Bytes(chunk).String()}}, nil
	}
	if o.all { // training on all nodes at once: there is no other way
		if o.placement != placement.Auto && o.placement != placement.Device {
			return p, usagef("--placement %s: batches of all nodes need the graph on the device (give --batch, or another --sampler)", o.placement)
		}
		return try(placement.Device)
	}
	plannedHost, plannedDevice := host, device
	// What batches take is an estimate, so it decides what is tried first, and refuses nothing.
	tryWithout := func(where string) (graphPlan, error) {
		host, device, scarce = plannedHost, plannedDevice-b.batches, true
		p, err := try(where)
		p.scarceBytes = b.batches
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too little room", units.Bytes(b.batches)))
		return p, err
	}
	if o.placement != placement.Auto {
		if p, err = try(o.placement); err != nil {
			p, err = tryWithout(o.placement)
		}
		p.reasons = append(p.reasons, "asked for by --placement")
		return p, err
	}
	var reasons []string
	places := []string{placement.Device, placement.Host, placement.Storage}
	if o.elements != nil {
		places = places[:2]
	}
	for _, where := range places {
		host, device = plannedHost, plannedDevice
		if p, err = try(where); err == nil {
			p.reasons = append(reasons, p.reasons...)
			return p, nil
		}
		reasons = append(reasons, "not from "+where+": "+err.Error())
	}
	if p, err = tryWithout(placement.Host); err != nil && o.elements == nil {
		p, err = tryWithout(placement.Storage)
	}
	p.reasons = append(reasons, p.reasons...)
	return p, err
}

// countGraph counts what a graph takes in bytes.
func (a *app) countGraph(graph *format.Dir, o graphNeeds) (b graphBytes, err error) {
	m := &graph.Manifest
	sparse := o.elements != nil
	layers, _, stateColumns, err := o.spec.GraphShape(sparse)
	if err != nil {
		return b, err
	}
	aggregation, err := trainer.AggregationOf(o.spec.Model)
	if err != nil {
		return b, err
	}
	n, stored := m.Nodes, gds.Bytes(1, m.Features, graph.Layout().DType)
	labelType, labelColumns := loader.LabelType(m)
	labels := int64(labelColumns * labelType.Size())
	perEdge := int64(4)
	if m.Weighted {
		perEdge = 8
	}
	// Offsets, sources; labels on the host; a table of local ids, factors of nodes, and lists of nodes.
	b.topology = 8*(n+1) + perEdge*m.Edges + labels*n + (4+8+8)*n
	if b.features = n * stored; sparse {
		b.features = o.elements.Bytes()
	}
	b.reading = b.features/1024 + 12<<20 // a checksum for each 4 KiB, and reads on their way
	b.opening = 20*m.Edges + 8*n         // the block, in memory that grows
	if o.sampler == "" || !(m.Features > 0 && graph.Layout().DType == gds.Float32) {
		b.opening += b.features
	}
	b.states = (n + 2048) * int64(stateColumns) * 4
	scratch, err := o.spec.GraphBytes(int(n), m.Edges, sparse)
	if err != nil {
		return b, err
	}
	b.whole = wholegraph.Bytes(m, aggregation, o.elements) + scratch
	if o.train {
		b.whole += wholegraph.NeighborhoodBytes(n, m.Edges) // of validation
		if sparse {
			b.whole += b.features
		}
	}
	const some = 1 << 14
	less, err := o.spec.GraphBytes(some, 0, sparse)
	if err != nil {
		return b, err
	}
	more, err := o.spec.GraphBytes(2*some, some, sparse)
	if err != nil {
		return b, err
	}
	both, err := o.spec.GraphBytes(2*some, 0, sparse)
	if err != nil {
		return b, err
	}
	b.nodeBytes, b.edgeBytes = (both-less)/some+1, (more-both)/some
	b.scratch = less - some*b.nodeBytes + some
	rows := max(o.seeds, inferenceRows)
	if o.all {
		rows = int(n)
	}
	if b.model, err = o.spec.DeviceBytes(rows, o.train); err != nil {
		return b, err
	}
	b.model += (labels + 8) * n // labels and numbers of the nodes of sets
	if o.all {
		blocks := make([]loader.Block, layers)
		for i := range blocks {
			blocks[i] = loader.Block{Destinations: int(n), Sources: int(n)}
		}
		more, err := o.spec.BlockBytes(int(n), blocks, m.Edges+n, sparse, true)
		b.batches = more
		return b, err
	}
	if o.sampler == "" {
		return b, nil
	}
	b.sampling = labels*n + int64(o.workers)*8*n + 8*n + int64(o.trainSet)*4
	if sampling.ChoosesSeeds(o.sampler) {
		b.sampling += 16 * n
		if o.sampler == "saint-rw" {
			b.sampling += 4 * m.Edges
		}
	}
	blocks, edges := estimateBlocks(m, o)
	sources, all := int64(blocks[0].Sources), int64(0)
	for _, e := range edges {
		all += e
	}
	rowBytes := gds.Bytes(1, m.Features, gds.Float32)
	if sparse {
		rowBytes = b.features/n + 1 // the mean
	}
	one := sources*rowBytes + 8*all + 4*sources
	more, err = o.spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, edges[0], sparse, true)
	b.batches = int64(o.buffers)*(one+one/4) + more // buffers grow by a quarter more than they need
	jobs := int64(sampling.MostSamples(o.workers, o.buffers))
	b.sampling += jobs * (8*all + 8*sources) * 5 / 4
	if o.cache != "" {
		spec, err := cache.Parse(o.cache)
		if err != nil {
			return b, usagef("--cache: %s", err)
		}
		slots := spec.Slots(n, stored)
		b.cacheRows = slots * stored
		b.sampling += spec.TableBytes(n, stored) + 12*n // and what a batch finds there
		if spec.Policy == "optimal" {
			b.traceRows = max(n, cache.TraceRows(optimalTraceBytes))
			b.sampling += cache.TraceBytes(b.traceRows)
		}
	}
	return b, err
}

// estimateBlocks bounds the nodes of the blocks of a batch, and estimates their edges.
func estimateBlocks(m *format.Manifest, o graphNeeds) (blocks []loader.Block, edges []int64) {
	n := m.Nodes
	degree := (m.Edges + max(n, 1) - 1) / max(n, 1)
	nodes := int64(o.seeds)
	layers := len(o.fanouts)
	blocks, edges = make([]loader.Block, layers), make([]int64, layers)
	if sampling.ChoosesSeeds(o.sampler) { // the nodes of the subgraph are those of all layers
		nodes = min(n, nodes*int64(layers+1))
	}
	for i, fanout := range o.fanouts {
		at := layers - 1 - i
		each := degree
		if fanout >= 0 {
			each = min(int64(fanout), degree)
		}
		next := min(n, nodes*(each+1))
		edges[at] = min(m.Edges+n, nodes*(each+1))
		switch {
		case sampling.ChoosesSeeds(o.sampler):
			next, edges[at] = nodes, min(m.Edges+n, nodes*(min(nodes, degree)+1))
		case strings.HasPrefix(o.sampler, "ladies") || strings.HasPrefix(o.sampler, "fastgcn"): // a fanout is of a layer
			next, edges[at] = min(n, nodes+int64(max(fanout, 0))), min(m.Edges+n, nodes*(degree+1))
		}
		blocks[at] = loader.Block{Destinations: int(nodes), Sources: int(next)}
		nodes = next
	}
	return blocks, edges
}
