package format

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Manifest is manifest.json: everything about a directory but its rows. Fields with omitempty are optional to readers.
// Fields that a later version adds are optional; those that readers must not skip are named in Requires too.
type Manifest struct {
	Format   int      `json:"format"`
	Kind     string   `json:"kind"`               // KindGraph or KindStore
	Requires []string `json:"requires,omitempty"` // features that a reader must know, ascending
	Tool     string   `json:"tool"`               // version that wrote it
	Name     string   `json:"name"`               // of the data set

	Nodes    int64 `json:"nodes"` // of the graph
	Edges    int64 `json:"edges"` // of the graph as stored, each direction counted
	Directed bool  `json:"directed"`
	Weighted bool  `json:"weighted"`
	// SourceNodes is, of a relation, how many nodes there are that edges come from, of another type; 0: Nodes.
	SourceNodes int64 `json:"source_nodes,omitempty"`

	Features  int      `json:"features"`
	DType     string   `json:"dtype"`
	Classes   int      `json:"classes"`       // of single labels; 0 if unlabelled
	Labels    int      `json:"label_columns"` // 0 none, 1 single-label, L > 1 multi-label; or the number of values
	Splits    int      `json:"splits"`        // shipped splits kept
	OrigIDs   bool     `json:"orig_ids"`      // ids were mapped at import and are kept
	Rows      int64    `json:"rows"`          // stored rows: all nodes in a graph
	ChunkRows int      `json:"chunk_rows"`
	Regions   []Region `json:"regions"`

	LabelValues bool     `json:"label_values,omitempty"` // labels are numbers to predict (float32), not classes
	ClassNames  []string `json:"class_names,omitempty"`  // of the classes, where they are named

	Columns []Column `json:"columns,omitempty"` // of a graph's edges, then of its nodes, each by name

	// Stores only.
	Operators []Operator `json:"operators,omitempty"`
	Split     int        `json:"split,omitempty"`   // that the regions follow
	RowSet    string     `json:"row_set,omitempty"` // RowsLabeled, RowsAll or RowsChosen
	Seed      uint64     `json:"seed,omitempty"`    // of the order of training rows
	// LabelHops: the last columns of each matrix, LabelColumns, are propagated labels of the training nodes, up to this
	// hop; beyond it, and in hop 0, they are 0. In the store of a typed graph, labels have matrices of their own, one for
	// each metapath of at most this many relations, whose operators end in labelsEnd. 0: no such columns or matrices.
	LabelHops int `json:"label_hops,omitempty"`

	// Input is what the directory was made from: the importer or generator with its options; or the fingerprint of
	// the graph, and its Preparation.
	Input map[string]string `json:"input"`

	// Fingerprint is a function of the content alone.
	Fingerprint string `json:"fingerprint"`

	Files       []FileEntry `json:"files"` // by path
	IndexSize   int64       `json:"index_size"`
	IndexCRC32C string      `json:"index_crc32c"`
	CRC32C      string      `json:"crc32c"` // of this file with these eight digits zeroed

	bytes   int64                      // of manifest.json as read or written
	unknown map[string]json.RawMessage // fields of later versions, and of others
}

// knownRequirements are the features that Requires may name and this program knows.
var knownRequirements = []string{columnsRequirement, labelsRequirement, sourcesRequirement, widthsRequirement}

// labelsRequirement is named in Manifest.Requires where there are LabelHops: a reader that passes over them would train
// on another split, whose test labels the matrices may have.
const labelsRequirement = "propagated_labels"

// OneHotColumns is how many columns the labels of a node have as zeros and ones: a column a class, or a label of
// several; 0: labels are numbers, or there are none.
func (m *Manifest) OneHotColumns() int {
	switch {
	case m.LabelValues:
		return 0
	case m.Labels > 1:
		return m.Labels
	}
	return m.Classes
}

// LabelColumns is how many columns of each matrix of a store are propagated labels, the last ones.
func (m *Manifest) LabelColumns() int {
	if m.LabelHops == 0 || m.LabelMatrices() > 0 {
		return 0
	}
	return m.OneHotColumns()
}

const labelsEnd = ":labels"

// LabelMatrices is how many matrices of a store are propagated labels.
func (m *Manifest) LabelMatrices() (n int) {
	for _, o := range m.Operators {
		if strings.HasSuffix(o.Name, labelsEnd) {
			n++
		}
	}
	return n
}

// What a reader must know of relations between two types, and of matrices that differ in width.
const (
	sourcesRequirement = "source_nodes"
	widthsRequirement  = "widths"
)

