package checkpoint

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/trainer"
)

// someCheckpoint is a training whose first run has diverged, and whose second has finished.
func someCheckpoint(t testing.TB) *Checkpoint {
	t.Helper()
	spec := trainer.Spec{Model: "sign", Features: 4, Classes: 3,
		Settings: trainer.Values{"hidden": 16, "layers": 3, "dropout": 0.25}}
	for hop := range 3 {
		spec.Matrices = append(spec.Matrices, trainer.MatrixID{Operator: "sym", Hop: hop})
	}
	spec, err := spec.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	options, err := trainer.Options{Epochs: 6, LearningRate: 0.02, WeightDecay: 1e-5, Seed: 3}.Normalized(spec)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := spec.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	c := &Checkpoint{
		Trained: trainer.Trained{Spec: spec, Options: options, Scales: []float32{1, 0.5, 3}},
		Data:    DataSet{Name: "toy", Fingerprint: "f00d", Nodes: 99, Split: 1},
		Split:   Split{Nodes: []uint32{3, 5, 98}, Parts: []uint8{1, 3, 2}, Labels: []int32{0, -1, 2}},
		Batches: Batches{Rows: 20, Shuffle: "rr", ChunkRows: 1, Placement: "device", Devices: 1}, Wanted: 2, Best: 1,
	}
	for i := range parameters {
		c.Parameters = append(c.Parameters, rng.Float32(rng.Hash(1, uint64(i))))
	}
	half := 0.5
	figures := trainer.Figures{Epochs: 6, BestEpoch: 4, Metric: "accuracy", ValidMetric: &half,
		StageSeconds: map[string]float64{"compute": 1}}
	c.Runs = []Run{
		{Seed: 2, State: RunDiverged, Reason: "too fast"},
		{Seed: options.Seed, State: RunFinished, Figures: figures},
	}
	for i := range figures.Epochs {
		c.History = append(c.History, EpochMetrics{Run: 2, Epoch: i + 1, TrainLoss: 1 / float64(i+1),
			ValidMetric: &half, Seconds: 0.25})
	}
	return c
}

// someState is the state of a run of a checkpoint that goes on in the middle of its second epoch.
func someState(c *Checkpoint) *trainer.State {
	values := func(n int) (v []float32) {
		for i := range n {
			v = append(v, float32(i))
		}
		return v
	}
	s := &trainer.State{
		Spec: c.Spec, Options: c.Options, TrainRows: 184, Steps: 14, Epoch: trainer.Epoch{Number: 2}, Batch: 4,
		Rows:         80,
		History:      []trainer.Epoch{{Number: 1, TrainLoss: 0.5, Best: true}},
		StageSeconds: map[string]float64{"compute": 0.5}, Losses: values(2),
	}
	for range c.Spec.Matrices {
		s.Inputs = append(s.Inputs, trainer.InputScale{Scale: 2, Mean: values(c.Spec.Features),
			Factor: values(c.Spec.Features)})
	}
	n := len(c.Parameters)
	s.Parameters, s.BestParameters, s.Moments = values(n), values(n), [][]float32{values(n), values(n)}
	return s
}

// save makes c the checkpoint of a directory, as a training does that has nothing else to do.
func save(fsys vfs.FS, dir string, c *Checkpoint) error {
	r, err := OpenRun(fsys, dir)
	if err != nil {
		return err
	}
	return errors.Join(r.Save(c), r.Close())
}

// fileOf is the one file of a kind in a directory.
func fileOf(t testing.TB, dir, kind string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, kind+"-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", kind, dir, found, err)
	}
	return found[0]
}

func TestACheckpointComesBackAsItWas(t *testing.T) {
	c := someCheckpoint(t)
	dir := filepath.Join(t.TempDir(), "new", "run")
	if err := save(vfs.OS(), dir, c); err != nil {
		t.Fatal(err)
	}
	back, err := LoadRun(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, back) {
		t.Errorf("got %+v, want %+v", back, c)
	}
	// Replacing it, and writing the same again, give the same bytes.
	before := readTree(t, dir)
	if err := save(vfs.OS(), dir, c); err != nil {
		t.Fatal(err)
	}
	if after := readTree(t, dir); !reflect.DeepEqual(before, after) || len(after) != 4 {
		t.Error("the same checkpoint was written differently")
	}
}

