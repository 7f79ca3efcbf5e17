package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/trainer"
)

// MultiQueue is the name of the schedule by which several devices train by queues (MQ-GNN).
const MultiQueue = "multi-queue"

// MostQueue is the longest queue of batches that is used.
const MostQueue = 32

// Batches that are profiled, and the period of the second profile, which divides them.
const (
	queueProfile = 32
	stalePeriod  = 8
)

// QueueOptions say what is trained by queues.
type QueueOptions struct {
	Graph   multiqueue.Graph
	Devices []gds.Device
	Sets    []*sampling.Set // of each device, with which the profile trains
	Rows    int             // most that a batch has on a device
	Spec    trainer.Spec
	Options trainer.Options
	Workers int // of the processor, for each device
	// What was asked for; 0: what is best.
	Queue, Period, Gradients int
	OnArrival                bool
	BatchBytes               func() int64 // memory of the largest batch on a device so far
	// Evaluation is the device memory that evaluation takes on the first device beyond a profiled training.
	Evaluation int64
	// HostBatches is how many batches more than the shortest queues hold host memory has room for, for each
	// device. Nil: any number.
	HostBatches func() int
}

// Queues is a plan by queues, and the reasons for it. It measures the epochs of a training.
type Queues struct {
	Report  QueueReport
	plan    multiqueue.Plan
	workers int                                        // for each device
	places  int                                        // of gradients that wait, on each device, the most so far
	pace    func(rank, epoch, batch int) time.Duration // see trainer.QueueTimes
	stale   multiqueue.Staleness                       // of the gradients of trainings, as they come

	mu sync.Mutex
	queueTimes
}

// queueTimes are measured sums of times, and the time of each batch's gradient on each device.
type queueTimes struct {
	sample, move, longest, share time.Duration
	prepared, shared             int
	compute                      [][]time.Duration
}

func (t *queueTimes) meanCompute() time.Duration {
	sum, count := time.Duration(0), 0
	for _, all := range t.compute {
		for _, took := range all {
			sum += took
			count++
		}
	}
	return max(1, sum/time.Duration(max(1, count)))
}

// QueueReport says how queues were chosen, and why. Times are in seconds.
type QueueReport struct {
	Devices int `json:"devices"`
	multiqueue.Plan
	Capacity    int                  `json:"capacity"` // batches that a device has room for (Equation 25)
	Lag         int                  `json:"gradients_that_wait"`
	K           *float64             `json:"k"`                           // of Equation 23; null: not needed, or infinite
	Staleness   multiqueue.Staleness `json:"staleness"`                   // simulated, then counted in training
	Prepare     float64              `json:"longest_preparation_seconds"` // of a batch: sampled, gathered and moved
	Compute     float64              `json:"mean_compute_seconds"`
	Synchronize float64              `json:"synchronization_seconds"` // the cost of one
	// Stale is the cost for each batch, for each batch of the period.
	Stale       float64 `json:"staleness_seconds"`
	Predicted   float64 `json:"predicted_epoch_seconds"`
	PredictedBy float64 `json:"predicted_synchronous_epoch_seconds"`
	Reason      string  `json:"reason"`
}

