package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/cmd/exit"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/trainer"
)

// Exit statuses.
const (
	exitDone        = exit.Done
	exitFailed      = exit.Failed
	exitUsage       = exit.Options
	exitCorrupt     = exit.Corrupt
	exitDoesNotFit  = exit.DoesNotFit
	exitInterrupted = exit.Interrupted
)

// asCommand is the environment variable that makes the test binary the command. If its value is n > 0, the process
// kills itself while it logs its n-th trial.
const asCommand = "HOPFEED_TEST_COMMAND"

func TestMain(m *testing.M) {
	if last, err := strconv.Atoi(os.Getenv(asCommand)); err == nil {
		fsys := &trialsCounted{FS: vfs.OS(), do: func(n int) {
			if n == last {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}}
		os.Exit(execute(context.Background(), &app{fs: fsys, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:]))
	}
	debug.SetGCPercent(800) // the heap of tests is small: at the default, collections take longer than the tests
	runtime.MemProfileRate = 0
	os.Exit(m.Run())
}

// outcome is what a command line did.
type outcome struct {
	code           int
	stdout, stderr string
}

// hopfeed runs a command line on a file system.
func hopfeed(t *testing.T, fsys vfs.FS, line string) outcome {
	t.Helper()
	return hopfeedUntil(t, context.Background(), fsys, line)
}

func hopfeedUntil(t *testing.T, ctx context.Context, fsys vfs.FS, line string) outcome {
	t.Helper()
	defer parallel.SetThreads(parallel.Threads())
	var stdout, stderr bytes.Buffer
	code := execute(ctx, &app{fs: fsys, stdout: &stdout, stderr: &stderr}, strings.Fields(line))
	return outcome{code, stdout.String(), stderr.String()}
}

// must runs a command line that has to succeed.
func must(t *testing.T, fsys vfs.FS, line string) outcome {
	t.Helper()
	o := hopfeed(t, fsys, line)
	if o.code != exitDone {
		t.Fatalf("hopfeed %s: exit status %d\n%s", line, o.code, o.stderr)
	}
	return o
}

const (
	generateLine  = "generate sbm -o graph --nodes 300 --edges 1500 --features 6 --classes 3 --labeled 0.9 --seed 7"
	propagateLine = "propagate graph -o store --hops 2 --operator sym,rw --chunk-rows 16 --seed 7"
	trainLine     = "train store --model sign --hidden 8 --epochs 12 --batch 50 --lr 0.02 --run run"
	evaluateLine  = "evaluate --checkpoint run store"
	predictLine   = "predict --checkpoint run store -o out.parquet"
	exportLine    = "export npy graph -o arrays"
	importCSVLine = "import csv edges.csv -o mapped --ids map"
)

// csvEdges is an edge list between names.
var csvEdges = func() string {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "node %d,node %d\n", i%100, i*i%100)
	}
	return text.String()
}()

// disk is a new disk on which some command lines were run. Tests that begin alike get clones of the same disk.
func disk(t *testing.T, lines ...string) *vfs.Mem {
	t.Helper()
	if len(lines) == 0 {
		return vfs.NewMem()
	}
	key := strings.Join(lines, "\n")
	known, ok := disks[key]
	if !ok {
		last := len(lines) - 1
		known = disk(t, lines[:last]...)
		must(t, known, lines[last])
		disks[key] = known
	}
	return known.Clone()
}

// disks are what disk has made, by their command lines.
var disks = map[string]*vfs.Mem{}

// tree is the content of all files below a directory.
func tree(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			for k, v := range tree(t, fsys, name) {
				files[k] = v
			}
			continue
		}
		files[name] = content(t, fsys, name)
	}
	return files
}

// digest is the hash of all files and folders below a directory.
func digest(t *testing.T, fsys vfs.FS, dir string) (sum uint64) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		h := fnv.New64a()
		io.WriteString(h, name)
		if e.IsDir() {
			fmt.Fprintln(h, "/", digest(t, fsys, name))
		} else {
			fmt.Fprintln(h, ":", sha256.Sum256(bytesOf(t, fsys, name)))
		}
		sum += h.Sum64()
	}
	return sum
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	return string(bytesOf(t, fsys, name))
}

func bytesOf(t *testing.T, fsys vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, fsys vfs.FS, name, data string) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, data); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

// sealed is a manifest with the checksum that its text asks for.
func sealed(manifest string) string {
	at := strings.LastIndex(manifest, `"crc32c": "`) + len(`"crc32c": "`)
	zeroed := manifest[:at] + "00000000" + manifest[at+8:]
	return fmt.Sprintf("%s%08x%s", manifest[:at], crc32.Checksum([]byte(zeroed), crc32.MakeTable(crc32.Castagnoli)),
		manifest[at+8:])
}

