package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/jsontext"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/safetensors"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/trainer"
)

const (
	// File is the file whose presence makes a folder a checkpoint.
	File = "checkpoint.json"
	// MetricsFile and ConfigFile are for people and programs to read while a training goes on.
	MetricsFile = "metrics.jsonl"
	ConfigFile  = "config.yaml"

	kind            = "checkpoint"
	maxJSONBytes    = 16 << 20
	maxMetricsBytes = 1 << 30
)

// manifest is checkpoint.json.
type manifest struct {
	Format     int               `json:"format"`
	Kind       string            `json:"kind"`
	Tool       string            `json:"tool"`
	Complete   bool              `json:"complete"` // all wanted runs have finished
	Data       DataSet           `json:"data"`
	Model      trainer.SavedSpec `json:"model"`
	Training   trainer.Options   `json:"training"`
	Batches    Batches           `json:"batches"`
	Config     map[string]string `json:"config,omitempty"`
	Predicted  float64           `json:"predicted_epoch_seconds,omitempty"`
	Metric     string            `json:"metric"`
	Wanted     int               `json:"runs_wanted"`
	Runs       []Run             `json:"runs"`
	Best       int               `json:"best_run"`             // from 1; 0 as long as no epoch has ended
	Parameters *fileEntry        `json:"parameters,omitempty"` // of run Best
	Split      fileEntry         `json:"split"`
	State      *fileEntry        `json:"state,omitempty"`
	Metrics    fileEntry         `json:"metrics"` // size and digest of the lines that belong to the checkpoint
	CRC32C     string            `json:"crc32c"`  // last
}

// files are the files that belong to the checkpoint alone.
func (m *manifest) files() []*fileEntry {
	return slices.DeleteFunc([]*fileEntry{m.Parameters, &m.Split, m.State}, func(f *fileEntry) bool { return f == nil })
}

type fileEntry struct {
	File   string `json:"file"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func describe(name string, data []byte) fileEntry {
	return fileEntry{name, int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))}
}

// check compares size and digest of a file with its entry in checkpoint.json.
func (f *fileEntry) check(data []byte) error {
	if int64(len(data)) != f.Size {
		return fmt.Errorf("corrupt: %d bytes, but %s says %d", len(data), File, f.Size)
	}
	if found := describe("", data).SHA256; found != f.SHA256 {
		return fmt.Errorf("corrupt: its SHA-256 is %s, but %s says %s", found, File, f.SHA256)
	}
	return nil
}

type namedFile struct {
	name string
	data []byte
}

const zeroCRC = "00000000"

func crcText(data []byte) string { return fmt.Sprintf("%08x", kernel.CRC32C(0, data)) }

// crcDigits is where the eight digits of the file's own checksum start, or -1.
func crcDigits(text []byte) int {
	const key = `"crc32c": "`
	at := bytes.LastIndex(text, []byte(key))
	if at < 0 || at+len(key)+len(zeroCRC) > len(text) {
		return -1
	}
	return at + len(key)
}

// MaxBytes estimates the largest size of the checkpoint on disk, while its last run goes on.
func (c *Checkpoint) MaxBytes() (int64, error) {
	const head, run, epoch, row = 64 << 10, 2 << 10, 512, 9
	parameters, err := c.Spec.Parameters()
	epochs := int64(c.Wanted+1) * int64(c.Options.Epochs) // in metrics.jsonl, and of the last run in the state
	names := 0
	for _, name := range c.Data.ClassNames {
		names += len(name) + 16
	}
	return head + int64(names) + 4*savedVectors*parameters + row*int64(len(c.Split.Nodes)) + int64(c.Wanted)*run +
		epochs*epoch, err
}

// savedVectors is how many numbers are saved for each parameter at most: the best of all runs and, in the state, the
// last, the best of the run, and two of the optimizer.
const savedVectors = 5

// Need is the memory of a Saver of a model's parameters, trained on a store's rows: the split, and
// while a run is saved, its vectors and the same again as files.
func Need(rows, parameters int64) need.Terms {
	saving := need.OnHeap("saving a checkpoint", 2*4*savedVectors*parameters)
	saving.From = need.Saving
	return need.Terms{need.OnHeap("split of the checkpoint", RowBytes*rows), saving}
}

