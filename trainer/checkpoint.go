package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CheckpointVersion is the version of checkpoints that this package writes, and
// the only one that it reads.
const CheckpointVersion = 1

// ErrCheckpoint is returned when a directory holds no checkpoint that this
// version can read: damaged, incomplete or of another version.
var ErrCheckpoint = errors.New("no usable checkpoint")

// Checkpoint is a trained model. Its directory holds
//
//	parameters.arrow   one float32 column "value": the parameters, row-major, one after another
//	checkpoint.json    everything else; names and shapes of the parameters; size and CRC-32C of the file above; its own
//	                   CRC-32C, computed with these eight digits zeroed
//
// They are written in this order, each atomically, so that a crash leaves no
// checkpoint, the one before, or one that is refused because the checksums of
// its two files disagree. They are a function of the training's input, options and seed.
type Checkpoint struct {
	Dataset    string // name of the data that it was trained on
	Spec       Spec
	Options    Options
	Epochs     int
	BestEpoch  int
	Selection  string
	TrainLoss  float64
	Valid      *float64
	Test       *float64
	Scales     []float32 // what each of Spec.Matrices is multiplied by
	Parameters []float32 // flat, in the order of the model's declarations
}

// Checkpoint is the trained model of a result.
func (r *Result) Checkpoint(dataset string) *Checkpoint {
	return &Checkpoint{
		Dataset: dataset, Spec: r.Spec, Options: r.Options,
		Epochs: r.Epochs, BestEpoch: r.BestEpoch, Selection: r.Selection,
		TrainLoss: r.TrainLoss, Valid: r.ValidMetric, Test: r.TestMetric,
		Scales: r.Scales, Parameters: r.Parameters,
	}
}

// CheckpointFile is the file whose presence makes a directory a checkpoint.
const CheckpointFile = "checkpoint.json"

const (
	parametersFile = "parameters.arrow"
	maxJSONBytes   = 16 << 20
)

// checkpointJSON is checkpoint.json.
type checkpointJSON struct {
	Format     int            `json:"format"`
	Kind       string         `json:"kind"` // "checkpoint"
	Tool       string         `json:"tool"`
	Dataset    string         `json:"dataset"`
	Model      modelJSON      `json:"model"`
	Training   Options        `json:"training"`
	Epochs     int            `json:"epochs"`
	BestEpoch  int            `json:"best_epoch"`
	Selection  string         `json:"selection"`
	TrainLoss  float64        `json:"train_loss"`
	Metric     string         `json:"metric"`
	Valid      *float64       `json:"valid_metric"`
	Test       *float64       `json:"test_metric"`
	Parameters parametersJSON `json:"parameters"`
	CRC32C     string         `json:"crc32c"` // last
}

type modelJSON struct {
	Name     string       `json:"name"`
	Matrices []matrixJSON `json:"matrices"`
	Features int          `json:"features"`
	Classes  int          `json:"classes"`
	Hidden   int          `json:"hidden"`
	Layers   int          `json:"layers"`
	Dropout  float64      `json:"dropout"`
}

type matrixJSON struct {
	Operator string  `json:"operator"`
	Hop      int     `json:"hop"`
	Scale    float32 `json:"scale"`
}

type parametersJSON struct {
	File   string      `json:"file"`
	Size   int64       `json:"size"`
	CRC32C string      `json:"crc32c"`
	Shapes []shapeJSON `json:"shapes"`
}