// usedFeatures lists the entries of knownRequirements that a reader needs for the other fields.
func (m *Manifest) usedFeatures() (used []string) {
	if len(m.Columns) > 0 {
		used = append(used, columnsRequirement)
	}
	if m.LabelHops > 0 {
		used = append(used, labelsRequirement)
	}
	if m.SourceNodes > 0 {
		used = append(used, sourcesRequirement)
	}
	if slices.ContainsFunc(m.Operators, func(o Operator) bool { return o.Features != 0 }) {
		used = append(used, widthsRequirement)
	}
	return used
}

// Operator is one propagation operator of a store.
type Operator struct {
	Name     string `json:"name"` // canonical spelling
	Hops     int    `json:"hops"`
	Features int    `json:"features,omitempty"` // columns of its matrices, if not those of the manifest
}

// Entries of Manifest.Input that say what import has made of the features. A store has the entries of its graph.
const (
	NormalizeFeatures = "normalize_features" // true: each row was divided by its sum; false: not
	FeatureColumns    = "feature_columns"    // their names, in order; only of tables whose columns have names
	EdgeFeatures      = "edge_features"      // what the last of them say of in-edges
)

// Entries of Manifest.Input of parts of a typed graph.
const (
	ReverseOf       = "reverse_of"       // the relation that import has turned round to make this one
	MissingFeatures = "missing_features" // what import has made the features of, for a type without any
)

// Preparation is those entries that are known: what earlier versions and other programs wrote may lack some.
func (m *Manifest) Preparation() map[string]string {
	p := map[string]string{}
	for _, name := range []string{NormalizeFeatures, FeatureColumns, EdgeFeatures} {
		if value, known := m.Input[name]; known {
			p[name] = value
		}
	}
	return p
}

// FileEntry is one file of a directory, path relative to it, with slashes. Where there is a Source, features were
// left in that file, and none is at Path: chunks follow each other from byte Offset on, as rows alone.
type FileEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	CRC32C string `json:"crc32c"`           // of all bytes outside chunk bodies
	Source string `json:"source,omitempty"` // path relative to the directory, or absolute, with slashes
	Offset int64  `json:"offset,omitempty"` // of the first chunk in Source

	source string // where Source is; set by findSources
}

// Row sets of a store.
const (
	RowsLabeled = "labeled" // rows that have a label or are in a split
	RowsAll     = "all"
	RowsChosen  = "chosen" // rows of nodes that were named
)

// Limits of the numbers in a manifest.
const (
	MaxNodes        = math.MaxUint32
	MaxEdges        = 1 << 48
	MaxLabelColumns = 1 << 16
	MaxSplits       = 1 << 12
	MaxHops         = 1000
	MaxClassNames   = 1 << 16
	MaxClassName    = 200 // bytes

	maxManifestBytes = 64 << 20
	maxIndexBytes    = 4 << 30
)

// rawData are files by which a folder of data that is to be imported is known, and the layout that it has.
var rawData = []struct{ file, layout string }{
	{"edge_index.npy", "npy"}, {"edges.csv", "csv"}, {"edges.csv.gz", "csv"}, {"edges.parquet", "parquet"},
	{"raw/edge.csv.gz", "ogb"}, {"raw/data.npz", "ogb"},
}

// whatToDo says how to get a graph where there is a folder without a manifest.
func whatToDo(fsys vfs.FS, dir string) string {
	for _, data := range rawData {
		if _, err := fsys.Stat(filepath.Join(dir, filepath.FromSlash(data.file))); err == nil {
			return fmt.Sprintf("it holds data to be imported: run hopfeed import %s %s -o GRAPH, and give GRAPH",
				data.layout, dir)
		}
	}
	return "if a command was writing this graph or store, run the same command again"
}

// readManifest reads and checks the manifest of a directory.
func readManifest(fsys vfs.FS, dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestName)
	var m *Manifest
	b, err := readAgain(fsys, path, maxManifestBytes, func(b []byte) (err error) {
		m, err = decodeManifest(b)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fsys.Stat(dir); err != nil {
			return nil, err
		}
		if IsTyped(fsys, dir) {
			return nil, fmt.Errorf("%w: %s is a typed graph: give a graph of one type, or a hop store, which hopfeed "+
				"propagate makes from it", ErrKind, dir)
		}
		return nil, fmt.Errorf("%s: %w (%s)", dir, ErrIncomplete, whatToDo(fsys, dir))
	}
	if b == nil {
		return nil, err
	}
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &CorruptError{path, -1, err.Error() + " (" + listRemedy + ")"}
	}
	return m, m.findSources(fsys, dir)
}

// readFile reads a file of at most maxBytes bytes; one of another size is damaged.
func readFile(fsys vfs.FS, path string, maxBytes int64) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, path, maxBytes)
	if errors.Is(err, vfs.ErrSize) {
		err = &CorruptError{path, -1, errors.Unwrap(err).Error()}
	}
	return b, err
}

