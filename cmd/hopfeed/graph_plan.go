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
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
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
	sampler   string
	fanouts   []int // -1: all
	seeds     int   // of a batch
	trainSet  int   // nodes
	evaluated int64 // nodes of sets in order
	gradients int   // that wait on each device; 0: none
	cache     string
	workers   int // that sample
	batches   batchCount
	// Batches are prepared by a schedule: topology and features are pinned, if the device can read them so.
	scheduled bool
	devices   []gds.Device // that are open, of which the first gets the graph; nil: none is open
	// elements are the non-zero elements of features that are kept as sparse rows; nil: features are dense.
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
	// chunkMemory is the memory of the largest chunk, chunkModel what the model keeps of it; 0: not known yet.
	chunkMemory, chunkModel int64
	traceRows               int64 // see graphBytes
	// What batches are expected to take at most, if there is less.
	scarceBytes int64
	elements    *features.Elements // of sparse features; nil: they are dense

	// What memory counts:
	bytes   graphBytes
	needs   graphNeeds
	batches batchCount
	unified bool
}

// batchCount is how many batches there are at a time, for each device.
type batchCount struct {
	buffers  int  // in memory of the loader
	onDevice int  // buffers that have device memory
	samples  int  // on their way
	route    bool // the device prepares some by itself
}

// scheduledBatches counts the batches of a schedule with buffers of these lengths, in epochs of so many batches.
func scheduledBatches(cpuBuffer, gpuBuffer, workers, batches int, unified bool) batchCount {
	c := batchCount{buffers: min(sampling.Buffers(cpuBuffer, gpuBuffer), max(batches, sampling.Buffers(1, 1))), onDevice: gpuBuffer + 2}
	if c.samples = c.buffers + workers; unified || c.onDevice > c.buffers {
		c.onDevice = c.buffers
	}
	return c
}

// queuedBatches counts the batches that wait in queues of a length.
func queuedBatches(length int) batchCount {
	return batchCount{buffers: sampling.QueueBuffers(length), onDevice: sampling.QueueBuffers(length), samples: 2 * length}
}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

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
	info := m.Devices.Info
	b, err := a.countGraph(graph, o, info)
	if err != nil {
		return p, err
	}
	free := int64(math.MaxInt64)
	if !info.Unified && m.Devices.FreeBytes > 0 {
		free = m.Devices.FreeBytes
	}
	// fits tells whether host and device have room. On a unified device both are one.
	fits := func(what string, p memoryPlan) error {
		if info.Unified {
			p.HostBytes, p.DeviceBytes = p.HostBytes+p.DeviceBytes, 0
		}
		if p.DeviceBytes > free {
			return fmt.Errorf("%w: %s takes %s of device memory, and %s are free", machine.ErrDoesNotFit, what, units.Bytes(p.DeviceBytes), units.Bytes(free))
		}
		return a.budget.Fits(what, p.HostBytes)
	}
	edges := b.edges
	name := fmt.Sprintf("%s on %d nodes and %d edges", o.spec.Model, graph.Manifest.Nodes, graph.Manifest.Edges)
	scarce := false // leave batches all that there is
	try := func(where string) (graphPlan, error) {
		p := graphPlan{placement: where, traceRows: b.traceRows, bytes: b, needs: o, unified: info.Unified, nodeBytes: b.nodeBytes, edgeBytes: b.edgeBytes}
		if p.batches = o.batches; scarce {
			p.batches, p.bytes.activations = batchCount{}, 0
		}
		if where == placement.Device {
			if edges > sampling.MaxBlockEdges {
				return p, fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most", machine.ErrDoesNotFit, name, edges)
			}
			p.reasons = []string{"the whole graph fits on the device: " + units.Bytes(b.whole).String()}
			return p, fits(name+", as a whole on the device,", p.memory())
		}
		p.chunkBytes = leastChunkBytes
		if err := fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", name, map[bool]string{true: "host memory", false: "storage"}[where == placement.Host]), p.memory()); err != nil {
			return p, err
		}
		for larger := p; !scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
			if larger.chunkBytes = 4 * p.chunkBytes; fits("", larger.memory()) != nil {
				break
			}
		}
		p.reasons = []string{"layers of all nodes are computed in chunks of up to " + units.Bytes(p.chunkBytes).String()}
		return p, nil
	}
	if o.all { // training on all nodes at once: there is no other way
		if o.placement != placement.Auto && o.placement != placement.Device {
			return p, usagef("--placement %s: batches of all nodes need the graph on the device (give --batch, or another --sampler)", o.placement)
		}
		if p, err = try(placement.Device); err != nil && edges > sampling.MaxBlockEdges {
			err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
		}
		return p, err
	}
	// What batches take is an estimate, so it decides what is tried first, and refuses nothing.
	tryWithout := func(where string) (graphPlan, error) {
		scarce = true
		p, err := try(where)
		if scarce = false; err != nil { // what surely is enough has room for batches
			_, err = try(where)
			return p, err
		}
		batches := b.activations + int64(o.batches.onDevice)*b.batch.device
		p.scarceBytes = batches
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too little room",
			units.Bytes(batches)))
		return p, nil
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

