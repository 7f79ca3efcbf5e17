package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// training is the runs of a training in one session.
type training struct {
	app     *app
	o       *trainOptions
	spec    trainer.Spec
	part    session.Partition
	session *session.Session
	saver   *saver

	rows         [3]int64          // of a run: train, valid, test
	finished     []*trainer.Result // without the parameters, which the saver keeps, of the best
	read, remote int64             // training rows in all of these, and how many of them another device held
}

// runAll makes all runs. It ends with the first that fails, unless that diverges.
func (t *training) runAll(ctx context.Context) error {
	for i := range t.o.runs {
		if err := t.run(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// run makes run i.
func (t *training) run(ctx context.Context, i int) error {
	a, o, seed := t.app, t.o, t.app.seed+uint64(i)
	d, err := openRowSets(t.session, t.part, seed)
	if err != nil {
		return err
	}
	if i == 0 {
		t.rows = [3]int64{d.train[0].Rows(), d.valid[0].Rows(), d.test[0].Rows()}
		a.note("rows: %d train, %d valid, %d test", t.rows[0], t.rows[1], t.rows[2])
		if t.rows[1] == 0 && o.Patience > 0 {
			o.Patience = 0
			a.note("there are no validation rows: --patience is off, and the last epoch is selected")
		}
		a.note("settings: %s; seed %d", o.Text(), a.seed)
	}
	label := ""
	if o.runs > 1 {
		label = fmt.Sprintf("run %d of %d, ", i+1, o.runs)
	}
	note := a.reportEpochs(label, o.Epochs)
	t.saver.beginRun(seed)
	r, err := trainer.Fit(ctx, d.ranks(t.session), t.spec, trainer.Options{
		Epochs: o.Epochs, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
		Seed: seed, EvalEvery: o.EvalEvery, Patience: o.Patience,
	}, func(e trainer.Epoch, best func() (*trainer.Result, error)) {
		note(e)
		t.saver.recordEpoch(e, best)
	})
	t.saver.endRun(ctx, r, err)
	if errors.Is(err, trainer.ErrDiverged) {
		a.note("%s%s", label, err)
		return nil
	}
	if err != nil {
		return err
	}
	figures := *r
	figures.Parameters = nil
	t.finished = append(t.finished, &figures)
	for _, set := range d.train {
		read, remote := set.Remote()
		t.read, t.remote = t.read+read, t.remote+remote
	}
	return nil
}

// matrices are the names of those that the model reads.
func (t *training) matrices() (names []string) {
	for _, id := range t.spec.Matrices {
		names = append(names, id.String())
	}
	return names
}

// rowSets are the rows of one run: of each kind, a set for each device.
type rowSets struct{ train, valid, test []*loader.Set }

// openRowSets makes the sets of one run.
func openRowSets(s *session.Session, p session.Partition, seed uint64) (d rowSets, err error) {
	for _, set := range []struct {
		to    *[]*loader.Set
		rows  loader.Rows
		order chunk.Order
	}{
		{&d.train, p.Train, chunk.Shuffled},
		{&d.valid, p.Valid, chunk.Sequential},
		{&d.test, p.Test, chunk.Sequential},
	} {
		if *set.to, err = s.Sets(set.rows, set.order, seed); err != nil {
			return d, err
		}
	}
	return d, nil
}

// ranks pairs each device of the session with its sets.
func (d rowSets) ranks(s *session.Session) []trainer.Rank {
	ranks := make([]trainer.Rank, len(s.Devices))
	for i, device := range s.Devices {
		ranks[i] = trainer.Rank{Device: device, Data: trainer.Data{
			Train: d.train[i], Valid: d.valid[i], Test: d.test[i], BatchRows: s.ShareRows(),
		}}
	}
	return ranks
}

// reportEpochs prints an epoch every two seconds, and the last.
func (a *app) reportEpochs(label string, epochs int) func(trainer.Epoch) {
	const gap = 2 * time.Second
	last := time.Now()
	return func(e trainer.Epoch) {
		if now := time.Now(); now.Sub(last) >= gap || e.Number == epochs {
			last = now
			a.note("%sepoch %d of %d: loss %s, valid %s, %.4f s", label, e.Number, epochs, lossText(e.TrainLoss), percent(e.Valid), e.Seconds)
		}
	}
}