// NewQueues profiles some batches, which takes two short trainings that are dropped, and chooses the size of queues
// (Equations 24 and 25) and the period (Equation 23, with a k that is fitted to the measured costs of synchronisation
// and staleness). One device has no gradients that wait: its period is 1.
func NewQueues(ctx context.Context, o QueueOptions) (*Queues, error) {
	q := &Queues{pace: paced.Gradients(o.Devices), workers: max(1, o.Workers)}
	q.compute = make([][]time.Duration, len(o.Devices))
	r, batches := &q.Report, o.Sets[0].Batches()
	if r.Devices = len(o.Devices); batches == 0 {
		return nil, fmt.Errorf("%w: an epoch has no batches", sampling.ErrOptions)
	}
	synchronous, err := q.profile(ctx, o, multiqueue.Synchronous, nil)
	if err == nil {
		err = q.chooseQueue(o)
	}
	if err == nil {
		err = q.choosePeriod(ctx, o, synchronous)
	}
	if err != nil {
		return nil, err
	}
	q.plan.OnArrival = o.OnArrival
	switch q.plan.Gradients = o.Gradients; {
	case o.Gradients > 0:
	case o.OnArrival:
		q.plan.Gradients = min(MostQueue, q.plan.Period)
	default:
		q.plan = q.plan.WithGradients(batches, multiqueue.Costs{Synchronize: r.Synchronize, Stale: r.Stale},
			func(p multiqueue.Plan) (float64, multiqueue.Staleness) { return q.simulate(o, p) })
	}
	switch {
	case q.plan.Period > 1 && q.plan.Gradients > 1:
		r.Reason += fmt.Sprintf("; the gradients of up to %s wait", batchText(q.plan.Gradients))
	case q.plan.Period > 1:
		r.Reason += "; no gradients wait"
	}
	r.Plan, r.Lag, q.stale = q.plan, q.plan.Lag(), multiqueue.Staleness{}
	r.PredictedBy, _ = q.simulate(o, multiqueue.Synchronous)
	r.Predicted, r.Staleness = q.simulate(o, q.plan)
	q.Apply(o.Sets)
	return q, nil
}

func (q *Queues) chooseQueue(o QueueOptions) (err error) {
	r := &q.Report
	r.Capacity = MostQueue
	for i, d := range o.Devices {
		if info := d.Info(); info.MemoryBytes > 0 {
			used, one := d.Usage().Peak, o.BatchBytes()*5/4 // as buffers grow
			if i == 0 {
				used += o.Evaluation
			}
			free := multiqueue.Capacity(info.MemoryBytes, used, one)
			r.Capacity = min(r.Capacity, free+multiqueue.Synchronous.Queue) // which the profile had
		}
	}
	if o.HostBatches != nil {
		r.Capacity = min(r.Capacity, o.HostBatches()+multiqueue.Synchronous.Queue)
	}
	r.Prepare, r.Compute = q.longest.Seconds(), q.meanCompute().Seconds()
	if q.plan.Queue, err = multiqueue.Size(q.longest, q.meanCompute(), r.Capacity); err != nil {
		return err
	}
	r.Reason = fmt.Sprintf("queues of %d: the longest preparation of a batch, %.3g ms, by the mean time of a "+
		"gradient, %.3g ms, of at least %d and at most %d that there is room for",
		q.plan.Queue, 1e3*r.Prepare, 1e3*r.Compute, multiqueue.LeastQueue, r.Capacity)
	if o.Queue > r.Capacity {
		return fmt.Errorf("%w: queues of %d batches, and there is room for %d", gds.ErrOutOfMemory, o.Queue, r.Capacity)
	}
	if o.Queue > 0 {
		q.plan.Queue, r.Reason = o.Queue, fmt.Sprintf("queues of %d were asked for", o.Queue)
	}
	return nil
}

