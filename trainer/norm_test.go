package trainer

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

// batchNormFixture is a batch normalisation of two columns, by itself, in an epoch of 1000 rows.
type batchNormFixture struct {
	*testing.T
	n     *network
	layer *batchNorm
	x, y  gds.Tensor
}

func newBatchNormFixture(t *testing.T) *batchNormFixture {
	b := &builder{}
	f := &batchNormFixture{T: t, layer: newBatchNorm(b, "norm", 2)}
	f.n = &network{task: taskFor(t, true), builder: *b, batchRows: 1000,
		mem: memory{dev: openDevice(t, host.Options{})}, spec: Spec{Features: 1}}
	if err := f.n.allocate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.n.close(); err != nil {
			t.Error(err)
		}
	})
	for _, to := range []*gds.Tensor{&f.x, &f.y} {
		var err error
		if *to, err = matrixOf(&f.n.mem, "test", 1000, 2, gds.Float32); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.n.upload(f.n.params.value, f.n.params.initial(1)); err != nil {
		t.Fatal(err)
	}
	return f
}

// forward normalises the rows first, first+1, ... in both columns, and returns what comes out.
func (f *batchNormFixture) forward(first float32, rows int, train bool) []float32 {
	f.Helper()
	var in []float32
	for i := range rows {
		in = append(in, first+float32(i), first+float32(i))
	}
	p := &pass{Stream: f.n.stream, rows: rows, globalRows: rows, trainRows: 1000, train: train,
		meet: func(gds.Tensor) bool { return true }}
	if err := gds.Upload(f.n.mem.dev, f.n.stream, f.x.Slice(0, rows), in); err != nil {
		f.Fatal(err)
	}
	f.layer.forward(p, f.y.Slice(0, rows), f.x.Slice(0, rows))
	out := make([]float32, 2*rows)
	if err := gds.Download(f.n.mem.dev, f.n.stream, out, f.y.Slice(0, rows)); err != nil {
		f.Fatal(err)
	}
	return out
}

// running is the mean and the variance that are used outside of training.
func (f *batchNormFixture) running() (mean, variance float64) {
	f.Helper()
	values, err := f.n.download(f.n.params.value)
	if err != nil {
		f.Fatal(err)
	}
	return float64(values[f.layer.mean.first]), float64(values[f.layer.variance.first])
}

func TestRunningStatisticsForgetWhatWasBefore(t *testing.T) {
	f := newBatchNormFixture(t)
	for range 10 {
		f.forward(10, 100, true)
	}
	// The mean of 10 ... 109, and their variance; half of the initial mean of zero and variance of
	// one is left after each batch of a tenth of an epoch.
	wantMean, wantVariance, rest := 59.5, (100.*100-1)/12*100/99, 1./(1<<10)
	wantMean, wantVariance = wantMean*(1-rest), wantVariance*(1-rest)+rest
	if mean, variance := f.running(); math.Abs(mean/wantMean-1) > 1e-5 || math.Abs(variance/wantVariance-1) > 1e-5 {
		t.Errorf("mean %v and variance %v, want %v and %v", mean, variance, wantMean, wantVariance)
	}
	// A short batch far away counts by its rows.
	f.forward(1000, 2, true)
	share := 2. / 102
	wantMean += share * (1000.5 - wantMean)
	if mean, _ := f.running(); math.Abs(mean/wantMean-1) > 1e-5 {
		t.Errorf("mean %v after a batch of two rows, want %v", mean, wantMean)
	}
	// What is normalised otherwise is by these.
	mean, variance := f.running()
	for i, y := range f.forward(7, 3, false) {
		if want := (7 + float64(i/2) - mean) / math.Sqrt(variance+normEpsilon); math.Abs(float64(y)-want) > 1e-5 {
			t.Errorf("row %d becomes %v, want %v", i/2, y, want)
		}
	}
}

func TestABatchOfOneRowIsNormalisedByRunningStatistics(t *testing.T) {
	f := newBatchNormFixture(t)
	f.forward(10, 100, true)
	mean, variance := f.running()
	y := f.forward(70, 1, true)
	if want := (70 - mean) / math.Sqrt(variance+normEpsilon); math.Abs(float64(y[0])-want) > 1e-5 || y[0] != y[1] {
		t.Errorf("the row becomes %v, want %v", y, want)
	}
	if m, v := f.running(); m != mean || v != variance {
		t.Errorf("mean %v and variance %v have become %v and %v", mean, variance, m, v)
	}
	// They are constants of the backward pass.
	p := &pass{Stream: f.n.stream, rows: 1, globalRows: 1, train: true,
		meet: func(gds.Tensor) bool { t.Error("there is a meeting"); return true }}
	grad := f.y.Slice(0, 1)
	if err := gds.Upload(f.n.mem.dev, f.n.stream, grad, []float32{3, -2}); err != nil {
		t.Fatal(err)
	}
	f.layer.backward(p, grad, grad, f.x.Slice(0, 1))
	got := make([]float32, 2)
	if err := gds.Download(f.n.mem.dev, f.n.stream, got, grad); err != nil {
		t.Fatal(err)
	}
	for j, g := range []float64{3, -2} {
		if want := g / math.Sqrt(variance+normEpsilon); math.Abs(float64(got[j])-want) > 1e-6 {
			t.Errorf("gradient %v, want %v", got[j], want)
		}
	}
}