func TestAnyFailureWhileLoadingIsAnError(t *testing.T) {
	c := someCheckpoint(t)
	disk := vfs.NewMem()
	if err := save(disk, "run", c); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no such luck")
	for n := int64(1); ; n++ {
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, failure)
		_, err := LoadRun(faulty, "run")
		if faulty.Operations() < n {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, failure) {
			t.Errorf("failure %d: %v", n, err)
		}
	}
	// A file that ends while it is read.
	for n := int64(1); n <= 4; n++ {
		faulty := vfs.NewFault(disk)
		faulty.ShortenRead(n)
		if _, err := LoadRun(faulty, "run"); !errors.Is(err, ErrInvalid) {
			t.Errorf("short read %d: %v", n, err)
		}
	}
}

func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

func TestAnyDamageToACheckpointIsFound(t *testing.T) {
	c := someCheckpoint(t)
	dir := t.TempDir()
	if err := save(vfs.OS(), dir, c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := decodeManifest(text)
	if err != nil {
		t.Fatal(err)
	}
	parameters, split := fileOf(t, dir, "parameters"), fileOf(t, dir, "split")
	for path, decode := range map[string]func([]byte) error{
		filepath.Join(dir, File):        func(b []byte) error { _, _, err := decodeManifest(b); return err },
		parameters:                      j.Parameters.check,
		filepath.Join(dir, MetricsFile): j.Metrics.check,
		split:                           j.Split.check,
	} {
		name := filepath.Base(path)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(whole); err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			whole[i] ^= 1 << (i % 8)
			if decode(whole) == nil {
				t.Errorf("%s: flipped bit %d of byte %d was not found", name, i%8, i)
			}
			whole[i] ^= 1 << (i % 8)
		}
		for n := 0; n < len(whole); n += 1 + len(whole)/2000 {
			if decode(whole[:n]) == nil {
				t.Errorf("%s: truncation to %d bytes was not found", name, n)
			}
		}
		if decode(append(whole[:len(whole):len(whole)], '\n')) == nil {
			t.Errorf("%s: a byte more was not found", name)
		}
	}
}

func TestCheckpointsThatCannotBeUsedSayWhy(t *testing.T) {
	c := someCheckpoint(t)
	// edit changes checkpoint.json and makes its checksum right again.
	edit := func(old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, File)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), old) {
				t.Fatalf("no %s in %s", old, text)
			}
			text = []byte(strings.Replace(string(text), old, new, 1))
			at := crcDigits(text)
			copy(text[at:], zeroCRC)
			copy(text[at:], crcText(text))
			if err := os.WriteFile(path, text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c2 := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
		usable bool // the error is not about the content
	}{
		{"a later version", edit(`"format": 4`, `"format": 5`),
			`checkpoint.json: no usable checkpoint: it is a "checkpoint" of format version 5`, false},
		{"another kind of directory", edit(`"kind": "checkpoint"`, `"kind": "store"`), `it is a "store"`, false},
		{"a model of the future", edit(`"name": "sign"`, `"name": "transformer"`), `there is no model "transformer"`,
			false},
		{"an optimizer of the future", edit(`"optimizer": "adam"`, `"optimizer": "luck"`),
			`there is no optimizer "luck"`, false},
		{"an impossible model", edit(`"layers": 3`, `"layers": 1`), "sign: layers 1: must be an integer from 2 to 256",
			false},
		{"a setting of the future", edit(`"layers": 3`, `"layers": 3, "heads": 2`),
			`sign has no setting "heads" in this version`, false},
		{"a model that does not have these parameters", edit(`"hidden": 16`, `"hidden": 17`), "it has the parameters",
			false},
		{"a model beyond all memory", edit(`"features": 4`, `"features": 1048577`), "1048577 features", false},
		{"parameters elsewhere", edit(`"file": "parameters-`, `"file": "../parameters-`), `"../parameters-`, false},
		{"a model of no run", edit(`"best_run": 2`, `"best_run": 3`),
			"its model is of run 3, but 2 of 2 runs were begun", false},
		{"a model of a run that has none", edit(`"best_run": 2`, `"best_run": 1`), "its model is of run 1", false},
		{"a run in a state of the future", edit(`"state": "finished"`, `"state": "paused"`),
			`run 2 is in the unknown state "paused"`, false},
		{"other parameters", func(t *testing.T, dir string) {
			other := *c
			other.Parameters = append([]float32{1}, c.Parameters[1:]...)
			aside := t.TempDir()
			if err := save(vfs.OS(), aside, &other); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(fileOf(t, aside, "parameters"), fileOf(t, dir, "parameters")); err != nil {
				t.Fatal(err)
			}
		}, ".safetensors: no usable checkpoint: corrupt: its SHA-256 is", false},
		{"no parameters", func(t *testing.T, dir string) { os.Remove(fileOf(t, dir, "parameters")) },
			"file does not exist, though checkpoint.json names it (put back a copy of the run, or train again", false},
		{"a number for a name", edit(`"optimizer": "adam"`, `"optimizer": 5`),
			"training.optimizer: found number (want a string)", false},
		{"an empty checkpoint.json", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, File), 0) },
			"corrupt: line 1, column 0: this is not JSON", false},
		{"no checkpoint", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, File)) }, "checkpoint.json",
			true},
		{"parameters far too long", func(t *testing.T, dir string) {
			if err := os.Truncate(fileOf(t, dir, "parameters"), 1<<40); err != nil {
				t.Fatal(err)
			}
		}, "it has 1099511627776 bytes", false},
	} {
		t.Run(c2.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := save(vfs.OS(), dir, c); err != nil {
				t.Fatal(err)
			}
			c2.damage(t, dir)
			_, err := Load(vfs.OS(), dir)
			if err == nil || !strings.Contains(err.Error(), c2.want) || errors.Is(err, ErrInvalid) == c2.usable ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c2.want)
			}
		})
	}
}