// choosePeriod chooses the batches from one synchronisation to the next: by a second profile, with stale gradients, if
// that does not follow from the options.
func (q *Queues) choosePeriod(ctx context.Context, o QueueOptions, synchronous profiled) error {
	r := &q.Report
	q.plan.Period = max(1, o.Period)
	switch {
	case o.Period > 0:
		r.Reason += fmt.Sprintf("; a synchronisation each %s was asked for", batchText(o.Period))
		return nil
	case r.Devices == 1:
		r.Reason += "; one device waits for no gradients"
		return nil
	case o.Gradients == 1:
		r.Reason += "; no gradient was to be stale, so devices synchronise after each batch"
		return nil
	}
	queue, times, batches := q.plan.Queue, q.queueTimes, o.Sets[0].Batches()
	plan := func(period int) multiqueue.Plan {
		p := multiqueue.Plan{Queue: queue, Gradients: period, Period: period, OnArrival: o.OnArrival}
		if o.Gradients > 0 {
			p.Gradients = min(period, o.Gradients)
		}
		return p
	}
	late, err := q.profile(ctx, o, plan(stalePeriod), &synchronous)
	if err != nil {
		return err
	}
	q.queueTimes = times // of batches whose preparation waited for nothing
	// The cost of synchronisation is too small to be measured on a few batches. It is simulated with the measured times
	// of the stages.
	var seconds [2]float64 // of a batch
	for i, period := range []int{1, stalePeriod} {
		epoch, _ := q.simulate(o, plan(period))
		seconds[i] = epoch / float64(batches)
	}
	costs, err := multiqueue.FitCosts(seconds, [2]float64{synchronous.progress, late.progress}, stalePeriod)
	if err != nil {
		return err
	}
	k := o.Graph.K(costs)
	r.Synchronize, r.Stale = costs.Synchronize, costs.Stale
	q.plan = multiqueue.Plan{Queue: queue, Period: min(o.Graph.Period(k), batches)}
	r.Reason += fmt.Sprintf("; a synchronisation each %s", batchText(q.plan.Period))
	if math.IsInf(k, 0) {
		r.Reason += ", an epoch, as staleness costs nothing that could be measured"
		return nil
	}
	r.K = &k
	r.Reason += fmt.Sprintf(" by k = %.3g: one costs %.3g ms, and staleness each batch %.3g ms for each batch of the "+
		"period", k, 1e3*costs.Synchronize, 1e3*costs.Stale)
	return nil
}

