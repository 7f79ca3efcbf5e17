package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
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
	ByName  []NamedScore // those that have rows
	Overall Score
}

// Evaluate applies a trained model to several sets of rows, and judges it by the metric of its
// training. The devices share each batch, and a share has at most batchRows rows.
// Checkpoint.CheckStore tells whether the model can be applied to a store.
func Evaluate(ctx context.Context, devices []gds.Device, c *Checkpoint, batchRows int, sets []NamedRows) (result *Evaluation, err error) {
	t, err := c.Options.task(false)
	if err != nil {
		return nil, err
	}
	g, err := openTrained(devices, c, batchRows, t)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := g.close(); err == nil && closeErr != nil {
			result, err = nil, closeErr
		}
	}()
	result = &Evaluation{}
	var overall tally
	for _, s := range sets {
		if err := g.checkSets(s.Name, s.Rows); err != nil {
			return nil, err
		}
		if !hasRows(s.Rows[0]) {
			continue
		}
		_, found, err := g.evaluate(ctx, s.Rows)
		if err != nil {
			return nil, fmt.Errorf("evaluation on %s: %w", s.Name, err)
		}
		result.ByName = append(result.ByName, NamedScore{s.Name, found.score()})
		overall = addTallies(overall, found)
	}
	if overall != nil {
		result.Overall = overall.score()
	}
	return result, nil
}

// openTrained makes a group whose parameters are those of a checkpoint.
func openTrained(devices []gds.Device, c *Checkpoint, batchRows int, t task) (*group, error) {
	g, err := newGroup(devices, c.Spec, batchRows, t)
	if err != nil {
		return nil, err
	}
	err = g.eachRank(func(n *network) error {
		copy(n.scales, c.Scales)
		return n.upload(n.params.value, c.Parameters)
	})
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// evaluate computes the sum of the losses over the labelled rows of a set, and counts what
// the metric is computed from.
func (g *group) evaluate(ctx context.Context, sets []Epocher) (loss float64, found tally, err error) {
	g.resetLoss()
	for _, n := range g.ranks {
		n.meter.reset(n.stream)
	}
	if _, err = g.eachBatch(ctx, sets, 0, 0, (*network).evaluateBatch, nil); err != nil {
		return 0, nil, err
	}
	if loss, err = g.readLoss(ctx); err != nil {
		return 0, nil, err
	}
	err = g.eachRank(func(n *network) error {
		t, err := n.meter.read(ctx, n.stream)
		if err == nil {
			found = addTallies(found, t)
		}
		return err
	})
	return loss, found, err
}

// addTallies adds b to a, which may be nil.
func addTallies(a, b tally) tally {
	if a == nil {
		return b
	}
	return a.add(b)
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
