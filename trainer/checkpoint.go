package trainer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CheckpointVersion is the version of checkpoints that this package writes, and
// the only one that it reads.
const CheckpointVersion = 3

// ErrCheckpoint is returned when a directory holds no checkpoint that this
// version can read: damaged, incomplete or of another version.
var ErrCheckpoint = errors.New("no usable checkpoint")

// Checkpoint is the best model that a training has found so far, with its data, options and history. A
// training is one run or more of the same options with different seeds. RunDir says how it is stored:
//
//	checkpoint.json              all but the following; names and shapes of the parameters; sizes and SHA-256 of the other files;
//	                             its own CRC-32C, computed with these eight digits zeroed
//	parameters-<digest>.arrow    one float32 column "value": the parameters, row-major, one after another
//	history-<digest>.jsonl       an EpochMetrics a line
//	split-<digest>.arrow         the columns of a Split: node uint32, split uint8, label int32
//
// Once complete, it is a function of the training's input, options and seed.
type Checkpoint struct {
	Data       DataSet
	Split      Split
	Spec       Spec
	Options    Options // of run Best
	Batches    Batches
	Wanted     int            // runs that the training is to have
	Runs       []Run          // that were begun, in order
	Best       int            // place in Runs of the one that the parameters are of
	History    []EpochMetrics // of all runs, in order
	Scales     []float32      // what each of Spec.Matrices is multiplied by
	Parameters []float32      // flat, in the order of the model's declarations
}

// DataSet is the store that a training reads, and the split that it goes by.
type DataSet struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"` // of the store
	Nodes       int64  `json:"nodes"`       // of its graph
	Split       int    `json:"split"`       // number
	SplitsFile  bool   `json:"splits_file"` // Split is one of a file's, not of those of the store
}

// Split is the rows of a training, by node. It tells what the model was trained on in
// whatever store has these nodes.
type Split struct {
	Nodes  []uint32 // ascending
	Parts  []uint8  // of each node: 1 train, 2 valid, 3 test, as stores have it
	Labels []int32  // of each node, -1 unlabelled
}

// Batches says how the batches of a training were formed.
type Batches struct {
	Rows      int    `json:"rows"`       // of a batch, over all devices
	Shuffle   string `json:"shuffle"`    // rr or chunk
	ChunkRows int    `json:"chunk_rows"` // that were shuffled together: 1 for rr
	Placement string `json:"placement"`
	Devices   int    `json:"devices"`
}

// States of a run.
const (
	RunInProgress  = "running" // when the checkpoint was saved
	RunFinished    = "finished"
	RunInterrupted = "interrupted"
	RunDiverged    = "diverged"
	RunFailed      = "failed"
)

// Run is the state and the results of one run of a training. BestEpoch is 0 if no epoch has ended.
type Run struct {
	Seed        uint64   `json:"seed"`
	State       string   `json:"state"`
	Reason      string   `json:"reason,omitempty"` // why it has ended early
	Epochs      int      `json:"epochs"`           // that have ended
	BestEpoch   int      `json:"best_epoch"`
	Selection   string   `json:"selection"`
	TrainLoss   float64  `json:"train_loss"` // of the best epoch, as all that follows
	ValidMetric *float64 `json:"valid_metric"`
	TestMetric  *float64 `json:"test_metric"` // nil unless the run has finished
}

// EpochMetrics are the metrics of an epoch.
type EpochMetrics struct {
	Run         int      `json:"run"` // from 1
	Epoch       int      `json:"epoch"`
	TrainLoss   float64  `json:"train_loss"`
	ValidMetric *float64 `json:"valid_metric"`
}

// Incomplete says in words which runs of the training did not finish; "" if all did.
func (c *Checkpoint) Incomplete() string {
	var lacks []string
	for i, r := range c.Runs {
		run := "training "
		if c.Wanted > 1 {
			run = fmt.Sprintf("run %d of %d ", i+1, c.Wanted)
		}
		switch r.State {
		case RunFinished:
		case RunInProgress:
			lacks = append(lacks, fmt.Sprintf("%swas running after epoch %d of %d, when it was saved last", run, r.Epochs, c.Options.Epochs))
		case RunInterrupted:
			lacks = append(lacks, fmt.Sprintf("%swas interrupted after epoch %d of %d", run, r.Epochs, c.Options.Epochs))
		default:
			lacks = append(lacks, fmt.Sprintf("%s%s after epoch %d of %d", run, r.State, r.Epochs, c.Options.Epochs))
		}
	}
	if n := c.Wanted - len(c.Runs); n > 0 {
		lacks = append(lacks, fmt.Sprintf("%d of %d runs were not begun", n, c.Wanted))
	}
	return strings.Join(lacks, "; ")
}