// encode returns the text of checkpoint.json, the files that belong to it alone, and metrics.jsonl.
func (c *Checkpoint) encode() (text []byte, files []namedFile, metrics []byte, err error) {
	spec, err := c.Spec.Normalized()
	if err != nil {
		return nil, nil, nil, err
	}
	scales := c.Scales
	if c.Best < 0 && c.State != nil {
		scales = make([]float32, len(c.State.Inputs))
	}
	if len(scales) != len(spec.Matrices) {
		return nil, nil, nil, fmt.Errorf("%d scales for a model that reads %d matrices", len(scales),
			len(spec.Matrices))
	}
	m := manifest{
		Format: Version, Kind: kind, Tool: "hopfeed " + version.Version, Complete: c.Incomplete() == "",
		Data: c.Data, Model: spec.Saved(scales), Training: c.Options, Batches: c.Batches, Config: c.Config,
		Predicted: c.PredictedEpochSeconds, Metric: c.Options.Metric,
		Wanted: c.Wanted, Runs: c.Runs, Best: c.Best + 1, CRC32C: zeroCRC,
	}
	// add names a file by its content.
	add := func(kind, suffix string, data []byte, err error) (*fileEntry, error) {
		f := describe("", data)
		f.File = kind + "-" + f.SHA256[:16] + suffix
		files = append(files, namedFile{f.File, data})
		return &f, err
	}
	if c.Best >= 0 || c.State == nil {
		tensors, err := spec.Tensors(c.Parameters)
		if err != nil {
			return nil, nil, nil, err
		}
		data, err := safetensors.Encode(map[string]string{"model": spec.Model}, tensors)
		if m.Parameters, err = add("parameters", ".safetensors", data, err); err != nil {
			return nil, nil, nil, err
		}
	}
	data, err := c.Split.encode()
	split, err := add("split", ".arrow", data, err)
	if err != nil {
		return nil, nil, nil, err
	}
	m.Split = *split
	if c.State != nil {
		data, err := c.State.Encode()
		if m.State, err = add("state", ".safetensors", data, err); err != nil {
			return nil, nil, nil, err
		}
	}
	if metrics, err = EncodeLines(c.History); err != nil {
		return nil, nil, nil, err
	}
	m.Metrics = describe(MetricsFile, metrics)
	if text, err = json.MarshalIndent(m, "", "  "); err != nil {
		return nil, nil, nil, err
	}
	text = append(text, '\n')
	copy(text[crcDigits(text):], crcText(text))
	return text, files, metrics, nil
}

// Load reads and checks a checkpoint, but for the history and the state of an unfinished run. Invalid content is
// ErrInvalid.
func Load(fsys vfs.FS, dir string) (*Checkpoint, error) { return load(fsys, dir, false) }

// LoadRun is Load with the history and, if the training can go on, the state.
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
	path := filepath.Join(dir, File)
	text, err := readFile(fsys, path, maxJSONBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no saved model (train --run saves one): %w", dir, err)
	} else if err != nil {
		return nil, err
	}
	c, m, err := decodeManifest(text)
	if err != nil {
		return nil, damaged(path, err)
	}
	decode := func(file *fileEntry, data []byte, err error, do func([]byte) error) error {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w, though %s names it", fs.ErrNotExist, File)
		} else if err != nil {
			return err
		} else if err = file.check(data); err == nil {
			err = do(data)
		}
		if err != nil {
			return damaged(filepath.Join(dir, file.File), err)
		}
		return nil
	}
	read := func(file *fileEntry, do func([]byte) error) error {
		data, err := readFile(fsys, filepath.Join(dir, file.File), file.Size)
		return decode(file, data, err, do)
	}
	if m.Parameters != nil {
		err = read(m.Parameters, func(data []byte) (err error) {
			c.Parameters, err = decodeParameters(data, c.Spec)
			return err
		})
	} else if !whole {
		err = fmt.Errorf("%s: %w: no epoch of its training has ended", path, ErrInvalid)
	}
	if err == nil {
		err = read(&m.Split, func(data []byte) (err error) {
			c.Split, err = decodeSplit(data, m.Data.Nodes, c.Spec)
			return err
		})
	}
	if err != nil || !whole {
		return c, err
	}
	if m.State != nil {
		err = read(m.State, func(data []byte) (err error) { c.State, err = trainer.DecodeState(data); return err })
		if err != nil {
			return nil, err
		}
	}
	metrics, err := readPlain(fsys, dir, MetricsFile)
	metrics = metrics[:min(m.Metrics.Size, int64(len(metrics)))]
	return c, decode(&m.Metrics, metrics, err, func(data []byte) (err error) {
		c.History, err = decodeHistory(data, len(c.Runs))
		return err
	})
}

