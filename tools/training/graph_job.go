package training

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// graphJob says how a graph is used, and what its memory is planned from.
type graphJob struct {
	*Options
	graph       *sampling.Shape
	aggregation sampling.Aggregation
	devices     int
	all         bool                    // batches are all nodes
	sampled     *session.SampledOptions // of batches; nil: they are all nodes, or nothing is trained
	// evaluated are batches of all in-neighbours, by which nodes of a typed graph are evaluated; nil: the graph is whole,
	// or comes in chunks.
	evaluated *session.SampledOptions
	batches   scheduler.Held // at a time, for each device
	gradients int            // that wait on each device; 0: none
	maySpill  bool           // there is a folder for layers of all nodes that do not fit into memory
	// elements are the non-zero elements of features that are kept as sparse rows; nil: features are dense.
	elements *features.Elements
}

// job says how the options use a graph on devices. It completes the options.
func (o *Options) job(graph *sampling.Shape, devices int) (j graphJob, err error) {
	if o.Spec, err = o.Spec.Normalized(); err != nil {
		return j, err
	}
	o.Placement = cmp.Or(o.Placement, placement.Auto)
	j = graphJob{Options: o, graph: graph, devices: devices, maySpill: o.Scratch != ""}
	if j.aggregation, err = trainer.AggregationOf(o.Spec.Model); err != nil {
		return j, err
	}
	if graph.Typed != nil {
		j.evaluated = j.sampler(FullSampler)
	}
	if !o.Train {
		return j, nil
	}
	s, info, trainSet := &o.Sampling, o.Machine.Devices.Info, len(o.Part.Train.List)
	if own, err := o.Spec.ReadsOwnRows(); err != nil {
		return j, err
	} else if own && sampling.Apart(s.Sampler) {
		return j, session.Refuse("--sampler %s: its blocks lack the rows of destinations themselves, which this %s reads "+
			"(use --model gcn without --residual, or --sampler %s)", s.Sampler, o.Spec.Model,
			strings.TrimSuffix(s.Sampler, "-paper"))
	}
	if !sampling.ChoosesSeeds(s.Sampler) {
		o.BatchRows = min(o.BatchRows, trainSet)
	}
	if o.Schedule.Name == scheduler.MultiQueue {
		most := multiqueue.MostGradients
		if o.Schedule.Updates == OnArrival {
			most = min(scheduler.MostQueue, cmp.Or(o.Schedule.SyncEvery, scheduler.MostQueue))
		}
		j.gradients = cmp.Or(o.Schedule.Gradients, most)
	}
	j.all = o.allNodes(o.BatchRows)
	if err := o.checkTogether(j.all); j.all || err != nil {
		return j, err
	}
	j.sampled = j.sampler(s.Sampler)
	j.sampled.Seeds, j.sampled.Cache = nodesOf(graph, o.Part.Train.List), s.Cache
	// Schedules and queues ask for larger buffers when batches have been measured.
	switch buffers := j.sampled.Buffers; o.Schedule.Name {
	case "":
		batches := math.MaxInt
		if !sampling.ChoosesSeeds(s.Sampler) {
			batches = (trainSet + o.BatchRows - 1) / o.BatchRows
		}
		j.batches = scheduler.Held{OnDevice: min(buffers, batches), Pinned: pipelinedMoves(buffers - 1),
			Samples: min(sampling.MostSamples(j.sampled.Workers, buffers), batches)}
	case scheduler.MultiQueue:
		j.sampled.Buffers = sampling.QueueBuffers(scheduler.MostQueue) // no more have memory than a plan uses
		j.batches = queuedBatches(multiqueue.Synchronous.Queue)
	default:
		j.sampled.Buffers = sampling.Buffers(o.mostBuffers())
		j.batches = scheduler.LeastHeld(o.Schedule.Name, j.sampled.Workers, info.Unified)
		j.sampled.Routed = o.sharesRoutes() && !info.Unified && graph.Typed == nil
		j.sampled.Routed = j.sampled.Routed && (!o.Mapped || j.preloads()) // devices read no mapped file
	}
	return j, nil
}

