package trainer

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
)

// batchNormFixture is a batch normalisation of two columns, by itself, in an epoch of 1000 rows.
type batchNormFixture struct{ *layerFixture }

func newBatchNormFixture(t *testing.T) batchNormFixture {
	f := newLayerFixture(t, 1000, 2, func(b *builder, x *activation) *activation { return b.batchNorm("norm", x) })
	f.upload(f.n.params.value, f.n.params.initial(1))
	return batchNormFixture{f}
}

// normalize normalises the rows first, first+1, ... in both columns, and returns what comes out.
func (f batchNormFixture) normalize(first float32, rows int, train bool) []float32 {
	f.Helper()
	var in []float32
	for i := range rows {
		in = append(in, first+float32(i), first+float32(i))
	}
	p := f.pass(rows, train)
	f.upload(f.x.value(p), in)
	f.forward(p)
	return f.download(f.y.value(p))
}

// running is the mean and the variance that are used outside of training.
func (f batchNormFixture) running() (mean, variance float64) {
	f.Helper()
	values := f.download(f.n.params.value)
	first := map[string]int{}
	for _, q := range f.n.params.list {
		first[q.name] = q.first
	}
	return float64(values[first["norm.running_mean"]]), float64(values[first["norm.running_var"]])
}

func TestRunningStatisticsForgetWhatWasBefore(t *testing.T) {
	f := newBatchNormFixture(t)
	for range 10 {
		f.normalize(10, 100, true)
	}
	// The mean of 10 ... 109, and their variance; half of the initial mean of zero and variance of
	// one is left after each batch of a tenth of an epoch.
	wantMean, wantVariance, rest := 59.5, (100.*100-1)/12*100/99, 1./(1<<10)
	wantMean, wantVariance = wantMean*(1-rest), wantVariance*(1-rest)+rest
	if mean, variance := f.running(); math.Abs(mean/wantMean-1) > 1e-5 || math.Abs(variance/wantVariance-1) > 1e-5 {
		t.Errorf("mean %v and variance %v, want %v and %v", mean, variance, wantMean, wantVariance)
	}
	// A short batch far away counts by its rows.
	f.normalize(1000, 2, true)
	share := 2. / 102
	wantMean += share * (1000.5 - wantMean)
	if mean, _ := f.running(); math.Abs(mean/wantMean-1) > 1e-5 {
		t.Errorf("mean %v after a batch of two rows, want %v", mean, wantMean)
	}
	// What is normalised otherwise is by these.
	mean, variance := f.running()
	for i, y := range f.normalize(7, 3, false) {
		if want := (7 + float64(i/2) - mean) / math.Sqrt(variance+normEpsilon); math.Abs(float64(y)-want) > 1e-5 {
			t.Errorf("row %d becomes %v, want %v", i/2, y, want)
		}
	}
}

func TestABatchOfOneRowIsNormalisedByRunningStatistics(t *testing.T) {
	f := newBatchNormFixture(t)
	f.normalize(10, 100, true)
	mean, variance := f.running()
	y := f.normalize(70, 1, true)
	if want := (70 - mean) / math.Sqrt(variance+normEpsilon); math.Abs(float64(y[0])-want) > 1e-5 || y[0] != y[1] {
		t.Errorf("the row becomes %v, want %v", y, want)
	}
	if m, v := f.running(); m != mean || v != variance {
		t.Errorf("mean %v and variance %v have become %v and %v", mean, variance, m, v)
	}
	// They are constants of the backward pass.
	p := f.pass(1, true)
	p.meet = func(gds.Tensor) bool { t.Error("there is a meeting"); return true }
	f.upload(f.y.gradient(p), []float32{3, -2})
	f.backward(p)
	got := f.download(f.x.gradient(p))
	for j, g := range []float64{3, -2} {
		if want := g / math.Sqrt(variance+normEpsilon); math.Abs(float64(got[j])-want) > 1e-6 {
			t.Errorf("gradient %v, want %v", got[j], want)
		}
	}
}
