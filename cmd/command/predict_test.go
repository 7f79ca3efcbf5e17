package command

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// prediction is a row of a table of predictions.
type prediction struct {
	id, class string
	p         []float32
}

// readPredictions reads a CSV file: predictions by node, and the nodes in order.
func readPredictions(t *testing.T, fsys vfs.FS, path string) (header []string, byNode map[uint32]prediction,
	order []uint32) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(content(t, fsys, path))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	header, byNode = rows[0], map[uint32]prediction{}
	for _, row := range rows[1:] {
		var node uint32
		var p prediction
		for i, name := range header {
			switch {
			case name == "node_id":
				n, err := strconv.ParseUint(row[i], 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				node = uint32(n)
			case name == "orig_id":
				p.id = row[i]
			case name == "class":
				p.class = row[i]
			default:
				v, err := strconv.ParseFloat(row[i], 32)
				if err != nil {
					t.Fatal(err)
				}
				p.p = append(p.p, float32(v))
			}
		}
		if _, twice := byNode[node]; twice {
			t.Errorf("%s: node %d is there twice", path, node)
		}
		byNode[node] = p
		order = append(order, node)
	}
	return header, byNode, order
}

// predictable is a disk with a graph (a tenth of the nodes is unlabelled), a store of all of its nodes,
// and a model.
func predictable(t *testing.T) *vfs.Mem {
	t.Helper()
	return disk(t, generateLine, propagateLine+" --rows all", trainLine)
}

func TestPredictionsHaveTheAccuracyOfTheEvaluation(t *testing.T) {
	d := predictable(t)
	o := object(t, must(t, d, "predict --checkpoint run store -o out.csv --json"))
	header, found, order := readPredictions(t, d, "out.csv")
	if want := []string{"node_id", "class", "p_0", "p_1", "p_2"}; !slices.Equal(header, want) || o["rows"] != 300.0 ||
		o["outputs"] != "class probabilities" || int(o["bytes"].(float64)) != len(content(t, d, "out.csv")) {
		t.Errorf("columns %q, %v", header, o)
	}
	if reasons := fmt.Sprint(o["reasons"]); !strings.Contains(reasons, "each row is read once") ||
		strings.Contains(reasons, "asked for") {
		t.Errorf("nobody asked for a placement: %s", reasons)
	}
	store, err := format.OpenStore(d, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, table.NodeID) {
		t.Errorf("the nodes are %v, of the store %v", order, table.NodeID)
	}
	unlabelled := 0
	for _, region := range store.Layout().Regions {
		correct, rows := 0, 0
		for row := region.FirstRow; row < region.FirstRow+region.Rows; row++ {
			p := found[table.NodeID[row]]
			if sum := p.p[0] + p.p[1] + p.p[2]; sum < 0.99999 || sum > 1.00001 ||
				fmt.Sprint(slices.Index(p.p, slices.Max(p.p))) != p.class {
				t.Errorf("node %d: %v", table.NodeID[row], p)
			}
			if table.Labels[row] < 0 {
				unlabelled++
				continue
			}
			if rows++; fmt.Sprint(table.Labels[row]) == p.class {
				correct++
			}
		}
		if rows == 0 {
			continue
		}
		e := object(t, must(t, d, "evaluate --checkpoint run store --json --rows "+region.Name))
		if accuracy := float64(correct) / float64(rows); accuracy != e["value"] || e["rows"] != float64(rows) {
			t.Errorf("%s: accuracy %v on %d rows, evaluated %v on %v", region.Name, accuracy, rows, e["value"],
				e["rows"])
		}
		must(t, d, "predict --checkpoint run store -o part.csv --force --rows "+region.Name)
		if _, _, part := readPredictions(t, d, "part.csv"); !slices.Equal(part,
			table.NodeID[region.FirstRow:region.FirstRow+region.Rows]) {
			t.Errorf("--rows %s: nodes %v", region.Name, part)
		}
	}
	if unlabelled == 0 {
		t.Error("all rows are labelled")
	}
}

