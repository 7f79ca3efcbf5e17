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
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/safetensors"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
)

// CheckpointVersion is the version of checkpoints that this package writes, and
// the only one that it reads.
const CheckpointVersion = 4

// ErrCheckpoint is returned when a directory holds no checkpoint that this
// version can read: damaged, incomplete or of another version.
var ErrCheckpoint = errors.New("no usable checkpoint")

// Checkpoint is the best model that a training has found so far, with its data, options and history,
// and, while the training is unfinished, all that it needs to go on. A training is one run or more of
// the same options with different seeds. RunDir says how it is stored:
//
//	checkpoint.json                   all but the following; sizes and SHA-256 of the other files; its own CRC-32C,
//	                                  computed with these eight digits zeroed
//	parameters-<digest>.safetensors   the parameters, by name
//	split-<digest>.arrow              the columns of a Split: node uint32, split uint8, label int32
//	state-<digest>.safetensors        the State of the run that goes on, if one does
//	metrics.jsonl                     an EpochMetrics a line; there may be more lines than belong to the checkpoint
//	config.yaml                       Config, a line for each
//
// Parameters and split of a finished training are functions of its input, options and seed.
type Checkpoint struct {
	Data                  DataSet
	Split                 Split
	Spec                  Spec
	Options               Options // of run Best
	Batches               Batches
	Config                map[string]string // settings of the program that trains, from which it can do the same again
	PredictedEpochSeconds float64           // 0: unknown
	Wanted                int               // runs that the training is to have
	Runs                  []Run             // that were begun, in order
	Best                  int               // place in Runs of the one that the parameters are of; -1 if there is a State only
	Scales                []float32         // what each of Spec.Matrices is multiplied by
	Parameters            []float32         // flat, in the order of the model's declarations

	History []EpochMetrics // of all runs, in order; LoadCheckpoint leaves it out
	State   *State         // of the last run, if it goes on; LoadCheckpoint leaves it out
}

// DataSet is the store that a training reads, and the split that it goes by.
type DataSet struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"` // of the store
	// RowsFingerprint stays as matrices are added to the store; "": unknown.
	RowsFingerprint string `json:"rows_fingerprint,omitempty"`
	Nodes           int64  `json:"nodes"`       // of its graph
	Split           int    `json:"split"`       // number
	SplitsFile      bool   `json:"splits_file"` // Split is one of a file's, not of those of the store
	DType           string `json:"dtype"`       // of the matrices
	// ClassNames are those of the model's outputs, in order; nil: they have none.
	ClassNames []string `json:"class_names,omitempty"`
	// Prepared says how features and edges were prepared, as far as it is known.
	Prepared map[string]string `json:"prepared,omitempty"`
}

// SameRows tells whether two data sets have the same rows and features, whatever their names and splits, and though one
// of them may have more matrices.
func (d DataSet) SameRows(as DataSet) bool {
	return d.Fingerprint != "" && d.Fingerprint == as.Fingerprint || d.RowsFingerprint != "" && d.RowsFingerprint == as.RowsFingerprint
}

// Same tells whether two data sets are the same to a training: the same rows by the same split.
func (d DataSet) Same(as DataSet) bool {
	return d.SameRows(as) && d.Split == as.Split && d.SplitsFile == as.SplitsFile
}

