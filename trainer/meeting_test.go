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

// TestLayersMayMeetOtherRanks compares the gradient of a model with batch normalisation on several
// devices with central differences of the model on all rows, in float64.
func TestLayersMayMeetOtherRanks(t *testing.T) {
	const rows = 11
	spec := toyHOGA
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
			return crossEntropy64(logits64[spec.Model](spec, values, x, 1), data.labels) / rows
		}
		if want := lossOf(); math.Abs(loss/rows/want-1) > 1e-5 {
			t.Errorf("%d devices: loss %v, want %v", world, loss/rows, want)
		}
		var first []float32
		for rank, n := range g.ranks {
			gradient, err := n.download(n.params.grad)
			if err != nil {
				t.Fatal(err)
			}
			if rank == 0 {
				first = gradient
				compareLearnt(t, fmt.Sprintf(" on %d devices", world), n.params, gradient, values, lossOf)
			} else if !slices.Equal(gradient, first) {
				t.Errorf("device %d of %d has another gradient than the first", rank, world)
			}
		}
		if err := g.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatLayersSetIsTheSameOnAllDevices is about parameters that are not learnt: running means and
// variances, and what centring adds.
func TestWhatLayersSetIsTheSameOnAllDevices(t *testing.T) {
	spec := toyHOGA
	_, declared, err := spec.normalized()
	if err != nil {
		t.Fatal(err)
	}
	initial := declared.params.initial(3)
	for _, world := range []int{1, 2, 8} {
		train, valid := clusters(1, 184, 3, 4, 3, 0.2), clusters(2, 65, 3, 4, 3, 0.2)
		f, err := Start(t.Context(), deal(openDevices(t, world), 20, train, valid, nil), spec,
			Options{Epochs: 4, LearningRate: 0.01, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
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
		for _, q := range declared.params.list {
			if lo, hi := q.first, q.first+q.rows*q.cols; q.fixed && sameBits(r.Parameters[lo:hi], initial[lo:hi]) {
				t.Errorf("%s on %d devices is what it was before training", q.name, world)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
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
		v, err := matrixOf(&n.mem, "test", 1, n.params.count+1, gds.Float32)
		if err != nil {
			return err
		}
		if n.pass.meet(v) {
			t.Error("the program goes on")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "a sum of 16 numbers over devices, but memory for 15") ||
		ended != 2 {
		t.Errorf("%v, %d ranks ended", err, ended)
	}
}