// readAgain is readFile with a check of the content, whose error comes with it. From an object store, a file that fails
// is read once more, as the network may have damaged it.
func readAgain(fsys vfs.FS, path string, maxBytes int64, check func([]byte) error) ([]byte, error) {
	for again := !vfs.IsURL(path); ; again = true {
		b, err := readFile(fsys, path, maxBytes)
		if err != nil {
			return nil, err
		}
		if err = check(b); err == nil || again {
			return b, err
		}
	}
}

// layout says how the rows are divided. DType has been checked.
func (m *Manifest) layout() Layout {
	t, _ := dtype.Parse(m.DType)
	l := Layout{Regions: m.Regions, ChunkRows: m.ChunkRows, Features: m.Features, DType: t, SourceNodes: m.SourceNodes}
	for _, o := range m.Operators {
		if o.Features != 0 {
			if l.Widths == nil {
				l.Widths = map[string]int{}
			}
			l.Widths[o.Name] = o.Features
		}
	}
	return l
}

// check fails if a value is out of range, or two fields contradict each other.
func (m *Manifest) check() error {
	between := func(what string, v, lo, hi int64) error {
		if v < lo || v > hi {
			return fmt.Errorf("%s is %d, not from %d to %d", what, v, lo, hi)
		}
		return nil
	}
	if err := cmp.Or(
		between("nodes", m.Nodes, 0, MaxNodes),
		between("edges", m.Edges, 0, MaxEdges),
		between("source_nodes", m.SourceNodes, 0, MaxNodes),
		between("rows", m.Rows, 0, m.Nodes),
		between("classes", int64(m.Classes), 0, math.MaxInt32),
		between("label_columns", int64(m.Labels), 0, MaxLabelColumns),
		between("splits", int64(m.Splits), 0, MaxSplits),
		between("split", int64(m.Split), 0, int64(max(0, m.Splits-1))),
		between("index_size", m.IndexSize, 0, maxIndexBytes),
		checkText(m.Tool), checkText(m.Name), m.checkRequires(),
	); err != nil {
		return err
	}
	for k, v := range m.Input {
		if err := cmp.Or(checkText(k), checkText(v)); err != nil {
			return err
		}
	}
	if err := cmp.Or(m.checkLabels(), m.checkColumns()); err != nil {
		return err
	}
	if _, err := dtype.Parse(m.DType); err != nil {
		return err
	}
	l := m.layout()
	kind, err := l.check()
	if err != nil {
		return err
	}
	if m.Kind != kind {
		return fmt.Errorf("kind is %q, but a %s has these regions", m.Kind, kind)
	}
	if rows := l.rows(); rows != m.Rows {
		return fmt.Errorf("the regions have %d rows in all, but rows is %d", rows, m.Rows)
	}
	if err := m.checkOperators(); err != nil {
		return err
	}
	return m.checkFiles()
}

// checkLabels checks what is said of the labels.
func (m *Manifest) checkLabels() error {
	if m.LabelValues && (m.Labels == 0 || m.Classes != 0) {
		return fmt.Errorf("label_values is true, but label_columns is %d and classes is %d, not 1 or more and 0",
			m.Labels, m.Classes)
	}
	if m.ClassNames == nil {
		return nil
	}
	if len(m.ClassNames) != m.Classes || m.Classes > MaxClassNames {
		return fmt.Errorf("there are %d class_names for %d classes (as many are wanted, at most %d)", len(m.ClassNames),
			m.Classes, MaxClassNames)
	}
	seen := map[string]bool{}
	for _, name := range m.ClassNames {
		if err := CheckClassName(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("class name %q is there twice", name)
		}
		seen[name] = true
	}
	return nil
}

// CheckClassName fails for what cannot be the name of a class.
func CheckClassName(name string) error {
	if name == "" || len(name) > MaxClassName {
		return fmt.Errorf("class name %.100q has %d bytes, not from 1 to %d", name, len(name), MaxClassName)
	}
	return checkText(name)
}

// checkText fails unless s is valid UTF-8, which JSON needs.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not valid UTF-8", s)
	}
	return nil
}

// checkRequires fails unless the names are of a-z, 0-9 and _, and ascend: a name with a line feed would be two lines
// of the fingerprint. A known name must be there if, and only if, another field uses the feature.
func (m *Manifest) checkRequires() error {
	for i, feature := range m.Requires {
		for _, c := range []byte(feature) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
				return fmt.Errorf("requires: %q cannot name a feature", feature)
			}
		}
		if feature == "" || i > 0 && feature <= m.Requires[i-1] {
			return fmt.Errorf("requires: %q is not in its place (names ascend, none is empty or twice there)", feature)
		}
	}
	used := m.usedFeatures()
	for _, feature := range []string{columnsRequirement, sourcesRequirement, widthsRequirement} {
		if slices.Contains(used, feature) != slices.Contains(m.Requires, feature) {
			return fmt.Errorf("requires names %q, but the other fields make use of %q", m.Requires, used)
		}
	}
	return nil
}

