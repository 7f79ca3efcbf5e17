package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// Names in configurations and in the settings of trials that are no flags, but say what data they are of.
const (
	fingerprintKey = "fingerprint" // see format.Manifest.RowsFingerprint
	preparedPrefix = "prepared."   // of the entries of trainer.DataSet.Prepared
)

func isDataKey(name string) bool {
	return name == fingerprintKey || strings.HasPrefix(name, preparedPrefix)
}

// identityOf identifies the rows and features of an input.
func identityOf(m *format.Manifest) trainer.DataSet {
	return trainer.DataSet{Fingerprint: m.Fingerprint, RowsFingerprint: m.RowsFingerprint()}
}

// preparationOf says how features and edges of an input were prepared, as far as it is known.
func preparationOf(m *format.Manifest) map[string]string {
	p := m.Preparation()
	p["directed"], p["weighted"] = strconv.FormatBool(m.Directed), strconv.FormatBool(m.Weighted)
	return p
}

// dataSettings are the entries of a configuration that say what data it is of.
func dataSettings(m *format.Manifest) tune.Settings {
	s := tune.Settings{fingerprintKey: m.RowsFingerprint()}
	for name, value := range preparationOf(m) {
		s[preparedPrefix+name] = value
	}
	return s
}

// dataSetOf is the inverse of dataSettings. What is not there is unknown.
func dataSetOf(config map[string]string) trainer.DataSet {
	d := trainer.DataSet{RowsFingerprint: config[fingerprintKey], Prepared: map[string]string{}}
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

// comparePrepared compares how an input was prepared with how the data of a training were. Other features are refused:
// the same parameters mean nothing for them. What may be another graph's property is a warning.
func comparePrepared(was trainer.DataSet, spec trainer.Spec, m *format.Manifest, input string) (
	warnings []string, err error) {
	if was.SameRows(identityOf(m)) {
		return nil, nil
	}
	now := preparationOf(m)
	warn := func(text string, args ...any) { warnings = append(warnings, fmt.Sprintf(text, args...)) }
	with := func(value string) string {
		if value == "true" {
			return "with"
		}
		return "without"
	}
	const flag, same = "--normalize-features", "they must be prepared the same way"
	before, after := was.Prepared[format.NormalizeFeatures], now[format.NormalizeFeatures]
	switch {
	case before != "" && after != "" && before != after:
		return nil, usagef("%s: its features were imported %s %s, and those of the training %s: "+
			"import them the same way (and propagate again)", input, with(after), flag, with(before))
	case before == "" && after == "":
		warn("whether features were imported with %s is recorded neither of the training nor of %s: %s", flag, input, same)
	case before == "":
		warn("the features of %s were imported %s %s, and of the training that is not recorded: %s", input, with(after), flag, same)
	case after == "":
		warn("the features of the training were imported %s %s, and of %s that is not recorded: %s", with(before), flag, input, same)
	}
	before, after = was.Prepared[format.FeatureColumns], now[format.FeatureColumns]
	if before != "" && after != "" && before != after {
		warn("the features of %s are the columns %s, and those of the training were %s: they must mean the same, in this order",
			input, after, before)
	}
	if !readsEdges(spec) {
		return warnings, nil
	}
	for _, entry := range []string{"directed", "weighted"} {
		if before := was.Prepared[entry]; before != "" && before != now[entry] {
			is, were := entry, "not"
			if now[entry] != "true" {
				is, were = "not "+entry, entry
			}
			warn("the edges of %s are %s, and those of the training were %s: expect worse results", input, is, were)
		}
	}
	return warnings, nil
}

// readsEdges tells whether what a model reads depends on edges.
func readsEdges(spec trainer.Spec) bool {
	if aggregation, err := trainer.AggregationOf(spec.Model); err == nil && aggregation != "" {
		return true
	}
	for _, id := range spec.Matrices {
		if id.Hop > 0 {
			return true
		}
	}
	return false
}

// checkConfigured compares the input of a training with what a configuration was made for.
func (a *app) checkConfigured(o *trainOptions, spec trainer.Spec, m *format.Manifest) error {
	if was := o.configured; was.RowsFingerprint == "" && len(was.Prepared) == 0 {
		return nil // none, or one that says nothing of it
	}
	warnings, err := comparePrepared(o.configured, spec, m, o.store)
	if err != nil {
		return usagef("--config: %s, or remove the line %q", err, preparedPrefix+format.NormalizeFeatures)
	}
	if was := o.configured.RowsFingerprint; was != "" && was != m.RowsFingerprint() {
		a.note("--config is of a training on other data than %s now has: expect other results", o.store)
	}
	for _, w := range warnings {
		a.note("--config: %s", w)
	}
	return nil
}

// warningLines are lines of a result.
func warningLines(warnings []string) string {
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning\t%s\n", units.Printable(w))
	}
	return b.String()
}
