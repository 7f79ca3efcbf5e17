package sampling

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// Schedule says who prepares which batch of an epoch when. The set's plan determines the batches and their order,
// whatever the schedule is.
type Schedule struct {
	// Rules returns the rules for the rest of an epoch, from batch first on, which has the number 0 in them. Unless
	// they are Eager, they must say which batches the device prepares (ByGPU).
	Rules func(epoch, first int) schedule.Rules
	// Trace, unless it is nil, gets each stage of each batch of an epoch when that has ended, numbered as Rules do. It
	// is called by one goroutine at a time.
	Trace func(schedule.Span)
}

// Buffers is how many batches a loader needs: cpuBuffer that the processor has begun, gpuBuffer on the device, one that
// moves, and one that is trained. On a device with memory of its own, gpuBuffer + 2 of them take memory there, or 1 if
// the rules bring each batch when the one before is trained.
func Buffers(cpuBuffer, gpuBuffer int) int { return cpuBuffer + gpuBuffer + 2 }

// QueueBuffers is how many batches of a queue of a length there are on a device: one is used.
func QueueBuffers(length int) int { return length + 1 }

// SetSchedule makes the loader prepare the batches of the set by a schedule; nil: each stage as fast as it can. Epochs
// are ErrOptions if the loader was opened for fewer batches than the rules have (Buffers; by Eager ones QueueBuffers),
// if its device has to prepare some and cannot, or if its cache changes from batch to batch and rules are not Eager.
func (s *Set) SetSchedule(o *Schedule) { s.schedule = o }

// PreparesOnDevice tells that a schedule may have the device prepare batches (Loader.PrepareOnDevice).
func (s *Set) PreparesOnDevice() bool { return s.l.onDevice != nil && s.l.onDevice.method == s.method }

// rules returns the rules for epoch n from batch first on, and how many buffers they use.
func (s *Set) rules(n, first int) (r schedule.Rules, buffers int, err error) {
	l, left := s.l, max(0, s.Batches()-first)
	buffers = len(l.buffers.All())
	if s.schedule == nil {
		return schedule.Pipelined(left, l.o.Workers, l.o.Samples, buffers-1), buffers, nil
	}
	r = s.schedule.Rules(n, first)
	most := Buffers(r.CPUBuffer, r.GPUBuffer)
	if r.Eager {
		most = QueueBuffers(r.GPUBuffer)
	}
	changing := slices.IndexFunc(l.types, func(t *typeRows) bool { return t.Cache != nil && !t.Cache.Fixed() })
	switch {
	case most > buffers:
		err = fmt.Errorf("%w: a schedule of %d batches at a time for a loader of %d", ErrOptions, most, buffers)
	case r.CPUBatches < r.Batches && !s.PreparesOnDevice():
		err = fmt.Errorf("%w: by the schedule the device prepares batches, and it was not told how (PrepareOnDevice)",
			ErrOptions)
	case !r.Eager && changing >= 0:
		err = fmt.Errorf("%w: cache %s changes from batch to batch: a schedule needs one that does not (degree, "+
			"presampled, gns, ducati)", ErrOptions, l.types[changing].Cache.Policy())
	case r.Decide == nil && (r.OnDemand || r.Serial): // none comes to the device before the last is trained
		most = 1
	case !l.unified:
		most = min(most, r.GPUBuffer+2)
	}
	return r, most, err
}

// EpochFrom yields the batches of epoch n from batch first on. Before a batch is yielded, stream is made to wait until
// its data are there; the buffers are reused once the work that stream has when the loop comes back is done, unless the
// batch is held. An error is yielded once, last, after the batches that came before it; leaving the loop early, or the
// end of ctx, stops all stages and leaves nothing behind.
func (s *Set) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return epoch.Sequence(func(yield func(*loader.Batch) bool) error { return s.epoch(ctx, stream, n, first, yield) })
}

// run is an epoch on its way.
type run struct {
	epoch.Run[*job]
	s        *Set
	n, first int           // epoch, and the batch that is 0 in rules
	stream   gds.Stream    // of the loader
	device   *paced.Device // nil: stages take as long as they take

	windowEnds []int          // the cache of a type has to be begun again before this batch
	loaded     loader.Traffic // of rows that were brought into the cache before the first batch
}

