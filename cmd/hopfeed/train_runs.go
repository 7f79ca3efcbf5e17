package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// runs is the runs of a training on one input.
type runs struct {
	app   *app
	o     *trainOptions
	spec  trainer.Spec
	store *format.Dir
	part  session.Partition
	input training.Input
	saver *checkpoint.Saver

	rows         [3]int64 // of a run: train, valid, test
	read, remote int64    // training rows in all runs that finished here, and how many of them another device held
}

// runAll makes all runs that were not made before. It ends with the first that fails, unless that diverges.
func (t *runs) runAll(ctx context.Context) error {
	done := len(t.saver.Runs)
	if t.saver.Resume != nil {
		done--
	}
	for i := done; i < t.o.runs; i++ {
		if err := t.run(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// finishedRuns are the runs that have finished, now or before.
func finishedRuns(all []checkpoint.Run) (finished []checkpoint.Run) {
	for _, r := range all {
		if r.State == checkpoint.RunFinished {
			finished = append(finished, r)
		}
	}
	return finished
}

// run makes run i.
func (t *runs) run(ctx context.Context, i int) error {
	a, o, seed := t.app, t.o, t.app.seed+uint64(i)
	d, err := t.input.Sets(ctx, seed, !o.NoTest)
	if err != nil {
		return err
	}
	if t.rows[0] == 0 {
		t.rows = [3]int64{d.Train[0].Rows(), d.Valid[0].Rows(), d.TestRows()}
		a.note("rows: %d train, %d valid, %d test", t.rows[0], t.rows[1], t.rows[2])
		o.noteLabels(a)
		if o.Labels[1].Labelled == 0 && o.Patience > 0 {
			o.Patience = 0
			a.note("there are no labelled validation rows: --patience is off, and the last epoch is selected")
		}
		a.note("settings: %s; seed %d", o.Text(), a.seed)
	}
	label := ""
	if o.runs > 1 {
		label = fmt.Sprintf("run %d of %d, ", i+1, o.runs)
	}
	ranks, state := d.Ranks(t.input), t.saver.Resume
	for i := range ranks {
		ranks[i].TrainLabelled = o.Labels[0].Labelled
	}
	t.saver.BeginRun(seed)
	options := o.Options
	options.Seed = seed
	var f *trainer.Fitting
	if state != nil {
		f, err = trainer.Resume(ranks, state)
	} else {
		f, err = trainer.Start(ctx, ranks, t.spec, options)
	}
	if err != nil {
		err = t.input.Explain(err)
		t.saver.EndRun(ctx, nil, nil, err)
		return err
	}
	if graph, ok := t.input.(*training.Graph); ok && graph.Queues != nil {
		f.Time(graph.Queues.Times())
	}
	err = t.train(ctx, f, a.reportEpochs(label, o.Metric, o.Epochs))
	r, resultErr := f.Result()
	err = t.input.Explain(t.nameRows(ctx, d.Train, cmp.Or(err, resultErr)))
	t.saver.EndRun(ctx, f, r, err)
	err = cmp.Or(err, f.Close())
	if errors.Is(err, trainer.ErrDiverged) {
		a.note("%s%s", label, err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, set := range d.Train {
		read, remote := set.Remote()
		t.read, t.remote = t.read+read, t.remote+remote
	}
	return nil
}

// train trains, and saves the run from time to time: at ends of epochs and, where these are long, between
// two batches.
func (t *runs) train(ctx context.Context, f *trainer.Fitting, note func(trainer.Epoch)) error {
	s := t.saver
	for {
		err := f.TrainUntil(ctx, s.Due, func(e trainer.Epoch, _ func() (*trainer.Result, error)) {
			note(e)
			s.RecordEpoch(e)
			if s.Due() {
				s.SaveRun(f)
			}
		})
		if !errors.Is(err, trainer.ErrPaused) {
			return err
		}
		s.SaveRun(f)
	}
}

// namedNodes is how many nodes of a batch an error names.
const namedNodes = 20

// nameRows adds to the error of a training that has diverged the nodes whose rows are in the batch where
// it was found.
func (t *runs) nameRows(ctx context.Context, sets []training.RowSet, err error) error {
	var d *trainer.DivergedError
	if !errors.As(err, &d) {
		return err
	}
	var rows []uint32
	for _, set := range sets {
		rows = append(rows, set.RowNumbers(d.Epoch-1, d.Batch)...)
	}
	slices.Sort(rows)
	var nodes []uint32
	// Rows come in order.
	readErr := t.store.VisitRows(ctx, func(table *format.RowTable, first int64) {
		for len(rows) > 0 && int64(rows[0]) < first+table.Rows {
			node := rows[0] // of a graph
			if table.NodeID != nil {
				node = table.NodeID[int64(node)-first]
			}
			nodes, rows = append(nodes, node), rows[1:]
		}
	})
	if readErr != nil {
		return err
	}
	slices.Sort(nodes)
	text := fmt.Sprint(nodes[:min(namedNodes, len(nodes))])
	if n := len(nodes) - namedNodes; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%w; the batch is of the nodes %s", err, text)
}

// matrices are the names of those that the model reads.
func (t *runs) matrices() (names []string) {
	for _, id := range t.spec.Matrices {
		names = append(names, id.String())
	}
	return names
}

// reportEpochs prints an epoch every two seconds, and the last.
func (a *app) reportEpochs(label, metric string, epochs int) func(trainer.Epoch) {
	const gap = 2 * time.Second
	last := time.Now()
	return func(e trainer.Epoch) {
		if now := time.Now(); now.Sub(last) >= gap || e.Number == epochs {
			last = now
			a.note("%sepoch %d of %d: loss %s, valid %s, %.4f s", label, e.Number, epochs, lossText(e.TrainLoss), metricText(metric, e.Valid), e.Seconds)
		}
	}
}

// noteLabels says which rows do not count, as they have no label.
func (o *trainOptions) noteLabels(a *app) {
	for i, part := range []string{"training", "validation", "test"} {
		n := o.Labels[i]
		switch missing := n.Rows - n.Labelled; {
		case missing == 0 || part == "test" && o.NoTest:
		case n.Labelled == 0:
			a.note("0 of the %s have a label: there is no %s metric", units.Count(n.Rows, part+" row"), part)
		default:
			a.note("%d of the %s have no label, and do not count", missing, units.Count(n.Rows, part+" row"))
		}
	}
}