// memory is the memory of the plan, as far as it is known by now.
func (p *graphPlan) memory() memoryPlan {
	b, o := &p.bytes, &p.needs
	devices := int64(max(1, len(o.devices)))
	device := p.workBytes()
	if p.batches.route {
		device += b.batch.route
	}
	if !p.unified {
		device += b.cacheRows
	}
	other := int64(0)
	if devices > 1 { // it evaluates nothing
		other = device
	}
	device += b.sets
	host := b.topology.plus(b.tables)
	host.off += b.pinned + devices*int64(p.batches.buffers)*b.batch.pinned
	host.heap += o.held + devices*int64(p.batches.samples)*b.batch.sample
	if p.placement == placement.Device {
		device += b.whole + b.validation + b.validationLayers
		// Features are in the memory of the whole graph, or beside it; batches and validation take rows of sparse ones.
		if o.elements != nil || o.sampler != "" && !(p.unified && b.float) {
			host.off += b.features
		}
		features, edges := b.topology.off+b.features+b.staging, b.topology.off+b.opening.off
		if p.unified { // before the model and batches take memory
			features, edges = features+b.wholeFeatures-device, edges+b.whole-device
		}
		host.off = max(host.off, features, edges)
		host.heap = max(host.heap, b.topology.heap+o.held+b.opening.heap)
	} else {
		memory, model := p.chunkBytes, int64(0)
		if p.chunkMemory > 0 {
			memory, model = p.chunkMemory, p.chunkModel
		}
		device += b.scratch + memory + model
		host = host.plus(b.chunks)
		if host.heap += memory; !p.unified { // as it is sampled, and on its way
			host.off += memory
		}
		if p.placement == placement.Storage {
			host = host.plus(b.reading)
		} else {
			host.off += b.features
		}
	}
	if p.placement != placement.Storage {
		host.off = max(host.off, b.topology.off+b.pinning)
	}
	return memoryPlan{HostBytes: host.off + host.heap, HeapBytes: host.heap, DeviceBytes: device, OtherBytes: other}
}

// workBytes is what the model, its batches and what layers compute of them take of the device.
func (p *graphPlan) workBytes() int64 {
	return p.bytes.model + p.bytes.activations + int64(p.batches.onDevice)*p.bytes.batch.device
}

// estimateBlocks bounds the nodes of the blocks of a batch, and estimates their edges.
func estimateBlocks(m *format.Manifest, o graphNeeds, aggregation sampling.Aggregation) (blocks []loader.Block, edges []int64) {
	n := m.Nodes
	degree := (m.Edges + max(n, 1) - 1) / max(n, 1)
	nodes := int64((o.seeds + max(1, len(o.devices)) - 1) / max(1, len(o.devices))) // which devices share
	layers := len(o.fanouts)
	loop := int64(1) // that each node has
	if aggregation == sampling.Mean {
		loop = 0
	}
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
		edges[at] = min(m.Edges+loop*n, nodes*(each+loop))
		switch {
		case sampling.ChoosesSeeds(o.sampler):
			next, edges[at] = nodes, min(m.Edges+loop*n, nodes*(min(nodes, degree)+loop))
		case strings.HasPrefix(o.sampler, "ladies") || strings.HasPrefix(o.sampler, "fastgcn"): // a fanout is of a layer
			next, edges[at] = min(n, nodes+int64(max(fanout, 0))), min(m.Edges+loop*n, nodes*(degree+loop))
		}
		blocks[at] = loader.Block{Destinations: int(nodes), Sources: int(next)}
		nodes = next
	}
	return blocks, edges
}