type shapeJSON struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
	Cols int    `json:"cols"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crcText(data []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli)) }

var parametersSchema = arrow.NewSchema([]arrow.Field{{Name: "value", Type: arrow.PrimitiveTypes.Float32}}, nil)

// Save writes a checkpoint into a directory, which is made; one that is there
// already is replaced.
func (c *Checkpoint) Save(fsys vfs.FS, dir string) error {
	spec, declared, err := c.Spec.settled()
	if err != nil {
		return err
	}
	if len(c.Parameters) != declared.parameters.count || len(c.Scales) != len(spec.Matrices) {
		return fmt.Errorf("%d parameters and %d scales for a model that has %d and %d",
			len(c.Parameters), len(c.Scales), declared.parameters.count, len(spec.Matrices))
	}
	var arrowBytes bytes.Buffer
	w, err := arrowfile.NewWriter(&arrowBytes, parametersSchema)
	if err != nil {
		return err
	}
	if err := w.Batch(int64(len(c.Parameters)), 0, dtype.BytesOf(c.Parameters)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	j := checkpointJSON{
		Format: CheckpointVersion, Kind: "checkpoint", Tool: "hopfeed " + version.Version, Dataset: c.Dataset,
		Model: modelJSON{
			Name: spec.Model, Features: spec.Features, Classes: spec.Classes,
			Hidden: spec.Hidden, Layers: spec.Layers, Dropout: spec.Dropout,
		},
		Training: c.Options, Epochs: c.Epochs, BestEpoch: c.BestEpoch, Selection: c.Selection,
		TrainLoss: c.TrainLoss, Metric: MetricName, Valid: c.Valid, Test: c.Test,
		Parameters: parametersJSON{
			File: parametersFile, Size: int64(arrowBytes.Len()), CRC32C: crcText(arrowBytes.Bytes()),
			Shapes: shapesOf(&declared.parameters),
		},
		CRC32C: zeroCRC,
	}
	for i, id := range spec.Matrices {
		j.Model.Matrices = append(j.Model.Matrices, matrixJSON{id.Operator, id.Hop, c.Scales[i]})
	}
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	at := crcDigits(text)
	copy(text[at:], crcText(text))

	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	if err := writeFile(fsys, filepath.Join(dir, parametersFile), arrowBytes.Bytes()); err != nil {
		return err
	}
	return writeFile(fsys, filepath.Join(dir, CheckpointFile), text)
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
	path := filepath.Join(dir, CheckpointFile)
	text, err := readFile(fsys, path, maxJSONBytes)
	if err != nil {
		return nil, err
	}
	c, parts, err := decodeCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	path = filepath.Join(dir, parametersFile)
	data, err := readFile(fsys, path, parts.Size)
	if err != nil {
		return nil, err
	}
	if c.Parameters, err = decodeParameters(data, parts); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	return c, nil
}

// decodeCheckpoint checks everything but the file of parameters.
func decodeCheckpoint(text []byte) (*Checkpoint, *parametersJSON, error) {
	var head struct {
		Format int    `json:"format"`
		Kind   string `json:"kind"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, fmt.Errorf("corrupt: %w", err)
	}
	if head.Kind != "checkpoint" || head.Format != CheckpointVersion {
		return nil, nil, fmt.Errorf("it is a %q of format version %d; this program reads \"checkpoint\", version %d", head.Kind, head.Format, CheckpointVersion)
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
		Dataset: j.Dataset,
		Spec: Spec{
			Model: j.Model.Name, Features: j.Model.Features, Classes: j.Model.Classes,
			Hidden: j.Model.Hidden, Layers: j.Model.Layers, Dropout: j.Model.Dropout,
		},
		Options: j.Training, Epochs: j.Epochs, BestEpoch: j.BestEpoch, Selection: j.Selection,
		TrainLoss: j.TrainLoss, Valid: j.Valid, Test: j.Test,
	}
	for _, id := range j.Model.Matrices {
		c.Spec.Matrices = append(c.Spec.Matrices, MatrixID{Operator: id.Operator, Hop: id.Hop})
		c.Scales = append(c.Scales, id.Scale)
	}
	_, declared, err := c.Spec.checked() // a file that is wrong, not somebody's options
	if err != nil {
		return nil, nil, err
	}
	if want := shapesOf(&declared.parameters); !slices.Equal(j.Parameters.Shapes, want) {
		return nil, nil, fmt.Errorf("it has the parameters %v, but %s has %v", j.Parameters.Shapes, c.Spec.Model, want)
	}
	if j.Parameters.File != parametersFile {
		return nil, nil, fmt.Errorf("its parameters are in %q, not %s", j.Parameters.File, parametersFile)
	}
	return c, &j.Parameters, nil
}

func decodeParameters(data []byte, want *parametersJSON) ([]float32, error) {
	if int64(len(data)) != want.Size {
		return nil, fmt.Errorf("corrupt: %d bytes, but %s says %d", len(data), CheckpointFile, want.Size)
	}
	if found := crcText(data); found != want.CRC32C {
		return nil, fmt.Errorf("corrupt: its checksum is %s, but %s says %s", found, CheckpointFile, want.CRC32C)
	}
	layout, err := arrowfile.ReadLayout(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	count := 0
	for _, s := range want.Shapes {
		count += s.Rows * s.Cols
	}
	if !layout.Schema.Equal(parametersSchema) || len(layout.Batches) != 1 || layout.Batches[0].Rows != int64(count) {
		return nil, fmt.Errorf("it does not hold one column of %d float32 values", count)
	}
	values := make([]float32, count)
	copy(dtype.BytesOf(values), data[layout.Batches[0].Buffers[0].Offset:])
	return values, nil
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

// Fits tells why a checkpoint cannot be applied to a store with these matrices,
// features and classes; nil if it can.
func (c *Checkpoint) Fits(stored []MatrixID, features, classes int) error {
	if c.Spec.Features != features {
		return fmt.Errorf("the model was trained on %d features (data %s), but the store has %d", c.Spec.Features, c.Dataset, features)
	}
	if c.Spec.Classes != classes {
		return fmt.Errorf("the model was trained on %d classes (data %s), but the store has %d", c.Spec.Classes, c.Dataset, classes)
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
