package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// Queues let ranks go on while gradients wait in queues: RaCoM (MQ-GNN, §IV). Each rank computes the gradient of its
// share of a batch and goes on to the next. When all ranks have theirs, they are added up (mq-gnn Eq. 20, 21), and
// every rank makes the same step with the sum (mq-gnn Eq. 22), after the gradient of Lag batches later. After each
// Period batches all ranks make all steps that are left, and so have the same parameters.
//
// Steps are made at these planned points, so a training by queues is as reproducible as any other. Gradients are parts
// of the mean over the rows of all ranks, so their sum is Equation 21 where ranks have as many rows as each other. They
// are added in the order of ranks.
//
// OnArrival is RaCoM as printed: gradients are added in the order in which they arrive, and a rank makes a step when it
// has ended a batch and the sum is there, so between two synchronisations some ranks have made steps that others have
// not, and the model depends on timing. The sum is Equation 20 times Average Count. Gradients meet once, in host
// memory, and not on each rank: so all ranks make the same steps, and a synchronisation is the end of the last.
//
// With Lag 0, whatever the Period, training is synchronous, and the same as without queues; bit for bit, unless
// gradients of three ranks or more are added in the order in which they arrive.
type Queues struct {
	Period    int  `json:"period"` // batches between synchronisations: 1 or more
	Lag       int  `json:"lag"`    // most gradients that wait: 0 to Period-1
	OnArrival bool `json:"on_arrival,omitempty"`
}

// QueueTimes are of trainings by queues; of synchronous ones, Pace alone counts.
type QueueTimes struct {
	// Pace is how long the gradient of a batch takes at least on a rank whose device is emulated; nil: as
	// long as it takes. Epochs and batches are numbered from 0.
	Pace func(rank, epoch, batch int) time.Duration
	// Computed gets how long a rank took for a gradient, and how many steps were missing in the parameters it was
	// computed with; Shared, how long it took to add up the gradients of all ranks. nil: nothing does. They are called
	// one at a time.
	Computed func(rank, stale int, took time.Duration)
	Shared   func(took time.Duration)
}

func (q *Queues) check() error {
	if q == nil {
		return nil
	}
	return must(q.Period >= 1 && 0 <= q.Lag && q.Lag < q.Period,
		"queues of %d gradients and a synchronisation each %d batches: want 0 or more, fewer than batches", q.Lag,
		q.Period)
}

// queued is an epoch of training by queues.
type queued struct {
	*Fitting
	Queues
	epoch, steps int // number of the epoch, from 0, and steps before its first batch
	seed         uint64
	ranks        []*queuedRank
	computed     *pipeline.Queue[*gradient] // of all ranks; nil: one rank has ended the period
}

// gradientQueues is memory of gradients that wait: of each rank, and their sums.
type gradientQueues struct {
	exchange
	loss  []gds.Buffer   // of each rank: sums of losses when gradients were computed
	saved [][]gds.Tensor // of each rank: see network.synchronized
}

func (g *group) newGradientQueues(places int) (*gradientQueues, error) {
	q := &gradientQueues{}
	err := q.allocate(g.ranks, places)
	for _, n := range g.ranks {
		q.mem.Device = n.mem.Device
		q.loss = append(q.loss, q.mem.Pin("losses", gds.Bytes(1, places, gds.Float32)))
		var saved []gds.Tensor
		for range n.synchronized() {
			saved = append(saved, q.mem.Matrix("parameters as of the last synchronisation", 1, q.count, gds.Float32))
		}
		q.saved = append(q.saved, saved)
	}
	if err = cmp.Or(err, q.mem.Err); err != nil {
		return nil, errors.Join(err, q.mem.Free())
	}
	return q, nil
}

// synchronized are the vectors that a step changes, and the sum of losses.
func (n *network) synchronized() []gds.Tensor {
	return append([]gds.Tensor{n.lossSum, n.params.value}, n.params.moments...)
}

// queuedRank is one rank of an epoch by queues. In a period, all but its queues belongs to its goroutine.
type queuedRank struct {
	*network
	q       *queued
	next    func() (*loader.Batch, error, bool) // batch of the epoch
	sums    *pipeline.Queue[int]                // batches whose sum is there
	waited  time.Duration                       // for batches
	waiting []*gradient                         // computed, in order, with which no step was made
	rows    int64                               // of the epoch, before the first of these
	met     error                               // the model needs the other ranks in the middle of a batch
}

