package papers

import (
	"strings"
	"testing"
)

// What a plan takes to be chosen on this machine is not in the seconds that are simulated.
func TestPreparationIsSimulatedAndItsChoiceMeasured(t *testing.T) {
	first, err := RunSweep("preparation")
	if err != nil {
		t.Fatal(err)
	}
	second, err := RunSweep("preparation")
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range first {
		if r.Seconds != second[i].Seconds || r.Choice <= 0 {
			t.Errorf("%s by %s: %v s, then %v s, chosen in %v s", r.Setting, r.Schedule, r.Seconds, second[i].Seconds,
				r.Choice)
		}
	}
}

// SALIENT's and DUCATI's epochs are what durations follow from; MorphGL's is not.
func TestSweepsReproduceWhatTheyWereNotCalibratedFor(t *testing.T) {
	for _, name := range Sweeps() {
		all, err := RunSweep(name)
		if err != nil {
			t.Fatal(err)
		}
		best := map[string]float64{}
		for _, r := range all {
			if best[r.Setting] == 0 || r.Seconds < best[r.Setting] {
				best[r.Setting] = r.Seconds
			}
			if r.PaperSeconds == nil {
				continue
			}
			off, least, most := *r.PaperSeconds, -0.17, 0.17
			off = r.Seconds/off - 1
			if r.Calibrated {
				least, most = -0.03, 0.03
			} else if r.Schedule == "collective" { // which may gain more
				least = -0.25
			} else if name == "memory" {
				most = 0.3
			}
			if off < least || off > most {
				t.Errorf("%s, %s by %s: %.1f s, the paper has %.1f", name, r.Setting, r.Schedule, r.Seconds, *r.PaperSeconds)
			}
		}
		for _, r := range all {
			if r.Schedule == "collective" && r.Seconds > 1.01*best[r.Setting] && name != "preparation" {
				t.Errorf("%s, %s: collective takes %.2f s, the best %.2f", name, r.Setting, r.Seconds, best[r.Setting])
			}
		}
		if svg := string(all.Chart()); !strings.Contains(svg, "collective (ours)") {
			t.Errorf("%s: a chart without schedules", name)
		}
	}
}
