package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// tableOf is a table of trials of all combinations, whose figures follow from the settings.
func tableOf(t *testing.T) string {
	var trials []tune.Trial
	for batch := 1; batch <= 8; batch++ {
		for fanout := 1; fanout <= 5; fanout++ {
			valid := 0.9 - 0.01*float64(batch) + 0.02*float64(fanout)
			trials = append(trials, tune.Trial{Number: len(trials) + 1,
				Settings: tune.Settings{"batch": fmt.Sprint(batch), "fanout": fmt.Sprint(fanout), "store": "graph"},
				Outcome: tune.Outcome{
					Metric: "accuracy", Valid: &valid, RowsPerSecond: float64(1000 * batch / fanout),
					PeakDeviceBytes: int64(1000 * batch * fanout), PeakRSSBytes: 5000,
				}})
		}
	}
	text, err := tune.Encode(trials)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSearchesAreComparedOnATable(t *testing.T) {
	d := disk(t)
	write(t, d, "trials.jsonl", tableOf(t))
	var r papers.Comparison
	readJSON(t, must(t, d, "bench tune trials.jsonl --json --rounds 2 --trials 12").stdout, &r)
	if r.Trials != 40 || r.Front == 0 || len(r.Searches) != 4 || len(r.Fits) != 15 {
		t.Fatalf("%+v", r)
	}
	for _, s := range r.Searches {
		if s.Runs != 12 || s.Seeds != 2 || !(s.Share > 0.3 && s.Share <= 1) || s.ShareLeast > s.Share ||
			s.Reached > 0 && s.RunsToReach == nil {
			t.Errorf("%+v", s)
		}
	}
	// With all trials, every search has the whole front.
	readJSON(t, must(t, d, "bench tune trials.jsonl --json --rounds 1 --trials 40 --min-accuracy 0.85").stdout, &r)
	for _, s := range r.Searches {
		if s.Share < 1-1e-12 || s.Reached != 1 {
			t.Errorf("of all trials: %+v", s)
		}
	}
	if o := must(t, d, "bench tune trials.jsonl --rounds 1 --trials 9"); !strings.Contains(o.stdout,
		"hypervolume after 9 runs") || !strings.Contains(o.stdout, "gaussian") {
		t.Error(o.stdout)
	}
}

func TestModesAreFittedToATable(t *testing.T) {
	d := disk(t)
	text := strings.ReplaceAll(tableOf(t), `"fanout":"1"`, `"schedule":"sequential"`)
	text = strings.ReplaceAll(strings.ReplaceAll(text, `"fanout":"2"`, `"schedule":"mode-1","workers":"2"`),
		`"fanout":"3"`, `"schedule":"mode-2"`)
	write(t, d, "trials.jsonl", text)
	var fit papers.ModeFit
	readJSON(t, must(t, d, "bench modes trials.jsonl --json").stdout, &fit)
	if len(fit.Runs) != 3*8 || fit.TimeError <= 0 || len(fit.Model.Printed) != 3 {
		t.Errorf("%+v", fit)
	}
	if o := must(t, d, "bench modes trials.jsonl"); strings.Count(o.stdout, "\nmode-1 ") != 8 ||
		!strings.Contains(o.stdout, "contention of workers") {
		t.Error(o.stdout)
	}
	must(t, d, "bench modes trials.jsonl -o charts")
	if figure := content(t, d, "charts/modes.svg"); strings.Count(figure, "<circle") < 3*8 {
		t.Error(figure)
	}
	write(t, d, "none.jsonl", tableOf(t))
	for line, says := range map[string]string{"none.jsonl": "no trial has a schedule of",
		"nothing.jsonl": "no such file", "": "accepts 1 arg"} {
		if o := hopfeed(t, d, "bench modes "+line); o.code == exitDone || !strings.Contains(o.stderr, says) {
			t.Errorf("%q: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}

func TestTablesThatCannotBeReplayedAreRefused(t *testing.T) {
	d := disk(t)
	write(t, d, "trials.jsonl", tableOf(t))
	write(t, d, "errors.jsonl", strings.ReplaceAll(tableOf(t), `"accuracy"`, `"mse"`))
	write(t, d, "empty.jsonl", "")
	write(t, d, "bad.jsonl", "{}")
	failed, _ := json.Marshal(tune.Trial{Number: 1, Settings: tune.Settings{"batch": "1"},
		Outcome: tune.Outcome{Failed: "so it is"}})
	write(t, d, "failed.jsonl", string(failed))
	for line, says := range map[string]string{
		"empty.jsonl":                    "has no trials",
		"bad.jsonl":                      "want trials.jsonl",
		"failed.jsonl":                   "no trial has throughput",
		"trials.jsonl --trials 41":       "from 1 to the 40 trials",
		"trials.jsonl --trials -1":       "from 1 to the 40 trials",
		"trials.jsonl --rounds 0":        "want 1 or more",
		"trials.jsonl --share 1.5":       "up to 1",
		"trials.jsonl --share NaN":       "up to 1",
		"trials.jsonl --min-accuracy 2":  "the best accuracy",
		"errors.jsonl --min-accuracy 2":  "of mse, less is better",
		"trials.jsonl --max-memory 100B": "the least memory is 1000 B",
	} {
		o := hopfeed(t, d, "bench tune --quiet "+line)
		if o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}
