package trainer

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// NamedRows is rows to evaluate a model on, and their name in results, usually that of a
// region. Each batch holds the matrices of the checkpoint's Spec.
type NamedRows struct {
	Name string
	Rows []Epocher // each device's share
}

// NamedAccuracy is the accuracy on NamedRows.
type NamedAccuracy struct {
	Name string
	Accuracy
}

// Evaluation is the result of Evaluate.
type Evaluation struct {
	ByName  []NamedAccuracy // those that have rows
	Overall Accuracy
}

// Evaluate applies a trained model to several sets of rows. The devices share each batch, and
// a share has at most batchRows rows. Checkpoint.CheckStore tells whether the model can be
// applied to a store.
func Evaluate(ctx context.Context, devices []gds.Device, c *Checkpoint, batchRows int, sets []NamedRows) (result *Evaluation, err error) {
	g, err := newGroup(devices, c.Spec, batchRows, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := g.close(); err == nil && closeErr != nil {
			result, err = nil, closeErr
		}
	}()
	if err := g.loadParameters(c.Parameters); err != nil {
		return nil, err
	}
	g.setScales(c.Scales)
	result = &Evaluation{}
	for _, s := range sets {
		if err := g.checkSets(s.Name, s.Rows); err != nil {
			return nil, err
		}
		if !hasRows(s.Rows[0]) {
			continue
		}
		_, accuracy, err := g.evaluate(ctx, s.Rows)
		if err != nil {
			return nil, fmt.Errorf("evaluation on %s: %w", s.Name, err)
		}
		result.ByName = append(result.ByName, NamedAccuracy{s.Name, accuracy})
		result.Overall.Correct += accuracy.Correct
		result.Overall.Rows += accuracy.Rows
	}
	return result, nil
}
