package trainer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// centring is a layer that needs all ranks, in place: in training it subtracts the mean over the
// rows of the batch on all of them, and else a running mean, which is a parameter without a gradient.
type centring struct {
	running   *parameter
	sum, mean *activation // of which the first row is used
}

func newCentring(b *builder, name string, cols int) *centring {
	l := &centring{b.parameters.declare(name+".running", 1, cols, 0), b.activation(cols), b.activation(cols)}
	l.running.fixed = true
	return l
}

func (l *centring) forward(p *pass, y gds.Tensor) {
	if !p.train {
		p.subtract(y, l.running.value, l.mean.out.Slice(0, 1))
		return
	}
	mean := l.meanOf(p, y)
	p.subtract(y, mean, l.sum.out.Slice(0, 1))
	p.Axpy(-0.5, l.running.value, l.running.value)
	p.Axpy(0.5, mean, l.running.value)
}

func (l *centring) backward(p *pass, gy gds.Tensor) {
	p.subtract(gy, l.meanOf(p, gy), l.sum.out.Slice(0, 1))
}

// meanOf is the mean of rows over all ranks.
func (l *centring) meanOf(p *pass, x gds.Tensor) gds.Tensor {
	sum, mean := l.sum.out.Slice(0, 1), l.mean.out.Slice(0, 1)
	p.SumRows(sum, 0, x)
	p.sum(sum)
	p.Fill(mean, 0)
	p.Axpy(1/float32(p.globalRows), sum, mean)
	return mean
}

func (p *pass) subtract(x, row, scratch gds.Tensor) {
	p.Fill(scratch, 0)
	p.Axpy(-1, row, scratch)
	p.AddRow(x, scratch)
}

// centred64 is centring of the rows of all ranks, in training.
func centred64(x rows64) rows64 {
	y := x.clone()
	for j := range x[0] {
		mean := 0.0
		for _, row := range x {
			mean += row[j] / float64(len(x))
		}
		for _, row := range y {
			row[j] -= mean
		}
	}
	return y
}

// meetingKind is a model of one linear layer that is used for each matrix, of centring after it, and of
// a linear layer on what comes out: its ranks meet in the middle of forward and backward, layers
// share parameters, and some parameters have no gradient.
var meetingKind = kind{
	name: "meeting", about: "for tests",
	chooseMatrices: func(input MatrixID, last []MatrixID) []MatrixID { return append(last, input) },
	settings:       []Setting{{Name: "width", Help: "number of hidden units", Default: 5, Least: 1, Below: 9, Integer: true}},
	size:           func(int) float64 { return 1 },
	build: func(s Spec, b *builder) model {
		width := s.Settings.integer("width")
		m := &meetingModel{shared: newLinear(&b.parameters, "shared", width, s.Features), logits: b.activation(s.Classes)}
		m.shared.bias.fixed = true // centring takes it out again: its gradient is rounding errors
		for i := range s.Matrices {
			m.hidden = append(m.hidden, b.activation(width))
			m.centring = append(m.centring, newCentring(b, fmt.Sprintf("centring-%d", i), width))
		}
		m.out = newLinear(&b.parameters, "out", s.Classes, width*len(s.Matrices))
		return m
	},
}

type meetingModel struct {
	shared, out *linear
	hidden      []*activation
	centring    []*centring
	logits      *activation
}

func (m *meetingModel) forward(p *pass) *activation {
	for i, h := range m.hidden {
		y, _ := h.of(p)
		m.shared.forward(p, y, p.x[i])
		m.centring[i].forward(p, y)
	}
	logits, _ := m.logits.of(p)
	m.out.forward(p, logits, m.operands(p)...)
	return m.logits
}

func (m *meetingModel) backward(p *pass) {
	_, grad := m.logits.of(p)
	m.out.backward(p, grad, m.operands(p)...)
	at := 0
	for i, h := range m.hidden {
		_, gy := h.of(p)
		p.Gemm(false, false, 1, grad, m.out.weight.value.Columns(at, at+h.cols), 0, gy)
		at += h.cols
		m.centring[i].backward(p, gy)
		m.shared.backward(p, gy, p.x[i])
	}
}

func (m *meetingModel) operands(p *pass) (xs []operand) {
	for i, h := range m.hidden {
		y, _ := h.of(p)
		xs = append(xs, operand{y, 1, i * h.cols})
	}
	return xs
}

// meetingSpec makes the model known for one test.
func meetingSpec(t *testing.T) Spec {
	known := kinds
	kinds = append(slices.Clone(kinds), meetingKind)
	t.Cleanup(func() { kinds = known })
	return Spec{Model: "meeting", Matrices: hops("sym", 1), Features: 4, Classes: 3}
}

// TestLayersMayMeetOtherRanks compares the gradient on several devices with central differences of
// the model on all rows, in float64.
func TestLayersMayMeetOtherRanks(t *testing.T) {
	spec := meetingSpec(t)
	compareOnDevices(t, spec, func(v values64, x []rows64) rows64 {
		var hidden []rows64
		shared := v.take(5*4 + 5)
		for _, m := range x {
			again := values64(shared)
			hidden = append(hidden, centred64(again.affine(5, m)))
		}
		v.take(2 * 5) // running means
		return v.affine(3, hidden...)
	})
}