func TestPredictionsAreTheSameBytesHoweverTheyAreComputed(t *testing.T) {
	d := predictable(t)
	for _, suffix := range []string{".csv", ".arrow", ".parquet"} {
		must(t, d, "predict --checkpoint run store -o first"+suffix)
		first := content(t, d, "first"+suffix)
		for i, flags := range []string{
			"--placement device", "--placement host", "--placement storage", "--batch 1", "--batch 37 --placement host",
			"--threads 1", "--memory 200MiB",
			"--emulate gpu=2,mem=64MiB --placement device --batch 50", "--emulate gpu=3,mem=64MiB --placement host",
			"--emulate gpu=1,mem=64MiB",
		} {
			if i > 4 && suffix != ".csv" {
				break
			}
			must(t, d, "predict --checkpoint run store --force -o other"+suffix+" "+flags)
			if content(t, d, "other"+suffix) != first {
				t.Errorf("%s %s: other bytes", suffix, flags)
			}
		}
	}
}

// A graph gives the predictions that a store of its nodes gives, and nothing else is left.
func TestPredictionsOfAGraphAreThoseOfItsStore(t *testing.T) {
	d := predictable(t)
	must(t, d, "predict --checkpoint run store -o all.csv")
	_, all, _ := readPredictions(t, d, "all.csv")
	write(t, d, "some.txt", "299\n 17\n\n3\n17\n")
	before := tree(t, d, ".")
	for flags, rows := range map[string]int{
		"": 300, "--node-file some.txt": 3, "--rows test": 0, "--rows rest --memory 150MiB": 0,
		"--rows valid --split 0 --seed 9": 0,
	} {
		must(t, d, "predict --checkpoint run graph -o out.csv "+flags)
		_, found, _ := readPredictions(t, d, "out.csv")
		if rows > 0 && len(found) != rows || len(found) == 0 || flags != "" && len(found) == 300 {
			t.Errorf("%s: %d rows", flags, len(found))
		}
		for node, p := range found {
			if !slices.Equal(p.p, all[node].p) || p.class != all[node].class {
				t.Errorf("%s: node %d is %v, in the store %v", flags, node, p, all[node])
			}
		}
		if err := d.Remove("out.csv"); err != nil {
			t.Fatal(err)
		}
		if after := tree(t, d, "."); !maps.Equal(before, after) {
			t.Errorf("%s: the files were %q and are %q", flags, slices.Sorted(maps.Keys(before)),
				slices.Sorted(maps.Keys(after)))
		}
	}
}