// npyText is a numpy file.
func npyText(descr, shape string, data []byte) string {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + string(data)
}

// object is the one JSON object that a command line prints.
func object(t *testing.T, o outcome) map[string]any {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(o.stdout))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, o.stdout)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one object in %q", o.stdout)
	}
	return v
}

func TestAGraphBecomesATrainedModel(t *testing.T) {
	d := disk(t, generateLine, exportLine, "import npy arrays -o again --json")
	for file, data := range tree(t, d, "graph") {
		if again := strings.Replace(file, "graph", "again", 1); path.Ext(file) == ".arrow" &&
			path.Base(file) != "index.arrow" && content(t, d, again) != data {
			t.Errorf("%s differs after export and import", file)
		}
	}
	must(t, d, "propagate again -o store --hops 2 --operator sym,rw --chunk-rows 16")
	for _, dir := range []string{"again", "store"} {
		if o := must(t, d, "verify "+dir); !strings.Contains(o.stdout, "all is well") {
			t.Errorf("verify %s says %q", dir, o.stdout)
		}
		if o := must(t, d, "inspect "+dir); !strings.Contains(o.stdout, "fingerprint") {
			t.Errorf("inspect %s says %q", dir, o.stdout)
		}
	}
	for _, model := range []string{"sgc", "sign"} {
		for _, placement := range []string{"device", "host", "storage"} {
			run := model + "-" + placement
			trained := object(t, must(t, d,
				"train store --json --hidden 16 --lr 0.05 --epochs 40 --batch 32 --model "+model+
					" --placement "+placement+" --run "+run))
			if got := trained["test_metric"].(float64); got < 0.65 {
				t.Errorf("%s from %s has a test accuracy of %v", model, placement, got)
			}
			if trained["placement"] != placement {
				t.Errorf("trained from %v, not %s", trained["placement"], placement)
			}
			found := object(t, must(t, d, "evaluate --json --checkpoint "+run+" store"))
			valid := object(t, must(t, d, "evaluate --json --checkpoint "+run+" store --rows valid"))
			if found["test_metric"] != trained["test_metric"] || valid["valid_metric"] != trained["valid_metric"] {
				t.Errorf("%s: evaluate finds %v and %v, train %v and %v", run,
					found["test_metric"], valid["valid_metric"], trained["test_metric"], trained["valid_metric"])
			}
		}
	}
	must(t, d, "export npy store -o rows")
	if got := len(content(t, d, "rows/sym_hop-2.npy")); got < 6*4*200 {
		t.Errorf("an exported matrix has %d bytes", got)
	}
}

func TestJSONHasTheKeysThatScriptsRelyOn(t *testing.T) {
	const training = "model dataset placement shuffle epochs best_epoch train_loss valid_metric test_metric metric " +
		"epoch_seconds " +
		"stage_seconds load_wait_seconds rows_per_second convergence_epoch predicted_epoch_seconds " +
		"peak_device_bytes seeds"
	d := vfs.NewMem()
	for _, c := range []struct{ line, keys string }{
		{generateLine, "nodes edges features classes train valid test seconds output"},
		{exportLine, "files bytes output"},
		{"import npy arrays -o imported", "nodes edges features classes train valid test seconds output"},
		{propagateLine, "nodes edges features operators hops rows dtype seconds hop_seconds edges_processed " +
			"gathered_bytes_per_second " +
			"peak_rss_bytes memory_budget_bytes predicted_seconds bytes_read bytes_written scratch_bytes output " +
			"resumed"},
		{"inspect store", "kind name nodes edges features dtype rows regions matrices fingerprint"},
		{"verify store", "files chunks bytes bad"},
		{trainLine, training},
		{"train store --model sgc --runs 3 --epochs 3",
			training + " train_loss_std valid_metric_std test_metric_std epoch_seconds_std"},
		{evaluateLine, training + " value rows parts rows_of same_nodes trained_rows"},
	} {
		o := must(t, d, c.line+" --json --threads 1")
		v := object(t, o)
		for key := range strings.FieldsSeq(c.keys) {
			if _, ok := v[key]; !ok {
				t.Errorf("hopfeed %s: no key %q in %s", c.line, key, o.stdout)
			}
		}
	}
}