func (s *Set) epoch(ctx context.Context, consumer gds.Stream, n, first int, yield func(*loader.Batch) bool) error {
	l := s.l
	var batches, rows, assembled int64
	var traffic loader.Traffic
	putBack := func() {}
	return l.buffers.Epoch(ctx, l.o.Device, func(p *pipeline.Pipeline, stream gds.Stream) error {
		rules, room, err := s.rules(n, first)
		if err != nil {
			return err
		}
		x := &run{s: s, n: n, first: first, stream: stream, windowEnds: make([]int, len(l.types))}
		if x.loaded, err = x.beginWindow(ctx, first); err != nil {
			return err
		}
		x.Rules = rules
		x.Sample = epoch.Stage[*job]{Name: "sample", Work: x.sample}
		x.Move = epoch.Stage[*job]{Name: "move", Work: x.move}
		if rules.LateGather {
			x.Move.Name = "gather"
		}
		x.Arrive = epoch.Stage[*job]{Name: "transfer", Work: x.arrive}
		if rules.CPUBatches < rules.Batches {
			if err := l.onDevice.begin(l, stream); err != nil {
				return err
			}
			x.Prepare = epoch.Stage[*job]{Name: "prepare", Work: x.prepare}
		}
		if s.schedule != nil {
			if x.Trace = s.schedule.Trace; !rules.Eager {
				x.Consumer = consumer
			}
		}
		if s.plan.Order == chunk.Shuffled { // else it is for evaluation
			if x.device, _ = l.o.Device.(*paced.Device); x.device != nil {
				x.Least = func(stage schedule.Stage) pipeline.Event {
					return x.device.Begin(stage, rules.LateGather)
				}
			}
		}
		x.Train = func(j *job) bool {
			b := j.buffer
			assembled += b.batch.Traffic.Bytes()
			b.batch.Traffic.Add(j.loaded)
			l.jobs.put(j)
			batches, rows = batches+1, rows+int64(b.batch.Rows)
			traffic.Add(b.batch.Traffic)
			return l.buffers.Step(consumer, b, b.batch.Loan(), func() bool { return yield(&b.batch) })
		}
		putBack = l.setAside(room)
		return x.Do(p)
	}, func(p *pipeline.Pipeline) {
		putBack()
		l.mu.Lock()
		defer l.mu.Unlock()
		// All stages have ended: batches that were not yielded need none of these any more.
		l.jobs.reset()
		l.pinned.reset()
		l.stats.AddEpoch(p.Times(), batches, rows)
		l.traffic.Add(traffic)
		l.assembled += assembled
	})
}

// job begins the job of a batch, numbered as the rules do.
func (x *run) job(batch int) *job {
	j := x.s.l.jobs.take()
	j.begin(x.s.Epochs, x.n, x.first+batch)
	if j.loaded = (loader.Traffic{}); batch == 0 {
		j.loaded = x.loaded
	}
	return j
}

// sample samples a batch and, unless that is late, gathers it.
func (x *run) sample(w *pipeline.Worker, t *epoch.Task[*job]) error {
	t.Job = x.job(t.Batch)
	if err := x.s.sample(w.Context(), t.Job); err != nil || x.Rules.LateGather {
		return err
	}
	return x.gather(w, t)
}

// gather gathers the rows of a batch that was sampled.
func (x *run) gather(w *pipeline.Worker, t *epoch.Task[*job]) error {
	start := time.Now()
	err := x.s.gather(w, t.Job)
	if t.Gather = time.Since(start); x.device != nil {
		t.Gather = max(t.Gather, x.device.Gather())
	}
	return err
}

// move begins to move a batch to the device.
func (x *run) move(w *pipeline.Worker, t *epoch.Task[*job]) error {
	loaded, err := x.beginWindow(w.Context(), t.Job.plan.Index)
	if err != nil {
		return err
	}
	t.Job.loaded.Add(loaded)
	if !x.Rules.LateGather {
		t.Begun = x.stream.Record()
	} else if err := x.gather(w, t); err != nil {
		return err
	}
	if err = x.s.transfer(w, t.Job, x.stream); err != nil { // as at the early end of an epoch, after which others come
		x.s.l.forget(t.Job)
	}
	return err
}

// arrive waits until a batch has moved.
func (x *run) arrive(w *pipeline.Worker, t *epoch.Task[*job]) error {
	ready := t.Job.buffer.Ready
	if err := w.Wait(ready); err != nil {
		return err
	}
	x.s.l.putPinned(t.Job)
	if t.Begun == nil {
		return nil
	}
	return x.Measure(t, t.Begun, ready)
}

// prepare has the device prepare a batch.
func (x *run) prepare(w *pipeline.Worker, t *epoch.Task[*job]) error {
	t.Job = x.job(t.Batch)
	if err := x.s.sampleOnDevice(w, t.Job); err != nil {
		return err
	}
	start := time.Now()
	err := x.s.gatherOnDevice(w, t.Job, x.stream)
	t.Gather = time.Since(start)
	return err
}

// setAside leaves so many buffers in use until the end of an epoch: the ones with most memory. It frees the memory of
// the others.
func (l *Loader) setAside(but int) (put func()) {
	all := len(l.buffers.All())
	return l.buffers.SetAside(func(free []*batchBuffer) (stay int) {
		slices.SortStableFunc(free, func(a, b *batchBuffer) int {
			return cmp.Compare(b.device.Size(), a.device.Size())
		})
		stay = max(0, len(free)-(all-but))
		for _, b := range free[stay:] {
			_ = b.release() // which nobody uses: there is no other error
		}
		return stay
	})
}