// TestBatchNormalisationIsOverAllRanks does so of a model that has it.
func TestBatchNormalisationIsOverAllRanks(t *testing.T) {
	compareOnDevices(t, toyHOGA, func(v values64, x []rows64) rows64 { return logits64["hoga"](toyHOGA, v, x, 0) })
}

func compareOnDevices(t *testing.T, spec Spec, logits func(v values64, x []rows64) rows64) {
	t.Helper()
	const rows = 11
	data := noise(3, rows, len(spec.Matrices), 4, 3)
	for _, world := range []int{1, 2, 4, 13} { // of the last, two devices have no rows
		devices := openDevices(t, world)
		g, err := newGroup(devices, spec, rows, taskFor(t, true))
		if err != nil {
			t.Fatal(err)
		}
		initial := someValues(g.ranks[0].params, 4)
		var sets []Epocher
		for rank, r := range deal(devices, rows, data, nil, nil) {
			sets = append(sets, r.Train)
			if err := g.ranks[rank].upload(g.ranks[rank].params.value, initial); err != nil {
				t.Fatal(err)
			}
		}
		g.resetLoss()
		_, err = g.eachBatch(t.Context(), sets, 0, 0, func(n *network, b *loader.Batch) {
			n.gradient(b, 1)
			n.pass.meet(n.params.grad)
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		loss, err := g.readLoss(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		values := widen(initial)
		var x []rows64
		for k := range data.x {
			var m rows64
			for i := range rows {
				m = append(m, widen(data.x[k][i*4:(i+1)*4]))
			}
			x = append(x, m)
		}
		lossOf := func() float64 {
			return crossEntropy64(logits(values, x), data.labels) / rows
		}
		if want := lossOf(); math.Abs(loss/rows/want-1) > 1e-5 {
			t.Errorf("%d devices: loss %v, want %v", world, loss/rows, want)
		}
		for rank, n := range g.ranks {
			gradient, err := n.download(n.params.grad)
			if err != nil {
				t.Fatal(err)
			}
			compareLearnt(t, fmt.Sprintf(" on device %d of %d", rank, world), n.params, gradient, values, lossOf)
		}
		if err := g.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDevicesThatMeetLearnWhatOneDoes also finds that parameters without a gradient are learnt, are the
// same on all devices, do not decay, and are saved and used.
func TestDevicesThatMeetLearnWhatOneDoes(t *testing.T) {
	spec := meetingSpec(t)
	fit := func(world int) *Result {
		train, valid, test := clusters(1, 184, 2, 4, 3, 0.2), clusters(2, 65, 2, 4, 3, 0.2), clusters(3, 41, 2, 4, 3, 0.2)
		train.shuffle = true
		f, err := Start(t.Context(), deal(openDevices(t, world), 20, train, valid, test), spec, Options{Epochs: 4, LearningRate: 0.01, WeightDecay: 1, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Train(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		r, err := f.Result()
		if err != nil {
			t.Fatal(err)
		}
		for rank, n := range f.ranks {
			if values, err := n.download(n.params.best); err != nil || !sameBits(values, r.Parameters) {
				t.Errorf("device %d of %d has other parameters than the first: %v", rank, world, err)
			}
		}
		return r
	}
	alone := fit(1)
	_, declared, err := spec.normalized()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range declared.parameters.list {
		// Weights of a decay of one shrink to nothing, means of rows of a length of about one do not.
		mean := alone.Parameters[q.first]
		if q.fixed && (mean == 0 || math.IsNaN(float64(mean))) {
			t.Errorf("%s is %v", q.name, mean)
		}
	}
	for _, world := range []int{2, 3, 8} {
		r := fit(world)
		for i, e := range r.History {
			if want := alone.History[i]; math.Abs(e.TrainLoss/want.TrainLoss-1) > 1e-4 || math.Abs(e.ValidLoss/want.ValidLoss-1) > 1e-4 || *e.Valid != *want.Valid {
				t.Errorf("%d devices, epoch %d: %+v, on one %+v", world, i+1, e, want)
			}
		}
		for i, v := range r.Parameters {
			if want := alone.Parameters[i]; math.Abs(float64(v-want)) > 1e-4*(1+math.Abs(float64(want))) {
				t.Errorf("%d devices: parameter %d is %v, on one %v", world, i, v, want)
			}
		}
	}
}

func TestASumOverDevicesThatIsTooLongIsAnError(t *testing.T) {
	g, err := newGroup(openDevices(t, 2), toySGC, 4, taskFor(t, true))
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	ended := 0
	err = g.run(func(n *network) error {
		defer func() { ended++ }()
		v, err := n.mem.matrix("test", 1, n.params.count+1, gds.Float32)
		if err != nil {
			return err
		}
		if n.pass.meet(v) {
			t.Error("the program goes on")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "a sum of 16 numbers over devices, but memory for 15") || ended != 2 {
		t.Errorf("%v, %d ranks ended", err, ended)
	}
}
