// Package schedule says which stage of which batch begins next on processor, link and device, when a stage has ended.
// It neither computes nor waits: the executor of all loaders (loader/internal/epoch) plays a Course in time that
// passes, and Simulation plays it in numbers.
//
// A batch takes one of two routes (MorphGL Eq. 1; PVLDB 2026, §4.1). On route 0 the processor samples and gathers
// it, it moves over the link, and the device trains on it. On route 1 the device samples and gathers it
// itself from memory of the host, which takes device and link, and trains on it. Stages keep the constraints of
// hardware, order and buffers (MorphGL Eq. 2-4).
package schedule

import (
	"math"
	"slices"
	"time"
)

// Stage is a part of the work on a batch.
type Stage int

const (
	Sample  Stage = iota // a worker of the processor samples and gathers it
	Move                 // it moves to the device; on the link
	Prepare              // the device samples and gathers it; on device and link
	Train                // on the device
)

func (s Stage) String() string { return [...]string{"sample", "move", "prepare", "train"}[s] }

// On names the part of the machine that a stage keeps busy. Preparing takes the link too.
func (s Stage) On() string { return [...]string{"processor", "link", "device", "device"}[s] }

// Span is when a stage of a batch began and ended, from the beginning of the epoch.
type Span struct {
	Stage      Stage
	Batch      int // its number in the epoch
	Worker     int // of the processor, from 0; of other stages 0
	Start, End time.Duration
	Gather     time.Duration // the part of Sample, Prepare or Move in which rows were gathered
}

// Action is the next task of the device.
type Action int

const (
	PrepareNext Action = iota // the next batch of route 1
	// TrainNext trains the next batch. Meanwhile, batches of the processor move to the device, one after
	// another, as they are ready and there is room.
	TrainNext
	Await    // a batch of the processor, while there is none; or the end of the epoch
	MoveNext // the first batch of the processor that is ready, and wait for it
	// TrainBesideOne is TrainNext beside which one batch moves, if it is ready when the training begins, and TrainAlone
	// is TrainNext beside which none moves.
	TrainBesideOne
	TrainAlone
)

func (a Action) trains() bool { return a == TrainNext || a == TrainBesideOne || a == TrainAlone }

// State is the state of all batches when the device has finished its last task.
type State struct {
	CPU    int // batches that the processor has prepared and that have not begun to move
	GPU    int // batches that the device has, or that are on their way to it
	Coming int // batches that the processor has begun, or will begin
	Left   int // batches that nobody has begun and that the device prepares
	// NextByGPU tells that the device prepares the batch to be trained next, if the order is given.
	NextByGPU bool
}

// Decider decides the next task of the device when it has finished one.
type Decider interface{ Next(State) Action }

// inOrder brings the batch that is trained next, and trains it.
type inOrder struct{}

func (inOrder) Next(now State) Action {
	switch {
	case now.GPU > 0:
		return TrainNext
	case now.NextByGPU:
		return PrepareNext
	case now.CPU > 0:
		return MoveNext
	}
	return Await
}

// Rules are the rules of an epoch.
type Rules struct {
	Batches    int
	CPUBatches int // how many of them the processor prepares
	// ByGPU tells that the device prepares a batch; batches are trained in the order of their numbers. nil:
	// in the order in which they came to the device, which numbers them.
	ByGPU   func(batch int) bool
	Workers int // of the processor; 0: 1
	// CPUBuffer bounds the batches that the processor has begun and that have not begun to move, and GPUBuffer the
	// batches on the device, or on their way, that have not begun to be trained. One more may be where the batch to be
	// trained next is not among them.
	CPUBuffer, GPUBuffer int
	OnDemand             bool // nothing moves while the device trains
	Serial               bool // a stage at a time, of one batch after another; ByGPU is not nil
	// Eager: a batch moves as soon as there is room, whatever the device does.
	Eager bool
	// LateGather: rows are gathered when a batch moves, in order, not by the worker that has sampled it.
	LateGather bool
	// Moving is how many batches move at a time at most, while the rows of the next are gathered; 0: 1. It needs Eager.
	Moving int
	Decide Decider // nil: the device brings the batch that is trained next, and trains it
}

// PipelinedMoves is Rules.Moving of Pipelined.
const PipelinedMoves = 2

// Pipelined are the rules by which the processor prepares all batches, in order, and no stage waits for another but
// for room: for most batches on all stages before the training, and gpuBuffer on the device and on their way.
func Pipelined(batches, workers, most, gpuBuffer int) Rules {
	gpuBuffer = min(gpuBuffer, most-1)
	return Rules{
		Batches: batches, CPUBatches: batches, Workers: workers, CPUBuffer: most - gpuBuffer, GPUBuffer: gpuBuffer,
		Eager: true, LateGather: true, Moving: PipelinedMoves,
	}
}

// Step is a stage of a batch that begins.
type Step struct {
	Stage
	Batch int
	ByGPU bool // the route of the batch
}

// Course is an epoch on its way: call Next until there is no step, begin these steps, and tell Done as each ends.
type Course struct {
	r        Rules
	chosen   Action
	decided  bool // chosen is in force
	sampling int  // batches that workers have
	moving   int  // batches that the link has, by Move or Prepare
	busy     bool // the device, by Prepare or Train
	training bool
	moves    int // that may begin beside the training

	begun, prepared, trained int        // batches that the processor began, the device began, and began to train
	ended                    int        // trainings
	waiting                  []underWay // batches that the processor has begun and that have not begun to move
	device                   []underWay // batches on the device, or on their way
	next                     [2]int     // number of the next batch of either route; [1] is the device's
}

