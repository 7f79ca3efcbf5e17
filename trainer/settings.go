package trainer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Setting is an option of a model, declared in the model's file. Everything else follows from the
// declaration: the flag of the command, and the names in checkpoints, JSON and configurations.
type Setting struct {
	Name, Help   string
	Default      float64
	Least, Below float64 // Least <= value < Below
	Integer      bool
}

// Settings that several models have.

func hiddenSetting(value float64) Setting {
	return Setting{Name: "hidden", Help: "number of hidden units", Default: value, Least: 1, Below: maxWidth + 1,
		Integer: true}
}

func layersSetting(value, least, below float64) Setting {
	return Setting{Name: "layers", Help: "number of layers", Default: value, Least: least, Below: below, Integer: true}
}

func dropoutSetting(value float64) Setting {
	return Setting{Name: "dropout", Help: "dropout probability", Default: value, Least: 0, Below: 1}
}

// yesSetting is 1 (yes) or 0 (no).
func yesSetting(name, help string, value float64) Setting {
	return Setting{Name: name, Help: help + ": 1 yes, 0 no", Default: value, Least: 0, Below: 2, Integer: true}
}

// printed is the setting that all models have: the architecture of the paper that introduced them.
const printed = "as-printed"

// printedSetting changes only how features are read, in models that read matrices: see Options.withDefaults. For the
// others see messagePassing.
func printedSetting() Setting {
	return yesSetting(printed, "the architecture as its paper prints it: features as they are; in models that read a "+
		"graph the last layer along edges puts out the classes, without norm and residual; in gat, ELU and means of "+
		"heads", 0)
}

// asPrinted tells whether the model is as its paper prints it.
func (v Values) asPrinted() bool { return v[printed] == 1 }

// check returns an error if the setting cannot have a value.
func (s Setting) check(v float64) error {
	switch {
	case s.Integer && (v != math.Trunc(v) || v < s.Least || v >= s.Below):
		return fmt.Errorf("%s %v: must be an integer from %d to %d", s.Name, v, int64(s.Least), int64(s.Below)-1)
	case !(v >= s.Least && v < s.Below):
		return fmt.Errorf("%s %v: must be at least %v and below %v", s.Name, v, s.Least, s.Below)
	}
	return nil
}

