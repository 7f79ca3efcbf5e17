package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const maxConfigBytes = 1 << 20

// readSmall reads a small file that a flag names.
func (a *app) readSmall(path string) ([]byte, error) {
	text, err := vfs.ReadFile(a.fs, path, maxConfigBytes)
	if errors.Is(err, vfs.ErrSize) {
		err = usagef("%s", err)
	}
	return text, err
}

// readYAML decodes a small YAML file (JSON is YAML) that a flag names.
func (a *app) readYAML(flag, path string, to any) error {
	text, err := a.readSmall(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if err := yaml.Unmarshal(text, to); err != nil {
		return usagef("--%s %s: %s", flag, path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return nil
}

// flagText is the value of a flag that a YAML node stands for: scalars as they are written (a seed has
// more digits than a float64), lists with commas.
func flagText(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("line %d: want a list of values", e.Line)
			}
			parts = append(parts, e.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("line %d: want a value", n.Line)
}

// storeKey is the name of the argument STORE in a configuration.
const storeKey = "store"

// applyConfig sets the flags that the command line has not set from a YAML file whose keys are names of flags,
// storeKey and dataSettings. It returns the store that the file names, or "", and the data that it was made for, as
// far as it says. No path is no file.
func (a *app) applyConfig(path string) (store string, made checkpoint.DataSet, err error) {
	if path == "" {
		return "", made, nil
	}
	var config map[string]yaml.Node
	if err := a.readYAML("config", path, &config); err != nil {
		return "", made, err
	}
	data := map[string]string{}
	given := map[string]bool{}
	for name := range config {
		given[name] = a.given(name)
	}
	for name, other := range map[string]string{"batch": batchPerDevice, batchPerDevice: "batch"} {
		given[name] = given[name] || a.given(other) // each says how large a batch is
	}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		node := config[name]
		value, err := flagText(&node)
		if err != nil {
			return "", made, usagef("--config %s: %s: %s", path, name, err)
		}
		if name == storeKey {
			store = value
			continue
		}
		if checkpoint.IsDataSetting(name) {
			data[name] = value
			continue
		}
		if name == "config" || a.command.Flags().Lookup(name) == nil {
			return "", made, usagef("--config %s: the command has no flag %q", path, name)
		}
		if given[name] {
			continue
		}
		if err := a.command.Flags().Set(name, value); err != nil {
			return "", made, usagef("--config %s: %s", path, err)
		}
	}
	if err := a.useThreads(); err != nil {
		return "", made, err
	}
	return store, checkpoint.DataSetOfSettings(data), a.useMemory()
}

// batchPerDevice is the flag in place of --batch that counts the rows of one device.
const batchPerDevice = "batch-per-device"

// notSettings are flags of train and tune that do not decide what is trained: batches are the same by all schedules and
// on all devices, emulated ones too. --emulate and --tf32 change last digits: see addDevices.
var notSettings = []string{"schedule", "cpu-share", "profile-batches", "queue", "gradients", "sync-every", "updates",
	mapFlag, scratchFlag, "run", "config", "force", "save-every", "max-time", "grid", "tune", "threads", "memory",
	"tf32", "emulate", batchPerDevice, "json", "quiet", "verbose", "help", helpAllFlag, "version",
	"importance",
	"max-memory", "min-accuracy", "min-throughput", "weights", "surrogate", "budget", "search", "throughput", "space",
	"trial-epochs", "output", // of tune
	"cache-dir", cacheSizeFlag}

// config returns what a training is a function of, by names of flags, with all defaults resolved; Batches.Settings adds
// what is known later. The only schedule in it is multi-queue, whose gradients are stale, with the flags of its plan.
func (o *trainOptions) config(seed uint64) map[string]string {
	config := map[string]string{storeKey: o.Input, "seed": fmt.Sprint(seed)}
	o.flags.VisitAll(func(f *pflag.Flag) {
		text, decides := flagValue(f), !slices.Contains(notSettings, f.Name)
		if o.Schedule.Name == scheduler.MultiQueue && slices.Contains(scheduleFlags, f.Name) {
			decides = text != "0"
		}
		if decides && text != "" && text != "false" {
			config[f.Name] = text
		}
	})
	config["split"] = fmt.Sprint(o.Split) // of several, the one that is trained on
	return config
}

// addDevices adds the flags of devices, which change the last digits of a training. It may go on with others.
func (a *app) addDevices(config map[string]string) {
	if text := a.emulate.String(); text != "" {
		config["emulate"] = text
	}
	if a.tf32 {
		config["tf32"] = "true"
	}
}

func flagValue(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

// differences lists the settings that differ, the store's name apart.
func differences(before, now map[string]string) (all []string) {
	before = renamed(before)
	for _, name := range slices.Sorted(slices.Values(tune.Differing(before, now))) {
		switch b, n := cmp.Or(before[name], "(none)"), cmp.Or(now[name], "(none)"); {
		case name == storeKey || b == n:
		case checkpoint.IsDataSetting(name):
			all = append(all, fmt.Sprintf("other data, of %s %s instead of %s", name, n, b))
		default:
			all = append(all, fmt.Sprintf("--%s %s instead of %s", name, b, n))
		}
	}
	return all
}

// renamed are settings by the present names of flags: what was saved may have an older one.
func renamed(settings map[string]string) map[string]string {
	if value := settings["schedule"]; isLearningRateSchedule(value) {
		settings = maps.Clone(settings)
		delete(settings, "schedule")
		settings["lr-schedule"] = value
	}
	return settings
}

// isLearningRateSchedule tells a value that --lr-schedule has, which was once called --schedule.
func isLearningRateSchedule(value string) bool {
	return slices.Contains(trainer.Choices("schedule", trainer.ClassTarget), value)
}

// chosenFlags are the flags whose defaults depend on what the store has, or on the machine. A training that goes on
// keeps what it began with.
var chosenFlags = []string{"hops", "operator", "split", "shuffle", "chunk-rows"}

// isLeftOpen tells whether the value of one of chosenFlags is to be chosen.
func isLeftOpen(f *pflag.Flag) bool {
	return !f.Changed || f.Name == "shuffle" && f.Value.String() == placement.Auto || f.Name == "chunk-rows" &&
		f.Value.String() == "0"
}

// checkConfigured compares the input of a training with what a configuration was made for.
func (a *app) checkConfigured(o *trainOptions, spec trainer.Spec, m *format.Manifest) error {
	was := o.configured
	if was.RowsFingerprint == "" && len(was.Prepared) == 0 {
		return nil // none, or one that says nothing of it
	}
	warnings, err := was.ComparePrepared(checkpoint.DataSetOf(m), spec, o.Input)
	if err != nil {
		return usagef("--config: %s, or remove the line %q", err, checkpoint.PreparedPrefix+format.NormalizeFeatures)
	}
	if was.RowsFingerprint != "" && was.RowsFingerprint != m.RowsFingerprint() {
		a.note("--config is of a training on other data than %s now has: expect other results", o.Input)
	}
	for _, w := range warnings {
		a.note("--config: %s", w)
	}
	return nil
}
