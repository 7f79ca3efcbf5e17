package command

import (
	"maps"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// Names in configurations and in the settings of trials that are no flags, but say what data they are of.
const (
	fingerprintKey = "fingerprint" // see format.Manifest.RowsFingerprint
	preparedPrefix = "prepared."   // of the entries of checkpoint.DataSet.Prepared
)

func isDataKey(name string) bool {
	return name == fingerprintKey || strings.HasPrefix(name, preparedPrefix)
}

// dataSettings are the entries of a configuration that say what data it is of.
func dataSettings(m *format.Manifest) tune.Settings {
	s := tune.Settings{fingerprintKey: m.RowsFingerprint()}
	for name, value := range checkpoint.DataSetOf(m).Prepared {
		s[preparedPrefix+name] = value
	}
	return s
}

// dataSetOf is the inverse of dataSettings. What is not there is unknown.
func dataSetOf(config map[string]string) checkpoint.DataSet {
	d := checkpoint.DataSet{RowsFingerprint: config[fingerprintKey], Prepared: map[string]string{}}
	for name, value := range config {
		if entry, found := strings.CutPrefix(name, preparedPrefix); found {
			d.Prepared[entry] = value
		}
	}
	return d
}

// withoutData are settings without the entries that say what data they are of.
func withoutData(s map[string]string) map[string]string {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(name, _ string) bool { return isDataKey(name) })
	return s
}

// checkConfigured compares the input of a training with what a configuration was made for.
func (a *app) checkConfigured(o *trainOptions, spec trainer.Spec, m *format.Manifest) error {
	was := o.configured
	if was.RowsFingerprint == "" && len(was.Prepared) == 0 {
		return nil // none, or one that says nothing of it
	}
	warnings, err := was.ComparePrepared(checkpoint.DataSetOf(m), spec, o.Input)
	if err != nil {
		return usagef("--config: %s, or remove the line %q", err, preparedPrefix+format.NormalizeFeatures)
	}
	if was.RowsFingerprint != "" && was.RowsFingerprint != m.RowsFingerprint() {
		a.note("--config is of a training on other data than %s now has: expect other results", o.Input)
	}
	for _, w := range warnings {
		a.note("--config: %s", w)
	}
	return nil
}
