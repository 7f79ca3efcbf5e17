package sampling

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// Set yields epochs over some seeds.
type Set struct {
	l *Loader
	epochs
	member   []uint64     // a bit for each node: it is one of nodes
	onDevice *deviceRoute // by which the device prepares batches: all of them, unless schedule says which
	schedule *Schedule    // nil: each stage is as fast as it can
	queues   *Queues      // nil: as long as the loader has room
}

// epochs are the mini-batches of any number of epochs.
type epochs struct {
	method *Method
	nodes  []uint32 // seeds
	plan   chunk.Plan
}

// Set plans epochs over nodes, which are distinct, sampled by a method. It sets plan.Rows; plan.Seed
// names the random numbers of samples too. If the method chooses seeds itself, a batch has
// plan.BatchRows draws, and an epoch so many batches that they have about as many seeds as there are
// nodes. Ranks share each batch as the plan says. A plan that is
// not Shuffled is for evaluation: it leaves the content of the cache as training has it, as far as
// the policy can.
func (l *Loader) Set(nodes []uint32, method *Method, plan chunk.Plan) (*Set, error) {
	if n := method.topology.Nodes(); n != l.o.Features.Rows() {
		return nil, fmt.Errorf("a topology of %d nodes and features of %d", n, l.o.Features.Rows())
	}
	if plan.Holder != nil {
		return nil, fmt.Errorf("seeds are held by all ranks")
	}
	e, err := newEpochs(method, nodes, plan)
	if err != nil {
		return nil, err
	}
	member, err := seedSet(nodes, l.o.Features.Rows())
	if err != nil {
		return nil, err
	}
	return &Set{l: l, epochs: e, member: member}, nil
}

func (s *Set) isMember(node uint32) bool { return s.member[node/64]>>(node%64)&1 == 1 }

// CheckSeeds returns an error unless seeds are distinct nodes of a graph of n.
func CheckSeeds(seeds []uint32, n int64) error {
	_, err := seedSet(seeds, n)
	return err
}

// seedSet has a bit for each of n nodes: it is among seeds.
func seedSet(seeds []uint32, n int64) ([]uint64, error) {
	member := make([]uint64, (n+63)/64)
	for i, node := range seeds {
		if int64(node) >= n {
			return nil, fmt.Errorf("%w: seed %d is node %d: the graph has %d nodes", ErrOptions, i, node, n)
		}
		if member[node/64]>>(node%64)&1 == 1 {
			return nil, fmt.Errorf("%w: node %d is twice among the seeds: they must be distinct", ErrOptions, node)
		}
		member[node/64] |= 1 << (node % 64)
	}
	return member, nil
}

// newEpochs plans epochs over nodes: see Loader.Set.
func newEpochs(method *Method, nodes []uint32, plan chunk.Plan) (epochs, error) {
	s := epochs{method, nodes, plan}
	s.plan.Rows = int64(len(nodes))
	if err := s.plan.Check(); err != nil || !method.kind.graphWise {
		return s, err
	}
	if plan.World > 1 {
		return s, fmt.Errorf("%w: sampler %s chooses the seeds of a batch itself, which several devices cannot share", ErrOptions, method.name)
	}
	for i, node := range nodes {
		if int64(node) >= method.topology.Nodes() {
			return s, fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, node, method.topology.Nodes())
		}
	}
	mean := method.meanSeeds(plan.BatchRows, nodes)
	if len(nodes) > 0 && mean < 0.5 {
		return s, fmt.Errorf("%w: sampler %s: batches of %d draws have %.2g of the %d seeds on average: draw more", ErrOptions, method.name, plan.BatchRows, mean, len(nodes))
	}
	batches := int64(math.Ceil(float64(len(nodes)) / max(mean, 0.5)))
	s.plan.Rows, s.plan.DropLast = batches*int64(plan.BatchRows), false
	return s, s.plan.Check()
}

// Rows is the number of seeds of an epoch, over all ranks; if the sampler chooses them, about.
func (s *Set) Rows() int64 { return int64(len(s.nodes)) }

// BatchNodes are the seeds of a batch of an epoch, of this rank.
func (s *Set) BatchNodes(ctx context.Context, epoch, batch int) (nodes []uint32, err error) {
	if !s.method.kind.graphWise {
		for b := range s.plan.EpochFrom(epoch, batch) {
			var j job
			j.begin(&s.epochs, b, epoch)
			return j.seeds, nil
		}
		return nil, nil
	}
	err = s.visit(ctx, 1, 1, epoch, batch, func(b *MiniBatch) bool {
		nodes = b.Seeds
		return false
	})
	return nodes, err
}