type underWay struct {
	batch       int
	byGPU, here bool // here: on the device; of a batch that waits to move: sampled
}

// New begins a course.
func New(r Rules) *Course {
	r.Workers = max(r.Workers, 1)
	if r.Decide == nil {
		r.Decide = inOrder{}
	}
	c := &Course{r: r}
	if r.ByGPU != nil {
		c.next = [2]int{-1, -1}
		c.number(false)
		c.number(true)
	}
	return c
}

// number returns the number of the next batch of a route, and goes on to that after it.
func (c *Course) number(byGPU bool) int {
	route := 0
	if byGPU {
		route = 1
	}
	if c.r.ByGPU == nil { // batches of both routes, as they begin
		n := c.next[0]
		c.next[0]++
		return n
	}
	n := c.next[route]
	for c.next[route]++; c.next[route] < c.r.Batches && c.r.ByGPU(c.next[route]) != byGPU; c.next[route]++ {
	}
	return n
}

// Finished tells that all batches are trained.
func (c *Course) Finished() bool { return c.ended == c.r.Batches }

// Next is a stage that begins now. If there is none, wait for a stage to end.
func (c *Course) Next() (Step, bool) {
	if c.maySample() {
		c.begun++
		c.sampling++
		n := c.number(false)
		c.waiting = append(c.waiting, underWay{batch: n})
		return Step{Sample, n, false}, true
	}
	if !c.busy && !c.decided {
		c.chosen, c.decided = c.r.Decide.Next(c.state()), true
	}
	if c.mayMove() {
		n := c.waiting[0].batch
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.moving++
		c.moves--
		c.device = append(c.device, underWay{batch: n})
		return Step{Move, n, false}, true
	}
	if c.busy {
		return Step{}, false
	}
	switch c.chosen {
	case PrepareNext:
		return c.prepare()
	case TrainNext, TrainBesideOne, TrainAlone:
		at := c.nextOnDevice()
		if at < 0 && c.nextByGPU() {
			return c.prepare()
		}
		if at < 0 || !c.device[at].here {
			break
		}
		b := c.device[at]
		c.device = slices.Delete(c.device, at, at+1)
		c.trained++
		c.busy, c.training, c.decided = true, true, false
		switch c.chosen {
		case TrainNext:
			c.moves = math.MaxInt
		case TrainBesideOne:
			c.moves = min(1, c.ready())
		default:
			c.moves = 0
		}
		return Step{Train, b.batch, b.byGPU}, true
	case Await:
		c.decided = false // asked again when something has ended
	}
	return Step{}, false
}

// prepare begins the next batch of the device, when the link is free.
func (c *Course) prepare() (Step, bool) {
	if c.moving > 0 {
		return Step{}, false
	}
	n := c.number(true)
	c.prepared++
	c.moving, c.busy, c.decided = 1, true, false
	c.device = append(c.device, underWay{batch: n, byGPU: true})
	return Step{Prepare, n, true}, true
}

// Done says that a stage has ended.
func (c *Course) Done(s Step) {
	switch s.Stage {
	case Sample:
		c.sampling--
		c.waiting[find(c.waiting, s.Batch)].here = true
		return
	case Train:
		c.busy, c.training = false, false
		c.ended++
		return
	case Move:
		if c.decided && c.chosen == MoveNext {
			c.decided = false
		}
	case Prepare:
		c.busy = false
	}
	c.moving--
	c.device[find(c.device, s.Batch)].here = true
}

func find(batches []underWay, batch int) int {
	return slices.IndexFunc(batches, func(b underWay) bool { return b.batch == batch })
}

func (c *Course) maySample() bool {
	if c.begun == c.r.CPUBatches || c.sampling == c.r.Workers || len(c.waiting) >= c.r.CPUBuffer {
		return false
	}
	if c.r.Eager && len(c.waiting)+len(c.device) >= c.r.CPUBuffer+c.r.GPUBuffer {
		return false
	}
	return !c.r.Serial || !c.busy && len(c.waiting)+len(c.device) == 0 && !c.r.ByGPU(c.trained)
}

// ready is how many batches of the processor may begin to move: they move in order.
func (c *Course) ready() int {
	n := slices.IndexFunc(c.waiting, func(b underWay) bool { return !b.here })
	if n < 0 {
		return len(c.waiting)
	}
	return n
}

func (c *Course) mayMove() bool {
	if c.moving >= max(c.r.Moving, 1) || c.ready() == 0 {
		return false
	}
	if c.r.Eager {
		return len(c.device) < c.r.GPUBuffer || len(c.device) == 0 && !c.training
	}
	if c.training {
		return !c.r.OnDemand && c.moves > 0 && len(c.device) < c.r.GPUBuffer
	}
	// Where the order is given, the next batch may be later than was planned.
	return !c.busy && c.decided && (c.chosen == MoveNext || c.chosen.trains() && c.nextOnDevice() < 0 &&
		!c.nextByGPU())
}

// nextByGPU tells that the order is given, and the device prepares the batch to be trained next.
func (c *Course) nextByGPU() bool {
	return c.r.ByGPU != nil && c.trained < c.r.Batches && c.r.ByGPU(c.trained)
}

// nextOnDevice is the place of the batch to be trained next, or -1.
func (c *Course) nextOnDevice() int {
	if c.r.ByGPU == nil {
		return len(c.device[:min(1, len(c.device))]) - 1
	}
	return find(c.device, c.trained)
}

func (c *Course) state() State {
	return State{
		CPU: c.ready(), GPU: len(c.device), Coming: c.r.CPUBatches - c.begun + c.sampling,
		Left:      c.r.Batches - c.r.CPUBatches - c.prepared,
		NextByGPU: c.nextByGPU(),
	}
}