func (m *Manifest) checkOperators() error {
	if m.Kind == KindGraph {
		if len(m.Operators) > 0 || m.Split != 0 || m.RowSet != "" || m.Seed != 0 || m.LabelHops != 0 ||
			m.Rows != m.Nodes {
			return errors.New("a graph has all nodes as rows, and neither operators nor split, row_set, seed or " +
				"label_hops")
		}
		return nil
	}
	if m.SourceNodes != 0 {
		return errors.New("a store has no source_nodes")
	}
	if m.RowSet != RowsLabeled && m.RowSet != RowsAll && m.RowSet != RowsChosen {
		return fmt.Errorf("row_set is %q, none of %q, %q and %q", m.RowSet, RowsLabeled, RowsAll, RowsChosen)
	}
	columns, apart := m.LabelColumns(), m.LabelMatrices() > 0
	if named := slices.Contains(m.Requires, labelsRequirement); m.LabelHops < 0 || m.LabelHops > MaxHops ||
		(m.LabelHops > 0) != named || apart && !named || named && !apart && (columns == 0 || columns >= m.Features) {
		return fmt.Errorf("label_hops is %d, with %d of %d features for labels, and %q in requires: %v", m.LabelHops,
			columns, m.Features, labelsRequirement, named)
	}
	seen := map[string]bool{}
	hops := 0
	for _, o := range m.Operators {
		if err := checkOperatorName(o.Name); err != nil {
			return err
		}
		if o.Name == FeaturesOperator || seen[o.Name] {
			return fmt.Errorf("operator %q is there twice", o.Name)
		}
		seen[o.Name] = true
		if o.Hops < 1 || o.Hops > MaxHops {
			return fmt.Errorf("operator %q has %d hops, not from 1 to %d", o.Name, o.Hops, MaxHops)
		}
		hops += o.Hops
	}
	// Checked before anything is made for each hop.
	if hops > len(m.Files) {
		return fmt.Errorf("the operators have %d hops in all, but there are %d files", hops, len(m.Files))
	}
	withoutWidth := func(o Operator) bool { return m.Features == 0 && o.Features == 0 }
	if slices.ContainsFunc(m.Operators, withoutWidth) {
		return errors.New("there are operators, but no features")
	}
	return nil
}

// checkFiles checks that the files are the parts of the tables that the rest of the manifest calls for.
func (m *Manifest) checkFiles() error {
	parts := map[string]int{}
	for i, f := range m.Files {
		if i > 0 && m.Files[i-1].Path >= f.Path {
			return fmt.Errorf("file %q is not in its place (paths ascend)", f.Path)
		}
		folder, _, ok := splitPart(f.Path)
		if !ok {
			return fmt.Errorf("file %q is not named as a part (such as rows/part-00000.arrow)", f.Path)
		}
		parts[folder]++
		if f.Size < 0 {
			return fmt.Errorf("file %q has %d bytes", f.Path, f.Size)
		}
		if err := checkHex32(f.CRC32C); err != nil {
			return fmt.Errorf("file %q: %w", f.Path, err)
		}
		if err := f.checkSource(m.Kind, folder); err != nil {
			return err
		}
	}
	if err := checkHex32(m.IndexCRC32C); err != nil {
		return err
	}
	for _, t := range m.tables() {
		n := parts[t.folder]
		if n == 0 {
			return fmt.Errorf("files has no part in %s", t.folder)
		}
		for k := range n {
			if _, ok := m.findFile(PartPath(t.folder, k)); !ok {
				return fmt.Errorf("files lacks %s, but has later parts of this table", PartPath(t.folder, k))
			}
		}
		delete(parts, t.folder)
	}
	for folder := range parts {
		return fmt.Errorf("files has parts in %s, a table that the other fields do not call for", folder)
	}
	return nil
}

// manifestAndIndexBytes is the size of manifest and index.
func (m *Manifest) manifestAndIndexBytes() int64 { return m.IndexSize + m.bytes }

// Bytes is the size of all files of the directory, and of the source files that features were left in.
func (m *Manifest) Bytes() int64 {
	total := m.manifestAndIndexBytes()
	for _, f := range m.Files {
		total += f.Size
	}
	return total
}

// findFile is the position of a path in Files; ok is false if it is not there.
func (m *Manifest) findFile(path string) (int, bool) {
	return slices.BinarySearchFunc(m.Files, path, func(f FileEntry, path string) int {
		return strings.Compare(f.Path, path)
	})
}
