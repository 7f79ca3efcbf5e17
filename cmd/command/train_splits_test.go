package command

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// Several splits are trained on as each of them alone, with its defaults, and figures are of all runs.
func TestSeveralSplitsAreTrainedOnAsEachAlone(t *testing.T) {
	d := manySplits(t)
	train := func(flags string) (r trained) {
		t.Helper()
		o := must(t, d, "train store --model sign --hidden 4 --epochs 3 --runs 2 --json "+flags)
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	var tests []float64
	for _, flags := range []string{"--split 0", "--split 2"} {
		for _, run := range train(flags).Runs {
			tests = append(tests, *run.TestMetric)
		}
	}
	mean, squares := 0.0, 0.0
	for _, v := range tests {
		mean += v / 4
	}
	for _, v := range tests {
		squares += (v - mean) * (v - mean)
	}
	both := train("--split 0,2")
	var got []float64
	for _, run := range both.Runs {
		got = append(got, *run.TestMetric)
	}
	if !reflect.DeepEqual(got, tests) || !reflect.DeepEqual(both.Splits, []int{0, 2}) ||
		!reflect.DeepEqual(both.Seeds, []uint64{0, 1, 0, 1}) {
		t.Errorf("runs %v, splits %v, seeds %v, want %v", got, both.Splits, both.Seeds, tests)
	}
	if math.Abs(*both.TestMetric-mean) > 1e-12 || math.Abs(*both.TestMetricStd-math.Sqrt(squares/3)) > 1e-12 ||
		squares == 0 {
		t.Errorf("test %v +- %v of %v", *both.TestMetric, *both.TestMetricStd, tests)
	}
	// Trials are compared by their mean over the splits.
	write(t, d, "grid.yaml", "lr: [0.003, 0.03, 0.3]\n")
	best, valid := 0.0, 0.0
	for _, lr := range []float64{0.003, 0.03, 0.3} {
		if r := train(fmt.Sprintf("--split 0,2 --runs 1 --lr %v", lr)); *r.ValidMetric > valid {
			best, valid = lr, *r.ValidMetric
		}
	}
	if tuned := train("--split 0,2 --grid grid.yaml"); tuned.Settings.LearningRate != best || len(tuned.Runs) != 4 {
		t.Errorf("chosen %v for %d runs, want %v", tuned.Settings.LearningRate, len(tuned.Runs), best)
	}
	for line, want := range map[string]string{
		"train store --split 0-3":           "3 splits",
		"train store --split 0-1 --run run": "each with a --run of its own",
		"train store --save-every 10s":      "nothing is saved without --run",
		"plan store --split 0-1":            "for one split",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("hopfeed %s: exit status %d, no %q in %s", line, o.code, want, o.stderr)
		}
	}
}

func TestNumbersOfSplits(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "0-9": "0-9", "3, 0-1,7": "3,0-1,7", "1,2,3": "1-3",
		"0-999": "0-999"} {
		var s splitNumbers
		if err := s.Set(text); err != nil || s.String() != want {
			t.Errorf("%q: %q, %v", text, s.String(), err)
		}
	}
	for _, text := range []string{"", "-1", "1-", "2-1", "0,", "a", "0-1000", "0-999,0", "0-99999999999"} {
		if err := new(splitNumbers).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