func batchText(n int) string {
	if n == 1 {
		return "batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// Synchronous is a plan for the same devices by which nothing waits.
func (q *Queues) Synchronous() *Queues {
	return &Queues{
		Report: QueueReport{Devices: q.Report.Devices, Plan: multiqueue.Synchronous, Predicted: q.Report.PredictedBy,
			PredictedBy: q.Report.PredictedBy},
		plan: multiqueue.Synchronous, pace: q.pace, workers: q.workers,
		queueTimes: queueTimes{compute: make([][]time.Duration, q.Report.Devices)},
	}
}

// simulate is how many seconds an epoch takes by a plan, and how stale its gradients are: batches are prepared in the
// mean of the times that were measured, and gradients computed in these, again and again.
func (q *Queues) simulate(o QueueOptions, plan multiqueue.Plan) (seconds float64, stale multiqueue.Staleness) {
	prepared := time.Duration(max(1, q.prepared))
	m := multiqueue.Machine{Devices: len(o.Devices), Workers: q.workers,
		Length: func(device int, s schedule.Step) time.Duration {
			switch all := q.compute[device]; {
			case s.Stage == schedule.Sample:
				return q.sample / prepared
			case s.Stage == schedule.Move:
				return q.move / prepared
			case len(all) > 0:
				return all[s.Batch%len(all)]
			}
			return 0
		},
		Share: func(int) time.Duration { return q.share / time.Duration(max(1, q.shared)) }}
	took, stale := multiqueue.Simulate(m, plan, o.Sets[0].Batches())
	return took.Seconds(), stale
}

type profiled struct {
	first    float64 // the loss of the first batch
	progress float64 // by how much the mean loss is lower
}

// profile trains on some batches by a plan, and drops the model. Without synchronous, a profile of the same
// batches, it measures the stages.
func (q *Queues) profile(ctx context.Context, o QueueOptions, plan multiqueue.Plan, synchronous *profiled) (
	p profiled, err error,
) {
	q.plan = plan
	q.Apply(o.Sets)
	ranks := make([]trainer.Rank, len(o.Devices))
	for i, d := range o.Devices {
		ranks[i] = trainer.Rank{Device: d, Data: trainer.Data{Train: o.Sets[i], BatchRows: o.Rows}}
	}
	o.Options.Epochs, o.Options.EvalEvery, o.Options.Patience, o.Options.Queues = 1, 1, 0, q.Training()
	f, err := trainer.Start(ctx, ranks, o.Spec, o.Options)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	f.Time(q.Times())
	left := 1
	run := func() (loss float64, err error) {
		err = f.TrainUntil(ctx, func() bool { left--; return left <= 0 }, nil)
		if err != nil && !errors.Is(err, trainer.ErrPaused) {
			return 0, fmt.Errorf("measuring the stages of batches: %w", err)
		}
		s, err := f.State()
		if err != nil {
			return 0, err
		}
		if len(s.History) > 0 {
			return s.History[0].TrainLoss, nil
		}
		for _, l := range s.Losses {
			loss += float64(l)
		}
		return loss / float64(max(1, s.Rows)), nil
	}
	if synchronous == nil { // the first batch is not counted, unless it is the only one
		if p.first, err = run(); err != nil || o.Sets[0].Batches() == 1 {
			return p, err
		}
		q.queueTimes = queueTimes{compute: make([][]time.Duration, len(o.Devices))}
		left = queueProfile
	} else {
		p.first, left = synchronous.first, queueProfile/stalePeriod
	}
	mean, err := run()
	p.progress = p.first - mean
	return p, err
}

// Apply makes batches of the sets of a run, one for each device, wait in the queues.
func (q *Queues) Apply(sets []*sampling.Set) {
	queue, workers := q.plan.Queue, q.workers
	for _, s := range sets {
		sampled := map[int]time.Duration{} // of batches that have not moved
		rules := func(_, first int) schedule.Rules {
			return schedule.Pipelined(max(0, s.Batches()-first), workers, 2*queue, queue)
		}
		s.SetSchedule(&sampling.Schedule{Rules: rules, Trace: func(span schedule.Span) {
			took := span.End - span.Start
			switch span.Stage {
			case schedule.Sample:
				sampled[span.Batch] = took
			case schedule.Move:
				q.mu.Lock()
				defer q.mu.Unlock()
				sample := sampled[span.Batch]
				delete(sampled, span.Batch)
				q.sample, q.move, q.longest = q.sample+sample, q.move+took, max(q.longest, sample+took)
				q.prepared++
			}
		}})
	}
}

// Gradients is of how many batches gradients have waited on each device at most, in profiles too.
func (q *Queues) Gradients() int { return q.places }

// Training are the queues of gradients of a training.
func (q *Queues) Training() *trainer.Queues {
	q.places = max(q.places, q.plan.Lag()+1)
	return &trainer.Queues{Period: q.plan.Period, Lag: q.plan.Lag(), OnArrival: q.plan.OnArrival}
}

// Times make a training wait where a machine is emulated, and measure it.
func (q *Queues) Times() trainer.QueueTimes {
	return trainer.QueueTimes{
		Pace: q.pace, Computed: func(rank, missing int, took time.Duration) {
			if len(q.compute[rank]) < queueProfile {
				q.compute[rank] = append(q.compute[rank], took)
			}
			q.stale.Add(missing)
			q.Report.Staleness = q.stale
		},
		Shared: func(took time.Duration) { q.share, q.shared = q.share+took, q.shared+1 },
	}
}

// Reproducible says what of a training by queues can be had again.
func (r *QueueReport) Reproducible() string {
	stale := fmt.Sprintf("gradients are %.2g updates stale on average, %d at most; ", r.Staleness.Mean,
		r.Staleness.Largest)
	switch {
	case r.Lag == 0:
		return "no gradient is stale: synchronous training on as many devices makes the same model"
	case r.OnArrival:
		return stale + "steps are made when gradients have arrived, so another training gives another model"
	}
	return stale + fmt.Sprintf("steps are made at planned points, so the same model comes again for the same seed, %s, "+
		"--gradients %d and --sync-every %d; what is measured instead may be other numbers the next time",
		units.Count(int64(r.Devices), "device"), r.Gradients, r.Period)
}
