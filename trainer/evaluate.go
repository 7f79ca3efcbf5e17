package trainer

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// Section is some rows to evaluate on, by name; usually a region of a store.
// Each batch holds the matrices of the checkpoint's Spec.
type Section struct {
	Name string
	Rows []Epocher // each device's share
}

// SectionAccuracy is the outcome on one section.
type SectionAccuracy struct {
	Name string
	Accuracy
}

// Evaluation is the outcome of Evaluate.
type Evaluation struct {
	Sections []SectionAccuracy // those that have rows
	Overall  Accuracy
}

// Evaluate applies a trained model to sections, on devices that share each batch,
// up to batchRows rows of it each. See Checkpoint.Fits for whether it can be applied.
func Evaluate(ctx context.Context, devices []gds.Device, c *Checkpoint, batchRows int, sections []Section) (result *Evaluation, err error) {
	g, err := newGroup(devices, c.Spec, batchRows, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := g.close(); err == nil && closeErr != nil {
			result, err = nil, closeErr
		}
	}()
	if err := g.load(ctx, c.Parameters); err != nil {
		return nil, err
	}
	g.scale(c.Scales)
	result = &Evaluation{}
	for _, s := range sections {
		if err := g.checkSets(s.Name, s.Rows); err != nil {
			return nil, err
		}
		if !present(s.Rows[0]) {
			continue
		}
		accuracy, err := g.evaluate(ctx, s.Rows)
		if err != nil {
			return nil, fmt.Errorf("evaluation on %s: %w", s.Name, err)
		}
		result.Sections = append(result.Sections, SectionAccuracy{s.Name, accuracy})
		result.Overall.Correct += accuracy.Correct
		result.Overall.Rows += accuracy.Rows
	}
	return result, nil
}
