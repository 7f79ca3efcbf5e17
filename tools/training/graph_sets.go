package training

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Sets are the nodes of a run.
func (g *Graph) Sets(ctx context.Context, seed uint64, test bool) (d Sets, err error) {
	d = g.sets
	if d.Valid == nil {
		if d.Valid, err = g.validation(ctx); err == nil && test {
			d.Test, err = g.InOrder(g.o.Part.Test)
		}
		if err != nil {
			return d, err
		}
	}
	switch {
	case len(g.samplers) > 0:
		sets, err := g.TrainSets(seed)
		if err != nil {
			return d, err
		}
		d.Train = nil
		for _, set := range sets {
			d.Train = append(d.Train, g.rowsOf(set))
		}
	case d.Train == nil:
		set, err := g.whole.Batch(g.o.Part.Train.List, int(g.o.Spec.Settings["layers"]))
		if err != nil {
			return d, err
		}
		d.Train = []RowSet{set}
	}
	g.sets = d
	return d, nil
}

// TrainSets are the training nodes of a run, for each device, as the schedule or the queues have them prepared.
func (g *Graph) TrainSets(seed uint64) (sets []*sampling.Set, err error) {
	for rank, s := range g.samplers {
		set, err := s.Loader.Set(g.seeds(rank), s.Method, g.order(seed, rank))
		if err != nil {
			return nil, err
		}
		if g.Schedule != nil {
			set.SetSchedule(g.Schedule.Schedule())
		}
		sets = append(sets, set)
	}
	if g.Queues != nil {
		g.Queues.Apply(sets)
	}
	return sets, nil
}

// validation is InOrder for every epoch: it computes what these nodes need, if that is far less than the whole graph.
func (g *Graph) validation(ctx context.Context) ([]RowSet, error) {
	if g.whole == nil {
		return g.InOrder(g.o.Part.Valid)
	}
	before := g.whole.AllocatedBytes()
	set, err := g.whole.Neighborhood(ctx, g.o.Part.Valid.List, InferenceRows, int(g.o.Spec.Settings["layers"]))
	if err != nil {
		return nil, err
	}
	if g.plan.terms.Set(neighborhoodTerm, need.FirstDevice, g.whole.AllocatedBytes()-before); !set.Gathers() {
		g.plan.terms.Set(validationTerm, need.FirstDevice, 0)
	}
	return g.onFirst(set, InferenceRows), nil
}

// InOrder is nodes in their order, on the first device.
func (g *Graph) InOrder(rows loader.Rows) ([]RowSet, error) {
	if g.whole == nil {
		return g.batchesInOrder(rows.List)
	}
	set, err := g.whole.Nodes(rows.List, InferenceRows)
	if err != nil {
		return nil, err
	}
	return g.onFirst(set, InferenceRows), nil
}

// sampledRows are rows that are sampled for. In order, they are numbered by their places.
type sampledRows struct {
	*sampling.Set
	first   uint32 // the node that is row 0
	batch   int    // rows of a batch, in order
	numbers gds.Tensor
}

// rowsOf are the rows of a set of nodes.
func (g *Graph) rowsOf(set *sampling.Set) *sampledRows {
	s := g.plan.graph
	return &sampledRows{Set: set, first: s.Types[s.Target()].First}
}

// batchesInOrder are rows of a typed graph in their order, for which all in-neighbours are taken.
func (g *Graph) batchesInOrder(rows []uint32) ([]RowSet, error) {
	plan := chunk.Plan{BatchRows: min(g.plan.evaluating, max(1, len(rows))), ChunkRows: 1, Order: chunk.Sequential}
	sampled, err := g.samplers[0].Loader.Set(nodesOf(g.plan.graph, rows), g.full, plan)
	if err != nil {
		return nil, err
	}
	if s := g.plan.limited(g.plan.evaluated); g.o.Schedule.Name != "" { // whose loader has more buffers
		samples := sampling.MostSamples(s.Workers, s.Buffers)
		sampled.SetSchedule(&sampling.Schedule{Rules: func(_, first int) schedule.Rules {
			return schedule.Pipelined(max(0, sampled.Batches()-first), s.Workers, samples, s.Buffers-1)
		}})
	}
	set := g.rowsOf(sampled)
	numbers := make([]uint32, len(rows))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	set.batch, set.numbers = plan.BatchRows, g.numbers.Matrix("numbers of rows", 1, len(numbers), gds.Uint32)
	if err = g.numbers.Err; err != nil {
		return nil, err
	}
	stream, err := g.devices[0].NewStream()
	if err != nil {
		return nil, err
	}
	err = gds.Upload(g.devices[0], stream, set.numbers, numbers)
	return g.onFirst(set, plan.BatchRows), errors.Join(err, stream.Close())
}

// RowNumbers are the rows of a batch.
func (s *sampledRows) RowNumbers(epoch, batch int) []uint32 {
	rows := slices.Clone(s.Set.RowNumbers(epoch, batch))
	for i := range rows {
		rows[i] -= s.first
	}
	return rows
}

// EpochFrom yields the batches of an epoch.
func (s *sampledRows) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	if s.numbers.Cols == 0 {
		return s.Set.EpochFrom(ctx, stream, n, first)
	}
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range s.Set.EpochFrom(ctx, stream, n, first) {
			if err == nil {
				b.RowNumbers = s.numbers.Columns(b.Index*s.batch, b.Index*s.batch+b.Rows)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// onFirst gives rows, in batches of so many, to the first device, and none to the others.
func (g *Graph) onFirst(set RowSet, batch int) []RowSet {
	none := idleSet{RowSet: set, batch: batch}
	for _, t := range g.plan.graph.Types {
		none.x = append(none.x, gds.NewTensor(nil, 0, t.Features, gds.Float32))
	}
	labels := loader.LabelsOf(&g.dir.Manifest)
	if none.labels = gds.NewTensor(nil, 0, labels.Columns, labels.Type); labels.Type == gds.Int32 {
		none.labels = gds.NewTensor(nil, 1, 0, labels.Type)
	}
	sets := []RowSet{set}
	for range g.devices[1:] {
		sets = append(sets, none)
	}
	return sets
}

// idleSet has no row of the batches that the first device evaluates.
type idleSet struct {
	RowSet              // of the first device
	batch  int          // rows of a batch there
	x      []gds.Tensor // of each type, without rows
	labels gds.Tensor
}

func (s idleSet) RowNumbers(int, int) []uint32 { return nil }

func (s idleSet) EpochFrom(_ context.Context, _ gds.Stream, _, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for k := first; k*s.batch < int(s.Rows()); k++ {
			rows := min(s.batch, int(s.Rows())-k*s.batch) // of all devices
			if !yield(&loader.Batch{Index: k, GlobalRows: rows, X: s.x, Labels: s.labels}, nil) {
				return
			}
		}
	}
}
