package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/loader"
)

// NamedRows is rows to evaluate a model on, and their name in results, usually that of a
// region. Each batch holds the matrices of the checkpoint's Spec.
type NamedRows struct {
	Name string
	Rows []Epocher // each device's share
}

// NamedScore is the score on NamedRows.
type NamedScore struct {
	Name string
	Score
}

// Evaluation is the result of Evaluate.
type Evaluation struct {
	ByName  []NamedScore // without the sets that have no rows
	Overall Score
}

// Evaluate applies a trained model to several sets of rows, and judges it by the metric of its
// training. The devices share each batch, and a share has at most batchRows rows.
// Checkpoint.CheckStore tells whether the model can be applied to a store. show is told of what takes long.
func Evaluate(ctx context.Context, devices []gds.Device, model *Trained, batchRows int, sets []NamedRows,
	show progress.Reporter) (result *Evaluation, err error) {
	t, err := model.Options.task(model.Spec, false)
	if err != nil {
		return nil, err
	}
	g, err := openTrained(devices, model, batchRows, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, g.close()) }()
	result = &Evaluation{}
	var overall evaluated
	g.progress = show
	err = g.eachSet("evaluation", sets, func(s NamedRows) error {
		found, err := g.evaluate(ctx, "evaluation of "+s.Name+" rows", s.Rows)
		if err == nil {
			result.ByName = append(result.ByName, NamedScore{s.Name, found.score(t.metric)})
			overall = overall.add(found)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Overall = overall.score(t.metric)
	return result, nil
}

// eachSet calls do for the sets that have rows; doing names it in errors.
func (g *group) eachSet(doing string, sets []NamedRows, do func(s NamedRows) error) error {
	for _, s := range sets {
		if err := g.checkSets(s.Name, s.Rows); err != nil {
			return err
		}
		if !hasRows(s.Rows[0]) {
			continue
		}
		if err := do(s); err != nil {
			return fmt.Errorf("%s of %s: %w", doing, s.Name, err)
		}
	}
	return nil
}

// openTrained makes a group with the parameters of a trained model.
func openTrained(devices []gds.Device, model *Trained, batchRows int, t task) (*group, error) {
	g, err := newGroup(devices, model.Spec, batchRows, t)
	if err != nil {
		return nil, err
	}
	err = g.eachRank(func(n *network) error {
		copy(n.scales, model.Scales)
		return n.upload(n.params.value, model.Parameters)
	})
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// evaluate computes the sum of the losses over the labelled rows of a set, and counts what the metric is computed from.
// doing names it in progress.
func (g *group) evaluate(ctx context.Context, doing string, sets []Epocher) (found evaluated, err error) {
	g.resetLoss()
	for _, n := range g.ranks {
		n.meter.reset(n.stream)
	}
	shown := shownRows{show: g.progress, doing: doing, of: sets[0].Rows(), begun: time.Now()}
	defer shown.end()
	g.evaluated = 0
	_, err = g.eachBatch(ctx, sets, 0, 0, (*network).evaluateBatch, func(b *loader.Batch) error {
		g.evaluated += int64(b.GlobalRows)
		shown.update(g.evaluated)
		return nil
	})
	if err != nil {
		return found, err
	}
	err = g.eachRank(func(n *network) error {
		loss, err := n.readLoss(ctx)
		if err != nil {
			return err
		}
		t, err := n.meter.read(ctx, n.stream)
		if err == nil {
			found = found.add(evaluated{float64(loss), t})
		}
		return err
	})
	return found, err
}

// shownRows shows how many rows are done, once that has taken shownAfter: most evaluations are over before.
type shownRows struct {
	show     progress.Reporter // nil: nobody is told
	doing    string
	of, done int64
	begun    time.Time
	task     progress.Task // nil: not shown yet
}

const shownAfter = 2 * time.Second

func (s *shownRows) update(done int64) {
	if s.task == nil && s.show != nil && time.Since(s.begun) >= shownAfter {
		s.task, s.done = s.show.Start(s.doing, s.of, progress.Items), 0
	}
	if s.task != nil {
		s.task.Add(done - s.done)
		s.done = done
	}
}

func (s *shownRows) end() {
	if s.task != nil {
		s.task.Done()
	}
}

// resetLoss sets the sums of losses to zero.
func (g *group) resetLoss() {
	for _, n := range g.ranks {
		n.stream.Fill(n.lossSum, 0)
	}
}

// readLoss waits for all work, and adds up the losses of all ranks.
func (g *group) readLoss(ctx context.Context) (loss float64, err error) {
	err = g.eachRank(func(n *network) error {
		sum, err := n.readLoss(ctx)
		loss += float64(sum)
		return err
	})
	return loss, err
}