const (
	// CheckpointFile is the file whose presence makes a directory a checkpoint.
	CheckpointFile = "checkpoint.json"

	checkpointKind = "checkpoint"
	maxJSONBytes   = 16 << 20
)

// checkpointJSON is checkpoint.json.
type checkpointJSON struct {
	Format     int         `json:"format"`
	Kind       string      `json:"kind"`
	Tool       string      `json:"tool"`
	Complete   bool        `json:"complete"` // all wanted runs have finished
	Data       DataSet     `json:"data"`
	Model      modelJSON   `json:"model"`
	Training   Options     `json:"training"`
	Batches    Batches     `json:"batches"`
	Metric     string      `json:"metric"`
	Wanted     int         `json:"runs_wanted"`
	Runs       []Run       `json:"runs"`
	Best       int         `json:"best_run"` // from 1
	Shapes     []shapeJSON `json:"shapes"`   // of the parameters
	Parameters fileJSON    `json:"parameters"`
	History    fileJSON    `json:"history"`
	Split      fileJSON    `json:"split"`
	CRC32C     string      `json:"crc32c"` // last
}

// files are those that belong to the checkpoint.
func (j *checkpointJSON) files() []*fileJSON { return []*fileJSON{&j.Parameters, &j.History, &j.Split} }

// modelJSON is a Spec, with the scale of each matrix.
type modelJSON struct {
	Name     string       `json:"name"`
	Matrices []matrixJSON `json:"matrices"`
	Features int          `json:"features"`
	Classes  int          `json:"classes"`
	Settings Values       `json:"settings"`
}

type matrixJSON struct {
	Operator string  `json:"operator"`
	Hop      int     `json:"hop"`
	Scale    float32 `json:"scale"`
}

func modelOf(s Spec, scales []float32) modelJSON {
	m := modelJSON{Name: s.Model, Features: s.Features, Classes: s.Classes, Settings: s.Settings}
	for i, id := range s.Matrices {
		m.Matrices = append(m.Matrices, matrixJSON{id.Operator, id.Hop, scales[i]})
	}
	return m
}

// spec is the inverse of modelOf. Settings that this version's model does not have are an error, since
// they may change what parameters mean.
func (m modelJSON) spec() (s Spec, scales []float32, err error) {
	s = Spec{Model: m.Name, Features: m.Features, Classes: m.Classes, Settings: m.Settings}
	for _, id := range m.Matrices {
		s.Matrices = append(s.Matrices, MatrixID{Operator: id.Operator, Hop: id.Hop})
		scales = append(scales, id.Scale)
	}
	k, err := findKind(m.Name)
	if err != nil {
		return s, nil, err
	}
	known := k.values(nil)
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		if _, ok := known[name]; !ok {
			return s, nil, fmt.Errorf("%s has no setting %q in this version", m.Name, name)
		}
	}
	return s, scales, nil
}

type shapeJSON struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
	Cols int    `json:"cols"`
}