// gradient is the gradient of a rank's share of a batch.
type gradient struct {
	rank, batch int
	stale       int // steps that are missing in its parameters
	globalRows  int
	traffic     loader.Traffic
	begun, end  gds.Event     // it is computed, and in its queue
	took        time.Duration // if that was paced
	arrived     chan struct{} // closed: it is added to those of its batch that were there
}

// trainQueued trains on the batches of an epoch from first on, by queues. It ends between two periods, whatever
// happens: it undoes the steps of an unfinished period. It returns how long a rank waited for batches, on average.
func (f *Fitting) trainQueued(ctx context.Context, first int, pause func() bool) (waited time.Duration, err error) {
	s := &f.state
	q := &queued{Fitting: f, Queues: *s.Options.Queues, epoch: s.Epoch.Number - 1, steps: s.Steps - first,
		seed: rng.Derive(s.Options.Seed, "dropout")}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for rank, n := range f.group.ranks {
		r := &queuedRank{network: n, q: q, rows: s.Rows}
		n.pass.meet = func(gds.Tensor) bool {
			r.met = fmt.Errorf("%w: %s adds up rows of all devices in the middle of a batch, so none can go on by "+
				"itself", ErrOptions, r.spec.Model)
			return false
		}
		var stop func()
		r.next, stop = iter.Pull2(f.train[rank].EpochFrom(ctx, n.stream, q.epoch, first))
		defer stop()
		q.ranks = append(q.ranks, r)
	}
	for more := true; more && err == nil; {
		more, err = q.period(ctx, cancel)
		if err == nil && more && s.Rows < s.TrainRows && pause() {
			err = ErrPaused
		}
	}
	for _, r := range q.ranks {
		waited += r.waited
	}
	return waited / time.Duration(len(q.ranks)), err // ranks wait side by side
}

// period trains up to the next synchronisation, or undoes what it did. It returns false after the last batch. cancel
// ends the epoch.
func (q *queued) period(ctx context.Context, cancel context.CancelCauseFunc) (more bool, err error) {
	p := pipeline.New(ctx)
	q.computed = pipeline.NewQueue[*gradient](p, len(q.ranks)*(q.Lag+2))
	for _, r := range q.ranks {
		r.copySaved(true)
		r.sums = pipeline.NewQueue[int](p, q.Lag+1)
	}
	for _, r := range q.ranks {
		p.Go(fmt.Sprintf("rank %d", r.rank), func(w *pipeline.Worker) {
			if err := r.train(w); err != nil {
				q.computed.Fail(w, q.rankError(r.rank, err))
				return
			}
			q.computed.Send(w, nil)
		})
	}
	first := q.state.Batch
	if err = q.share(p.Worker("share")); err != nil {
		cancel(err) // for who waits for a batch
	}
	p.Close()
	for _, r := range q.ranks {
		if err != nil {
			r.copySaved(false)
		}
	}
	return q.state.Batch > first && q.state.Batch%q.Period == 0, err
}

// copySaved saves the vectors that a step changes, or undoes all steps since.
func (r *queuedRank) copySaved(save bool) {
	for i, v := range r.synchronized() {
		saved := r.q.queues.saved[r.rank][i].Columns(0, v.Cols)
		if save {
			r.stream.Copy(saved, v)
		} else {
			r.stream.Copy(v, saved)
		}
	}
}