func TestExitStatus(t *testing.T) {
	base := disk(t, generateLine, propagateLine, trainLine, exportLine,
		"generate sbm -o wide --nodes 300 --edges 900 --features 9 --classes 3 --labeled 0.9",
		"propagate wide -o widestore --hops 2 --operator sym,rw",
		"generate rmat -o bare --nodes 50 --edges 100 --features 2 --classes 2 --labeled 0",
		"propagate bare -o barestore --rows all",
		"generate sbm -o large --nodes 20 --edges 50 --features 2 --classes 3 --separation 1e6")
	must(t, base, "propagate graph -o newer --hops 1")
	write(t, base, "newer/manifest.json", sealed(strings.Replace(content(t, base, "newer/manifest.json"),
		fmt.Sprintf(`"format": %d`, format.Version), `"format": 999`, 1)))
	must(t, base, "propagate graph -o damaged --hops 1")
	write(t, base, "damaged/manifest.json", strings.Replace(content(t, base, "damaged/manifest.json"), `"kind"`,
		`"kinf"`, 1))
	must(t, base, strings.Replace(trainLine, "--run run", "--run flat", 1))
	write(t, base, "flat/checkpoint.json", sealed(strings.Replace(content(t, base, "flat/checkpoint.json"),
		`"layers": 3`, `"layers": 1`, 1)))
	if err := base.MkdirAll("empty"); err != nil {
		t.Fatal(err)
	}
	if err := base.MkdirAll("bad"); err != nil {
		t.Fatal(err)
	}
	write(t, base, "bad/edge_index.npy", "no array")
	for _, dir := range []string{"folders/edge_index.npy", "contradicting/split"} {
		if err := base.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	write(t, base, "contradicting/edge_index.npy", content(t, base, "arrays/edge_index.npy"))
	write(t, base, "contradicting/node_feat.npy", content(t, base, "arrays/node_feat.npy"))
	write(t, base, "contradicting/meta.json", `{"directed": false}`)
	if err := base.MkdirAll("unsplit"); err != nil {
		t.Fatal(err)
	}
	for _, array := range []string{"edge_index.npy", "node_feat.npy", "node_label.npy"} {
		write(t, base, "unsplit/"+array, content(t, base, "arrays/"+array))
	}
	must(t, base, "import npy unsplit -o unsplitgraph")
	must(t, base, "propagate unsplitgraph -o unsplitstore --hops 1")
	write(t, base, "config.json", `{"hiden": 3}`)
	write(t, base, "notyaml.yaml", "hidden: [3")
	for _, c := range []struct {
		name, line string
		code       int
		says       string
	}{
		{"no verb is a request for help", "", exitDone, ""},
		{"an unknown verb", "embed graph", exitUsage, `hopfeed: unknown command "embed" (see hopfeed --help)`},
		{"a verb with a slip", "trian store", exitUsage, `hopfeed: unknown command "trian": did you mean train? ` +
			`(see hopfeed --help)`},
		{"an unknown benchmark", "bench loda store", exitUsage, `unknown command "loda": did you mean load? (see ` +
			`hopfeed bench --help)`},
		{"emulated devices where nothing is computed on devices", "verify store --emulate gpu=1", exitUsage,
			"unknown flag: --emulate"},
		{"a number of runs as the directory of one", "train store --run 10", exitUsage, "--runs 10"},
		{"an unknown flag", "train store --modle sgc", exitUsage, "--modle"},
		{"a missing argument", "verify", exitUsage, "1 arg"},
		{"a missing output", "propagate graph", exitUsage, "output"},
		{"a flag that is no number", "train store --epochs many", exitUsage, "many"},
		{"negative threads", "verify store --threads -1", exitUsage, "--threads"},
		{"a size without meaning", "verify store --memory lots", exitUsage, "lots"},
		{"an unknown import format", "import gml arrays -o x", exitUsage, "npy"},
		{"a flag of another import format", "import npy arrays -o x --ids map", exitUsage,
			"unknown flag: --ids (see hopfeed import npy --help)"},
		{"self-loops of a third kind, before anything is read", "import csv nothing -o x --self-loops some", exitUsage,
			"keep or drop"},
		{"a type that features cannot have, before anything is read", "import csv nothing -o x --dtype int8", exitUsage,
			"float16"},
		{"an edge list's ids of a third kind", "import csv arrays -o x --ids some", exitUsage, "map"},
		{"an unknown export format", "export csv graph -o x", exitUsage, "npy"},
		{"an unknown generator", "generate grid -o x", exitUsage, "rmat"},
		{"a generator's impossible option", "generate sbm -o x --classes 0", exitUsage, "--classes 0"},
		{"an unknown operator", "propagate graph -o x --operator laplace", exitUsage, "hopfeed: there is no " +
			"operator \"laplace\""},
		{"negative hops", "propagate graph -o x --hops -1", exitUsage, "hops"},
		{"a split that the graph lacks", "propagate graph -o x --split 3", exitUsage, "split 3"},
		{"an unknown type", "propagate graph -o x --dtype float64", exitUsage, "float16"},
		{"nothing to store", "propagate bare -o x", exitUsage, "--rows all"},
		{"another store that is there", propagateLine + " --rows all", exitUsage, "rows: labeled there, all asked for"},
		{"a graph that is there", generateLine, exitUsage, "--force"},
		{"a model that is there", trainLine, exitUsage, "--force"},
		{"arrays that are there", exportLine, exitUsage, "--force"},
		{"an unknown model", "train store --model gnn", exitUsage, "sgc"},
		{"a graph where a store is needed", "train graph --model sgc", exitUsage, "propagate"},
		{"more hops than there are", "train store --hops 5", exitUsage, "5 hops"},
		{"a store without training rows", "train unsplitstore", exitUsage, "no training rows"},
		{"a store without labels", "train barestore", exitUsage, "no labels"},
		{"an unknown placement", "train store --placement cloud", exitUsage, "device"},
		{"storage shuffled by row", "train store --placement storage --shuffle rr", exitUsage, "chunk"},
		{"chunks shuffled by row", "train store --chunk-rows 8 --shuffle rr", exitUsage, "rr"},
		{"an impossible learning rate", "train store --lr 0", exitUsage, "--lr"},
		{"more threads than any machine has", "verify store --threads 1000000", exitUsage, "4096"},
		{"a negative number of hops to use", "train store --hops -1", exitUsage, "--hops"},
		{"a negative split", "train store --split -2", exitUsage, "--split"},
		{"negative hidden units", "train store --model sign --hidden -4", exitUsage,
			"hidden -4: must be an integer from 1"},
		{"a model with too few layers", "train store --model sign --layers 1", exitUsage,
			"layers 1: must be an integer from 2"},
		{"more layers than the model can have", "train store --model sign --layers 1000", exitUsage,
			"layers 1000: must be an integer from 2 to 256"},
		{"a model for other features", "evaluate --checkpoint run widestore", exitUsage, "6 features"},
		{"a checkpoint of an impossible model", "evaluate --checkpoint flat store", exitCorrupt, "layers 1: must be"},
		{"a model in its store", "train store --run store", exitUsage, "graph or store"},
		{"arrays below the graph that they are of", "export npy graph -o graph/arrays", exitUsage,
			"lies in the graph or store /graph"},
		{"a store in the place of its graph", "propagate graph -o ./graph/ --force", exitUsage,
			"the graph that is read"},
		{"a store below its graph", "propagate graph -o graph/features/x --force", exitUsage,
			"lies in the graph or store /graph"},
		{"a store in the place of another graph", "propagate graph -o wide --force", exitUsage,
			"is a graph, and a store cannot replace it"},
		{"a graph in the place of a store", strings.Replace(generateLine, "-o graph", "-o store --force", 1), exitUsage,
			"is a store, and a graph cannot replace it"},
		{"a store where a graph is needed", "propagate store -o x", exitUsage, "reads a graph"},
		{"a graph below a store", "generate rmat -o store/x", exitUsage, "lies in the graph or store /store"},
		{"a model below a graph", "train store --run graph/models/a", exitUsage, "lies in the graph or store /graph"},
		{"a model in the place of a file", "train store --run config.json", exitUsage, "config.json"},
		{"an unknown key of the configuration", "train store --config config.json", exitUsage, "hiden"},
		{"a configuration that is no YAML", "train store --config notyaml.yaml", exitUsage, "notyaml.yaml"},
		{"a directory that is not a demo's", "demo --output store", exitUsage, "is not replaced"},
		{"a store that is not there", "train nothing", exitFailed, "nothing"},
		{"arrays that are not there", "import npy nothing -o x", exitFailed, "nothing"},
		{"arrays that are none", "import npy bad -o x", exitCorrupt, "edge_index.npy"},
		{"a folder in the place of an array", "import npy folders -o x", exitCorrupt,
			"folders/edge_index.npy: is a directory"},
		{"a folder in the place of a text", "import csv folders -o x", exitCorrupt,
			"folders: a folder without edges.csv"},
		{"a direction that the arrays contradict", "import npy contradicting -o x --directed", exitUsage,
			"contradicting/meta.json"},
		{"edges that are undirected and directed", "import npy arrays -o x --undirected --directed", exitUsage,
			"exclude each other"},
		{"a graph in the place of a file", "import npy arrays -o config.json --force", exitUsage, `--output ` +
			`"config.json": want a directory`},
		{"a graph in the folder that it is of", "import npy contradicting -o contradicting/split/x", exitUsage,
			"lies in contradicting"},
		{"a folder without arrays", "import npy empty -o x", exitCorrupt, "edge_index.npy"},
		{"a directory without manifest", "verify empty", exitCorrupt, "empty"},
		{"a model to look into", "inspect run", exitUsage, "evaluate --checkpoint run"},
		{"a model to check", "verify run", exitUsage, "run is a trained model"},
		{"more edges than any graph has", "generate rmat -o x --edges 1000000000000000000", exitUsage,
			"281474976710656"},
		{"more edges than there is disk", "generate rmat -o x --edges 200000000000000", exitDoesNotFit, ""},
		{"features too large for float16", "propagate large -o x --dtype float16 --rows all", exitCorrupt,
			"large: x/hop-0: node"},
		{"a newer format", "train newer", exitCorrupt,
			"made by a later version of hopfeed (format 999; this one reads format 2): use that version"},
		{"a damaged manifest", "inspect damaged", exitCorrupt, "manifest.json"},
		{"a folder that is no model", "evaluate --checkpoint store store", exitFailed, "checkpoint.json"},
		{"a graph that needs more memory", "propagate graph -o x --memory 1MB", exitDoesNotFit, "memory"},
		{"an input that needs more memory", "train store --memory 4KiB", exitDoesNotFit, "does not fit"},
		{"a placement that needs more memory", "train store --placement device --memory 49MiB", exitDoesNotFit,
			"device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tree(t, base, ".")
			o := hopfeed(t, base, c.line)
			if o.code != c.code {
				t.Errorf("exit status %d, want %d", o.code, c.code)
			}
			if c.code != exitDone && strings.Count("\n"+o.stderr, "\nhopfeed: ") != 1 {
				t.Errorf("not one line of error: %q", o.stderr)
			}
			if !strings.Contains(o.stderr, c.says) {
				t.Errorf("%q does not say %q", o.stderr, c.says)
			}
			after := tree(t, base, ".")
			if len(after) != len(before) {
				t.Errorf("%d files before, %d after", len(before), len(after))
			}
			if _, err := base.Stat("x"); err == nil {
				t.Error("something was left under the output's name")
			}
		})
	}
}