func TestACheckpointSaysWhyItDoesNotFitAStore(t *testing.T) {
	hops := func(operator string, last int) (ids []trainer.MatrixID) {
		for hop := range last + 1 {
			ids = append(ids, trainer.MatrixID{Operator: operator, Hop: hop})
		}
		ids[0].Operator = "x"
		return ids
	}
	spec := trainer.Spec{Matrices: hops("sym", 2), Features: 4, Classes: 5}
	c := &Checkpoint{Data: DataSet{Name: "csa8"}, Trained: trainer.Trained{Spec: spec}}
	for _, k := range []struct {
		name              string
		stored            []trainer.MatrixID
		features, classes int
		want              string
	}{
		{"the same matrices", hops("sym", 2), 4, 5, ""},
		{"more matrices", append(hops("sym", 3), hops("rw", 1)[1]), 4, 5, ""},
		{"other features", hops("sym", 2), 5, 5,
			"the model was trained on 4 features (data csa8), but the input has 5"},
		{"other classes", hops("sym", 2), 4, 0, "the model was trained on 5 classes (data csa8), but the input has 0"},
		{"fewer hops", hops("sym", 1), 4, 5,
			"the model reads sym/hop-2, which the store lacks: propagate with that operator and as many hops"},
		{"another operator", hops("rw", 2), 4, 5, "the model reads sym/hop-1, sym/hop-2, which the store lacks"},
	} {
		t.Run(k.name, func(t *testing.T) {
			err := c.CheckStore(k.stored, format.Layout{Features: k.features}, 0, k.classes, trainer.ClassTarget)
			if k.want == "" && err != nil || k.want != "" && (err == nil || !strings.HasPrefix(err.Error(), k.want)) {
				t.Errorf("got %v, want %q", err, k.want)
			}
		})
	}
}

