package training

import (
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Training says how a model is trained, and where its input lies.
type Training struct {
	trainer.Settings
	Placement string   // placement.Auto, Device, Host or Storage
	Shuffle   string   // of a store: placement.Auto, RR or CR
	ChunkRows int      // of a store
	Sampling           // of a graph
	Schedule  Schedule // of a graph
	NoTest    bool     // the test rows are not read
}

// Options say what is trained or applied, and on what.
type Options struct {
	Training // where rows are only evaluated, its Placement alone counts
	Machine  session.Machine
	Stages   host.Stages // of an emulated machine: how long the stages of a batch take
	Spec     trainer.Spec
	Held     need.Terms // memory that the caller takes beside
	Train    bool       // false: rows are only evaluated, in their order
	Part     session.Partition
}

// MaxWorkers is more threads than machines have, MostBuffers more batches than it is of any use to prepare ahead.
const (
	MaxWorkers  = 4096
	MostBuffers = 1000
)

// Samplers that options treat in another way than others.
const (
	FullSampler     = "full"     // takes all in-neighbours
	LocalitySampler = "locality" // prefers cached nodes
)

// Sampling says how the batches of a training on a graph are sampled. 0 and "" are defaults.
type Sampling struct {
	Sampler string // one of sampling.Names
	Fanouts []int
	Cache   string  // of rows of features, POLICY:SIZE
	Bias    float64 // of LocalitySampler: how many times as likely cached nodes are
	Workers int     // threads that sample
	Buffers int     // batches on the device
}

// Check refuses what cannot be, whatever the graph. It sets the default sampler.
func (s *Sampling) Check() error {
	if s.Sampler == "" {
		s.Sampler = "neighbor"
	}
	if !slices.Contains(sampling.Names(), s.Sampler) {
		return session.Refuse("--sampler %q: want one of %v", s.Sampler, sampling.Names())
	}
	if s.Cache != "" {
		if _, err := cache.Parse(s.Cache); err != nil {
			return session.Refuse("--cache: %s", err)
		}
	}
	switch {
	case s.Workers < 0 || s.Workers > MaxWorkers:
		return session.Refuse("--workers %d: want a number from 1 to %d", s.Workers, MaxWorkers)
	case s.Buffers < 0 || s.Buffers > MostBuffers:
		return session.Refuse("--buffers %d: want a number from 1 to %d", s.Buffers, MostBuffers)
	case s.Sampler == LocalitySampler && s.Bias == 0:
		return session.Refuse("--sampler locality prefers cached nodes: give --bias, such as 4 (1: no preference)")
	case s.Sampler != LocalitySampler && s.Bias != 0:
		return session.Refuse("--bias: sampler %s ignores the cache (use --sampler locality)", s.Sampler)
	}
	return nil
}

// TakesAllEdges tells that the sampler has no fanouts.
func (s *Sampling) TakesAllEdges() bool {
	return s.Sampler == FullSampler || sampling.ChoosesSeeds(s.Sampler)
}

// FillFanouts sets the default fanouts of a model with so many layers. It refuses other numbers of fanouts than layers.
func (s *Sampling) FillFanouts(layers int) error {
	switch {
	case s.TakesAllEdges() && len(s.Fanouts) > 0:
		return session.Refuse("--fanout: --sampler %s takes all edges of the nodes that it has chosen", s.Sampler)
	case s.TakesAllEdges():
		return nil
	case len(s.Fanouts) == 0:
		for i := range layers {
			s.Fanouts = append(s.Fanouts, max(5, 15-5*i))
		}
	case len(s.Fanouts) != layers:
		return session.Refuse("--fanout has %d numbers for %d layers: give one for each (or another --layers)",
			len(s.Fanouts), layers)
	}
	return nil
}

// Schedule says who prepares the batches of a graph, and when.
type Schedule struct {
	Name     string  // one of ScheduleNames; "": the processor, each stage as fast as it can
	CPUShare float64 // of the batches, by the schedule mixed; < 0: the best
	// For the schedule multi-queue. 0: the best by measurement.
	Queue     int // batches that wait for each device on the host, and on the device
	Gradients int // batches whose gradients wait on each device
	SyncEvery int // batches from one synchronisation of devices to the next
}

// ScheduleNames are the values of Schedule.Name.
func ScheduleNames() []string { return append(scheduler.Names(), scheduler.MultiQueue) }

// maxSyncEvery is more batches than epochs have.
const maxSyncEvery = 1 << 30

// Check refuses what cannot be, whatever the graph.
func (s *Schedule) Check() error {
	queued := s.Name == scheduler.MultiQueue
	switch {
	case s.CPUShare > 1 || math.IsNaN(s.CPUShare) || s.CPUShare < 0 && s.CPUShare != -1:
		return session.Refuse("--cpu-share %v: want a share from 0 to 1", s.CPUShare)
	case s.CPUShare != -1 && s.Name != "mixed" && s.Name != scheduler.Auto: // auto may choose mixed
		return session.Refuse("--cpu-share %v: it is for --schedule mixed", s.CPUShare)
	case s.Queue < 0 || s.Queue > scheduler.MostQueue:
		return session.Refuse("--queue %d: want a number from 1 to %d", s.Queue, scheduler.MostQueue)
	case s.Gradients < 0 || s.Gradients > scheduler.MostQueue:
		return session.Refuse("--gradients %d: want a number from 1 to %d", s.Gradients, scheduler.MostQueue)
	case s.SyncEvery < 0 || s.SyncEvery > maxSyncEvery:
		return session.Refuse("--sync-every %d: want a number from 1 to %d", s.SyncEvery, maxSyncEvery)
	case !queued && s.Queue+s.Gradients+s.SyncEvery > 0:
		return session.Refuse("--queue, --gradients and --sync-every are for --schedule %s", scheduler.MultiQueue)
	}
	return nil
}

// IsOff tells that there is nothing to schedule on a device: by the schedule auto, where the device is the processor.
func (s *Schedule) IsOff(info gds.Info) bool { return s.Name == scheduler.Auto && info.Unified }

// checkTogether refuses a schedule that contradicts how batches are sampled, or the machine.
func (o *Options) checkTogether(allNodes bool) error {
	switch name := o.Schedule.Name; {
	case name == scheduler.MultiQueue && o.Sampling.Buffers > 0:
		return session.Refuse("--buffers: with --schedule %s batches wait in queues (give --queue)",
			scheduler.MultiQueue)
	case name == "" && o.Stages.Paced():
		return session.Refuse("--emulate gives durations of stages: they need --schedule, such as --schedule auto")
	case name != "" && allNodes:
		return session.Refuse("--schedule %s: every batch is all nodes, so there is none to prepare (give --batch, "+
			"or another --sampler)", name)
	}
	return nil
}
