package checkpoint

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/trainer"
)

// DataSet is the store or graph that a training reads, and the split that it goes by.
type DataSet struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"` // of the store
	// RowsFingerprint stays the same when matrices are added to the store; "": unknown.
	RowsFingerprint string `json:"rows_fingerprint,omitempty"`
	Nodes           int64  `json:"nodes"`       // of its graph
	Split           int    `json:"split"`       // number of the split
	SplitsFile      bool   `json:"splits_file"` // Split is a split of a file, not one of the store
	DType           string `json:"dtype"`       // of the matrices
	// ClassNames are the names of the model's outputs, in order; nil: they have none.
	ClassNames []string `json:"class_names,omitempty"`
	// Prepared says how features and edges were prepared, as far as it is known.
	Prepared map[string]string `json:"prepared,omitempty"`
}

// Entries of DataSet.Prepared that format.Manifest.Preparation does not have.
const (
	directedEntry = "directed"
	weightedEntry = "weighted"
)

// DataSetOf describes a store or graph, but for the split that a training goes by.
func DataSetOf(m *format.Manifest) DataSet {
	prepared := m.Preparation()
	prepared[directedEntry], prepared[weightedEntry] = strconv.FormatBool(m.Directed), strconv.FormatBool(m.Weighted)
	return DataSet{
		Name: m.Name, Fingerprint: m.Fingerprint, RowsFingerprint: m.RowsFingerprint(), Nodes: m.Nodes,
		DType: m.DType, ClassNames: m.ClassNames, Prepared: prepared,
	}
}

// SameRows tells whether two data sets have the same rows and features. Names, splits and the number of matrices may
// differ.
func (d DataSet) SameRows(as DataSet) bool {
	return d.Fingerprint != "" && d.Fingerprint == as.Fingerprint ||
		d.RowsFingerprint != "" && d.RowsFingerprint == as.RowsFingerprint
}

// Same tells whether two data sets are the same to a training: the same rows by the same split.
func (d DataSet) Same(as DataSet) bool {
	return d.SameRows(as) && d.Split == as.Split && d.SplitsFile == as.SplitsFile
}

// ComparePrepared compares how the features and edges of two data sets were prepared: d for a training, now for the
// input at a path. It returns an error for different features, since parameters mean nothing for them, and warnings for
// what may be a property of another graph.
func (d DataSet) ComparePrepared(now DataSet, spec trainer.Spec, input string) (warnings []string, err error) {
	if d.SameRows(now) {
		return nil, nil
	}
	warn := func(text string, args ...any) { warnings = append(warnings, fmt.Sprintf(text, args...)) }
	with := func(value string) string {
		if value == "true" {
			return "with"
		}
		return "without"
	}
	const flag, same = "--normalize-features", "they must be prepared the same way"
	before, after := d.Prepared[format.NormalizeFeatures], now.Prepared[format.NormalizeFeatures]
	switch {
	case before != "" && after != "" && before != after:
		return nil, fmt.Errorf("%s: its features were imported %s %s, but the training's %s: "+
			"import them the same way (and propagate again)", input, with(after), flag, with(before))
	case before == "" && after == "":
		warn("whether features were imported with %s is recorded neither of the training nor of %s: %s", flag, input,
			same)
	case before == "":
		warn("the features of %s were imported %s %s, and of the training that is not recorded: %s",
			input, with(after), flag, same)
	case after == "":
		warn("the features of the training were imported %s %s, and of %s that is not recorded: %s",
			with(before), flag, input, same)
	}
	before, after = d.Prepared[format.FeatureColumns], now.Prepared[format.FeatureColumns]
	if before != "" && after != "" && before != after {
		warn("the features of %s are the columns %s, but the training's were %s: "+
			"they must mean the same, in this order", input, after, before)
	}
	if !readsEdges(spec) {
		return warnings, nil
	}
	for _, entry := range []string{directedEntry, weightedEntry} {
		if before := d.Prepared[entry]; before != "" && before != now.Prepared[entry] {
			is, were := entry, "not"
			if now.Prepared[entry] != "true" {
				is, were = "not "+entry, entry
			}
			warn("the edges of %s are %s, but the training's were %s: expect worse results", input, is, were)
		}
	}
	return warnings, nil
}

// readsEdges tells whether what a model reads depends on edges.
func readsEdges(spec trainer.Spec) bool {
	aggregation, err := trainer.AggregationOf(spec.Model)
	return err == nil && aggregation != "" ||
		slices.ContainsFunc(spec.Matrices, func(id trainer.MatrixID) bool { return id.Hop > 0 })
}