func TestWhatIsThereOnceIsNamedInTheSingularAndWhatIsNotIsNotNamed(t *testing.T) {
	base := disk(t)
	one := must(t, base, "generate rmat -o one --nodes 1 --edges 1 --features 1 --classes 1 --labeled 0").stdout
	if !strings.Contains(one, "1 node, 1 edge, 1 feature") || strings.Contains(one, "split") {
		t.Errorf("generate: %q", one)
	}
	if store := must(t, base, "propagate one -o store --rows all --hops 1 --verbose").stdout; !strings.Contains(store,
		"1 row of 1 feature (float32): the input, and 1 hop of sym") || !strings.Contains(store, "1 edge\n") {
		t.Errorf("propagate: %q", store)
	}
	one = must(t, base, "generate rmat -o class --nodes 9 --edges 9 --features 1 --classes 1 --labeled 1").stdout
	if !strings.Contains(one, "1 class\n") {
		t.Errorf("generate: %q", one)
	}
	if two := must(t, base, generateLine).stdout; !strings.Contains(two, "300 nodes, ") ||
		!strings.Contains(two, ", 3 classes\n") || !strings.Contains(two, "split 0: ") {
		t.Errorf("generate: %q", two)
	}
}

func TestMultiLabelDataAreCalledSo(t *testing.T) {
	d := disk(t, generateLine, exportLine)
	write(t, d, "arrays/node_label.npy", string(npy.AppendHeader(nil, npy.Bool, 1, 300, 4))+strings.Repeat("\x00\x01",
		600))
	if o := must(t, d, "import npy arrays -o multi").stdout; !strings.Contains(o, "4 labels a node (multi-label)\n") {
		t.Error(o)
	}
	must(t, d, "propagate multi -o multistore --hops 1")
	if o := must(t, d, "train multistore --epochs 1"); !strings.Contains(o.stderr, "4 labels\n") ||
		!strings.Contains(o.stdout, "micro-f1 ") {
		t.Errorf("%s%s", o.stderr, o.stdout)
	}
	must(t, d, "plan multistore")
}