// train is the work of a rank in a period.
func (r *queuedRank) train(w *pipeline.Worker) error {
	q := r.q
	for synchronize := false; !synchronize; {
		asked := time.Now()
		b, err, ok := r.next()
		start := time.Now()
		if r.waited += start.Sub(asked); !ok {
			break
		}
		if err == nil {
			err = r.admit(w.Context(), b)
		}
		if err != nil {
			return err
		}
		g := &gradient{rank: r.rank, batch: b.Index, stale: len(r.waiting), globalRows: b.GlobalRows,
			traffic: b.Traffic, begun: r.stream.Record(), arrived: make(chan struct{})}
		step := q.steps + b.Index + 1
		r.gradient(b, rng.Hash(q.seed, uint64(step*len(q.ranks)+r.rank)))
		if r.met != nil {
			return r.met
		}
		place := b.Index % q.queues.places
		r.stream.Copy(q.queues.vector(q.queues.partial[r.rank], place, r.params.count), r.params.grad)
		loss := gds.NewTensor(q.queues.loss[r.rank], 1, q.queues.places, gds.Float32)
		r.stream.Copy(loss.Columns(place, place+1), r.lossSum)
		g.end = r.stream.Record()
		if q.times.Pace != nil || q.OnArrival {
			if err := w.Wait(g.end); err != nil {
				return err
			}
		}
		if q.times.Pace != nil {
			if err := w.Wait(pipeline.Until(start.Add(q.times.Pace(r.rank, q.epoch, b.Index)))); err != nil {
				return err
			}
			g.took = time.Since(start)
		}
		if !q.computed.Send(w, g) {
			return nil
		}
		r.waiting = append(r.waiting, g)
		if q.OnArrival {
			select {
			case <-g.arrived:
			case <-w.Context().Done():
				return nil
			}
		}
		for len(r.waiting) > q.Lag || q.OnArrival && r.sums.Len() > 0 {
			if !r.update(w) {
				return nil
			}
		}
		synchronize = (b.Index+1)%q.Period == 0
	}
	for len(r.waiting) > 0 {
		if !r.update(w) {
			return nil
		}
	}
	return nil
}

// update makes the step of the first waiting gradient, once it is added to the gradients of the other ranks. It reports
// false if the pipeline has ended.
func (r *queuedRank) update(w *pipeline.Worker) bool {
	batch, _, ok := r.sums.Receive(w)
	if !ok {
		return false
	}
	q, g := r.q, r.waiting[0]
	r.waiting = r.waiting[1:]
	r.stream.Copy(r.params.grad, q.queues.vector(q.queues.total, batch%q.queues.places, r.params.count))
	r.step(q.stepOptions(q.steps+batch+1, r.rows))
	r.rows += int64(g.globalRows)
	return true
}

// share adds up the gradients of all ranks, batch after batch, and lets the ranks make steps. When all ranks have ended
// the period, it adds that to the state.
func (q *queued) share(w *pipeline.Worker) error {
	s := &q.state
	batches, rows := 0, int64(0)
	var traffic loader.Traffic
	computed := map[int][]*gradient{} // of batches that some ranks have yet to compute
	for ended := 0; ended < len(q.ranks); {
		g, err, ok := q.computed.Receive(w)
		switch {
		case err != nil:
			return err
		case !ok, g == nil && w.Context().Err() != nil: // then the rank has not ended the period
			return context.Cause(w.Context())
		case g == nil:
			ended++
		default:
			computed[g.batch] = append(computed[g.batch], g)
		}
		if ended > 0 && len(computed) > 0 { // a rank ends when its gradients were added to those of the others
			return errors.New("the devices have different numbers of batches")
		}
		if g == nil {
			continue
		}
		if all := computed[g.batch]; len(all) == len(q.ranks) {
			delete(computed, g.batch)
			if err := q.add(w, all); err != nil {
				return err
			}
			batches, rows = batches+1, rows+int64(g.globalRows)
			for _, g := range all {
				traffic.Add(g.traffic)
				q.ranks[g.rank].sums.Send(w, g.batch)
			}
		}
		close(g.arrived)
	}
	s.Batch, s.Steps, s.Rows = s.Batch+batches, s.Steps+batches, s.Rows+rows
	s.Epoch.Traffic.Add(traffic)
	return nil
}

// add adds up the gradients of a batch, which are in the order in which they arrived.
func (q *queued) add(w *pipeline.Worker, gradients []*gradient) error {
	batch := gradients[0].batch
	place := batch % q.queues.places
	if !q.OnArrival {
		slices.SortFunc(gradients, func(a, b *gradient) int { return a.rank - b.rank })
	}
	order := make([]int, len(gradients))
	for i, g := range gradients {
		order[i] = g.rank
		if err := w.Wait(g.end); err != nil {
			return q.rankError(g.rank, err)
		}
		if q.times.Computed != nil {
			took := g.took
			if q.times.Pace == nil {
				var err error
				if took, err = g.end.Elapsed(g.begun); err != nil {
					return q.rankError(g.rank, err)
				}
			}
			q.times.Computed(g.rank, g.stale, took)
		}
		if !isFinite(dtype.Float32s(q.queues.loss[g.rank].Bytes())[place]) {
			return q.divergedAt(batch)
		}
	}
	if q.times.Shared != nil {
		start := time.Now()
		defer func() { q.times.Shared(time.Since(start)) }()
	}
	return q.queues.addUp(w.Context(), place, q.queues.count, order)
}