// Names of classes and ids of the input go from the training to the predictions, also to those of data
// without labels.
func TestPredictionsAreNamedAsTheInputNamesThem(t *testing.T) {
	d := vfs.NewMem()
	var edges, labelled, others strings.Builder
	edges.WriteString("source,target\n")
	labelled.WriteString("id,label,split,f0,f1\n")
	others.WriteString("id,f0,f1\n")
	for i := range 90 {
		fmt.Fprintf(&edges, "node %d,node %d\n", i, (i+3)%90)
		f0, f1 := 1+i%3, (i+1)%3
		fmt.Fprintf(&labelled, "node %d,%q,%s,%d,%d\n", i, []string{"Cat, domestic", "dog", "emu"}[i%3],
			[]string{"train", "valid", "test", "train"}[i%4], f0, f1)
		fmt.Fprintf(&others, "node %d,%d,%d\n", i, f0, f1)
	}
	write(t, d, "edges.csv", edges.String())
	write(t, d, "labelled.csv", labelled.String())
	write(t, d, "others.csv", others.String())
	for _, line := range []string{
		"import csv edges.csv -o graph --ids map --node-table labelled.csv --id-column id --label-column label " +
			"--split-column split --undirected",
		"import csv edges.csv -o new --ids map --node-table others.csv --id-column id --undirected",
		"propagate graph -o store --hops 1 --operator rw --dtype bfloat16",
		"train store --model sgc --epochs 30 --run run",
	} {
		must(t, d, line)
	}
	write(t, d, "some.txt", "node 5\nnode 80\n")
	for input, rows := range map[string]int{"store": 90, "graph": 90, "new": 90, "new --node-file some.txt": 2} {
		must(t, d, "predict --checkpoint run -o out.csv --force "+input)
		header, found, _ := readPredictions(t, d, "out.csv")
		if want := []string{"node_id", "orig_id", "class", "p_Cat, domestic", "p_dog", "p_emu"}; !slices.Equal(header,
			want) || len(found) != rows {
			t.Errorf("%s: columns %q, %d rows", input, header, len(found))
		}
		for node, p := range found {
			i, err := strconv.Atoi(strings.TrimPrefix(p.id, "node "))
			if err != nil || p.class != []string{"Cat, domestic", "dog", "emu"}[i%3] {
				t.Errorf("%s: node %d is %+v", input, node, p)
			}
		}
	}
	write(t, d, "some.txt", "node 5\nnode 90\n")
	if o := hopfeed(t, d, "predict --checkpoint run new -o x.csv --node-file some.txt"); o.code != exitUsage ||
		!strings.Contains(o.stderr, `original id "node 90"`) {
		t.Errorf("status %d: %s", o.code, o.stderr)
	}
}

func TestPredictionsThatCannotBeAreRefused(t *testing.T) {
	d := predictable(t)
	for _, line := range []string{
		"generate sbm -o wide --nodes 60 --edges 200 --features 7 --classes 3", "propagate graph -o short --hops 1",
		"generate rmat -o plain --nodes 60 --edges 200 --features 6 --labeled 0",
	} {
		must(t, d, line)
	}
	write(t, d, "there.csv", "mine")
	write(t, d, "begun.csv.tmp", "mine")
	write(t, d, "letters.txt", "1\nx\n")
	write(t, d, "beyond.txt", "300\n")
	write(t, d, "empty.txt", "\n")
	if err := d.MkdirAll("taken.csv.job"); err != nil {
		t.Fatal(err)
	}
	write(t, d, "taken.csv.job/thesis.tex", "mine")
	before := tree(t, d, ".")
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"store -o out.xlsx": {exitUsage, "ends in .arrow, .csv, .parquet"},
		"store -o there.csv": {exitUsage,
			"there.csv: output exists (--force replaces it)"},
		"store -o begun.csv":           {exitUsage, "begun.csv.tmp: output exists"},
		"store -o taken.csv.job":       {exitUsage, "want a name that ends in"},
		"store -o store/out.csv":       {exitUsage, "to which nothing may be added"},
		"store -o run/out.csv --force": {exitUsage, "lies in run, which this command reads"},
		"store -o out.csv --rows some": {exitUsage, "--rows"},
		"store -o out.csv --rows rest": {exitDone, ""},
		"short -o out.csv": {exitUsage,
			"sym/hop-2, rw/hop-1, rw/hop-2, which the store lacks"},
		"wide -o out.csv": {exitUsage,
			"trained on 6 features (data sbm), but the graph has 7"},
		"store -o out.csv --batch 0":                            {exitUsage, "--batch 0"},
		"store -o out.csv --split 1":                            {exitUsage, "are for graphs"},
		"store -o out.csv --node-file empty":                    {exitUsage, "are for graphs"},
		"graph -o out.csv --split 1 --rows test":                {exitUsage, "1 split, numbered from 0"},
		"graph -o out.csv --split -1":                           {exitUsage, "--split -1"},
		"graph -o out.csv --node-file letters.txt":              {exitUsage, `line 2 is "x"`},
		"graph -o out.csv --node-file beyond.txt":               {exitUsage, "from 0 to 299"},
		"graph -o out.csv --split 0 --rows all":                 {exitUsage, "--split 0: all predictions are the same"},
		"graph -o out.csv --node-file empty.txt":                {exitUsage, "names no node"},
		"graph -o out.csv --node-file no.txt":                   {exitFailed, "no.txt"},
		"graph -o out.csv --node-file empty.txt --rows all":     {exitUsage, "give one of them"},
		"plain -o out.csv --rows test":                          {exitUsage, "plain has no test nodes"},
		"graph -o taken.csv":                                    {exitUsage, "taken.csv.job: it is there already"},
		"store -o out.csv --placement device --memory 33554432": {exitDoesNotFit, "memory"},
		"nothing -o out.csv":                                    {exitFailed, "nothing"},
	} {
		o := hopfeed(t, d, "predict --checkpoint run "+line)
		if o.code != c.code || !strings.Contains(o.stderr, c.says) || o.code != exitDone &&
			strings.Count(o.stderr, "hopfeed: ") != 1 {
			t.Errorf("%s: status %d, no %q in %s", line, o.code, c.says, o.stderr)
		}
		_ = d.Remove("out.csv")
		if after := tree(t, d, "."); !maps.Equal(before, after) {
			t.Errorf("%s: the files were %q and are %q", line, slices.Sorted(maps.Keys(before)),
				slices.Sorted(maps.Keys(after)))
		}
	}
}