func TestAnEmptyOutputIsBadUsage(t *testing.T) {
	d := disk(t, generateLine)
	for _, line := range []string{"import npy arrays", "generate rmat", "propagate graph", "export npy graph", "demo"} {
		var stderr bytes.Buffer
		code := execute(context.Background(), &app{fs: d, stdout: io.Discard, stderr: &stderr},
			append(strings.Fields(line), "--output", ""))
		if code != exitUsage || !strings.HasPrefix(stderr.String(), "hopfeed: --output \"\": ") {
			t.Errorf("%s: exit status %d, %s", line, code, stderr.String())
		}
	}
}

func TestADiskThatFillsUpIsStatusFourAndLeavesNothing(t *testing.T) {
	for _, c := range []struct{ line, output string }{
		{propagateLine, "store"},
		{"generate sbm -o more --nodes 300 --edges 1500", "more"},
		{"export npy graph -o others", "others"},
		{"import npy arrays -o again", "again"},
		{importCSVLine, "mapped"},
		{"train graphstore --epochs 3 --run trained", "trained"},
	} {
		t.Run(c.output, func(t *testing.T) {
			m := disk(t, generateLine, exportLine, "propagate graph -o graphstore --hops 1")
			write(t, m, "edges.csv", csvEdges)
			used := int64(0)
			for _, data := range tree(t, m, ".") {
				used += int64(len(data))
			}
			for spare := int64(0); ; spare += 9 << 10 {
				m.SetCapacity(used + spare)
				o := hopfeed(t, m, c.line)
				if o.code == exitDone {
					if spare == 0 {
						t.Error("the disk was never full")
					}
					return
				}
				if o.code != exitDoesNotFit {
					t.Fatalf("exit status %d with %d bytes to spare: %s", o.code, spare, o.stderr)
				}
				_, err := m.Stat(c.output)
				if _, scratch := m.Stat(c.output + ".scratch"); err == nil || scratch == nil {
					t.Fatalf("with %d bytes to spare something was left under the output's name", spare)
				}
			}
		})
	}
}