type fileJSON struct {
	File   string `json:"file"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// namedFile is a file to be written.
type namedFile struct {
	name string
	data []byte
}

// nameByDigest names a file by its content.
func nameByDigest(kind, suffix string, data []byte) (namedFile, fileJSON) {
	digest := fmt.Sprintf("%x", sha256.Sum256(data))
	name := kind + "-" + digest[:16] + suffix
	return namedFile{name, data}, fileJSON{name, int64(len(data)), digest}
}

func crcText(data []byte) string { return fmt.Sprintf("%08x", kernel.CRC32C(0, data)) }

var (
	parametersSchema = arrow.NewSchema([]arrow.Field{{Name: "value", Type: arrow.PrimitiveTypes.Float32}}, nil)
	splitSchema      = arrow.NewSchema([]arrow.Field{
		{Name: "node", Type: arrow.PrimitiveTypes.Uint32}, {Name: "split", Type: arrow.PrimitiveTypes.Uint8}, {Name: "label", Type: arrow.PrimitiveTypes.Int32},
	}, nil)
)

// encodeArrow makes an Arrow file of one record batch.
func encodeArrow(schema *arrow.Schema, rows int64, columns ...[]byte) ([]byte, error) {
	var b bytes.Buffer
	size := 4 << 10 // of what is not columns, and more
	for _, c := range columns {
		size += len(c)
	}
	b.Grow(size)
	w, err := arrowfile.NewWriter(&b, schema)
	if err == nil {
		err = w.Batch(rows, columns...)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// MaxBytes estimates the largest size of the checkpoint on disk, once all of its runs are done.
func (c *Checkpoint) MaxBytes() (int64, error) {
	const head, run, epoch, row = 64 << 10, 1 << 10, 128, 9
	parameters, err := c.Spec.Parameters()
	return head + 4*parameters + row*int64(len(c.Split.Nodes)) + int64(c.Wanted)*(run+int64(c.Options.Epochs)*epoch), err
}

// encode returns the text of checkpoint.json and the files that it names.
func (c *Checkpoint) encode() (text []byte, files []namedFile, err error) {
	spec, declared, err := c.Spec.normalized()
	if err != nil {
		return nil, nil, err
	}
	if len(c.Parameters) != declared.parameters.count || len(c.Scales) != len(spec.Matrices) {
		return nil, nil, fmt.Errorf("%d parameters and %d scales for a model that has %d and %d",
			len(c.Parameters), len(c.Scales), declared.parameters.count, len(spec.Matrices))
	}
	j := checkpointJSON{
		Format: CheckpointVersion, Kind: checkpointKind, Tool: "hopfeed " + version.Version, Complete: c.Incomplete() == "",
		Data:     c.Data,
		Model:    modelOf(spec, c.Scales),
		Training: c.Options, Batches: c.Batches, Metric: c.Options.Metric,
		Wanted: c.Wanted, Runs: c.Runs, Best: c.Best + 1,
		Shapes: shapesOf(&declared.parameters), CRC32C: zeroCRC,
	}
	parameters, err := encodeArrow(parametersSchema, int64(len(c.Parameters)), dtype.BytesOf(c.Parameters))
	if err != nil {
		return nil, nil, err
	}
	var history bytes.Buffer
	for lines, i := json.NewEncoder(&history), 0; i < len(c.History); i++ {
		if err := lines.Encode(c.History[i]); err != nil {
			return nil, nil, err
		}
	}
	split, err := encodeArrow(splitSchema, int64(len(c.Split.Nodes)), dtype.BytesOf(c.Split.Nodes), c.Split.Parts, dtype.BytesOf(c.Split.Labels))
	if err != nil {
		return nil, nil, err
	}
	files = make([]namedFile, 3)
	files[0], j.Parameters = nameByDigest("parameters", ".arrow", parameters)
	files[1], j.History = nameByDigest("history", ".jsonl", history.Bytes())
	files[2], j.Split = nameByDigest("split", ".arrow", split)
	if text, err = json.MarshalIndent(j, "", "  "); err != nil {
		return nil, nil, err
	}
	text = append(text, '\n')
	at := crcDigits(text)
	copy(text[at:], crcText(text))
	return text, files, nil
}

func shapesOf(p *parameters) []shapeJSON {
	shapes := make([]shapeJSON, len(p.list))
	for i, q := range p.list {
		shapes[i] = shapeJSON{q.name, q.rows, q.cols}
	}
	return shapes
}

func writeFile(fsys vfs.FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

const zeroCRC = "00000000"

// crcDigits is where the eight digits of the file's own checksum start, or -1.
func crcDigits(text []byte) int {
	const key = `"crc32c": "`
	at := bytes.LastIndex(text, []byte(key))
	if at < 0 || at+len(key)+len(zeroCRC) > len(text) {
		return -1
	}
	return at + len(key)
}