// ModelSettings lists the settings of all models, each name once.
func ModelSettings() (all []Setting) {
	for _, k := range kinds {
		for _, s := range k.settings {
			if !slices.ContainsFunc(all, func(other Setting) bool { return other.Name == s.Name }) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Values are the values of settings, by name.
type Values map[string]float64

// integer is the value of an Integer setting.
func (v Values) integer(name string) int { return int(v[name]) }

// Settings are the options of a model and its training that users may choose.
type Settings struct {
	Values Values `json:"model"` // of the model's own settings
	Options
	BatchRows int `json:"batch"` // over all devices
}

// Text is one line with all settings, for people.
func (s Settings) Text() string {
	var b strings.Builder
	say := func(holds bool, format string, args ...any) {
		if holds {
			fmt.Fprintf(&b, format, args...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		say(true, "%s %v, ", name, s.Values[name])
	}
	say(true, "%s, learning rate %v", s.Optimizer, s.LearningRate)
	say(s.Schedule != defaultSchedule, " (%s)", s.Schedule)
	say(s.WarmUp > 0, ", warm-up of %v epochs", s.WarmUp)
	say(s.ClipNorm > 0, ", gradient clipped at %v", s.ClipNorm)
	say(true, ", weight decay %.3g, %s a batch; loss %s", s.WeightDecay, units.Count(int64(s.BatchRows), "row"), s.Loss)
	say(s.ClassWeights != nil, " with class weights %.3g", s.ClassWeights)
	say(s.Standardize != defaultStandardization, "; standardized: %s", s.Standardize)
	say(true, "; selected by %s; at most %s", s.Metric, units.Count(int64(s.Epochs), "epoch"))
	say(s.EvalEvery > 1, ", validated every %d", s.EvalEvery)
	say(s.Patience > 0, ", patience %d", s.Patience)
	say(s.Patience <= 0, ", no patience")
	return b.String()
}

// Defaults are the default settings of a model for this number of training rows. The weight
// decay is a constant divided by the number of rows: the loss is a mean over rows, so the
// penalty weighs as much as a fixed number of rows, and less the more rows there are.
func Defaults(model string, trainRows int64) (Settings, error) {
	k, err := findKind(model)
	if err != nil {
		return Settings{}, err
	}
	return k.defaultsFor(trainRows), nil
}

func (k *kind) defaultsFor(trainRows int64) Settings {
	s := k.defaults
	s.Values = k.values(nil)
	if trainRows <= fewRows && k.few != nil {
		k.few(&s)
	}
	s.WeightDecay = k.decayFor(trainRows) / float64(max(trainRows, 1))
	if k.mostDecay > 0 {
		s.WeightDecay = min(s.WeightDecay, k.mostDecay)
	}
	if k.leastBatches > 0 {
		s.BatchRows = int(min(int64(s.BatchRows), max(leastBatchRows, trainRows/int64(k.leastBatches))))
	}
	return s
}

// decayFor is the default weight decay times the number of training rows.
func (k *kind) decayFor(trainRows int64) float64 {
	if trainRows <= fewRows {
		return cmp.Or(k.fewDecay, k.decay)
	}
	return k.decay
}

// fewRows is the most training rows for which kind.few holds. Its models have one batch, and so one step, in an
// epoch of them: patience and epochs that are enough for many steps an epoch end a training before it converges.
const fewRows = 512

// leastBatchRows is the smallest default batch: batch normalisation needs some rows.
const leastBatchRows = 16

// DefaultEvalEvery is how many epochs pass between two validations, so that validation takes about a tenth of the time
// of an epoch at most: a row takes a third of the time that it takes to train on it (forward, but not backward twice).
// It depends on numbers of rows alone, so that a run selects the same epoch on any machine. Few rows are validated
// every epoch, as they take no time; and a run has some twenty validations at least.
func DefaultEvalEvery(trainRows, validRows int64, epochs int) int {
	const few = 10_000 // rows
	if validRows <= few {
		return 1
	}
	every := (10*validRows + 3*trainRows - 1) / (3 * max(trainRows, 1))
	return int(max(1, min(every, int64(epochs/20))))
}

// DefaultsTable lists the defaults of all models as rows of text: the names of the flags of the command, and what each
// model has for them, aligned; then, likewise, what differs for few training rows.
var DefaultsTable = sync.OnceValue(func() string {
	var b strings.Builder
	line := func(name string, value func(*kind) string) {
		fmt.Fprintf(&b, "  %-13s", name)
		for i := range kinds {
			fmt.Fprintf(&b, " %12s", value(&kinds[i]))
		}
		b.WriteString("\n")
	}
	type row struct {
		name string
		of   func(k *kind, trainRows int64) string
	}
	var rows []row
	add := func(name string, of func(Settings) float64) {
		rows = append(rows, row{name, func(k *kind, trainRows int64) string {
			if v := of(k.defaultsFor(trainRows)); v != 0 {
				return fmt.Sprint(v)
			}
			return "-"
		}})
	}
	for _, s := range ModelSettings() {
		add(s.Name, func(of Settings) float64 { return of.Values[s.Name] })
	}
	add("lr", func(s Settings) float64 { return s.LearningRate })
	rows = append(rows, row{"weight-decay", func(k *kind, trainRows int64) string {
		return fmt.Sprint(k.decayFor(trainRows), " / rows")
	}})
	add("batch", func(s Settings) float64 { return float64(s.BatchRows) })
	add("epochs", func(s Settings) float64 { return float64(s.Epochs) })
	add("patience", func(s Settings) float64 { return float64(s.Patience) })
	head := func() { line("", func(k *kind) string { return k.name }) }
	head()
	for _, r := range rows {
		line(r.name, func(k *kind) string { return r.of(k, math.MaxInt64) })
	}
	for _, k := range kinds {
		if k.mostDecay > 0 {
			fmt.Fprintf(&b, "\n  weight-decay of %s: at most %v", k.name, k.mostDecay)
		}
	}
	for _, k := range kinds {
		if k.leastBatches > 0 {
			fmt.Fprintf(&b, "\n  batch of %s: rows / %d where that is less, but at least %d", k.name, k.leastBatches,
				leastBatchRows)
		}
	}
	fmt.Fprintf(&b, "\n\nand of at most %d training rows:\n\n", fewRows)
	head()
	for _, r := range rows {
		differs := func(k kind) bool { return r.of(&k, fewRows) != r.of(&k, math.MaxInt64) }
		if r.name != "batch" && slices.ContainsFunc(kinds, differs) {
			line(r.name, func(k *kind) string { return r.of(k, fewRows) })
		}
	}
	return b.String()
})