func TestVerifyFindsAnyFlippedBit(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for _, dir := range []string{"graph", "store"} {
		for file, data := range tree(t, d, dir) {
			for _, at := range []int{0, len(data) / 3, len(data) - 1} {
				damaged := []byte(data)
				damaged[at] ^= 4
				write(t, d, file, string(damaged))
				o := hopfeed(t, d, "verify --json "+dir)
				if o.code != exitCorrupt {
					t.Errorf("bit flipped in byte %d of %s: exit status %d", at, file, o.code)
					continue
				}
				bad := object(t, o)["bad"].([]any)
				if len(bad) == 0 || !strings.Contains(file, bad[0].(map[string]any)["file"].(string)) {
					t.Errorf("bit flipped in byte %d of %s: reported %v", at, file, bad)
				}
			}
			write(t, d, file, data)
		}
		must(t, d, "verify "+dir)
	}
}

func TestDamageStopsWhateverReadsIt(t *testing.T) {
	for _, c := range []struct{ file, line string }{
		{format.PartPath("graph/topology", 0), "propagate graph -o x --hops 1"},
		{format.PartPath("graph/features/x/hop-0", 0), "propagate graph -o x --hops 1"},
		{format.PartPath("graph/nodes", 0), "propagate graph -o x --hops 1"},
		{format.PartPath("graph/topology", 0), "export npy graph -o x"},
		{format.PartPath("store/features/sym/hop-2", 0), "train store --model sgc --hops 2 --placement device --run x"},
		{format.PartPath("store/features/sym/hop-2", 0), "train store --model sgc --hops 2 --placement host --run x"},
		{format.PartPath("store/features/sym/hop-2", 0),
			"train store --model sgc --hops 2 --placement storage --run x"},
		{format.PartPath("store/features/sym/hop-2", 0),
			"train store --model sgc --hops 2 --emulate gpu=3,mem=4MiB --run x"},
		{format.PartPath("store/rows", 0), "train store --model sgc --hops 2 --run x"},
		{"store/index.arrow", "train store --model sgc --hops 2 --run x"},
		{"run/parameters-*", evaluateLine},
		{"run/split-*", evaluateLine},
		{"run/checkpoint.json", evaluateLine},
	} {
		d := disk(t, generateLine, propagateLine, trainLine)
		if strings.HasSuffix(c.file, "*") { // a name that depends on the content
			for name := range tree(t, d, "run") {
				if strings.HasPrefix(name, strings.TrimSuffix(c.file, "*")) {
					c.file = name
				}
			}
		}
		data := []byte(content(t, d, c.file))
		at := len(data) / 2
		if path.Ext(c.file) == ".arrow" {
			at = 8192 + 100 // in the first body
		}
		data[at] ^= 1
		write(t, d, c.file, string(data))
		o := hopfeed(t, d, c.line)
		if o.code != exitCorrupt || !strings.Contains(o.stderr, path.Base(c.file)) {
			t.Errorf("%s with a flipped bit, hopfeed %s: exit status %d, %s", c.file, c.line, o.code, o.stderr)
		}
		if _, err := d.Stat("x"); err == nil {
			t.Errorf("%s with a flipped bit, hopfeed %s: something was left under the output's name", c.file, c.line)
		}
	}
}

