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
	held        int64 // of host memory, by the caller
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
	j = graphJob{spec: o.Spec, placement: cmp.Or(o.Placement, placement.Auto), held: o.HeldBytes, devices: devices,
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

// planGraph decides where a graph lies. What batches of samples take is an estimate, so it decides what is tried first,
// and refuses nothing: the memory of the device is what bounds them.
func planGraph(m session.Machine, graph *format.Dir, job graphJob) (p graphPlan, err error) {
	if !job.keepsSparse() {
		job.elements = nil
	}
	p, err = planFeatures(m, graph, job)
	if err != nil && job.elements != nil && job.placement == placement.Auto && !job.all { // from storage they are dense
		job.elements = nil
		p, err = planFeatures(m, graph, job)
	}
	if e := job.elements; err == nil && e != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s",
			units.Bytes(e.Bytes()),
			units.Bytes(gds.Bytes(int(graph.Manifest.Nodes), graph.Manifest.Features, gds.Float32))))
	}
	return p, err
}

// planFeatures decides where a graph lies whose features are kept as the job says.
func planFeatures(m session.Machine, graph *format.Dir, job graphJob) (p graphPlan, err error) {
	t := placing{machine: m, name: fmt.Sprintf("%s on %d nodes and %d edges", job.spec.Model, graph.Manifest.Nodes,
		graph.Manifest.Edges)}
	t.plan = graphPlan{job: job, batches: job.batches, unified: m.Devices.Info.Unified}
	if t.plan.need, err = job.needOf(graph, m.Devices.Info); err != nil {
		return p, err
	}
	if job.all { // there is no other way
		if job.placement != placement.Auto && job.placement != placement.Device {
			return p, session.Refuse("--placement %s: batches of all nodes need the graph on the device (give "+
				"--batch, or another --sampler)", job.placement)
		}
		if p, err = t.try(placement.Device, false); err != nil && t.plan.need.edges > sampling.MaxBlockEdges {
			err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
		}
		return p, err
	}
	if job.placement != placement.Auto {
		if p, err = t.try(job.placement, false); err != nil {
			p, err = t.tryScarce(job.placement)
		}
		p.reasons = append(p.reasons, "asked for by --placement")
		return p, err
	}
	places := []string{placement.Device, placement.Host, placement.Storage}
	if job.elements != nil {
		places = places[:2]
	}
	var reasons []string
	for _, where := range places {
		if p, err = t.try(where, false); err == nil {
			break
		}
		reasons = append(reasons, "not from "+where+": "+err.Error())
	}
	if err != nil {
		if p, err = t.tryScarce(placement.Host); err != nil && job.elements == nil {
			p, err = t.tryScarce(placement.Storage)
		}
	}
	p.reasons = append(reasons, p.reasons...)
	return p, err
}

// placing tries places for the features of a graph.
type placing struct {
	machine session.Machine
	name    string // of the job, in errors
	plan    graphPlan
}

// try plans the graph with the features in a place. With scarce memory, batches get what is left, in the smallest
// chunks.
func (t *placing) try(where string, scarce bool) (graphPlan, error) {
	p := t.plan
	if p.placement = where; scarce {
		p.batches, p.need.activations, p.need.batchWork = batchCount{}, 0, 0
	}
	if where == placement.Device {
		if edges := p.need.edges; edges > sampling.MaxBlockEdges {
			return p, fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most",
				machine.ErrDoesNotFit, t.name, edges)
		}
		whole := units.Bytes(p.need.whole.Peak(need.FirstDevice))
		p.reasons = []string{"the whole graph fits on the device: " + whole.String()}
		return p, p.fits(t.machine, "%s, as a whole on the device,", t.name)
	}
	from := "storage"
	if where == placement.Host {
		from = "host memory"
	}
	p.chunkBytes = leastChunkBytes
	if err := p.fits(t.machine, "%s, with features in %s and in chunks on the device,", t.name, from); err != nil {
		return p, err
	}
	for larger := p; !scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
		if larger.chunkBytes = 4 * p.chunkBytes; larger.fits(t.machine, "") != nil {
			break
		}
	}
	p.reasons = []string{"layers of all nodes are computed in chunks of up to " + units.Bytes(p.chunkBytes).String()}
	return p, nil
}

// tryScarce plans with whatever room there is for batches. Its error says what is enough for them too.
func (t *placing) tryScarce(where string) (graphPlan, error) {
	p, err := t.try(where, true)
	if err != nil {
		_, err = t.try(where, false)
		return p, err
	}
	p.scarceBytes = t.plan.need.activations + t.plan.need.batchWork + int64(t.plan.batches.onDevice)*p.need.batch.Device
	p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too "+
		"little room",
		units.Bytes(p.scarceBytes)))
	return p, nil
}

// explain says what the batches of a graph were expected to need, where there was too little device memory.
func (p *graphPlan) explain(err error) error {
	if p.scarceBytes == 0 || !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w; batches and their activations were expected to need up to %s "+
		"(give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err, units.Bytes(p.scarceBytes))
}