// Split is the rows of a training, by node. It tells what the model was trained on in
// whatever store has these nodes.
type Split struct {
	Nodes  []uint32 // ascending
	Parts  []uint8  // of each node: 1 train, 2 valid, 3 test, as stores have it
	Labels []int32  // of each node, -1 unlabelled; of several labels or of values, a number that tells them apart
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

// Run is one run of a training: its state, and what it has come to, as far as that was saved.
type Run struct {
	Seed   uint64 `json:"seed"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"` // why it has ended early
	Figures
}

// EpochMetrics are the metrics of an epoch.
type EpochMetrics struct {
	Run          int      `json:"run"` // from 1
	Epoch        int      `json:"epoch"`
	TrainLoss    float64  `json:"train_loss"`
	ValidMetric  *float64 `json:"valid_metric"`
	ValidLoss    float64  `json:"valid_loss"` // where there is a ValidMetric
	Seconds      float64  `json:"seconds"`    // training and validation
	TrainSeconds float64  `json:"train_seconds"`

	Traffic loader.Traffic `json:"traffic"` // of training
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
	// MetricsFile and ConfigFile are for people and programs to read while a training goes on.
	MetricsFile = "metrics.jsonl"
	ConfigFile  = "config.yaml"

	checkpointKind  = "checkpoint"
	maxJSONBytes    = 16 << 20
	maxMetricsBytes = 1 << 30
)

// checkpointJSON is checkpoint.json.
type checkpointJSON struct {
	Format     int               `json:"format"`
	Kind       string            `json:"kind"`
	Tool       string            `json:"tool"`
	Complete   bool              `json:"complete"` // all wanted runs have finished
	Data       DataSet           `json:"data"`
	Model      modelJSON         `json:"model"`
	Training   Options           `json:"training"`
	Batches    Batches           `json:"batches"`
	Config     map[string]string `json:"config,omitempty"`
	Predicted  float64           `json:"predicted_epoch_seconds,omitempty"`
	Metric     string            `json:"metric"`
	Wanted     int               `json:"runs_wanted"`
	Runs       []Run             `json:"runs"`
	Best       int               `json:"best_run"`             // from 1; 0 as long as no epoch has ended
	Parameters *fileJSON         `json:"parameters,omitempty"` // of run Best
	Split      fileJSON          `json:"split"`
	State      *fileJSON         `json:"state,omitempty"`
	Metrics    fileJSON          `json:"metrics"` // size and digest are those of the lines that belong to the checkpoint
	CRC32C     string            `json:"crc32c"`  // last
}

// files are those that belong to the checkpoint alone.
func (j *checkpointJSON) files() []*fileJSON {
	return slices.DeleteFunc([]*fileJSON{j.Parameters, &j.Split, j.State}, func(f *fileJSON) bool { return f == nil })
}

// modelJSON is a Spec, with the scale of each matrix.
type modelJSON struct {
	Name     string       `json:"name"`
	Matrices []matrixJSON `json:"matrices"`
	Features int          `json:"features"`
	Classes  int          `json:"classes"`
	Target   Target       `json:"target,omitempty"`
	Settings Values       `json:"settings"`
}

type matrixJSON struct {
	Operator string  `json:"operator"`
	Hop      int     `json:"hop"`
	Scale    float32 `json:"scale"`
}

func modelOf(s Spec, scales []float32) modelJSON {
	m := modelJSON{Name: s.Model, Features: s.Features, Classes: s.Classes, Target: s.Target, Settings: s.Settings}
	for i, id := range s.Matrices {
		m.Matrices = append(m.Matrices, matrixJSON{id.Operator, id.Hop, scales[i]})
	}
	return m
}

// spec is the inverse of modelOf. Settings that this version's model does not have are an error, since
// they may change what parameters mean.
func (m modelJSON) spec() (s Spec, scales []float32, err error) {
	s = Spec{Model: m.Name, Features: m.Features, Classes: m.Classes, Target: m.Target, Settings: m.Settings}
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

func describe(name string, data []byte) fileJSON {
	return fileJSON{name, int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))}
}

// nameByDigest names a file by its content.
func nameByDigest(kind, suffix string, data []byte) (namedFile, fileJSON) {
	d := describe("", data)
	d.File = kind + "-" + d.SHA256[:16] + suffix
	return namedFile{d.File, data}, d
}

func crcText(data []byte) string { return fmt.Sprintf("%08x", kernel.CRC32C(0, data)) }

var splitSchema = arrow.NewSchema([]arrow.Field{
	{Name: "node", Type: arrow.PrimitiveTypes.Uint32}, {Name: "split", Type: arrow.PrimitiveTypes.Uint8}, {Name: "label", Type: arrow.PrimitiveTypes.Int32},
}, nil)

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

// MaxBytes estimates the largest size of the checkpoint on disk, while its last run goes on.
func (c *Checkpoint) MaxBytes() (int64, error) {
	const head, run, epoch, row = 64 << 10, 2 << 10, 512, 9
	parameters, err := c.Spec.Parameters()
	if err != nil {
		return 0, err
	}
	t, err := c.Options.task(c.Spec, true)
	vectors := int64(1 + 2 + t.optimizer.moments)
	epochs := int64(c.Wanted+1) * int64(c.Options.Epochs) // in metrics.jsonl, and of the last run in the state
	names := 0
	for _, name := range c.Data.ClassNames {
		names += len(name) + 16
	}
	return head + int64(names) + 4*vectors*parameters + row*int64(len(c.Split.Nodes)) + int64(c.Wanted)*run + epochs*epoch, err
}

