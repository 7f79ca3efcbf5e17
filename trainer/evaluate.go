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
	Rows Epocher
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

// Evaluate applies a trained model to sections, in batches of up to batchRows
// rows. See Checkpoint.Fits for whether it can be applied.
func Evaluate(ctx context.Context, dev gds.Device, c *Checkpoint, batchRows int, sections []Section) (result *Evaluation, err error) {
	n, err := newNetwork(dev, c.Spec, batchRows, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := n.close(); err == nil && closeErr != nil {
			result, err = nil, closeErr
		}
	}()
	if err := n.params.load(ctx, n.stream, c.Parameters); err != nil {
		return nil, err
	}
	copy(n.scales, c.Scales)
	result = &Evaluation{}
	for _, s := range sections {
		if !present(s.Rows) {
			continue
		}
		accuracy, err := n.evaluate(ctx, s.Rows)
		if err != nil {
			return nil, fmt.Errorf("evaluation on %s: %w", s.Name, err)
		}
		result.Sections = append(result.Sections, SectionAccuracy{s.Name, accuracy})
		result.Overall.Correct += accuracy.Correct
		result.Overall.Rows += accuracy.Rows
	}
	return result, nil
}