func TestThreadsDoNotShowInTheBytes(t *testing.T) {
	var want map[string]string
	for _, threads := range []string{"1", "2", "3"} {
		d := disk(t)
		for _, line := range []string{generateLine, propagateLine, trainLine} {
			must(t, d, line+" --threads "+threads)
		}
		got := tree(t, d, ".")
		if want == nil {
			want = got
			continue
		}
		if len(got) != len(want) {
			t.Errorf("%d files with %s threads, %d with 1", len(got), threads, len(want))
		}
		for name := range want {
			if strings.HasPrefix(name, "run/") && path.Ext(name) != ".safetensors" && path.Ext(name) != ".arrow" {
				continue // with times
			}
			if got[name] != want[name] {
				t.Errorf("%s differs with %s threads", name, threads)
			}
		}
	}
}

func TestTheOrderOfTheSplitDoesNotMatterToTheModel(t *testing.T) {
	// A split given by a file that says what the store says trains on the same rows.
	d := disk(t, generateLine, propagateLine, exportLine)
	regions := object(t, must(t, d, "train store --model sgc --epochs 5 --json"))
	file := object(t, must(t, d, "train store --model sgc --epochs 5 --json --splits arrays/splits.npy"))
	if regions["test_metric"] != file["test_metric"] {
		t.Errorf("test accuracy %v by region, %v by file", regions["test_metric"], file["test_metric"])
	}
	for line, says := range map[string]string{
		"--splits arrays/splits.npy --split 1":           "split 1",
		"--splits arrays/splits.npy --placement storage": "scattered",
		"--split 1": "split 1",
	} {
		if o := hopfeed(t, d, "train store --model sgc "+line); o.code != exitUsage ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d, %s", line, o.code, o.stderr)
		}
	}
	write(t, d, "arrays/wrong.npy", string(npy.AppendHeader(nil, npy.Int8, 1, 300))+strings.Repeat("\x03", 300))
	for array, says := range map[string]string{"wrong.npy": "none of 0", "edge_index.npy": "shape",
		"node_feat.npy": "float32"} {
		if o := hopfeed(t, d, "train store --splits arrays/"+array); o.code != exitCorrupt ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("splits from %s: exit status %d, %s", array, o.code, o.stderr)
		}
	}
}

func TestTheCommandLineWinsOverTheConfiguration(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "config.json", `{"model": "sgc", "epochs": 3, "lr": 0.05, "quiet": true, "runs": 2, "seed": `+
		`12345678901234567890}`)
	o := must(t, d, "train store --json --config config.json --epochs 4")
	v := object(t, o)
	if v["model"] != "sgc" || v["epochs"] != 4.0 || len(v["seeds"].([]any)) != 2 {
		t.Errorf("trained %v for %v epochs with seeds %v", v["model"], v["epochs"], v["seeds"])
	}
	if want := `"seeds":[12345678901234567890,12345678901234567891]`; !strings.Contains(o.stdout, want) {
		t.Errorf("no %s in %s", want, o.stdout)
	}
}

func TestADryRunWritesNothingAndSaysWhatItTakes(t *testing.T) {
	d := disk(t, generateLine)
	before := len(tree(t, d, "."))
	plan := object(t, must(t, d, propagateLine+" --dry-run --json"))
	if after := len(tree(t, d, ".")); after != before {
		t.Errorf("%d files before, %d after", before, after)
	}
	needed := plan["memory_needed_bytes"].(float64)
	done := object(t, must(t, d, fmt.Sprintf("%s --json --memory %.0f", propagateLine, needed)))
	if done["memory_needed_bytes"] != needed || done["bytes_written"].(float64) > plan["disk_needed_bytes"].(float64) {
		t.Errorf("planned %v, and did %v", plan, done)
	}
	if o := hopfeed(t, d, propagateLine+" --force --memory 64MiB"); o.code != exitDoesNotFit ||
		!strings.Contains(o.stderr, "at least") {
		t.Errorf("with 64 MiB: exit status %d, %s", o.code, o.stderr)
	}
}

