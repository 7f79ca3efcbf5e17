package papers

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/placement/collective"
)

// On machine B, T_Model comes from Table 5, and so the x of Table 6 is a check of it.
func TestTheRatiosOfThePaperFollowFromItsTables(t *testing.T) {
	want := map[string]float64{"PA": 2.00, "TW": 1.12, "UK": 0.83}
	for _, s := range MorphGLSettings() {
		if x := s.Durations.Ratio(); s.Machine == "B" && (x < 0.7*want[s.Data] || x > 1.3*want[s.Data]) {
			t.Errorf("%s %s: x = %.2f, the paper has %.2f", s.Machine, s.Data, x, want[s.Data])
		}
	}
}

// SALIENT's and DUCATI's epochs are as in the paper's Table 4, which durations follow from; collective batching is
// faster than both, and than the best mixture, by about what the paper says.
func TestCollectiveBatchingGainsWhatThePaperSays(t *testing.T) {
	const n = 1000
	for _, s := range MorphGLSettings() {
		name := s.Machine + " " + s.Data
		in := collective.Inputs{Durations: s.Durations, Batches: n, CPUBuffer: 64, GPUBuffer: 10, Share: -1, Seed: 1}
		total := map[string]float64{}
		for _, of := range collective.Schedules {
			c, err := of.Choose(in)
			if err != nil {
				t.Fatal(err)
			}
			total[of.Name] = c.Predicted.Total.Seconds()
			if of.Name == "collective" && s.Used[0] > 0 {
				for i, used := range s.Utilization(c.Predicted) {
					if math.Abs(used-s.Used[i]) > 0.08 {
						t.Errorf("%s: used %.3f, Table 5 has %.3f", name, s.Utilization(c.Predicted), s.Used)
					}
				}
			}
		}
		// the first batch of 12 workers takes 12 times as long
		if got, want := total["cpu"]/total["gpu"], s.Salient.Seconds()/s.Ducati.Seconds(); math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: cpu takes %.3f times as long as gpu, %.3f by Table 4", name, got, want)
		}
		if total["collective"] >= min(total["cpu"], total["gpu"], total["mixed"]) {
			t.Errorf("%s: %v", name, total)
		}
		for of, published := range map[string]float64{"cpu": s.Salient.Seconds(), "gpu": s.Ducati.Seconds()} {
			if got, want := total[of]/total["collective"], published/s.MorphGL.Seconds(); got < 0.95*want ||
				got > 1.4*want {
				t.Errorf("%s: %.2f times as fast as %s, the paper has %.2f", name, got, of, want)
			}
		}
	}
}