// LoadCheckpoint reads and checks a checkpoint. What is wrong with its content
// is ErrCheckpoint.
func LoadCheckpoint(fsys vfs.FS, dir string) (*Checkpoint, error) {
	c, err := loadCheckpoint(fsys, dir)
	for i := 0; i < 10 && errors.Is(err, fs.ErrNotExist); i++ {
		// A training may have replaced the checkpoint, and removed its files, between our reads.
		c, err = loadCheckpoint(fsys, dir)
	}
	return c, err
}

func loadCheckpoint(fsys vfs.FS, dir string) (*Checkpoint, error) {
	path := filepath.Join(dir, CheckpointFile)
	text, err := readFile(fsys, path, maxJSONBytes)
	if err != nil {
		return nil, err
	}
	c, j, err := decodeCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	for _, file := range []struct {
		*fileJSON
		decode func([]byte) error
	}{
		{&j.Parameters, func(data []byte) (err error) { c.Parameters, err = decodeParameters(data, j.Shapes); return }},
		{&j.History, func(data []byte) (err error) { c.History, err = decodeHistory(data, len(c.Runs)); return }},
		{&j.Split, func(data []byte) (err error) { c.Split, err = decodeSplit(data, j.Data.Nodes, j.Model.Classes); return }},
	} {
		path := filepath.Join(dir, file.File)
		data, err := readFile(fsys, path, file.Size)
		if err != nil {
			return nil, err
		}
		if err = file.check(data); err == nil {
			err = file.decode(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
		}
	}
	return c, nil
}

// check compares size and digest of a file with those in checkpoint.json.
func (f *fileJSON) check(data []byte) error {
	if int64(len(data)) != f.Size {
		return fmt.Errorf("corrupt: %d bytes, but %s says %d", len(data), CheckpointFile, f.Size)
	}
	if found := fmt.Sprintf("%x", sha256.Sum256(data)); found != f.SHA256 {
		return fmt.Errorf("corrupt: its SHA-256 is %s, but %s says %s", found, CheckpointFile, f.SHA256)
	}
	return nil
}

// decodeCheckpoint decodes and checks checkpoint.json, but not the files that it names.
func decodeCheckpoint(text []byte) (*Checkpoint, *checkpointJSON, error) {
	var head struct {
		Format int    `json:"format"`
		Kind   string `json:"kind"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, fmt.Errorf("corrupt: %w", err)
	}
	if head.Kind != checkpointKind || head.Format != CheckpointVersion {
		return nil, nil, fmt.Errorf("it is a %q of format version %d; this program reads %q, version %d", head.Kind, head.Format, checkpointKind, CheckpointVersion)
	}
	at := crcDigits(text)
	if at < 0 {
		return nil, nil, errors.New("corrupt: it has no checksum")
	}
	zeroed := slices.Clone(text)
	copy(zeroed[at:], zeroCRC)
	if stored, found := string(text[at:at+len(zeroCRC)]), crcText(zeroed); stored != found {
		return nil, nil, fmt.Errorf("corrupt: its checksum is %s, but it says %s", found, stored)
	}
	var j checkpointJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, nil, fmt.Errorf("corrupt: %w", err)
	}
	c := &Checkpoint{Data: j.Data, Options: j.Training, Batches: j.Batches, Wanted: j.Wanted, Runs: j.Runs, Best: j.Best - 1}
	var declared *builder
	var err error
	if c.Spec, c.Scales, err = j.Model.spec(); err == nil {
		c.Spec, declared, err = c.Spec.validate() // a file that is wrong, not somebody's options
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.Options.task(true); err != nil {
		return nil, nil, err
	}
	if want := shapesOf(&declared.parameters); !slices.Equal(j.Shapes, want) {
		return nil, nil, fmt.Errorf("it has the parameters %v, but %s has %v", j.Shapes, c.Spec.Model, want)
	}
	if j.Best < 1 || j.Best > len(j.Runs) || len(j.Runs) > j.Wanted || j.Runs[j.Best-1].BestEpoch < 1 {
		return nil, nil, fmt.Errorf("its model is of run %d, but %d of %d runs were begun", j.Best, len(j.Runs), j.Wanted)
	}
	for i, r := range j.Runs {
		if !slices.Contains([]string{RunInProgress, RunFinished, RunInterrupted, RunDiverged, RunFailed}, r.State) {
			return nil, nil, fmt.Errorf("run %d is in the unknown state %q", i+1, r.State)
		}
	}
	for _, f := range j.files() {
		if m := contentFile.FindStringSubmatch(f.File); m == nil || m[2] != "" || f.Size < 0 {
			return nil, nil, fmt.Errorf("it names a file %q of %d bytes, which no checkpoint has", f.File, f.Size)
		}
	}
	return c, &j, nil
}

// decodeArrow returns the columns of an Arrow file that encodeArrow has made, without copying.
func decodeArrow(data []byte, schema *arrow.Schema) (rows int64, columns [][]byte, err error) {
	layout, err := arrowfile.ReadLayout(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return 0, nil, err
	}
	if !layout.Schema.Equal(schema) || len(layout.Batches) != 1 {
		return 0, nil, fmt.Errorf("it does not hold one record batch of %v", schema)
	}
	for _, b := range layout.Batches[0].Buffers {
		columns = append(columns, data[b.Offset:b.Offset+b.Length])
	}
	return layout.Batches[0].Rows, columns, nil
}

func decodeParameters(data []byte, shapes []shapeJSON) ([]float32, error) {
	rows, columns, err := decodeArrow(data, parametersSchema)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, s := range shapes {
		count += s.Rows * s.Cols
	}
	if rows != int64(count) {
		return nil, fmt.Errorf("it holds %d values for %d parameters", rows, count)
	}
	values := make([]float32, count)
	copy(dtype.BytesOf(values), columns[0])
	return values, nil
}

func decodeHistory(data []byte, runs int) (history []EpochMetrics, err error) {
	lines := json.NewDecoder(bytes.NewReader(data))
	for {
		var e EpochMetrics
		if err := lines.Decode(&e); err == io.EOF {
			return history, nil
		} else if err != nil {
			return nil, fmt.Errorf("epoch %d: %w", len(history)+1, err)
		}
		if e.Run < 1 || e.Run > runs {
			return nil, fmt.Errorf("epoch %d is of run %d, but there are %d", len(history)+1, e.Run, runs)
		}
		history = append(history, e)
	}
}

func decodeSplit(data []byte, nodes int64, classes int) (s Split, err error) {
	rows, columns, err := decodeArrow(data, splitSchema)
	if err != nil {
		return s, err
	}
	s = Split{make([]uint32, rows), make([]uint8, rows), make([]int32, rows)}
	copy(dtype.BytesOf(s.Nodes), columns[0])
	copy(s.Parts, columns[1])
	copy(dtype.BytesOf(s.Labels), columns[2])
	for i, node := range s.Nodes {
		if int64(node) >= nodes || i > 0 && node <= s.Nodes[i-1] || s.Parts[i] < 1 || s.Parts[i] > 3 || s.Labels[i] < -1 || int(s.Labels[i]) >= classes {
			return s, fmt.Errorf("row %d: node %d after %d, of %d; split %d; label %d of %d classes", i, node, s.Nodes[max(i-1, 0)], nodes, s.Parts[i], s.Labels[i], classes)
		}
	}
	return s, nil
}

// readFile reads a file of at most limit bytes whole.
func readFile(fsys vfs.FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %w: corrupt: %d bytes, expected at most %d", path, ErrCheckpoint, size, limit)
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); int64(n) < size {
		if err == io.EOF {
			return nil, fmt.Errorf("%s: %w: it ends at byte %d of %d", path, ErrCheckpoint, n, size)
		}
		return nil, err
	}
	return data, nil
}

// CheckStore returns an error if the model cannot be applied to a store with these matrices,
// features and classes.
func (c *Checkpoint) CheckStore(stored []MatrixID, features, classes int) error {
	if c.Spec.Features != features {
		return fmt.Errorf("the model was trained on %d features (data %s), but the store has %d", c.Spec.Features, c.Data.Name, features)
	}
	if c.Spec.Classes != classes {
		return fmt.Errorf("the model was trained on %d classes (data %s), but the store has %d", c.Spec.Classes, c.Data.Name, classes)
	}
	var missing []string
	for _, id := range c.Spec.Matrices {
		if !slices.Contains(stored, id) {
			missing = append(missing, id.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the model reads %s, which the store lacks: propagate with that operator and as many hops", strings.Join(missing, ", "))
	}
	return nil
}
