// Package tune tries settings of a training one after another, and says which were best on the validation rows. It
// knows neither models nor stores: a trial is a function of settings.
package tune

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/tools/checkpoint"
)

// Settings are texts by name, as flags and configurations have them.
type Settings map[string]string

// With returns the settings and other's; where both have a value, it is other's.
func (s Settings) With(other Settings) Settings {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}

// Without returns the settings that other has not, or has with another value.
func (s Settings) Without(other Settings) Settings {
	differing := maps.Clone(s)
	maps.DeleteFunc(differing, func(name, value string) bool { return other[name] == value })
	return differing
}

// Text lists the settings by name, with short values.
func (s Settings) Text() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, name+" "+Short(s[name]))
	}
	return strings.Join(parts, ", ")
}

// Short is a value with four digits if it is a number with many, and the first 16 digits of a fingerprint.
func Short(value string) string {
	if _, err := hex.DecodeString(value); err == nil && len(value) == 2*sha256.Size {
		return value[:16]
	}
	if v, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(value, ".") && len(value) > 8 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return value
}

// Trial is settings, and what came of them.
type Trial struct {
	Number   int      `json:"trial"` // from 1
	Settings Settings `json:"settings"`
	Outcome
}

// Outcome is the result of a trial. It has no test metric, so that nobody chooses by it.
type Outcome struct {
	Metric    string   `json:"metric"`
	Valid     *float64 `json:"valid_metric"` // nil if the trial has failed
	Lower     bool     `json:"lower_is_better,omitempty"`
	BestEpoch float64  `json:"best_epoch"`
	Epochs    float64  `json:"epochs"`
	Seconds   float64  `json:"seconds"`
	// Training rows a second in the fastest epoch, without validation: other work on the machine makes others slower.
	RowsPerSecond float64 `json:"rows_per_second,omitempty"`
	// The same by the time of all processors together, in the epoch that took the least.
	RowsPerProcessorSecond float64 `json:"rows_per_processor_second,omitempty"`
	// Peak memory: of the fullest device, and what the process had resident (0: unknown).
	PeakDeviceBytes int64  `json:"peak_device_bytes,omitempty"`
	PeakRSSBytes    int64  `json:"peak_rss_bytes,omitempty"`
	Failed          string `json:"failed,omitempty"` // why
	Graph           *Graph `json:"graph,omitempty"`  // that is trained on; nil: a store
}

// Proposer says what to try after some trials; nil to end. It must be a function of the trials.
type Proposer func(done []Trial) Settings

// First proposes what another does, as long as there are fewer than n trials.
func First(n int, propose Proposer) Proposer {
	return func(done []Trial) Settings {
		if len(done) >= n {
			return nil
		}
		return propose(done)
	}
}

// Run makes the trials that are proposed after the earlier ones, done, which must be of this search. After each it
// calls record, which may save them. It ends with the first error of try or record, and returns what was done with it.
func Run(ctx context.Context, propose Proposer, done []Trial,
	try func(ctx context.Context, number int, s Settings) (Outcome, error), record func([]Trial) error,
) ([]Trial, error) {
	for {
		s := propose(done)
		if s == nil {
			return done, nil
		}
		if err := context.Cause(ctx); err != nil {
			return done, err
		}
		o, err := try(ctx, len(done)+1, s)
		if err != nil {
			return done, err
		}
		done = append(done, Trial{len(done) + 1, s, o})
		if err := record(done); err != nil {
			return done, err
		}
	}
}

// Better tells whether an outcome has the better validation metric; one that has none is the worst.
func (o Outcome) Better(than Outcome) bool {
	switch {
	case o.Valid == nil || than.Valid == nil:
		return o.Valid != nil && than.Valid == nil
	case o.Lower:
		return *o.Valid < *than.Valid
	}
	return *o.Valid > *than.Valid
}

// Best is the trial with the best validation metric, the first of equals; nil if none has one.
func Best(trials []Trial) *Trial {
	best := &Trial{}
	for i, t := range trials {
		if t.Better(best.Outcome) {
			best = &trials[i]
		}
	}
	if best.Valid == nil {
		return nil
	}
	return best
}

// Encode returns trials as JSON, a line each, and Decode is its inverse.
func Encode(trials []Trial) ([]byte, error) { return checkpoint.EncodeLines(trials) }

// Decode reads what Encode has written.
func Decode(data []byte) ([]Trial, error) {
	return checkpoint.DecodeLines(data, "trial", func(number int, t *Trial) error {
		least := min(t.Epochs, t.Seconds, t.RowsPerSecond, t.RowsPerProcessorSecond, float64(t.PeakDeviceBytes),
			float64(t.PeakRSSBytes))
		switch {
		case t.Number != number:
			return fmt.Errorf("it has the number %d", t.Number)
		case least < 0:
			return fmt.Errorf("it has a figure of %v, below zero", least)
		}
		return nil
	})
}

// Budget is a time of all trials together, or their number. It is the value of a flag.
type Budget struct {
	Seconds float64
	Trials  int
}

// Set reads a whole number of trials, or a duration.
func (b *Budget) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return errors.New("want at least one trial")
		}
		*b = Budget{Trials: n}
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("want a time above zero, such as 10m, or a number of trials, such as 40")
	}
	*b = Budget{Seconds: d.Seconds()}
	return nil
}

func (b *Budget) String() string {
	if b.Trials > 0 {
		return strconv.Itoa(b.Trials)
	}
	return time.Duration(b.Seconds * float64(time.Second)).String()
}

// Type is the name of the value in help.
func (b *Budget) Type() string { return "time or number" }

// Within proposes what another does as long as the trials so far have not used up the budget.
func (b *Budget) Within(propose Proposer) Proposer {
	if b.Trials > 0 {
		return First(b.Trials, propose)
	}
	return func(done []Trial) Settings {
		used := 0.0
		for _, t := range done {
			used += t.Seconds
		}
		if used >= b.Seconds {
			return nil
		}
		return propose(done)
	}
}
