package training

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// graphJob is what is done with a graph, as far as its memory depends on it.
type graphJob struct {
	spec        trainer.Spec // normalized
	aggregation sampling.Aggregation
	placement   string
	held        need.Terms // by the caller
	devices     int
	train       bool
	evaluated   int64 // nodes of sets in order
	gradients   int   // that wait on each device; 0: none
	all         bool  // batches are all nodes
	// Of trainings on samples:
	sampler   string
	fanouts   []int // -1: all
	seeds     int   // of a batch, or draws
	trainSet  int   // nodes
	cache     string
	workers   int // that sample
	batches   batchCount
	scheduled bool // topology and features are pinned, where the device can read them so
	// elements are the non-zero elements of features that are kept as sparse rows; nil: features are dense.
	elements *features.Elements
}

// job says what the options do with a graph on so many devices. It completes the options.
func (o *Options) job(devices int) (j graphJob, err error) {
	if o.Spec, err = o.Spec.Normalized(); err != nil {
		return j, err
	}
	j = graphJob{spec: o.Spec, placement: cmp.Or(o.Placement, placement.Auto), held: o.Held, devices: devices,
		train: o.Train}
	if j.aggregation, err = trainer.AggregationOf(o.Spec.Model); err != nil || !o.Train {
		return j, err
	}
	s, info := &o.Sampling, o.Machine.Devices.Info
	j.trainSet, j.evaluated = len(o.Part.Train.List), int64(len(o.Part.Valid.List)+len(o.Part.Test.List))
	if !sampling.ChoosesSeeds(s.Sampler) {
		o.BatchRows = min(o.BatchRows, j.trainSet)
	}
	if o.Schedule.Name == scheduler.MultiQueue {
		j.gradients = cmp.Or(o.Schedule.Gradients, multiqueue.MostGradients)
	}
	j.all = s.Sampler == FullSampler && o.BatchRows == j.trainSet && s.Cache == ""
	if err := o.checkTogether(j.all); j.all || err != nil {
		return j, err
	}
	j.sampler, j.fanouts, j.seeds, j.cache = s.Sampler, s.Fanouts, o.BatchRows, s.Cache
	if s.TakesAllEdges() {
		j.fanouts = slices.Repeat([]int{sampling.All}, int(o.Spec.Settings["layers"]))
	}
	// Schedules and queues ask for larger buffers when batches have been measured.
	j.workers = o.workers(devices)
	switch o.Schedule.Name {
	case "":
		buffers := cmp.Or(s.Buffers, placement.Buffers)
		j.batches = batchCount{onDevice: buffers, samples: sampling.MostSamples(j.workers, buffers),
			pinned: pipelinedMoves(buffers - 1)}
	case scheduler.MultiQueue:
		j.batches = queuedBatches(multiqueue.Synchronous.Queue)
	default:
		j.scheduled, j.batches = true, scheduledBatches(1, 1, 2, j.workers, 0, info.Unified)
		j.batches.route = !info.Unified && slices.Contains([]string{scheduler.Auto, "gpu", "mixed", "collective"},
			o.Schedule.Name)
	}
	return j, nil
}

// workers is how many workers of the processor sample for each device.
func (o *Options) workers(devices int) int {
	threads := o.Machine.Threads
	switch o.Schedule.Name {
	case "":
		return cmp.Or(o.Sampling.Workers, threads)
	case scheduler.MultiQueue:
		threads = max(1, threads/devices)
	}
	return cmp.Or(o.Sampling.Workers, o.Stages.Workers, threads)
}

// keepsSparse tells whether sparse features may be kept as sparse rows: caches, devices that prepare batches by
// themselves, and storage have dense ones.
func (o *graphJob) keepsSparse() bool {
	return o.cache == "" && !o.scheduled && o.placement != placement.Storage
}

// batchCount is how many batches there are at a time, for each device.
type batchCount struct {
	onDevice int  // buffers that have device memory
	samples  int  // that are being sampled, or wait for a buffer
	pinned   int  // that have pinned memory, of a device with memory of its own
	route    bool // the device prepares some by itself
}

// scheduledBatches counts the batches of a schedule with buffers of these lengths, in epochs of so many batches.
func scheduledBatches(cpuBuffer, gpuBuffer, pinned, workers, batches int, unified bool) batchCount {
	buffers := min(sampling.Buffers(cpuBuffer, gpuBuffer), max(batches, sampling.Buffers(1, 1)))
	c := batchCount{onDevice: min(gpuBuffer+2, buffers), samples: buffers + workers, pinned: pinned}
	if unified {
		c.onDevice = buffers
	}
	return c
}

// pipelinedMoves is how many batches move at a time at most, where so many are on the device or on their way.
func pipelinedMoves(gpuBuffer int) int { return max(1, min(schedule.PipelinedMoves, gpuBuffer)) }

// queuedBatches counts the batches that wait in queues of a length.
func queuedBatches(length int) batchCount {
	return batchCount{onDevice: sampling.QueueBuffers(length), samples: 2 * length, pinned: pipelinedMoves(length)}
}

