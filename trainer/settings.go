package trainer

import (
	"fmt"
	"strings"
)

// Settings are the options of a model and its training that users may choose. Those that a
// model does not use are zero in its defaults.
type Settings struct {
	Hidden       int     `json:"hidden"`
	Layers       int     `json:"layers"`
	Dropout      float64 `json:"dropout"`
	LearningRate float64 `json:"learning_rate"`
	WeightDecay  float64 `json:"weight_decay"`
	Epochs       int     `json:"epochs"`
	Patience     int     `json:"patience"`
	EvalEvery    int     `json:"eval_every"` // epochs between validations
	BatchRows    int     `json:"batch"`      // over all devices
}

// Text is one line with all settings, for people.
func (s Settings) Text() string {
	var b strings.Builder
	if s.Hidden > 0 {
		fmt.Fprintf(&b, "%d layers of %d hidden units, dropout %v, ", s.Layers, s.Hidden, s.Dropout)
	}
	fmt.Fprintf(&b, "learning rate %v, weight decay %.3g, %d rows a batch; at most %d epochs", s.LearningRate, s.WeightDecay, s.BatchRows, s.Epochs)
	if s.EvalEvery > 1 {
		fmt.Fprintf(&b, ", validated every %d", s.EvalEvery)
	}
	if s.Patience > 0 {
		fmt.Fprintf(&b, ", patience %d", s.Patience)
	} else {
		b.WriteString(", no patience")
	}
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
	s := k.defaults
	s.WeightDecay = k.decay / float64(max(trainRows, 1))
	return s, nil
}

// DefaultsTable lists the defaults of all models as rows of text: the names of the flags of
// the command, and what each model has for them, aligned.
func DefaultsTable() string {
	var b strings.Builder
	line := func(name string, value func(kind) string) {
		fmt.Fprintf(&b, "  %-13s", name)
		for _, k := range kinds {
			fmt.Fprintf(&b, " %12s", value(k))
		}
		b.WriteString("\n")
	}
	number := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprint(v)
	}
	line("", func(k kind) string { return k.name })
	line("hidden", func(k kind) string { return number(float64(k.defaults.Hidden)) })
	line("layers", func(k kind) string { return number(float64(k.defaults.Layers)) })
	line("dropout", func(k kind) string { return number(k.defaults.Dropout) })
	line("lr", func(k kind) string { return number(k.defaults.LearningRate) })
	line("weight-decay", func(k kind) string { return number(k.decay) + " / rows" })
	line("batch", func(k kind) string { return number(float64(k.defaults.BatchRows)) })
	line("epochs", func(k kind) string { return number(float64(k.defaults.Epochs)) })
	line("patience", func(k kind) string { return number(float64(k.defaults.Patience)) })
	return b.String()
}
