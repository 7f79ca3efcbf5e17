package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Split is the rows of a training, by node. It tells which rows of a store the model was trained on, in any store with
// these nodes.
type Split struct {
	Nodes  []uint32 // ascending
	Parts  []uint8  // of each node: 1 train, 2 valid, 3 test, as in stores
	Labels []int32  // of each node: see Rows
}

// RowBytes is the memory for each row while a Split is made, or compared with a store: node, label, part and place
// among the nodes (13 bytes) of the store; node, label and part (9) of the checkpoint and of its file; and the same
// again for what the collector has yet to free.
const RowBytes = 48

// Rows are node and label of each row of a store or graph.
type Rows struct {
	Nodes []uint32
	// Labels are classes; for several labels or values, a digest of them. -1 is unlabelled.
	Labels []int32
}

// ReadRows reads them. They take RowBytes a row until they are no longer used.
func ReadRows(ctx context.Context, store *format.Dir) (r Rows, err error) {
	m := &store.Manifest
	classes := m.Labels <= 1 && !m.LabelValues
	r = Rows{make([]uint32, m.Rows), make([]int32, m.Rows)}
	for _, region := range store.Layout().Regions {
		lo, hi := region.FirstRow, region.FirstRow+region.Rows
		if m.Kind == format.KindGraph {
			for row := lo; row < hi; row++ {
				r.Nodes[row] = uint32(row)
			}
		} else if err := store.ReadNodes(ctx, region, r.Nodes[lo:hi]); err != nil {
			return r, err
		}
		if classes {
			if err := store.ReadLabels(ctx, region, r.Labels[lo:hi]); err != nil {
				return r, err
			}
		}
	}
	if classes {
		return r, nil
	}
	return r, store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i := range t.Rows {
			r.Labels[first+i] = labelDigest(t, i)
		}
	})
}

// labelDigest is a number from 0 on that differs between different labels of rows; it is -1 if all are missing.
func labelDigest(t *format.RowTable, row int64) int32 {
	if !t.Labelled(row) {
		return -1
	}
	lo, hi := row*int64(t.LabelColumns), (row+1)*int64(t.LabelColumns)
	var bytes []byte
	if t.MultiLabels != nil {
		bytes = dtype.BytesOf(t.MultiLabels[lo:hi])
	} else {
		bytes = dtype.BytesOf(t.LabelValues[lo:hi])
	}
	return int32(crc32.ChecksumIEEE(bytes) >> 1)
}

// byNode are the numbers of the rows, ordered by node.
func (r Rows) byNode() []uint32 {
	rows := make([]uint32, len(r.Nodes))
	for i := range rows {
		rows[i] = uint32(i)
	}
	slices.SortFunc(rows, func(a, b uint32) int { return cmp.Compare(r.Nodes[a], r.Nodes[b]) })
	return rows
}

// Split converts a partition of the rows of their store.
func (r Rows) Split(store *format.Dir, p session.Partition) (s Split) {
	parts := make([]uint8, len(r.Nodes))
	rows := 0
	for _, part := range p.Parts() {
		part.Each(store, func(row int64) {
			if parts[row] = part.Split; part.Split != format.SplitNone {
				rows++
			}
		})
	}
	s = Split{Nodes: make([]uint32, 0, rows), Parts: make([]uint8, 0, rows), Labels: make([]int32, 0, rows)}
	for _, row := range r.byNode() {
		if parts[row] != format.SplitNone {
			s.Nodes = append(s.Nodes, r.Nodes[row])
			s.Parts, s.Labels = append(s.Parts, parts[row]), append(s.Labels, r.Labels[row])
		}
	}
	return s
}

