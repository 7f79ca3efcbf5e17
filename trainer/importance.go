package trainer

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Importance is what a trained model loses without a matrix: how much worse the selected epoch predicts the validation
// rows if each row of the matrix is replaced by their mean.
type Importance struct {
	Matrix     string  `json:"matrix"`
	MetricLoss float64 `json:"metric_loss"` // by how much the metric becomes worse
	LossRise   float64 `json:"loss_rise"`   // of the validation loss
}

// MeasureImportance measures each matrix of a store that the model reads, after Train: none without validation, or of a
// model that reads a graph. It reads the validation rows once, and once more for each matrix. It needs no memory:
// instead of the matrix the layers that read it get 0, and in their biases what they make of its mean.
func (f *Fitting) MeasureImportance(ctx context.Context) error {
	s := &f.state
	best := s.History[s.Best]
	if best.Valid == nil || f.ranks[0].messages != nil {
		return nil
	}
	if err := f.measureMeans(ctx, f.valid); err != nil {
		return fmt.Errorf("means of validation rows: %w", err)
	}
	f.importance = nil
	for matrix, id := range s.Spec.Matrices {
		found, err := f.evaluateWithout(ctx, matrix)
		if err != nil {
			return fmt.Errorf("validation without %s: %w", id, err)
		}
		valid := found.score(f.task.metric).Value
		if valid == nil {
			return fmt.Errorf("validation without %s gives no %s", id, s.Options.Metric)
		}
		f.importance = append(f.importance, Importance{id.String(),
			gain(s.Options.Metric, *best.Valid) - gain(s.Options.Metric, *valid), found.meanLoss() - best.ValidLoss})
	}
	return nil
}

// measureMeans sets the means of columns of the input matrices to those of rows.
func (f *Fitting) measureMeans(ctx context.Context, rows []Epocher) error {
	for _, n := range f.ranks {
		for _, c := range n.columns {
			n.stream.Fill(c.mean, 0)
		}
	}
	_, err := f.eachBatch(ctx, rows, 0, 0, func(n *network, b *loader.Batch) {
		for i, x := range b.X {
			n.stream.SumRows(n.columns[i].mean, 1, x)
		}
	}, nil)
	if err != nil {
		return err
	}
	for i := range f.ranks[0].columns {
		mean := make([]float32, f.ranks[0].spec.Width(i))
		err := f.eachRank(func(n *network) error {
			sums, err := n.download(n.columns[i].mean)
			for j, sum := range sums {
				mean[j] += sum / float32(rows[0].Rows())
			}
			return err
		})
		if err == nil {
			err = f.eachRank(func(n *network) error { return n.upload(n.columns[i].mean, mean) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// evaluateWithout evaluates the selected parameters on the validation rows with the mean of a matrix in place of its
// rows.
func (f *Fitting) evaluateWithout(ctx context.Context, matrix int) (evaluated, error) {
	for _, n := range f.ranks {
		n.stream.Copy(n.params.value, n.params.best)
		n.eachRead(func(l *inputLayer, r read, scale float32, mean gds.Tensor) {
			if r.matrix == matrix {
				n.addMean(l, r, scale, mean)
			}
		})
		scale := n.scales[matrix]
		n.scales[matrix] = 0
		defer func() { n.scales[matrix] = scale }()
	}
	return f.evaluate(ctx, "validation rows without "+f.state.Spec.Matrices[matrix].String(), f.valid)
}