// encode returns the text of checkpoint.json, the files that belong to it alone, and metrics.jsonl.
func (c *Checkpoint) encode() (text []byte, files []namedFile, metrics []byte, err error) {
	spec, declared, err := c.Spec.normalized()
	if err != nil {
		return nil, nil, nil, err
	}
	scales, count := c.Scales, declared.parameters.count
	if c.Best < 0 && c.State != nil {
		scales, count = make([]float32, len(c.State.Inputs)), 0
	}
	if len(c.Parameters) != count || len(scales) != len(spec.Matrices) {
		return nil, nil, nil, fmt.Errorf("%d parameters and %d scales for a model that has %d and %d",
			len(c.Parameters), len(scales), count, len(spec.Matrices))
	}
	j := checkpointJSON{
		Format: CheckpointVersion, Kind: checkpointKind, Tool: "hopfeed " + version.Version, Complete: c.Incomplete() == "",
		Data:     c.Data,
		Model:    modelOf(spec, scales),
		Training: c.Options, Batches: c.Batches, Config: c.Config, Predicted: c.PredictedEpochSeconds, Metric: c.Options.Metric,
		Wanted: c.Wanted, Runs: c.Runs, Best: c.Best + 1, CRC32C: zeroCRC,
	}
	add := func(kind, suffix string, data []byte) (f fileJSON) {
		named, f := nameByDigest(kind, suffix, data)
		files = append(files, named)
		return f
	}
	if count > 0 {
		parameters, err := safetensors.Encode(map[string]string{"model": spec.Model}, declared.parameters.tensors(c.Parameters))
		if err != nil {
			return nil, nil, nil, err
		}
		file := add("parameters", ".safetensors", parameters)
		j.Parameters = &file
	}
	split, err := encodeArrow(splitSchema, int64(len(c.Split.Nodes)), dtype.BytesOf(c.Split.Nodes), c.Split.Parts, dtype.BytesOf(c.Split.Labels))
	if err != nil {
		return nil, nil, nil, err
	}
	j.Split = add("split", ".arrow", split)
	if c.State != nil {
		state, err := c.State.Encode()
		if err != nil {
			return nil, nil, nil, err
		}
		file := add("state", ".safetensors", state)
		j.State = &file
	}
	var history bytes.Buffer
	for lines, i := json.NewEncoder(&history), 0; i < len(c.History); i++ {
		if err := lines.Encode(c.History[i]); err != nil {
			return nil, nil, nil, err
		}
	}
	j.Metrics = describe(MetricsFile, history.Bytes())
	if text, err = json.MarshalIndent(j, "", "  "); err != nil {
		return nil, nil, nil, err
	}
	text = append(text, '\n')
	at := crcDigits(text)
	copy(text[at:], crcText(text))
	return text, files, history.Bytes(), nil
}