// Compare finds the rows of a store in the split that a model was trained on. parts has the part of each row; nil: the
// store has other nodes. The nodes are the same if store and training come from the same graph, or if there are as many
// and sameNodes says so; some may be missing among the rows, or have another label. grown tells that the nodes are
// others for their number alone.
func (r Rows) Compare(store *format.Dir, c *Checkpoint) (parts []uint8, grown bool) {
	parts = make([]uint8, len(r.Nodes))
	rows, s := r.byNode(), &c.Split
	most := min(len(r.Nodes), len(s.Nodes))
	trained, stored := make([]int32, 0, most), make([]int32, 0, most)
	for i, node := range s.Nodes {
		for len(rows) > 0 && r.Nodes[rows[0]] < node {
			rows = rows[1:]
		}
		if len(rows) == 0 || r.Nodes[rows[0]] != node {
			continue
		}
		row := rows[0]
		if parts[row] = s.Parts[i]; s.Labels[i] >= 0 && r.Labels[row] >= 0 {
			trained, stored = append(trained, s.Labels[i]), append(stored, r.Labels[row])
		}
	}
	nodes := store.Manifest.Nodes
	switch {
	case c.Data.SameRows(DataSetOf(&store.Manifest)):
		return parts, false
	case !sameNodes(max(nodes, c.Data.Nodes), countLabelled(s.Labels), countLabelled(r.Labels), trained, stored):
		return nil, false
	case nodes != c.Data.Nodes:
		return nil, true
	}
	return parts, false
}

func countLabelled(labels []int32) (n int) {
	for _, label := range labels {
		if label >= 0 {
			n++
		}
	}
	return n
}

// sameNodes tells whether two graphs of n nodes have the same nodes, from their labels: the graphs have first and
// second labelled nodes; a and b are the labels, in each graph, of the nodes that are labelled in both. The nodes are
// the same if the number of common labels, and the part of them that agrees, are nearer to the largest possible than to
// what chance gives, where each label belongs to a random node. So a graph is recognised that was imported again with
// other edges, without some labels, or with corrected ones. It sorts a and b.
func sameNodes(n int64, first, second int, a, b []int32) bool {
	both, agree := float64(len(a)), 0.0
	for i, label := range a {
		if label == b[i] {
			agree++
		}
	}
	slices.Sort(a)
	slices.Sort(b)
	chance := 0.0
	for i, j := 0, 0; i < len(a); {
		label, inA, inB := a[i], 0.0, 0.0
		for ; i < len(a) && a[i] == label; i++ {
			inA++
		}
		for ; j < len(b) && b[j] <= label; j++ {
			if b[j] == label {
				inB++
			}
		}
		chance += inA * inB / both
	}
	overlap := float64(first) * float64(second) / float64(n)
	return both > 0 && 2*both >= overlap+float64(min(first, second)) && 2*agree >= chance+both
}

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
	// LabelHops: matrices have labels of training nodes as their last columns, up to this hop; 0: they have none.
	LabelHops int `json:"label_hops,omitempty"`
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
		DType: m.DType, LabelHops: m.LabelHops, ClassNames: m.ClassNames, Prepared: prepared,
	}
}

// Names in configurations and in the settings of trials that are no flags, but say what data they are of.
const (
	fingerprintSetting = "fingerprint" // see format.Manifest.RowsFingerprint
	PreparedPrefix     = "prepared."   // of the entries of DataSet.Prepared
)

// IsDataSetting tells whether an entry of a configuration says what data it is of.
func IsDataSetting(name string) bool {
	return name == fingerprintSetting || strings.HasPrefix(name, PreparedPrefix)
}

// Settings are the entries of a configuration that say what data it is of.
func (d DataSet) Settings() map[string]string {
	s := map[string]string{fingerprintSetting: d.RowsFingerprint}
	for name, value := range d.Prepared {
		s[PreparedPrefix+name] = value
	}
	return s
}

// DataSetOfSettings is the inverse of DataSet.Settings. What is not there is unknown.
func DataSetOfSettings(config map[string]string) DataSet {
	d := DataSet{RowsFingerprint: config[fingerprintSetting], Prepared: map[string]string{}}
	for name, value := range config {
		if entry, found := strings.CutPrefix(name, PreparedPrefix); found {
			d.Prepared[entry] = value
		}
	}
	return d
}

// WithoutData are settings without the entries that say what data they are of.
func WithoutData(s map[string]string) map[string]string {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(name, _ string) bool { return IsDataSetting(name) })
	return s
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
