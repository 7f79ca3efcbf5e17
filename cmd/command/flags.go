package command

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Help texts of flags that several commands have. A flag means the same wherever it
// appears, and says so in the same words.
const (
	batchUsage  = "rows of a batch"
	fanoutUsage = "in-neighbours to sample of each node (ladies, fastgcn: nodes of a layer; typed graphs: of each " +
		"relation), a number for each layer; the first is nearest the seed nodes, -1 is all"
	chunkRowsUsage   = "rows that are reshuffled together (default the rows of a stored chunk)"
	configUsage      = "YAML file with the values of flags, such as config.yaml of a run"
	dtypeUsage       = "type that features are stored in: float32, float16 or bfloat16"
	forceUsage       = "replace existing output as soon as the new one is complete"
	hardwareUsage    = "machine to plan for, described in a YAML file (default this one)"
	maxMemoryUsage   = "most memory that a training may take; 0: any"
	minAccuracyUsage = "least validation accuracy, or other --metric, of a trial (default any)"
	placementUsage   = "where the input lives: auto, device, host or storage"
	roundsUsage      = "number of times that everything is measured"
	scratchUsage     = "folder for scratch files"
	throughputUsage  = "rows a second of wall time, or of processor time, which other work on the machine hardly " +
		"changes, and which leaves out waiting: wall or processor"
	splitsUsage = "npy file [k,n] with k splits of the nodes; --split chooses one"
)

// fileOutput is the annotation of a flag --output that names a file; others name a directory.
const fileOutput = "hopfeed_output_is_a_file"

// checkedFlag is a flag whose values are checked when they are set.
type checkedFlag struct {
	pflag.Value
	check func(text string) error
}

func (f checkedFlag) Set(text string) error {
	if err := f.Value.Set(text); err != nil {
		return err
	}
	return f.check(f.Value.String())
}

// String is empty where the default could not be set: it stands for no value.
func (f checkedFlag) String() string {
	if f.Value == nil || f.check(f.Value.String()) != nil {
		return ""
	}
	return f.Value.String()
}

func checkFlag(f *pflag.FlagSet, name string, check func(text string) error) {
	flag := f.Lookup(name)
	if flag.Value = (checkedFlag{flag.Value, check}); flag.DefValue == "0s" {
		flag.DefValue = "0" // which help leaves out
	}
}

// atLeast makes flags refuse numbers, and times, below least.
func atLeast(f *pflag.FlagSet, least float64, names ...string) {
	within(f, least, math.MaxFloat64, names...)
}

// within makes flags refuse numbers, and times in seconds, below least or above most.
func within(f *pflag.FlagSet, least, most float64, names ...string) {
	want := fmt.Sprintf("want a number from %.0f to %.0f", least, most)
	if most == math.MaxFloat64 {
		want = fmt.Sprintf("want %.0f or more", least)
	}
	for _, name := range names {
		checkFlag(f, name, func(text string) error {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t, _ := time.ParseDuration(text)
				v = t.Seconds()
			}
			if !(v >= least && v <= most) {
				return usagef("--%s %s: %s", name, text, want)
			}
			return nil
		})
	}
}

// allowedValues is the annotation of a flag that takes one of some names.
const allowedValues = "hopfeed_allowed_values"

// among makes a flag refuse values that are not allowed.
func among(f *pflag.FlagSet, name string, allowed ...string) {
	checkFlag(f, name, func(text string) error { return oneOf(name, text, allowed...) })
	_ = f.SetAnnotation(name, allowedValues, allowed) // the flag is there
}

// oneOf returns an error unless the value of a flag is allowed.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usagef("--%s %q: want one of %s", flag, value, strings.Join(allowed, ", "))
}