func damaged(path string, err error) error {
	return fmt.Errorf("%s: %w: %w (put back a copy of the run, or train again into another folder)", path, ErrInvalid,
		err)
}

// decodeManifest decodes and checks checkpoint.json, but not the files that it names.
func decodeManifest(text []byte) (*Checkpoint, *manifest, error) {
	var head struct {
		Format int    `json:"format"`
		Kind   string `json:"kind"`
	}
	if err := jsontext.Decode(text, &head); err != nil {
		return nil, nil, fmt.Errorf("corrupt: %w", err)
	}
	if head.Kind != kind || head.Format != Version {
		return nil, nil, fmt.Errorf("it is a %q of format version %d; this program reads %q, version %d",
			head.Kind, head.Format, kind, Version)
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
	var m manifest
	if err := jsontext.Decode(text, &m); err != nil {
		return nil, nil, fmt.Errorf("corrupt: %w", err)
	}
	c := &Checkpoint{
		Data: m.Data, Batches: m.Batches, Config: m.Config, PredictedEpochSeconds: m.Predicted,
		Wanted: m.Wanted, Runs: m.Runs, Best: m.Best - 1, Trained: trainer.Trained{Options: m.Training},
	}
	var err error
	if c.Spec, c.Scales, err = m.Model.Spec(); err == nil {
		err = c.Options.CheckChoices(c.Spec)
	}
	if err != nil {
		return nil, nil, err
	}
	none := m.Best == 0 && m.Parameters == nil && m.State != nil
	model := m.Best >= 1 && m.Best <= len(m.Runs) && m.Parameters != nil && m.Runs[m.Best-1].BestEpoch >= 1
	if !none && !model || len(m.Runs) < 1 || len(m.Runs) > m.Wanted {
		return nil, nil, fmt.Errorf("its model is of run %d, but %d of %d runs were begun", m.Best, len(m.Runs),
			m.Wanted)
	}
	for i, r := range m.Runs {
		if !slices.Contains([]string{RunInProgress, RunFinished, RunInterrupted, RunDiverged, RunFailed}, r.State) {
			return nil, nil, fmt.Errorf("run %d is in the unknown state %q", i+1, r.State)
		}
	}
	for _, f := range m.files() {
		if match := contentFile.FindStringSubmatch(f.File); match == nil || match[2] != "" || f.Size < 0 {
			return nil, nil, fmt.Errorf("it names a file %q of %d bytes, which no checkpoint has", f.File, f.Size)
		}
	}
	if m.Metrics.File != MetricsFile || m.Metrics.Size < 0 {
		return nil, nil, fmt.Errorf("its history is in a file %q of %d bytes", m.Metrics.File, m.Metrics.Size)
	}
	return c, &m, nil
}

func decodeParameters(data []byte, spec trainer.Spec) ([]float32, error) {
	_, found, err := safetensors.Decode(data)
	if err != nil {
		return nil, err
	}
	count, err := spec.Parameters()
	if err != nil {
		return nil, err
	}
	values := make([]float32, count)
	want, err := spec.Tensors(values)
	if err != nil {
		return nil, err
	}
	same := func(a, b safetensors.Tensor) bool { return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) }
	if !slices.EqualFunc(found, want, same) {
		return nil, fmt.Errorf("it has the parameters %s, but %s has %s", shapesText(found), spec.Model,
			shapesText(want))
	}
	for i, w := range want {
		copy(w.Data, found[i].Data)
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

func decodeHistory(data []byte, runs int) ([]EpochMetrics, error) {
	return DecodeLines(data, "epoch", func(_ int, e *EpochMetrics) error {
		if e.Run < 1 || e.Run > runs {
			return fmt.Errorf("it is of run %d, but there are %d", e.Run, runs)
		}
		return nil
	})
}

// EncodeLines returns values as JSON, a line each.
func EncodeLines[T any](values []T) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, v := range values {
		if err := lines.Encode(v); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// DecodeLines is the inverse of EncodeLines. It checks each value, with its number from 1 on; errors name it.
func DecodeLines[T any](data []byte, name string, check func(number int, v *T) error) (values []T, err error) {
	for lines := json.NewDecoder(bytes.NewReader(data)); ; {
		var v T
		number, start := len(values)+1, lines.InputOffset()
		if err = lines.Decode(&v); err == io.EOF {
			return values, nil
		}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			wrong.Offset += start
		}
		err = jsontext.Explain(data, err)
		if err == nil {
			err = check(number, &v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %d: corrupt: %w", name, number, err)
		}
		values = append(values, v)
	}
}

var splitSchema = arrow.NewSchema([]arrow.Field{
	{Name: "node", Type: arrow.PrimitiveTypes.Uint32},
	{Name: "split", Type: arrow.PrimitiveTypes.Uint8},
	{Name: "label", Type: arrow.PrimitiveTypes.Int32},
}, nil)

// encode returns the split as an Arrow file of one record batch.
func (s *Split) encode() ([]byte, error) {
	const head, row = 4 << 10, 9
	var b bytes.Buffer
	b.Grow(head + row*len(s.Nodes))
	w, err := arrowfile.NewWriter(&b, splitSchema)
	if err == nil {
		err = w.Batch(int64(len(s.Nodes)), dtype.BytesOf(s.Nodes), s.Parts, dtype.BytesOf(s.Labels))
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// decodeSplit is the inverse of Split.encode.
func decodeSplit(data []byte, nodes int64, spec trainer.Spec) (s Split, err error) {
	batches, err := arrowfile.ReadBatches(bytes.NewReader(data), int64(len(data)), splitSchema)
	if err != nil {
		return s, err
	}
	if len(batches) != 1 {
		return s, fmt.Errorf("it has %d record batches, want 1", len(batches))
	}
	rows := batches[0].Rows
	s = Split{make([]uint32, rows), make([]uint8, rows), make([]int32, rows)}
	for i, to := range [][]byte{dtype.BytesOf(s.Nodes), s.Parts, dtype.BytesOf(s.Labels)} {
		b := batches[0].Buffers[i]
		copy(to, data[b.Offset:b.Offset+b.Length])
	}
	classes := math.MaxInt
	if spec.Target == trainer.ClassTarget {
		classes = spec.Classes
	}
	for i, node := range s.Nodes {
		ascends := i == 0 || node > s.Nodes[i-1]
		if int64(node) >= nodes || !ascends || s.Parts[i] < 1 || s.Parts[i] > 3 || s.Labels[i] < -1 ||
			int(s.Labels[i]) >= classes {
			return s, fmt.Errorf("row %d: node %d after %d, of %d; split %d; label %d of %d classes",
				i, node, s.Nodes[max(i-1, 0)], nodes, s.Parts[i], s.Labels[i], classes)
		}
	}
	return s, nil
}

// readFile reads a file of at most maxBytes bytes; one of another size is ErrInvalid.
func readFile(fsys vfs.FS, path string, maxBytes int64) ([]byte, error) {
	data, err := vfs.ReadFile(fsys, path, maxBytes)
	if errors.Is(err, vfs.ErrSize) {
		err = damaged(path, fmt.Errorf("corrupt: %w", errors.Unwrap(err)))
	}
	return data, err
}