// tensors are the parameters of a flat vector, by name.
func (p *parameters) tensors(flat []float32) (all []safetensors.Tensor) {
	for _, q := range p.list {
		all = append(all, safetensors.Tensor{Name: q.name, Shape: []int{q.rows, q.cols}, Data: flat[q.first : q.first+q.rows*q.cols]})
	}
	return all
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

// LoadCheckpoint reads and checks a checkpoint, but for the history and the state of an unfinished run. What
// is wrong with its content is ErrCheckpoint.
func LoadCheckpoint(fsys vfs.FS, dir string) (*Checkpoint, error) { return load(fsys, dir, false) }

// LoadRun is LoadCheckpoint with the history and, of a training that can go on, the state.
func LoadRun(fsys vfs.FS, dir string) (*Checkpoint, error) { return load(fsys, dir, true) }

func load(fsys vfs.FS, dir string, whole bool) (*Checkpoint, error) {
	c, err := loadOnce(fsys, dir, whole)
	for i := 0; i < 10 && errors.Is(err, fs.ErrNotExist); i++ {
		// A training may have replaced the checkpoint, and removed its files, between our reads.
		c, err = loadOnce(fsys, dir, whole)
	}
	return c, err
}

func loadOnce(fsys vfs.FS, dir string, whole bool) (*Checkpoint, error) {
	path := filepath.Join(dir, CheckpointFile)
	text, err := readFile(fsys, path, maxJSONBytes)
	if err != nil {
		return nil, err
	}
	c, j, err := decodeCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	decode := func(file *fileJSON, data []byte, do func([]byte) error) error {
		err := file.check(data)
		if err == nil {
			err = do(data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", filepath.Join(dir, file.File), ErrCheckpoint, err)
		}
		return nil
	}
	read := func(file *fileJSON, do func([]byte) error) error {
		data, err := readFile(fsys, filepath.Join(dir, file.File), file.Size)
		if err != nil {
			return err
		}
		return decode(file, data, do)
	}
	if j.Parameters != nil {
		if err := read(j.Parameters, func(data []byte) (err error) { c.Parameters, err = decodeParameters(data, c.Spec); return }); err != nil {
			return nil, err
		}
	} else if !whole {
		return nil, fmt.Errorf("%s: %w: no epoch of its training has ended", path, ErrCheckpoint)
	}
	if err := read(&j.Split, func(data []byte) (err error) { c.Split, err = decodeSplit(data, j.Data.Nodes, c.Spec); return }); err != nil {
		return nil, err
	}
	if !whole {
		return c, nil
	}
	if j.State != nil {
		if err := read(j.State, func(data []byte) (err error) { c.State, err = DecodeState(data); return }); err != nil {
			return nil, err
		}
	}
	metrics, err := readPlain(fsys, dir, MetricsFile)
	if err != nil {
		return nil, err
	}
	metrics = metrics[:min(j.Metrics.Size, int64(len(metrics)))]
	return c, decode(&j.Metrics, metrics, func(data []byte) (err error) { c.History, err = decodeHistory(data, len(c.Runs)); return })
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
	c := &Checkpoint{
		Data: j.Data, Options: j.Training, Batches: j.Batches, Config: j.Config, PredictedEpochSeconds: j.Predicted,
		Wanted: j.Wanted, Runs: j.Runs, Best: j.Best - 1,
	}
	var err error
	if c.Spec, c.Scales, err = j.Model.spec(); err == nil {
		c.Spec, _, err = c.Spec.validate() // a file that is wrong, not somebody's options
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.Options.task(c.Spec, true); err != nil {
		return nil, nil, err
	}
	none := j.Best == 0 && j.Parameters == nil && j.State != nil
	model := j.Best >= 1 && j.Best <= len(j.Runs) && j.Parameters != nil && j.Runs[j.Best-1].BestEpoch >= 1
	if !none && !model || len(j.Runs) < 1 || len(j.Runs) > j.Wanted {
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
	if j.Metrics.File != MetricsFile || j.Metrics.Size < 0 {
		return nil, nil, fmt.Errorf("its history is in a file %q of %d bytes", j.Metrics.File, j.Metrics.Size)
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

func decodeParameters(data []byte, spec Spec) ([]float32, error) {
	_, found, err := safetensors.Decode(data)
	if err != nil {
		return nil, err
	}
	_, declared, err := spec.validate()
	if err != nil {
		return nil, err
	}
	values := make([]float32, declared.parameters.count)
	want := declared.parameters.tensors(values)
	for i, w := range want {
		if i >= len(found) || found[i].Name != w.Name || !slices.Equal(found[i].Shape, w.Shape) {
			return nil, fmt.Errorf("it has the parameters %s, but %s has %s", shapesText(found), spec.Model, shapesText(want))
		}
		copy(w.Data, found[i].Data)
	}
	if len(found) > len(want) {
		return nil, fmt.Errorf("it has the parameters %s, but %s has %s", shapesText(found), spec.Model, shapesText(want))
	}
	return values, nil
}

func shapesText(all []safetensors.Tensor) string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = fmt.Sprint(t.Name, t.Shape)
	}
	return strings.Join(names, ", ")
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

func decodeSplit(data []byte, nodes int64, spec Spec) (s Split, err error) {
	rows, columns, err := decodeArrow(data, splitSchema)
	if err != nil {
		return s, err
	}
	s = Split{make([]uint32, rows), make([]uint8, rows), make([]int32, rows)}
	copy(dtype.BytesOf(s.Nodes), columns[0])
	copy(s.Parts, columns[1])
	copy(dtype.BytesOf(s.Labels), columns[2])
	classes := math.MaxInt
	if spec.Target == ClassTarget {
		classes = spec.Classes
	}
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

// CheckStore returns an error if the model cannot be evaluated on a store with these matrices and
// features, and so many classes, labels or values.
func (c *Checkpoint) CheckStore(stored []MatrixID, features, classes int, target Target) error {
	if c.Spec.Features == features && (c.Spec.Classes != classes || c.Spec.Target != target) {
		return fmt.Errorf("the model was trained on %d %s (data %s), but the store has %d %s", c.Spec.Classes, c.Spec.Target.about(), c.Data.Name, classes, target.about())
	}
	return c.CheckInput(stored, features)
}

// CheckInput returns an error if the model cannot be applied to a store with these matrices and
// features, whatever its labels are.
func (c *Checkpoint) CheckInput(stored []MatrixID, features int) error {
	if c.Spec.Features != features {
		return fmt.Errorf("the model was trained on %d features (data %s), but the store has %d", c.Spec.Features, c.Data.Name, features)
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