func TestPredictionsThatDoNotFitTheDiskAreRefused(t *testing.T) {
	d := predictable(t)
	if o := hopfeed(t, tight{d}, "predict --checkpoint run store -o out.csv"); o.code != exitDoesNotFit ||
		!strings.Contains(o.stderr, "out.csv needs ") {
		t.Errorf("status %d: %s", o.code, o.stderr)
	}
}

// tight is a disk with a kilobyte left.
type tight struct{ vfs.FS }

func (tight) FreeBytes(string) (int64, error) { return 1 << 10, nil }

// A prediction of a graph that is killed or interrupted anywhere is replaced by the next one, and what
// fails otherwise leaves nothing.
func TestAPredictionThatEndsEarlyLeavesNothing(t *testing.T) {
	d := disk(t, strings.Replace(generateLine, "--nodes 300 --edges 1500", "--nodes 40 --edges 100", 1),
		"propagate graph -o store --hops 1", "train store --model sgc --epochs 2 --run run").CrashClone()
	for _, input := range []string{"graph", "store"} {
		t.Run(input, func(t *testing.T) {
			endEarly(t, d.CrashClone(), "predict --checkpoint run "+input+" -o out.csv --threads 1")
		})
	}
}

func endEarly(t *testing.T, d *vfs.Mem, line string) {
	before := tree(t, d, ".")
	must(t, d, line)
	want := content(t, d, "out.csv")
	if err := errors.Join(d.Remove("out.csv"), d.Sync(".")); err != nil {
		t.Fatal(err)
	}
	seen := vfs.Disks{}
	for n := int64(1); ; n += 3 {
		m := d.CrashClone()
		fault := vfs.NewFault(m)
		fault.FailAt(n, syscall.ENOSPC)
		o := hopfeed(t, fault, line)
		if fault.Operations() < n {
			if n < 50 {
				t.Errorf("only %d operations", n)
			}
			break
		}
		after := tree(t, m, ".")
		removing := after["out.csv"] == want && strings.Contains(o.stderr, " out.csv.job") // which failed, last of all
		if o.code != exitDone && !removing && !maps.Equal(before, after) {
			t.Errorf("operation %d failed (%s), and left %q", n, o.stderr, slices.Sorted(maps.Keys(after)))
		}
		if strings.Contains(o.stderr, "to go on") {
			t.Errorf("operation %d: %s", n, o.stderr)
		}
		killed := d.CrashClone()
		fault = vfs.NewFault(killed)
		fault.FailFrom(n, errors.New("killed"))
		hopfeed(t, fault, line)
		if !seen.Add(killed, 0) {
			continue
		}
		again := line
		if _, err := killed.Stat("out.csv"); err == nil { // complete
			again += " --force"
		}
		must(t, killed, again)
		if content(t, killed, "out.csv") != want {
			t.Errorf("killed at operation %d, again: other predictions", n)
		}
		if after := tree(t, killed, "."); len(after) != len(before)+1 {
			t.Errorf("killed at operation %d, again: %q", n, slices.Sorted(maps.Keys(after)))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var progress cancelAt
	progress.cancel, progress.line = cancel, "predict"
	defer parallel.SetThreads(parallel.Threads())
	code := execute(ctx, &app{fs: d, stdout: io.Discard, stderr: &progress}, strings.Fields(line))
	if after := tree(t, d, "."); code != exitInterrupted && code != exitDone || code == exitInterrupted &&
		!maps.Equal(before, after) {
		t.Errorf("interrupted: status %d, %q", code, slices.Sorted(maps.Keys(after)))
	}
}

// cancelAt cancels when a line is written that starts so.
type cancelAt struct {
	cancel context.CancelFunc
	line   string
}

func (c *cancelAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.line) {
		c.cancel()
	}
	return len(p), nil
}

// Several labels a row have probabilities of their own, and values are those of the targets' unit.
func TestLabelsAndValuesArePredicted(t *testing.T) {
	d := vfs.NewMem()
	var edges, prices strings.Builder
	edges.WriteString("u,v\n")
	prices.WriteString("node_id,price,f\n")
	labels := npy.AppendHeader(nil, npy.Int8, 1, 90, 2)
	for i := range 90 {
		fmt.Fprintf(&edges, "%d,%d\n", i, (i+3)%90)
		fmt.Fprintf(&prices, "%d,%v,%d\n", i, 1000.5+float64(i%3), i%3)
		labels = append(labels, byte(i%3/2), byte(1-i%3/2))
	}
	write(t, d, "edges.csv", edges.String())
	write(t, d, "prices.csv", prices.String())
	halves := npy.AppendHeader(nil, npy.Int8, 1, 90)
	for i := range 90 {
		halves = append(halves, byte(i%2)) // train, valid
	}
	write(t, d, "halves.npy", string(halves))
	must(t, d, "import csv edges.csv -o priced --node-table prices.csv --id-column node_id --label-column price "+
		"--labels-as values --undirected")
	must(t, d, "export npy priced -o arrays")
	write(t, d, "arrays/node_label.npy", string(labels))
	if err := d.Remove("arrays/meta.json"); err != nil { // which says that labels are values
		t.Fatal(err)
	}
	must(t, d, "import npy arrays -o labelled")
	for graph, columns := range map[string][]string{"priced": {"node_id", "value"},
		"labelled": {"node_id", "p_0", "p_1"}} {
		must(t, d, "propagate "+graph+" -o "+graph+"-store --hops 1 --rows all")
		must(t, d, "train "+graph+"-store --model sgc --epochs 200 --run "+graph+"-run --splits halves.npy")
		must(t, d, "predict --checkpoint "+graph+"-run "+graph+"-store -o out.csv --force")
		header, found, _ := readPredictions(t, d, "out.csv")
		if !slices.Equal(header, columns) || len(found) != 90 {
			t.Errorf("%s: columns %q, %d rows", graph, header, len(found))
		}
		for node, p := range found {
			i := node % 3
			if graph == "priced" {
				if value := 1000.5 + float32(i); p.p[0] < value-0.3 || p.p[0] > value+0.3 {
					t.Errorf("node %d: %v, want %v", node, p.p, value)
				}
			} else if p.p[0] >= 0.5 != (i == 2) || p.p[1] >= 0.5 != (i < 2) {
				t.Errorf("node %d of kind %d: %v", node, i, p.p)
			}
		}
	}
}
