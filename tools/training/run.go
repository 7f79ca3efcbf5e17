package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// Runs makes the runs of a training on one input.
type Runs struct {
	Request *Request
	Spec    trainer.Spec
	Dir     *format.Dir
	Input   Input
	Saver   *checkpoint.Saver
	Count   int
	Seed    uint64 // of the first run; each next one has the next
	// Note tells the user something; Epoch is told of each epoch of a run, and of the run in words.
	Note  func(format string, args ...any)
	Epoch func(label string, e trainer.Epoch)
	// Progress is told of validations and tests that take long; nil: nobody is.
	Progress progress.Reporter

	Rows         [3]int64 // of a run: train, valid, test
	Read, Remote int64    // training rows in all runs that finished here, and how many of them another device held
}

// All makes all runs that were not made before. It ends with the first that fails, unless that diverges.
func (t *Runs) All(ctx context.Context) error {
	done := len(t.Saver.Runs)
	if t.Saver.Resume != nil {
		done--
	}
	for i := done; i < t.Count; i++ {
		if err := t.run(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Runs) run(ctx context.Context, i int) error {
	o, seed := t.Request, t.Seed+uint64(i)
	d, err := t.Input.Sets(ctx, seed, !o.NoTest)
	if err != nil {
		return err
	}
	if t.Rows[0] == 0 {
		t.Rows = [3]int64{d.Train[0].Rows(), d.Valid[0].Rows(), d.TestRows()}
		t.Note("rows: %d train, %d valid, %d test", t.Rows[0], t.Rows[1], t.Rows[2])
		t.noteLabels()
		if o.Labels[1].Labelled == 0 && o.Patience > 0 {
			o.Patience = 0
			t.Note("there are no labelled validation rows: --patience is off, and the last epoch is selected")
		}
		t.Note("settings: %s; seed %d", o.Text(), t.Seed)
	}
	label := ""
	if t.Count > 1 {
		label = fmt.Sprintf("run %d of %d, ", i+1, t.Count)
	}
	ranks, state := d.Ranks(t.Input), t.Saver.Resume
	for i := range ranks {
		ranks[i].TrainLabelled = o.Labels[0].Labelled
	}
	t.Saver.BeginRun(seed)
	options := o.Options
	options.Seed = seed
	var f *trainer.Fitting
	if state != nil {
		f, err = trainer.Resume(ranks, state)
	} else {
		f, err = trainer.Start(ctx, ranks, t.Spec, options)
	}
	if err != nil {
		err = t.Input.Explain(err)
		t.Saver.EndRun(ctx, nil, nil, err)
		return err
	}
	if graph, ok := t.Input.(*Graph); ok && graph.Queues != nil {
		f.Time(graph.Queues.Times())
	} else if ok {
		f.Time(trainer.QueueTimes{Pace: graph.Pace()})
	}
	f.Show(t.Progress)
	err = t.train(ctx, f, func(e trainer.Epoch) { t.Epoch(label, e) })
	if err == nil && o.Importance && !o.NoTest {
		err = f.MeasureImportance(ctx)
	}
	r, resultErr := f.Result()
	if o.Importance && r != nil && r.ValidMetric == nil {
		t.Note("there are no labelled validation rows: the importance of matrices is not measured")
	}
	err = t.Input.Explain(t.nameRows(ctx, d.Train, cmp.Or(err, resultErr)))
	t.Saver.EndRun(ctx, f, r, err)
	err = cmp.Or(err, f.Close())
	if errors.Is(err, trainer.ErrDiverged) {
		t.Note("%s%s", label, err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, set := range d.Train {
		if set, ok := set.(*loader.Set); ok {
			read, remote := set.Remote()
			t.Read, t.Remote = t.Read+read, t.Remote+remote
		}
	}
	return nil
}

// train trains, and saves the run from time to time: at ends of epochs and, where these are long, between two batches.
func (t *Runs) train(ctx context.Context, f *trainer.Fitting, note func(trainer.Epoch)) error {
	s := t.Saver
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

const namedNodes = 20

// nameRows adds to the error of a training that has diverged the nodes whose rows are in the batch where it was found.
func (t *Runs) nameRows(ctx context.Context, sets []RowSet, err error) error {
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
	readErr := t.Dir.VisitRows(ctx, func(table *format.RowTable, first int64) {
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

// noteLabels says which rows do not count, as they have no label.
func (t *Runs) noteLabels() {
	o := t.Request
	for i, part := range []string{"training", "validation", "test"} {
		n := o.Labels[i]
		switch missing := n.Rows - n.Labelled; {
		case missing == 0 || part == "test" && o.NoTest:
		case n.Labelled == 0:
			t.Note("0 of the %s have a label: there is no %s metric", units.Count(n.Rows, part+" row"), part)
		default:
			t.Note("%d of the %s have no label, and do not count", missing, units.Count(n.Rows, part+" row"))
		}
	}
}