func TestAnInterruptedCommandLeavesNothing(t *testing.T) {
	d := disk(t, generateLine, propagateLine, exportLine, trainLine)
	write(t, d, "edges.csv", csvEdges)
	before := len(tree(t, d, "."))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, line := range []string{
		"generate sbm -o x --nodes 300 --edges 900",
		"import npy arrays -o x",
		"import csv edges.csv -o x --ids map",
		"propagate graph -o x",
		"train store --run x",
		"train store --emulate gpu=3,mem=4MiB --run x",
		"verify store",
		"export npy graph -o x",
		predictLine,
		"predict --checkpoint run graph -o x.csv",
	} {
		if o := hopfeedUntil(t, ctx, d, line); o.code != exitInterrupted || !strings.Contains(o.stderr, "interrupted") {
			t.Errorf("%s: exit status %d, %s", line, o.code, o.stderr)
		}
	}
	if after := len(tree(t, d, ".")); after != before {
		t.Errorf("%d files before, %d after", before, after)
	}
}

func TestAFailingDiskNeverLeavesHalfOfAnything(t *testing.T) {
	const fewChunks = "propagate graph -o store --hops 2 --operator sym --chunk-rows 100 --seed 7"
	const trainSGC = "train store --model sgc --operator sym --hops 2 --epochs 3 --run run"
	for _, c := range []struct {
		line  string
		needs []string
		check string // works once the output is there: where it was there before, after any failure
	}{
		{generateLine, nil, "verify graph"},
		{"propagate graph -o store --hops 1 --chunk-rows 100", []string{generateLine}, "verify store"},
		{exportLine, []string{generateLine}, "import npy arrays -o again"},
		{"import npy arrays -o again", []string{generateLine, exportLine}, "verify again"},
		{importCSVLine, nil, "verify mapped"},
		{trainSGC, []string{generateLine, fewChunks}, evaluateLine},
		{trainSGC + " --force --save-every 0s", []string{generateLine, fewChunks, trainLine}, evaluateLine},
		{evaluateLine, []string{generateLine, fewChunks, trainLine}, ""},
		{predictLine, []string{generateLine, fewChunks, trainLine}, ""},
		{"verify store", []string{generateLine, fewChunks}, ""},
	} {
		t.Run(strings.Fields(c.line)[0], func(t *testing.T) {
			base := disk(t, c.needs...)
			write(t, base, "edges.csv", csvEdges)
			checked := vfs.Disks{}
			for n := int64(1); ; n++ {
				m := base.CrashClone()
				faulty := vfs.NewFault(m)
				faulty.FailFrom(n, syscall.EIO)
				o := hopfeed(t, faulty, c.line+" --threads 1")
				if faulty.Operations() < n {
					if o.code != exitDone {
						t.Errorf("exit status %d without a fault: %s", o.code, o.stderr)
					}
					return
				}
				// How long propagation took is an attribute of the store's folder, written last, which may be lost.
				attribute := strings.HasPrefix(c.line, "propagate") && faulty.Operations() == n
				if o.code == exitDone && !attribute {
					t.Errorf("operation %d and all after it failed, and the command did not", n)
				}
				// After a crash there is nothing, or all of it.
				survivor := m.CrashClone()
				if !checked.Add(survivor, 0) {
					continue
				}
				if strings.Contains(c.line, "--force") {
					must(t, survivor, c.check)
				}
				if o := hopfeed(t, survivor, c.line); o.code != exitDone && o.code != exitUsage {
					t.Errorf("after operation %d failed, again: exit status %d: %s", n, o.code, o.stderr)
				}
				if c.check != "" {
					must(t, survivor, c.check)
				}
			}
		})
	}
}

func TestACircuitModelWorksOnALargerCircuit(t *testing.T) {
	d := &demo{
		Output: "demo", ctx: context.Background(), say: t.Logf,
		app: &app{fs: vfs.NewMem(), stderr: io.Discard, quiet: true, budget: machine.Budget()},
	}
	if err := d.claimDirectory(); err != nil {
		t.Fatal(err)
	}
	if err := d.circuits(); err != nil {
		t.Fatal(err)
	}
	if err := d.claimDirectory(); err != nil {
		t.Errorf("the directory of a demo is refused: %v", err)
	}
	last := d.Steps[len(d.Steps)-1].Result.(*evaluated)
	if last.Rows != 7968 || *last.Value < 0.9 {
		t.Errorf("accuracy %s on %d gates", trainer.Percent(last.Value), last.Rows)
	}
}
