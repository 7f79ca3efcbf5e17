package command

import (
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// openSaver opens the folder of --run, and reads the training that was saved there.
func (a *app) openSaver(o *trainOptions) (*checkpoint.Saver, error) {
	return checkpoint.OpenSaver(checkpoint.SaveOptions{
		FS: a.fs, Dir: o.run, Replace: o.force, MinInterval: o.saveEvery, Trials: o.trials, Input: o.Input,
		Budget: a.budget, Note: a.note,
	})
}

// isBegun tells whether --run holds a training that goes on, or has ended: its hops are chosen.
func (a *app) isBegun(o *trainOptions) bool {
	if o.run == "" || o.force {
		return false
	}
	_, err := a.fs.Stat(filepath.Join(o.run, checkpoint.File))
	return err == nil
}

// keepMatrices sets --hops and --operator, where they are left open, as in a training that goes on: matrices may have
// been added to the store since it began.
func (o *trainOptions) keepMatrices(before *checkpoint.Checkpoint) {
	if readsGraph, _ := o.ReadsGraph(); before == nil || before.Spec.Model != o.Model || readsGraph {
		return
	}
	operators, hops := before.Spec.Choice()
	if isLeftOpen(o.flags.Lookup("operator")) {
		o.Operators = operators
	}
	if isLeftOpen(o.flags.Lookup("hops")) && len(operators) == len(o.Operators) {
		o.Hops = hops
	}
}

// checkpoint holds the facts of a training before it begins.
func (o *trainOptions) checkpoint(m *format.Manifest, spec trainer.Spec,
	config map[string]string) checkpoint.Checkpoint {
	c := checkpoint.Checkpoint{Data: checkpoint.DataSetOf(m), Config: config, Wanted: o.runs}
	c.Spec, c.Options, c.Data.Split, c.Data.SplitsFile = spec, o.Options, o.Split, o.SplitsFile != ""
	return c
}

// differencesFrom lists how the settings of a training that was saved differ from config. A run by queues goes on by
// the plan that it began with.
func (o *trainOptions) differencesFrom(config map[string]string) func(saved map[string]string) []string {
	return func(saved map[string]string) []string {
		// Saver.Begin compares the data; a training goes on with other devices
		saved, now := checkpoint.WithoutData(renamed(saved)), checkpoint.WithoutData(config)
		for _, settings := range []map[string]string{saved, now} {
			delete(settings, "emulate")
			delete(settings, "tf32")
		}
		if _, known := saved["as-printed"]; !known && now["as-printed"] == "0" { // begun before there was this setting
			delete(now, "as-printed")
		}
		for _, name := range scheduleFlags {
			delete(config, name)
			delete(now, name)
			if value := saved[name]; value != "" {
				config[name], now[name] = value, value
			}
		}
		for _, name := range chosenFlags { // Saver.Begin compares matrices, split and batches
			if saved[name] == "" || isLeftOpen(o.flags.Lookup(name)) {
				delete(saved, name)
				delete(now, name)
			}
		}
		return differences(saved, now)
	}
}
