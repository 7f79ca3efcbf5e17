package command

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// The kinds of labels, and what node_label.npy has for a node of some class, or -1.
var labelKinds = map[string]struct {
	kind    npy.Type
	columns int64
	label   func(class int) []byte
	flags   string
}{
	"classes": {npy.Int8, 1, func(class int) []byte { return []byte{byte(class)} }, ""},
	"several": {npy.Int8, 2, func(class int) []byte {
		if class < 0 {
			return []byte{0xff, 0xff}
		}
		return []byte{byte(class & 1), 0xff} // of one label, each row has none
	}, ""},
	"values": {npy.Float32, 1, func(class int) []byte {
		v := math.Float32bits(float32(class))
		if class < 0 {
			v = math.Float32bits(float32(math.NaN()))
		}
		return binary.LittleEndian.AppendUint32(nil, v)
	}, " --labels-as values"},
}

// labelled makes a store and a graph of 300 nodes, 100 each for training, validation and test, and as many
// of
// these have no label as are given.
func labelled(t *testing.T, kind string, unlabelled [3]int) *vfs.Mem {
	t.Helper()
	k := labelKinds[kind]
	d := disk(t, generateLine, exportLine)
	labels, splits := npy.AppendHeader(nil, k.kind, 1, 300, k.columns), npy.AppendHeader(nil, npy.Int8, 1, 1, 300)
	for node := range 300 {
		part, class := node%3, node/3%3
		if node/3 < unlabelled[part] {
			class = -1
		}
		labels, splits = append(labels, k.label(class)...), append(splits, byte(part))
	}
	write(t, d, "arrays/node_label.npy", string(labels))
	write(t, d, "arrays/splits.npy", string(splits))
	must(t, d, "import npy arrays -o graph --force"+k.flags)
	must(t, d, "propagate graph -o store --hops 1 --chunk-rows 16")
	return d
}

func TestTrainingRowsWithoutLabelsAreRefused(t *testing.T) {
	for kind := range labelKinds {
		d := labelled(t, kind, [3]int{100, 0, 0})
		write(t, d, "rates.yaml", "lr: [0.1, 0.01]\n")
		for _, line := range []string{
			"train store --model sign", "train store --model sgc", "train graph --model gcn",
			"train graph --model sage --sampler full",
			"train store --model sign --tune 2", "train store --model sign --grid rates.yaml",
			"tune store --model sign --budget 1 -o out", "train store --split 0",
		} {
			o := hopfeed(t, d, line+" --epochs 1 --run run")
			if strings.HasPrefix(line, "tune") {
				o = hopfeed(t, d, line)
			}
			if o.code != exitUsage || !strings.Contains(o.stderr, "0 of the 100 training rows of ") ||
				!strings.Contains(o.stderr, " have a label: nothing can be learnt") {
				t.Errorf("%s, %s: status %d, %s", kind, line, o.code, o.stderr)
			}
		}
		// With other labels, and rows without a label.
		others := npy.AppendHeader(nil, npy.Int8, 1, 300)
		for node := range 300 {
			others = append(others, []byte{0xff, 0, 1}[node%3])
		}
		others[len(others)-300] = 0 // node 0
		write(t, d, "splits.npy", string(others))
		if o := must(t, d, "train store --epochs 1 --hidden 4 --splits splits.npy"); !strings.Contains(o.stderr,
			"1 of the 101 training rows have no label, and do not count") {
			t.Errorf("%s: %s", kind, o.stderr)
		}
	}
}

func TestValidationAndTestRowsWithoutLabelsAreSaid(t *testing.T) {
	d := labelled(t, "classes", [3]int{0, 100, 3})
	o := must(t, d, "train store --epochs 3 --hidden 4 --patience 1 --run run")
	for _, says := range []string{
		"0 of the 100 validation rows have a label: there is no validation metric",
		"3 of the 100 test rows have no label, and do not count",
		"there are no labelled validation rows: --patience is off, and the last epoch is selected",
	} {
		if !strings.Contains(o.stderr, says) {
			t.Errorf("%s does not say %q", o.stderr, says)
		}
	}
	for line, says := range map[string]string{
		"tune store --model sign --budget 1 -o out": "0 of the 100 validation rows of store have a label, and " +
			"settings are compared by these",
		"evaluate --checkpoint run store --rows valid": "0 of the 100 rows of store in split 0, as in training have " +
			"a label to evaluate by",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
	if o := must(t, d, "evaluate --checkpoint run store"); !strings.Contains(o.stdout, "(97 rows)") {
		t.Error(o.stdout)
	}
	// All hops can be compared with none.
	if o := must(t, d, "train store --model sgc --epochs 2"); strings.Contains(o.stderr, "trial") {
		t.Error(o.stderr)
	}
}

func TestClassWeightsOfZeroAreRefused(t *testing.T) {
	d := labelled(t, "classes", [3]int{0, 0, 0})
	splits := npy.AppendHeader(nil, npy.Int8, 1, 300) // train on nodes of the first class alone
	for node := range 300 {
		splits = append(splits, byte(min(node/3%3, 1)))
	}
	write(t, d, "splits.npy", string(splits))
	const zero = "are in a class with a weight above 0: nothing can be learnt"
	for line, says := range map[string]string{
		"train store --class-weights 0,0,0":                     "0 of the 100 labelled training rows of store " + zero,
		"train store --class-weights 1e-60,0,0":                 "0 of the 100 labelled training rows of store " + zero,
		"train graph --model gcn --class-weights 0,0,0":         "0 of the 100 labelled training rows of graph " + zero,
		"train store --splits splits.npy --class-weights 0,1,1": "0 of the 102 labelled training rows of store " + zero,
		"train store --splits splits.npy --class-weights 0,1":   "2 class weights for 3 classes",
	} {
		if o := hopfeed(t, d, line+" --epochs 1"); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
	must(t, d, "train store --hidden 4 --epochs 1 --class-weights 0,1,1")
}