// Batches is the number of batches of an epoch.
func (s *Set) Batches() int { return s.plan.Batches() }

// job is a mini-batch on its way through the stages: sample, gather and transfer, or, where the device
// prepares it, those of deviceRoute. Each is a function of the job alone, which whoever schedules work
// otherwise can call as well as a pipeline.
type job struct {
	plan   chunk.Batch
	epoch  int
	seeds  []uint32
	sample MiniBatch
	lookup cache.Lookup
	device DeviceBatch // if the device prepares it
	size   batchSize
	buffer *batchBuffer
	layout layout

	sampled       time.Duration // of a set with queues: how long that took
	moving        time.Time     // and since when it moves
	waitedForRoom time.Duration // for a buffer
}

// jobs yields the jobs of epoch n from batch first on, each in memory that take gives.
func (s *epochs) jobs(take func() (*job, error), n, first int) iter.Seq2[*job, error] {
	return func(yield func(*job, error) bool) {
		for b := range s.plan.EpochFrom(n, first) {
			j, err := take()
			if err == nil {
				j.begin(s, b, n)
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// begin makes the job that of a batch.
func (j *job) begin(s *epochs, b chunk.Batch, epoch int) {
	j.plan, j.epoch, j.buffer = b, epoch, nil
	j.seeds = resize(j.seeds, b.Rows)
	if s.method.kind.graphWise { // it looks at their number alone
		clear(j.seeds)
		return
	}
	b.RowNumbers(j.seeds)
	for i, at := range j.seeds {
		j.seeds[i] = s.nodes[at]
	}
}

// key names the random numbers of a job: those of different ranks differ.
func (s *epochs) key(j *job) uint64 {
	key := Key(s.plan.Seed, j.epoch, j.plan.Index)
	if s.plan.World > 1 {
		key = rng.Hash(key, uint64(s.plan.Rank))
	}
	return key
}

// sample makes the mini-batch of a job.
func (s *epochs) sample(ctx context.Context, sampler Sampler, j *job) error {
	if len(j.seeds) == 0 {
		j.sample.Seeds, j.sample.Inputs, j.sample.Blocks, j.sample.SeedWeights = j.sample.Seeds[:0], j.sample.Inputs[:0], j.sample.Blocks[:0], j.sample.SeedWeights[:0]
		return nil
	}
	if err := sampler.Sample(ctx, &j.sample, j.seeds, s.key(j)); err != nil {
		return fmt.Errorf("batch %d of epoch %d: %w", j.plan.Index, j.epoch+1, err)
	}
	return nil
}

// planned adds the stage plan to a pipeline: the batches of epoch n from first on, each in a job that is
// free.
func (s *epochs) planned(p *pipeline.Pipeline, free <-chan *job, n, first int) *pipeline.Queue[*job] {
	planned := pipeline.NewQueue[*job](p, 0)
	p.Go("plan", func(w *pipeline.Worker) {
		defer planned.Close()
		for j, err := range s.jobs(func() (*job, error) { return pipeline.Take(w, free) }, n, first) {
			if err != nil || !planned.Send(w, j) {
				return
			}
		}
	})
	return planned
}

// sampled adds the stages plan and sample, of as many workers as there are samplers.
func (s *epochs) sampled(p *pipeline.Pipeline, samplers []Sampler, free <-chan *job, n, first int) *pipeline.Queue[*job] {
	return s.sampledBy(p, samplers, free, n, first, func(w *pipeline.Worker, sampler Sampler, j *job) error {
		return s.sample(w.Context(), sampler, j)
	})
}

// sampledBy is sampled by another function than sample.
func (s *epochs) sampledBy(p *pipeline.Pipeline, samplers []Sampler, free <-chan *job, n, first int, sample func(*pipeline.Worker, Sampler, *job) error) *pipeline.Queue[*job] {
	return s.planned(p, free, n, first).Then(pipeline.Stage[*job]{
		Name: "sample", Workers: len(samplers), Queue: len(samplers),
		Work: func(w *pipeline.Worker, j *job) error { return sample(w, samplers[w.Index()], j) },
	})
}

// Epoch yields the batches of epoch n in the plan's order: see EpochFrom.
func (s *Set) Epoch(ctx context.Context, stream gds.Stream, n int) iter.Seq2[*loader.Batch, error] {
	return s.EpochFrom(ctx, stream, n, 0)
}

// EpochFrom yields the batches of epoch n from batch first on. Before a batch is yielded, stream is
// made to wait until its data are there; the buffers are reused once the work that stream has when
// the loop comes back is done, unless the batch is held. An error is yielded once, last, after the
// batches that came before it; leaving the loop early, or the end of ctx, stops the pipeline and
// leaves nothing behind.
func (s *Set) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		left := false
		err := s.epoch(ctx, stream, n, first, func(b *loader.Batch) bool {
			left = !yield(b, nil)
			return !left
		})
		if err != nil && !left {
			yield(nil, err)
		}
	}
}

func (s *Set) epoch(ctx context.Context, consumer gds.Stream, n, first int, yield func(*loader.Batch) bool) (err error) {
	l := s.l
	if err := l.beginUse(); err != nil {
		return err
	}
	defer l.endUse()
	for _, b := range l.buffers {
		if err := b.waitReleased(ctx); err != nil {
			return err
		}
	}
	workers, room := l.o.Workers, len(l.buffers)
	var rules schedule.Rules
	switch {
	case s.schedule != nil:
		rules = s.schedule.Rules(n, first)
		if workers, room = max(rules.Workers, 1), Buffers(rules.CPUBuffer, rules.GPUBuffer); room > len(l.buffers) {
			return fmt.Errorf("%w: a schedule of %d batches at a time for a loader of %d", ErrOptions, room, len(l.buffers))
		}
		if rules.CPUBatches < rules.Batches && s.onDevice == nil {
			return fmt.Errorf("%w: by the schedule the device prepares batches, and it was not told how (PrepareOnDevice)", ErrOptions)
		}
	case s.onDevice != nil:
		workers = 0
	case s.queues != nil:
		room = QueueBuffers(s.queues.Length)
	}
	samplers, err := l.takeSamplers(s.method, workers)
	if err != nil {
		return err
	}
	// A new stream for each epoch: an error in it ends with the epoch.
	stream, err := l.o.Device.NewStream()
	if err != nil {
		return err
	}
	p := pipeline.New(ctx)
	aside := l.setAside(room)
	var memoryAside []*lent
	switch {
	case s.queues != nil:
		l.beginQueues(s.queues.Length)
	case s.schedule != nil:
		memoryAside = l.lend(rules.GPUBuffer + 2)
	}
	var batches, rows int64
	var traffic loader.Traffic
	// Deferred, since the loop body may end its goroutine.
	defer func() {
		p.Close()
		if failed := stream.Close(); err == nil {
			err = failed
		}
		// No work of the loader is left.
		for _, b := range l.buffers {
			if b.inPipeline {
				b.inPipeline = false
				b.giveDeviceBack(nil)
				l.free <- b
			}
		}
		l.lends = false
		for _, m := range memoryAside {
			l.lending <- m
		}
		for _, b := range aside {
			l.free <- b
		}
		for len(l.jobs) > 0 {
			<-l.jobs
		}
		for _, j := range l.allJobs {
			l.jobs <- j
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stats.AddEpoch(p.Times(), batches, rows)
		l.traffic.Add(traffic)
		if l.o.Cache != nil {
			if s.onDevice != nil && s.schedule == nil {
				l.o.Cache.CountFound(traffic.Rows, traffic.CachedRows)
			}
			l.lookups = l.o.Cache.Stats()
		}
	}()
	window := &cacheWindow{s: s, epoch: n}
	if err := window.begin(ctx, stream, first); err != nil {
		return err
	}
	if s.onDevice != nil {
		if err := s.onDevice.begin(ctx, stream); err != nil {
			return err
		}
	}
	next := func(b *batchBuffer) bool {
		batches, rows = batches+1, rows+int64(b.batch.Rows)
		traffic.Add(b.batch.Traffic)
		return b.yieldTo(consumer, yield)
	}
	var done *pipeline.Queue[*job]
	switch {
	case s.schedule != nil:
		loaded := window.takeLoaded()
		return s.execute(p, rules, samplers, &execution{epoch: n, first: first, stream: stream, consumer: consumer, yield: func(b *batchBuffer) bool {
			b.batch.Traffic.Add(loaded)
			loaded = loader.Traffic{}
			return next(b)
		}})
	case s.onDevice != nil:
		done = s.onDevice.stages(s.planned(p, l.jobs, n, first), window, stream)
	default:
		done = s.stages(s.sampledBy(p, samplers, l.jobs, n, first, s.sampleTimed), window, stream)
	}
	for j, err := range done.All() {
		if err != nil {
			return err
		}
		b := j.buffer
		l.jobs <- j // there is room for all
		if !next(b) {
			break
		}
	}
	return nil
}

// stages adds the stages gather and transfer.
func (s *Set) stages(sampled *pipeline.Queue[*job], window *cacheWindow, stream gds.Stream) *pipeline.Queue[*job] {
	return sampled.Then(pipeline.Stage[*job]{
		Name: "gather",
		Work: func(w *pipeline.Worker, j *job) error {
			err := window.reach(w.Context(), stream, j.plan.Index)
			if err == nil {
				err = s.gatherTimed(w, j)
			}
			if err == nil {
				j.buffer.batch.Traffic.Add(window.takeLoaded())
				j.transfer(stream)
			}
			return err
		},
	}).Then(pipeline.Stage[*job]{
		// What the stage before has enqueued goes on while that gathers the next batch.
		Name: "transfer", Queue: len(s.l.buffers),
		Work: func(w *pipeline.Worker, j *job) error {
			if err := w.Wait(j.buffer.ready); err != nil {
				return err
			}
			return s.moved(w, j)
		},
	})
}

// yieldTo passes the batch to the consumer, whose stream waits until the batch is ready. It reports
// whether the consumer wants more batches.
func (b *batchBuffer) yieldTo(consumer gds.Stream, yield func(*loader.Batch) bool) bool {
	consumer.WaitEvent(b.ready)
	b.inPipeline = false
	b.batch.Lend(b.giveBack)
	defer func() { // since the loop body may end its goroutine
		b.released = consumer.Record()
		b.batch.EndStep()
	}()
	return yield(&b.batch)
}

// trace yields the inputs of the batches from first on, which it samples for that.
func (s *Set) trace(ctx context.Context, n, first int, failed *error) iter.Seq[[]uint32] {
	return func(yield func([]uint32) bool) {
		*failed = s.visit(ctx, s.l.o.Workers, s.l.o.Samples, n, first, func(b *MiniBatch) bool { return yield(b.Inputs) })
	}
}

// visit samples the batches of epoch n from first on by so many workers, with so many samples at a time at
// most (0: any number), and calls do for each in order until it returns false.
func (s *epochs) visit(ctx context.Context, workers, samples, n, first int, do func(*MiniBatch) bool) (err error) {
	samplers := make([]Sampler, workers)
	defer func() {
		for _, sampler := range samplers {
			if sampler != nil {
				_ = sampler.Close()
			}
		}
	}()
	for i := range samplers {
		if samplers[i], err = s.method.NewSampler(); err != nil {
			return err
		}
	}
	free := make(chan *job, min(cmp.Or(samples, math.MaxInt), 2*len(samplers)+4))
	for range cap(free) {
		free <- &job{}
	}
	p := pipeline.New(ctx)
	defer p.Close()
	for j, err := range s.sampled(p, samplers, free, n, first).All() {
		if err != nil {
			return err
		}
		if !do(&j.sample) {
			return nil
		}
		free <- j
	}
	return nil
}

// cacheWindow is the batches of an epoch that Cache.Begin was last called for.
type cacheWindow struct {
	s     *Set
	epoch int
	end   int // the batch after the last

	loaded loader.Traffic // of rows that were brought into the cache, and not yet counted in a batch
}

func (c *cacheWindow) takeLoaded() loader.Traffic {
	t := c.loaded
	c.loaded = loader.Traffic{}
	return t
}

// reach begins the next window when its first batch comes.
func (c *cacheWindow) reach(ctx context.Context, stream gds.Stream, batch int) error {
	if batch < c.end {
		return nil
	}
	return c.begin(ctx, stream, batch)
}

func (c *cacheWindow) begin(ctx context.Context, stream gds.Stream, batch int) error {
	l := c.s.l
	c.end = math.MaxInt
	// Evaluation between two epochs of training leaves the cache as it is.
	if l.o.Cache == nil || c.s.plan.Order == chunk.Sequential && l.began && !l.o.Cache.Traced() {
		return nil
	}
	l.began = true
	var failed error
	load, batches := l.o.Cache.Begin(c.epoch, c.s.trace(ctx, c.epoch, batch, &failed))
	if failed != nil {
		return failed
	}
	if batches < math.MaxInt-batch {
		c.end = batch + batches
	}
	c.loaded.LoadedRows += int64(len(load.Nodes))
	c.loaded.AddBytes(l.placement(), int64(len(load.Nodes))*l.rowBytes())
	if l.rows == nil {
		return nil
	}
	err := l.rows.load(ctx, stream, load)
	if err != nil {
		l.o.Cache.Forget(load.Slots)
	}
	return err
}
