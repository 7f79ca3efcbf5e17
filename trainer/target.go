package trainer

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// Target is the kind of labels that a model predicts for a row.
type Target string

const (
	ClassTarget  Target = ""            // one of Spec.Classes classes; labels int32 [1,rows]
	LabelsTarget Target = "multi-label" // which of Spec.Classes labels it has; labels int8 [rows, Spec.Classes]
	ValuesTarget Target = "values"      // Spec.Classes numbers (regression); labels float32 [rows, Spec.Classes]
)

// targets says what labels a target has, what one and several of them are called, the loss and the metric that are used
// by default, and what Predict gives.
var targets = map[Target]struct {
	labels       gds.DType
	one, several string
	loss, metric string
	outputs      Outputs
}{
	ClassTarget:  {gds.Int32, "class", "classes", "cross-entropy", "accuracy", ClassOutputs},
	LabelsTarget: {gds.Int8, "label", "labels", "bce", "micro-f1", LabelOutputs},
	ValuesTarget: {gds.Float32, "value", "values", "mse", "mse", ValueOutputs},
}

// Outputs says in words what the outputs of a model for a row are.
func (s Spec) Outputs() string {
	if s.Classes == 1 {
		return "1 " + targets[s.Target].one
	}
	return fmt.Sprintf("%d %s", s.Classes, targets[s.Target].several)
}

// labelBytes is the size of the labels of a batch.
func (s Spec) labelBytes(rows int) int64 {
	columns := s.Classes
	if s.Target == ClassTarget {
		columns = 1
	}
	return gds.Bytes(rows, columns, targets[s.Target].labels)
}

// checkLabels returns an error unless the labels of a batch fit the target.
func (s Spec) checkLabels(labels gds.Tensor) error {
	if want := targets[s.Target].labels; labels.DType != want || s.Target != ClassTarget && labels.Cols != s.Classes {
		return fmt.Errorf("labels %v, but %s was made for %s (%v)", labels, s.Model, s.Outputs(), want)
	}
	return nil
}

// rescaled is the last layer of a model of values. The layers before put out numbers of about one, which are multiplied
// by a unit and moved by a mean: standard deviation and mean of the training labels, by column. So a learning rate
// means the same for values of any size, and the model puts out what the labels are.
type rescaled struct{ mean, unit *parameter }

// rescale makes the model of a builder one of values.
func (b *builder) rescale(s Spec) {
	b.rescaled = &rescaled{b.params.declare("target.mean", 1, s.Classes, 0),
		b.params.declare("target.unit", 1, s.Classes, 0)}
	b.rescaled.mean.fixed, b.rescaled.unit.fixed = true, true
	y, m := b.logits, b.rescaled
	b.add(func(p *pass) {
		p.MulRow(y.value(p), m.unit.value)
		p.AddRow(y.value(p), m.mean.value)
	}, func(p *pass) { p.MulRow(y.gradient(p), m.unit.value) })
}

// measure sets mean and unit, in the parameters of a run, to mean and standard deviation of the labels of a batch,
// given the ranks' shares; to 0 and 1 if there are none.
func (m *rescaled) measure(g *group, shares []*loader.Batch, parameters []float32) error {
	columns := m.mean.cols
	count, mean, squares := make([]float64, columns), make([]float64, columns), make([]float64, columns)
	var labels []float32
	err := g.eachRank(func(n *network) error {
		b := shares[n.rank]
		own := make([]float32, b.Rows*columns)
		err := gds.Download(n.mem.Device, n.stream, own, b.Labels)
		labels = append(labels, own...)
		return err
	})
	each := func(do func(j int, v float64)) {
		for i, v := range labels {
			if v == v {
				do(i%columns, float64(v))
			}
		}
	}
	each(func(j int, v float64) { count[j]++; mean[j] += v })
	for j := range mean {
		mean[j] /= max(count[j], 1)
	}
	each(func(j int, v float64) { squares[j] += float64((v - mean[j]) * (v - mean[j])) })
	for j := range mean {
		unit := float32(math.Sqrt(squares[j] / max(count[j], 1)))
		if !(unit > 0 && unit <= math.MaxFloat32) {
			unit = 1
		}
		parameters[m.mean.first+j], parameters[m.unit.first+j] = float32(mean[j]), unit
	}
	return err
}