// graphPlan is where a graph lies, why, and what that takes.
type graphPlan struct {
	// placement.Device: as a whole on the device; else in chunks, with features in host memory or storage
	placement string
	reasons   []string
	job       graphJob
	need      graphNeed
	batches   batchCount
	unified   bool

	chunkBytes int64 // of device memory for a chunk, where the graph comes in chunks
	// chunkMemory is the memory of the largest chunk, chunkModel what the model keeps of it; 0: not known yet.
	chunkMemory, chunkModel int64
	scarceBytes             int64 // what batches are expected to take at most, if there is less
}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

// candidate is a way to lay a graph out.
type candidate struct {
	graphJob        // its placement is not placement.Auto
	scarce   bool   // batches get what memory is left, in the smallest chunks
	name     string // of the job, in errors
}

// candidates are the ways to lay out a graph, the best first. Features that are read from storage are dense.
func (o graphJob) candidates(graph *format.Manifest) (all []candidate) {
	places, kinds := []string{o.placement}, []*features.Elements{o.elements}
	auto := o.placement == placement.Auto
	if o.all {
		places = []string{placement.Device}
	} else if auto {
		places = []string{placement.Device, placement.Host, placement.Storage}
	}
	if !o.keepsSparse() {
		kinds[0] = nil
	} else if o.elements != nil && auto && !o.all {
		kinds = append(kinds, nil)
	}
	name := fmt.Sprintf("%s on %d nodes and %d edges", o.spec.Model, graph.Nodes, graph.Edges)
	for _, o.elements = range kinds {
		for _, scarce := range []bool{false, true} {
			for _, where := range places {
				if o.elements != nil && where == placement.Storage ||
					scarce && (o.all || auto && where == placement.Device) {
					continue
				}
				o.placement = where
				all = append(all, candidate{o, scarce, name})
			}
		}
	}
	return all
}

// planGraph decides where a graph lies: the first candidate that fits. What batches of samples take is an estimate, so
// it decides what is tried first, and refuses nothing: the memory of the device is what bounds them.
func planGraph(m session.Machine, graph *format.Dir, job graphJob) (p graphPlan, err error) {
	if job.all && job.placement != placement.Auto && job.placement != placement.Device {
		return p, session.Refuse("--placement %s: batches of all nodes need the graph on the device (give --batch, or "+
			"another --sampler)", job.placement)
	}
	var reasons []string
	var refused error // the last candidate that has room for batches
	for _, c := range job.candidates(&graph.Manifest) {
		if c.placement == placement.Device {
			reasons = nil
		}
		if p, err = c.plan(m, graph); err == nil {
			break
		}
		if !c.scarce {
			reasons, refused = append(reasons, "not from "+c.placement+": "+err.Error()), err
		}
	}
	if err != nil {
		return p, refused
	}
	if job.placement == placement.Auto {
		p.reasons = append(reasons, p.reasons...)
	} else if !job.all {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	if e := p.job.elements; e != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s",
			units.Bytes(e.Bytes()),
			units.Bytes(gds.Bytes(int(graph.Manifest.Nodes), graph.Manifest.Features, gds.Float32))))
	}
	return p, nil
}

// plan is the plan of the candidate, or why it does not fit.
func (c *candidate) plan(m session.Machine, graph *format.Dir) (p graphPlan, err error) {
	p = graphPlan{job: c.graphJob, placement: c.placement, batches: c.batches, unified: m.Devices.Info.Unified}
	if p.need, err = c.needOf(graph, m.Devices.Info); err != nil {
		return p, err
	}
	if c.scarce {
		p.scarceBytes = p.workBytes() - p.need.model
		p.batches, p.need.activations, p.need.batchWork = batchCount{}, 0, 0
	}
	if c.placement == placement.Device {
		if edges := p.need.edges; edges > sampling.MaxBlockEdges {
			err := fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most",
				machine.ErrDoesNotFit, c.name, edges)
			if c.all {
				err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
			}
			return p, err
		}
		p.reasons = []string{"the whole graph fits on the device: " + units.Bytes(p.need.whole).String()}
		err = m.Fits(c.name+", as a whole on the device,", p.memory())
	} else {
		from := map[string]string{placement.Host: "host memory", placement.Storage: "storage"}[c.placement]
		p.chunkBytes = leastChunkBytes
		err = m.Fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", c.name, from), p.memory())
		for larger := p; err == nil && !c.scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
			if larger.chunkBytes = 4 * p.chunkBytes; m.Fits("", larger.memory()) != nil {
				break
			}
		}
		p.reasons = []string{"layers of all nodes are computed in chunks of up to " +
			units.Bytes(p.chunkBytes).String()}
	}
	if c.scarce {
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too "+
			"little room", units.Bytes(p.scarceBytes)))
	}
	return p, err
}

// explain says what the batches of a graph were expected to need, where there was too little device memory.
func (p *graphPlan) explain(err error) error {
	if p.scarceBytes == 0 || !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w; batches and their activations were expected to need up to %s "+
		"(give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err, units.Bytes(p.scarceBytes))
}