// FuzzDecodeCheckpoint gives text a right checksum, so that what is behind it is
// reached.
func FuzzDecodeCheckpoint(f *testing.F) {
	c := someCheckpoint(f)
	dir := f.TempDir()
	if err := save(vfs.OS(), dir, c); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":3,"kind":"checkpoint","crc32c": "00000000"}`))
	f.Add([]byte(`{"format":3,"kind":"checkpoint","model":{"name":"sign","matrices":[{"operator":"x","hop":4000}],"features":1,"classes":1,"settings":{"hidden":1,"layers":255}},"crc32c": "00000000"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if at := crcDigits(text); at >= 0 {
			copy(text[at:], zeroCRC)
			copy(text[at:], crcText(text))
		}
		c, _, err := decodeManifest(text)
		if err != nil {
			return
		}
		if _, err := c.Spec.Normalized(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDecodeParameters likewise.
func FuzzDecodeParameters(f *testing.F) {
	c := someCheckpoint(f)
	dir := f.TempDir()
	if err := save(vfs.OS(), dir, c); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(fileOf(f, dir, "parameters"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		damaged := append([]byte(nil), data...)
		damaged[random.IntN(len(damaged))] ^= 1
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if values, err := decodeParameters(data, c.Spec); err == nil && len(values) != len(c.Parameters) {
			t.Errorf("%d values", len(values))
		}
	})
}

// FuzzDecodeSplit gives whatever is accepted to what relies on its order.
func FuzzDecodeSplit(f *testing.F) {
	c := someCheckpoint(f)
	_, files, _, err := c.encode()
	if err != nil {
		f.Fatal(err)
	}
	data := files[1].data
	f.Add(data)
	for at := 8192; at < 8192+200 && at < len(data); at += 3 {
		damaged := append([]byte(nil), data...)
		damaged[at] ^= 0x81
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSplit(data, 99, trainer.Spec{Classes: 3})
		if err != nil {
			return
		}
		for i, node := range s.Nodes {
			if node >= 99 || i > 0 && node <= s.Nodes[i-1] || s.Parts[i]-1 > 2 || s.Labels[i] < -1 || s.Labels[i] > 2 {
				t.Errorf("row %d: node %d, split %d, label %d", i, node, s.Parts[i], s.Labels[i])
			}
		}
	})
}

// FuzzDecodeHistory likewise.
func FuzzDecodeHistory(f *testing.F) {
	f.Add([]byte(`{"run":1,"epoch":1,"train_loss":0.5,"valid_metric":null}` + "\n" +
		`{"run":2,"epoch":1,"train_loss":0.5,"valid_metric":0.25}` + "\n"))
	f.Add([]byte(`{"run":3}`))
	f.Add([]byte(`{"run":1}{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		history, err := decodeHistory(data, 2)
		if err != nil {
			return
		}
		for _, e := range history {
			if e.Run < 1 || e.Run > 2 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestACheckpointSaysWhatItsTrainingLacks(t *testing.T) {
	for _, c := range []struct {
		wanted int
		runs   []Run
		want   string
	}{
		{1, []Run{{State: RunFinished}}, ""},
		{1, []Run{{State: RunInterrupted, Figures: trainer.Figures{Epochs: 3}}},
			"training was interrupted after epoch 3 of 9"},
		{1, []Run{{State: RunInProgress, Figures: trainer.Figures{Epochs: 3}}},
			"training was running after epoch 3 of 9, when it was saved last"},
		{3, []Run{{State: RunDiverged, Figures: trainer.Figures{Epochs: 2}},
			{State: RunFailed, Figures: trainer.Figures{Epochs: 4}}},
			"run 1 of 3 diverged after epoch 2 of 9; run 2 of 3 failed after epoch 4 of 9; 1 of 3 runs were not begun"},
	} {
		if got := (&Checkpoint{Wanted: c.wanted, Runs: c.runs,
			Trained: trainer.Trained{Options: trainer.Options{Epochs: 9}}}).Incomplete(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestSummaryOfRuns(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	run := func(seed uint64, loss float64, valid, test *float64) Run {
		return Run{Seed: seed, Figures: trainer.Figures{TrainLoss: loss, ValidMetric: valid, TestMetric: test,
			StageSeconds: map[string]float64{"compute": loss}, PeakDeviceBytes: int64(seed)}}
	}
	s := Summarize([]Run{run(3, 1, at(0.5), at(0.6)), run(4, 2, at(0.9), at(0.8)), run(5, 6, at(0.9), nil)})
	if *s.TrainLoss != 3 || math.Abs(*s.TrainLossStd-math.Sqrt(7)) > 1e-12 || math.Abs(*s.TestMetric-0.7) > 1e-12 ||
		math.Abs(*s.TestMetricStd-math.Sqrt(0.02)) > 1e-12 || s.StageSeconds["compute"] != 3 || s.PeakDeviceBytes != 5 ||
		s.ConvergenceEpoch != nil {
		t.Errorf("%+v", s)
	}
	if s = Summarize([]Run{run(1, 5, nil, nil), run(2, 4, nil, nil)}); s.ValidMetric != nil {
		t.Errorf("without validation: %+v", s)
	}
	if s = Summarize([]Run{run(1, 5, at(1), nil)}); *s.ValidMetricStd != 0 || *s.ValidMetric != 1 {
		t.Errorf("one run: %v", *s.ValidMetric)
	}
}