// nodesOf are rows, of nodes with labels, as nodes of the one graph of all types.
func nodesOf(graph *sampling.Shape, rows []uint32) []uint32 {
	first := graph.Types[graph.Target()].First
	if first == 0 {
		return rows
	}
	nodes := make([]uint32, len(rows))
	for i, row := range rows {
		nodes[i] = first + row
	}
	return nodes
}

// sampler is the options of batches by a sampler.
func (j *graphJob) sampler(name string) *session.SampledOptions {
	s, typed := &j.Sampling, j.graph.Typed != nil
	o := &session.SampledOptions{
		Machine: j.Machine, Sampler: name, NodeIDs: len(j.Spec.Nodes) > 0,
		Sampling: sampling.Options{Fanouts: s.Fanouts, Aggregation: j.aggregation, ByType: typed},
		Buffers:  cmp.Or(s.Buffers, placement.Buffers), Workers: j.workers(j.devices),
		Opened: &session.OpenedGraph{TraceRows: max(j.graph.All.Nodes, cache.TraceRows(optimalTraceBytes))},
	}
	if name == FullSampler || s.TakesAllEdges() {
		o.Sampling.Fanouts = slices.Repeat([]int{sampling.All}, int(j.Spec.Settings["layers"]))
	}
	if name == s.Sampler {
		o.Sampling.Replace, o.Sampling.Bias, o.Sampling.Debias = s.Replace, s.Bias, s.Debias
	}
	return o
}

func (o *Options) workers(devices int) int {
	threads := o.Machine.Threads
	if name := o.Schedule.Name; name == "" || name == scheduler.MultiQueue {
		threads = max(1, threads/devices)
	}
	return cmp.Or(o.Sampling.Workers, o.Stages.Workers, threads)
}

// mostBuffers is the largest buffers of a schedule: of batches that workers have begun, and of batches on the device
// (MorphGL has 10 there), as far as there is memory.
func (o *Options) mostBuffers() (cpu, gpu int) {
	const leastCPU, gpuBuffer = 32, 10
	return max(leastCPU, 2*o.workers(1)), cmp.Or(o.Sampling.Buffers, gpuBuffer)
}

// scheduled tells that a schedule has the batches prepared, by the device too where it can.
func (o *graphJob) scheduled() bool {
	return o.sampled != nil && o.Schedule.Name != "" && o.Schedule.Name != scheduler.MultiQueue
}

// sharesRoutes tells that by the schedule a device may prepare batches.
func (o *Options) sharesRoutes() bool {
	s, err := collective.Find(o.Schedule.Name)
	return o.Schedule.Name == scheduler.Auto || err == nil && s.OnGPU
}

// routed tells that the device may prepare batches: it has memory of its own, and reads that of the host.
func (o *graphJob) routed() bool {
	return o.sampled != nil && o.sampled.Routed && o.Machine.Devices.Info.MapsPinned
}

// preloads tells that the device may sample and gather from a graph that is all in its own memory.
func (o *graphJob) preloads() bool {
	return o.routed() && o.sampled.Cache == "" && sampling.OnDevice(o.sampled.Sampler)
}

// keepsSparse tells whether sparse features may be kept as sparse rows: caches, devices that prepare batches by
// themselves, and storage have dense ones.
func (o *graphJob) keepsSparse() bool {
	return (o.sampled == nil || o.sampled.Cache == "") && !o.scheduled() && o.Placement != placement.Storage &&
		o.graph.Typed == nil
}

// pipelinedMoves is the most batches that move at a time, if gpuBuffer are on the device or on their way.
func pipelinedMoves(gpuBuffer int) int { return max(1, min(schedule.PipelinedMoves, gpuBuffer)) }

// queuedBatches counts the batches that wait in queues of a length.
func queuedBatches(length int) scheduler.Held {
	return scheduler.Held{OnDevice: sampling.QueueBuffers(length), Samples: 2 * length, Pinned: pipelinedMoves(length)}
}
