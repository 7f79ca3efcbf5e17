package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// settings are the settings of a training, and how many epochs it took.
func settings(t *testing.T, o outcome) (s trainer.Settings, epochs, best int) {
	t.Helper()
	var v struct {
		Settings         *trainer.Settings
		Epochs, Selected int
		BestEpoch        int `json:"best_epoch"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &v); err != nil || v.Settings == nil {
		t.Fatalf("%v, %s", err, o.stdout)
	}
	return *v.Settings, v.Epochs, v.BestEpoch
}

func TestABareTrainingUsesTheDefaultsAndSaysSo(t *testing.T) {
	d := disk(t, strings.Replace(generateLine, "--nodes 300 --edges 1500", "--nodes 80 --edges 400", 1), propagateLine)
	rows := int64(object(t, must(t, d,
		"inspect store --json"))["regions"].([]any)[0].(map[string]any)["rows"].(float64))
	names, _ := trainer.Models()
	for _, model := range names {
		want, err := trainer.Defaults(model, rows)
		if err != nil {
			t.Fatal(err)
		}
		if want.Options, err = want.Options.Normalized(trainer.Spec{}); err != nil {
			t.Fatal(err)
		}
		input := "store"
		if aggregation, _ := trainer.AggregationOf(model); aggregation != "" {
			input = "graph"
		}
		o := must(t, d, "train "+input+" --json --model "+model+" --run "+model)
		got, epochs, best := settings(t, o)
		if !reflect.DeepEqual(got, want) || want.WeightDecay == 0 || want.Patience == 0 {
			t.Errorf("%s: %+v, want %+v", model, got, want)
		}
		if epochs != min(best+want.Patience, want.Epochs) {
			t.Errorf("%s: %d epochs, the best %d, with a patience of %d", model, epochs, best, want.Patience)
		}
		if !strings.Contains(o.stderr, want.Text()) {
			t.Errorf("%s: nothing is said of %q in\n%s", model, want.Text(), o.stderr)
		}
		c, err := checkpoint.Load(d, model)
		if err != nil {
			t.Fatal(err)
		}
		evaluated, _, _ := settings(t, must(t, d, "evaluate "+input+" --json --checkpoint "+model))
		if evaluated.BatchRows = want.BatchRows; !reflect.DeepEqual(evaluated, want) {
			t.Errorf("%s: evaluate says %+v, want %+v", model, evaluated, want)
		}
		// c.Batches.Rows is of the largest batch that there was
		saved := trainer.Settings{Values: c.Spec.Settings, Options: c.Options, BatchRows: want.BatchRows}
		if !reflect.DeepEqual(saved, want) {
			t.Errorf("%s: the checkpoint has %+v, want %+v", model, saved, want)
		}
	}
	given := "train store --json --model sign --hidden 8 --layers 2 --dropout 0.25 --lr 0.125 --weight-decay 0.5 " +
		"--epochs 9 --patience 2 --eval-every 1 --batch 64"
	want := trainer.Settings{Values: trainer.Values{"hidden": 8, "layers": 2, "dropout": 0.25, "as-printed": 0},
		BatchRows: 64,
		Options: trainer.Options{
			LearningRate: 0.125, WeightDecay: 0.5, Epochs: 9, Patience: 2, EvalEvery: 1,
			Optimizer: "adam", Schedule: "constant", Loss: "cross-entropy", Metric: "accuracy", Standardize: "matrix",
		}}
	if got, _, _ := settings(t, must(t, d, given)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, epochs, _ := settings(t, must(t, d,
		"train store --json --model sgc --weight-decay 0 --patience 0 --epochs 60")); got.WeightDecay != 0 ||
		epochs != 60 {
		t.Errorf("zeros that were given are taken as %+v, %d epochs", got, epochs)
	}
}

func TestWithoutValidationRowsPatienceIsOff(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	splits := []byte(scatteredSplits(300))
	for i := len(splits) - 300; i < len(splits); i++ {
		if splits[i] == 1 {
			splits[i] = 2
		}
	}
	write(t, d, "splits.npy", string(splits))
	o := must(t, d, "train store --json --model sgc --patience 3 --epochs 40 --splits splits.npy")
	s, epochs, best := settings(t, o)
	if s.Patience != 0 || epochs != 40 || best != 40 ||
		!strings.Contains(o.stderr, "--patience is off, and the last epoch is selected") {
		t.Errorf("patience %d, %d epochs, the best %d\n%s", s.Patience, epochs, best, o.stderr)
	}
}

// TestHelpListsTheDefaults compares the table in the help with the settings themselves.
func TestHelpListsTheDefaults(t *testing.T) {
	d := disk(t)
	help := must(t, d, "train --help-all").stdout
	table := trainer.DefaultsTable()
	if !strings.Contains(help, table) {
		t.Errorf("train --help lacks the table\n%s", table)
	}
	of, few, _ := strings.Cut(table, "and of at most 512 training rows:")
	values, notes, _ := strings.Cut(of, "\n\n")
	rows := func(text string) map[string][]string {
		all := map[string][]string{}
		for line := range strings.Lines(strings.ReplaceAll(text, " / rows", "")) {
			if fields := strings.Fields(line); len(fields) > 0 {
				all[fields[0]] = fields
			}
		}
		return all
	}
	ofMany, ofFew := rows(values), rows(values)
	maps.Copy(ofFew, rows(few))
	fewDecays := ofFew["weight-decay"]
	delete(ofFew, "weight-decay")
	names, _ := trainer.Models()
	for i, model := range names {
		const many = 1 << 20 // training rows
		s, err := trainer.Defaults(model, many)
		if err != nil {
			t.Fatal(err)
		}
		few, err := trainer.Defaults(model, 140)
		if err != nil || few.BatchRows != s.BatchRows &&
			!(few.BatchRows == 140/8 && strings.Contains(notes, "batch of "+model+": rows / 8 where that is less")) {
			t.Errorf("the batch of %s for 140 rows is %d, %v; said is %q", model, few.BatchRows, err, notes)
		}
		check := func(s trainer.Settings, rows map[string][]string) {
			for flag, value := range map[string]float64{
				"hidden": s.Values["hidden"], "layers": s.Values["layers"], "dropout": s.Values["dropout"],
				"lr":           s.LearningRate,
				"weight-decay": s.WeightDecay * many, "batch": float64(s.BatchRows), "epochs": float64(s.Epochs),
				"patience": float64(s.Patience),
			} {
				if rows[flag] == nil { // of few rows, checked by itself
					continue
				}
				listed, err := strconv.ParseFloat(strings.Replace(rows[flag][1+i], "-", "0", 1), 64)
				if err != nil || listed != value || !strings.Contains(help, "--"+flag+" ") {
					t.Errorf("%s of %s is listed as %v, and is %v, %v", flag, model, listed, value, err)
				}
			}
		}
		check(s, ofMany)
		most := fmt.Sprintf("weight-decay of %s: at most %v", model, few.WeightDecay)
		if decay, _ := strconv.ParseFloat(fewDecays[1+i], 64); few.WeightDecay*140 != decay &&
			!strings.Contains(notes, most) {
			t.Errorf("the weight decay of %s for 140 rows is %v; said is %q", model, few.WeightDecay, notes)
		}
		few.BatchRows = s.BatchRows
		check(few, ofFew)
	}
}
