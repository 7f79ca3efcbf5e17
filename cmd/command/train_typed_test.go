package command

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

const typedLine = "train whole --model rgcn --hidden 8 --epochs 12 --lr 0.02 --batch 20 --fanout 3,2"

// wholeTypedDisk is typedDisk with features of papers, in the graph "whole". Of the papers, the last 20 have no
// authors, and the last 10 no venues. No node cites another.
func wholeTypedDisk(t *testing.T) vfs.FS {
	t.Helper()
	d := typedDisk(t)
	edges := func(name string, n, from int) {
		pairs := make([]int64, 2*n)
		for i := range n {
			pairs[i], pairs[n+i] = int64(i*i%from), int64(i)
		}
		if err := d.MkdirAll("arrays/edges/" + name); err != nil {
			t.Fatal(err)
		}
		write(t, d, "arrays/edges/"+name+"/edge_index.npy",
			string(append(npy.AppendHeader(nil, npy.Int64, 1, 2, int64(n)), dtype.BytesOf(pairs)...)))
	}
	edges("author__paper", 70, 30)
	weights := make([]float32, 70)
	for i := range weights {
		weights[i] = 0.5 + float32(i%4)
	}
	write(t, d, "arrays/edges/author__paper/edge_weight.npy",
		string(append(npy.AppendHeader(nil, npy.Float32, 1, 70), dtype.BytesOf(weights)...)))
	edges("venue__paper", 80, 10)
	edges("author__cites__author", 0, 1)
	x := make([]float32, 90*4)
	for i := range x {
		if x[i] = float32(i*i%11) / 20; i%4 == i/4%3 { // the class
			x[i]++
		}
	}
	write(t, d, "arrays/nodes/paper/node_feat.npy",
		string(append(npy.AppendHeader(nil, npy.Float32, 1, 90, 4), dtype.BytesOf(x)...)))
	must(t, d, "import npy arrays -o whole")
	return d
}

func TestModelsAreTrainedEvaluatedAndAppliedOnATypedGraph(t *testing.T) {
	d := wholeTypedDisk(t)
	for _, model := range []string{"rgcn", "sage"} {
		for name, flags := range map[string]string{"sampled": "", "full": " --sampler full --as-printed 1",
			"discrete": " --emulate gpu=1,mem=1GiB", "columns": " --standardize column --layers 1 --fanout -1",
			"bases": " --bases 2", "learned": " --embedding 4"} {
			run, graph := model+"-"+name, "whole"
			line := strings.Replace(typedLine, "rgcn", model, 1)
			if name == "bases" && model == "sage" {
				continue // that is for rgcn
			}
			if name == "learned" { // papers have no features in graph
				graph = "graph"
				line = strings.Replace(line, "whole", graph, 1)
			}
			if name == "full" || name == "columns" {
				line = strings.Replace(line, " --fanout 3,2", "", 1)
			}
			var trained struct {
				Test float64 `json:"test_metric"`
			}
			readJSON(t, must(t, d, line+flags+" --json --run "+run).stdout, &trained)
			var evaluated struct {
				Value float64
				Rows  int64
			}
			readJSON(t, must(t, d, "evaluate "+graph+" --json --checkpoint "+run).stdout, &evaluated)
			if evaluated.Rows == 0 || evaluated.Value != trained.Test || !(trained.Test > 0.4) && graph == "whole" {
				t.Errorf("%s: evaluated %+v, trained %+v", run, evaluated, trained)
			}
			must(t, d, "predict "+graph+" --checkpoint "+run+" -o "+run+".csv")
			_, all, _ := readPredictions(t, d, run+".csv")
			want := typedProbabilities(t, d, graph, run)
			for v := range want {
				for c, p := range want[v] {
					if got := all[uint32(v)].p[c]; math.Abs(float64(got)-p) > 1e-5 {
						t.Fatalf("%s: node %d has probability %v of class %d, want %v", run, v, got, c, p)
					}
				}
			}
			write(t, d, "nodes.txt", "85\n3\n")
			must(t, d, "predict "+graph+" --checkpoint "+run+" -o "+run+"-two.csv --node-file nodes.txt")
			if _, two, _ := readPredictions(t, d, run+"-two.csv"); len(two) != 2 || !slices.Equal(two[85].p, all[85].p) {
				t.Errorf("%s: two nodes: %v, want that of 85 as %v", run, two, all[85])
			}
		}
	}
	must(t, d, "sample whole --by-weight --batch 10 --fanout 2,2")
	if o := hopfeed(t, d, "sample graph --by-weight"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "the graph has no weights") {
		t.Errorf("without weights: status %d: %s", o.code, o.stderr)
	}
	p := object(t, must(t, d, "plan whole --model rgcn --json"))
	if p["placement"] != "host" || p["rows"] != 90.0 {
		t.Errorf("planned %v", p)
	}
}

// typedProbabilities are the probabilities of classes of all papers of a graph, by the definition of the model, in
// float64 and with plain loops over all edges.
func typedProbabilities(t *testing.T, d vfs.FS, graph, run string) [][]float64 {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := checkpoint.Load(d, run)
	fail(err)
	tensors, err := c.Spec.Tensors(c.Parameters)
	fail(err)
	weights := map[string][]float32{}
	for _, x := range tensors {
		weights[x.Name] = x.Data
	}
	typed, err := format.OpenTyped(d, graph)
	fail(err)
	h := map[string][][]float64{} // of each type
	for i, n := range typed.Types {
		if n.Features == 0 {
			for row := range slices.Chunk(weights["embedding."+n.Name], int(c.Spec.Settings["embedding"])) {
				var wide []float64
				for _, v := range row {
					wide = append(wide, float64(v))
				}
				h[n.Name] = append(h[n.Name], wide)
			}
			continue
		}
		nodes, err := typed.OpenNodes(d, graph, n.Name)
		fail(err)
		source, err := features.LoadHost(t.Context(), nodes, nil, 1)
		fail(err)
		all, ids := make([]float32, n.Nodes*int64(n.Features)), make([]uint32, n.Nodes)
		for v := range ids {
			ids[v] = uint32(v)
		}
		fail(source.Gather(t.Context(), dtype.BytesOf(all), dtype.Float32, ids))
		for row := range slices.Chunk(all, n.Features) {
			var wide []float64
			for _, v := range row {
				wide = append(wide, float64(v)*float64(c.Scales[i]))
			}
			h[n.Name] = append(h[n.Name], wide)
		}
		fail(source.Close())
		fail(nodes.Close())
	}
	add := func(to []float64, w []float32, x []float64) {
		for o := range to {
			for j, v := range x {
				to[o] += float64(w[o*len(x)+j]) * v
			}
		}
	}
	addBias := func(to []float64, bias []float32) {
		for o := range to {
			to[o] += float64(bias[o])
		}
	}
	layers, printed := int(c.Spec.Settings["layers"]), c.Spec.Settings["as-printed"] == 1
	for layer := range layers {
		name, next, out := fmt.Sprintf("layer-%d.", layer+1), map[string][][]float64{}, int(c.Spec.Settings["hidden"])
		if printed && layer == layers-1 {
			out = c.Spec.Classes
		}
		for _, n := range typed.Types {
			for v := range n.Nodes {
				y := make([]float64, out)
				add(y, weights[name+n.Name+".weight"], h[n.Name][v])
				addBias(y, weights[name+n.Name+".bias"])
				next[n.Name] = append(next[n.Name], y)
			}
		}
		if bases := int(c.Spec.Settings["bases"]); bases > 0 {
			place := map[string]int{} // of the next relation among those with the same bases
			for _, r := range typed.Relations {
				group := strings.TrimSuffix(name, ".")
				if layer == 0 {
					group += "." + r.Source
				}
				basis, factors := weights[group+".bases.weight"], weights[group+".factors"][place[group]*bases:]
				place[group]++
				made := make([]float32, len(basis)/bases)
				for i := range made {
					for b := range bases {
						made[i] += factors[b] * basis[b*len(made)+i]
					}
				}
				weights[name+trainer.Relation{Source: r.Source, Name: r.Name, Destination: r.Destination}.String()+".weight"] = made
			}
		}
		for _, r := range typed.Relations {
			of, err := typed.OpenRelation(d, graph, r)
			fail(err)
			csc, err := of.Topology(t.Context(), 1)
			fail(err)
			for v := range csc.Nodes() {
				list := csc.Neighbors[csc.Offsets[v]:csc.Offsets[v+1]]
				mean, total := make([]float64, len(h[r.Source][0])), 0.0
				weight := func(i int) float64 {
					if csc.Weights == nil {
						return 1
					}
					return float64(csc.Weights[csc.Offsets[v]+int64(i)])
				}
				for i := range list {
					total += weight(i)
				}
				for i, u := range list {
					for j, value := range h[r.Source][u] {
						mean[j] += value * weight(i) / total
					}
				}
				add(next[r.Destination][v], weights[name+trainer.Relation{Source: r.Source, Name: r.Name,
					Destination: r.Destination}.String()+".weight"], mean)
			}
			fail(csc.Close())
			fail(of.Close())
		}
		for _, rows := range next {
			for _, y := range rows {
				if c.Spec.Settings["norm"] == 1 {
					mean, variance := 0.0, 0.0
					for _, v := range y {
						mean += v / float64(len(y))
					}
					for _, v := range y {
						variance += (v - mean) * (v - mean) / float64(len(y))
					}
					for j, v := range y {
						y[j] = float64(weights[name+"norm.weight"][j])*(v-mean)/math.Sqrt(variance+1e-5) +
							float64(weights[name+"norm.bias"][j])
					}
				}
				for j, v := range y {
					if !printed || layer < layers-1 {
						y[j] = max(v, 0)
					}
				}
			}
		}
		h = next
	}
	out := h["paper"]
	for v, x := range out {
		if !printed {
			y := make([]float64, c.Spec.Classes)
			add(y, weights["out.weight"], x)
			addBias(y, weights["out.bias"])
			out[v] = y
		}
		sum := 0.0
		for _, logit := range out[v] {
			sum += math.Exp(logit)
		}
		for j, logit := range out[v] {
			out[v][j] = math.Exp(logit) / sum
		}
	}
	return out
}

// A training on a typed graph that is stopped goes on to the same bits, on any number of threads.
func TestATrainingOnATypedGraphThatIsStoppedEndsTheSame(t *testing.T) {
	for _, flags := range []string{"", "--sampler full", "--replace", "--placement host --emulate gpu=1,mem=1GiB",
		"--placement device --emulate gpu=1,mem=1GiB", "--embedding 4 --bases 2",
		"--embedding 4 --placement device --emulate gpu=1,mem=1GiB"} {
		whole, d := wholeTypedDisk(t), wholeTypedDisk(t)
		line := typedLine + " --run run --epochs 4 " + flags
		if strings.Contains(flags, "full") {
			line = strings.Replace(line, " --fanout 3,2", "", 1)
		}
		if strings.Contains(flags, "embedding") {
			line = strings.Replace(line, "whole", "graph", 1)
		}
		stoppedEndsTheSame(t, whole, d, line, flags)
	}
}

// A training on a typed graph makes the same model, bit for bit, wherever its features are, and whatever is cached.
func TestATrainingOnATypedGraphIsTheSameWhereverItsFeaturesAre(t *testing.T) {
	d := wholeTypedDisk(t)
	for _, model := range []string{"rgcn", "sage"} {
		want, scheduled := "", regexp.MustCompile("--schedule [^ ]+")
		for i, c := range [][2]string{{"--placement host", "host"}, {"--placement device", "device"}, {"", "host"},
			{"--placement storage", "storage"}, {"--placement storage --emulate gpu=1,mem=1GiB", "storage"},
			{"--placement host --emulate gpu=1,mem=1GiB", "host"}, {"--placement device --emulate gpu=1,mem=1GiB", "device"},
			{"--emulate gpu=1,mem=1GiB", "device"}, {"--placement host --cache lru:60rows", "host"},
			{"--placement device --emulate gpu=1,mem=1GiB --cache lru:60rows", "device"},
			{"--placement storage --cache degree:60rows", "storage"}, {"--placement storage --cache fifo:480", "storage"},
			{"--map", "host"}, {"--placement storage --map --cache optimal:60rows", "storage"},
			{"--placement storage --cache ducati:960", "storage"},
			{"--placement host --emulate gpu=1,mem=1GiB --cache gns:60rows", "host"},
			{"--placement host --emulate gpu=1,mem=1GiB --cache presampled:60rows", "host"},
			{"--placement storage --emulate gpu=1,mem=1GiB --cache optimal:60rows", "storage"},
			{"--schedule mode-1", "host"}, {"--schedule mode-2 --placement storage --cache degree:60rows", "storage"},
			{"--schedule auto --emulate gpu=1,mem=1GiB", "device"},
			{"--schedule multi-queue --emulate gpu=1,mem=1GiB", "device"}} {
			run := fmt.Sprint(model, i)
			var r struct {
				Placement, Device string
				Reasons           []string
				Runs              []struct {
					Traffic loader.Traffic `json:"epoch_traffic"`
				}
				Test float64 `json:"test_metric"`
			}
			line := strings.Replace(typedLine, "rgcn", model, 1) + " --epochs 3 --json --run " + run + " " + c[0]
			readJSON(t, must(t, d, line).stdout, &r)
			if r.Placement != c[1] || len(r.Reasons) < 2 {
				t.Errorf("%s, %s: %+v", model, c[0], r)
			}
			traffic := r.Runs[0].Traffic
			if strings.Contains(c[0], "--cache") != (traffic.CachedRows > 0) || traffic.CachedRows > traffic.Rows {
				t.Errorf("%s, %s: %+v", model, c[0], traffic)
			}
			got := ""
			for name, text := range tree(t, d, run) {
				if strings.Contains(name, "parameters-") {
					got = text
				}
			}
			if want = cmp.Or(want, got); got != want || got == "" {
				t.Errorf("%s, %s: other parameters", model, c[0])
			}
			places, _, _ := strings.Cut(c[0], " --cache")
			places = scheduled.ReplaceAllString(places, "")
			var evaluated struct{ Value float64 }
			readJSON(t, must(t, d, "evaluate whole --json --checkpoint "+run+" "+places).stdout, &evaluated)
			if evaluated.Value != r.Test {
				t.Errorf("%s, %s: evaluated %v, tested %v", model, c[0], evaluated.Value, r.Test)
			}
		}
	}
	bench := must(t, d, "bench schedule whole --model rgcn --hidden 8 --batch 20 --emulate gpu=1,mem=1GiB")
	for _, want := range []string{"\nmode-1 ", "\nmode-2 ", "\nsequential "} {
		if !strings.Contains(bench.stdout, want) {
			t.Errorf("bench schedule: no %q in %s", want, bench.stdout)
		}
	}
	if !strings.Contains(bench.stderr, "ducati is left out: devices sample lists of graphs of one type") {
		t.Errorf("bench schedule: %s", bench.stderr)
	}
	p := object(t, must(t, d, "plan whole --model rgcn --json --emulate gpu=1,mem=1GiB"))
	if all := p["alternatives"].([]any); p["placement"] != "device" || len(all) != 3 {
		t.Errorf("planned %v of %v", p["placement"], all)
	}
}

// Devices that share the batches of a typed graph make the same model, bit for bit, wherever features are and whatever
// is cached, and nearly that of one device if all edges are taken. Of 3 devices, some have no row of a batch of 2.
// Input is not scaled, since devices see another part of it.
func TestDevicesShareTheBatchesOfATypedGraph(t *testing.T) {
	d := wholeTypedDisk(t)
	for of, flags := range []string{"--model rgcn --batch 20", "--model sage --batch 2",
		"--model rgcn --batch 2 --bases 2"} {
		line := "train whole --hidden 8 --epochs 3 --dropout 0 --standardize none --optimizer sgd --lr 0.2 --json " + flags
		want := ""
		for i, more := range []string{"", " --placement host", " --placement storage --cache lru:60rows",
			" --placement host --cache degree:60rows", " --schedule multi-queue --queue 3 --sync-every 1 --gradients 1",
			" --map"} {
			run := fmt.Sprintf("run-%d-%d", of, i)
			var r struct {
				Devices int
				Test    float64 `json:"test_metric"`
			}
			sampled := line + " --fanout 3,2 --emulate gpu=3,mem=1GiB --force --run " + run + more
			if more == " --map" { // it is stopped, and goes on
				sampled = strings.Replace(sampled, " --force", "", 1)
				if o := hopfeed(t, d, sampled+" --save-every 0s --max-time 1ns"); o.code == exitDone {
					t.Fatal("it was not stopped")
				}
			}
			readJSON(t, must(t, d, sampled+" --threads 3").stdout, &r)
			var evaluated struct{ Value float64 }
			readJSON(t, must(t, d, "evaluate whole --json --checkpoint "+run).stdout, &evaluated)
			if r.Devices != 3 || evaluated.Value != r.Test {
				t.Errorf("%s: %d devices, tested %v, evaluated %v", flags+more, r.Devices, r.Test, evaluated.Value)
			}
			got := ""
			for name, text := range tree(t, d, run) {
				if strings.Contains(name, "parameters-") {
					got = text
				}
			}
			if want = cmp.Or(want, got); got != want || got == "" {
				t.Errorf("%s: other parameters", flags+more)
			}
		}
		must(t, d, line+" --sampler full --emulate gpu=3,mem=1GiB --force --run three")
		must(t, d, line+" --sampler full --force --run one")
		one, three := typedProbabilities(t, d, "whole", "one"), typedProbabilities(t, d, "whole", "three")
		for v := range one {
			for c, p := range one[v] {
				if math.Abs(p-three[v][c]) > 1e-4 {
					t.Fatalf("%s: node %d has probability %v of class %d with three devices, %v with one", flags, v, three[v][c], c,
						p)
				}
			}
		}
	}
}

func TestWhatIsNotForTypedGraphsIsRefused(t *testing.T) {
	d := wholeTypedDisk(t)
	must(t, d, typedLine+" --run run --epochs 1")
	must(t, d, "import npy arrays -o oneway --directed")
	must(t, d, strings.Replace(generateLine, "-o graph", "-o sbm", 1))
	must(t, d, "train sbm --model sage --run plain --epochs 1 --hidden 8")
	for line, want := range map[string]string{
		"evaluate sbm --checkpoint run":                            "relations",
		"train whole --model gat":                                  "rgcn and sage",
		"train whole --model sign":                                 "propagate",
		typedLine + " --cache degree:1":                            "no room for a row of any of 3 types",
		typedLine + " --sampler labor":                             "--sampler labor",
		typedLine + " --partitions 2":                              "--partitions",
		typedLine + " --scratch there":                             "--scratch",
		"evaluate whole --checkpoint run --emulate gpu=2,mem=1GiB": "gpu=2",
		"evaluate oneway --checkpoint run":                         "relations",
		"predict oneway --checkpoint run -o x.csv":                 "relations",
		"predict whole --checkpoint plain -o x.csv":                "relations",
		"predict whole --checkpoint run -o x.csv --smooth fixed --smooth-metapaths paper<author": "ends at author",
		"tune whole --model sage -o tuned":                                    "typed graph",
		"train whole --model rgcn --layers 2 --fanout 3":                      "--fanout",
		"train whole --model rgcn --embedding 4":                              "0 types of nodes",
		"train sbm --model sage --embedding 4":                                "0 types of nodes",
		"train sbm --model rgcn --bases 4":                                    "this one has one type",
		"evaluate whole --checkpoint run --batch 7":                           "--batch: rgcn reads a",
		"predict sbm --checkpoint plain -o x.csv --batch 7":                   "--batch: sage reads a",
		"predict whole --checkpoint run -o x.csv --split 0":                   "--split 0",
		"train whole --model rgcn --hops 2":                                   "--hops",
		"train whole --model rgcn --sampler full --memory 40MiB --hidden 9e9": "hidden",
		typedLine + " --schedule gpu --emulate gpu=1,mem=1GiB":                "several lists",
		typedLine + " --schedule mode-1 --cache lru:60rows":                   "changes from batch",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d: %s, want %q", line, o.code, o.stderr, want)
		}
	}
	o := must(t, d, "train whole --model sage --epochs 1 --heads 2 --hidden 8")
	if want := "--heads is not used: sage has the settings as-printed, dropout, embedding, hidden, layers, "; !strings.
		Contains(o.stderr, want) || strings.Contains(o.stderr, "--hidden is not") {
		t.Errorf("a setting that the model does not have: %s", o.stderr)
	}
	if o := hopfeed(t, d, "train whole --model rgcn --memory 3MiB"); o.code == exitDone {
		t.Error("it fits into 3 MiB")
	}
	// What is said to be the least memory is what the place that takes least needs.
	needs := func(flags string) units.Bytes {
		o := hopfeed(t, d, "train whole --model rgcn --memory 49MiB"+flags)
		_, text, _ := strings.Cut(o.stderr, "needs ")
		text, _, _ = strings.Cut(text, " at least")
		bytes, err := units.ParseBytes(strings.ReplaceAll(text, " ", ""))
		if o.code != exitDoesNotFit || err != nil {
			t.Errorf("%s: status %d: %s", flags, o.code, o.stderr)
		}
		return bytes
	}
	if least := min(needs(" --placement host"), needs(" --placement storage")); needs("") != least {
		t.Errorf("%v is said to be needed, and one place needs %v", needs(""), least)
	}
	bare := typedDisk(t)
	if o := hopfeed(t, bare, "train graph --model rgcn"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "no features of paper: import it with --missing-features") {
		t.Errorf("without features: status %d: %s", o.code, o.stderr)
	}
	must(t, bare, "train graph --model sage --epochs 1 --hidden 4 --embedding 3 --run run")
	must(t, bare, "import npy arrays -o graph --force --missing-features ones")
	if o := hopfeed(t, bare, "evaluate graph --checkpoint run"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "has learned rows of 90 nodes of paper, and this graph has 90, with 1 features") {
		t.Errorf("with features: status %d: %s", o.code, o.stderr)
	}
	must(t, bare, "train graph --model rgcn --epochs 1 --hidden 4")
}

func TestADamagedTypedGraphIsNotTrainedOn(t *testing.T) {
	for _, name := range []string{"whole/relations/author__paper/topology/part-00000.arrow",
		"whole/nodes/author/features/x/hop-0/part-00000.arrow", "whole/nodes/venue/manifest.json", "whole/types.json"} {
		d := wholeTypedDisk(t)
		text := []byte(content(t, d, name))
		for at := 0; at < len(text); at += 4096 {
			text[at] ^= 4
		}
		write(t, d, name, string(text))
		for _, place := range []string{"", " --placement device", " --placement storage"} {
			if o := hopfeed(t, d, typedLine+place); o.code != exitCorrupt {
				t.Errorf("%s%s: status %d: %s", name, place, o.code, o.stderr)
			}
		}
	}
}

// What trainings on a typed graph allocate is what is planned or less, and not far less; with less memory they end
// well, or say that there is too little.
func TestTrainingsOnATypedGraphTakeWhatIsPlanned(t *testing.T) {
	d := disk(t)
	array := func(name string, kind npy.Type, data []byte, shape ...int64) {
		if err := d.MkdirAll("arrays/" + filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
		write(t, d, "arrays/"+name+".npy", string(append(npy.AppendHeader(nil, kind, 1, shape...), data...)))
	}
	const papers, authors, edges = 2000, 1500, 12000
	array("nodes/paper/node_feat", npy.Float32, make([]byte, 4*papers*32), papers, 32)
	array("nodes/author/node_feat", npy.Float32, make([]byte, 4*authors*48), authors, 48)
	labels, splits, pairs := make([]int32, papers), make([]byte, papers), make([]int64, 2*edges)
	for i := range labels {
		labels[i], splits[i] = int32(i%3), byte(i%3)
	}
	for e := range edges {
		pairs[e], pairs[edges+e] = int64(e%authors), int64(e*7%papers)
	}
	array("nodes/paper/node_label", npy.Int32, dtype.BytesOf(labels), papers)
	array("nodes/paper/splits", npy.Int8, splits, 1, papers)
	array("edges/author__paper/edge_index", npy.Int64, dtype.BytesOf(pairs), 2, edges)
	write(t, d, "arrays/meta.json", `{"node_types": {"paper": 2000, "author": 1500}, "target": "paper"}`)
	must(t, d, "import npy arrays -o graph --duplicates keep")
	if err := d.Remove("arrays/nodes/author/node_feat.npy"); err != nil {
		t.Fatal(err)
	}
	weights := slices.Repeat([]float32{0.5, 1}, edges/2)
	array("edges/author__paper/edge_weight", npy.Float32, dtype.BytesOf(weights), edges)
	must(t, d, "import npy arrays -o bare --duplicates keep")
	line := "train graph --model rgcn --hidden 32 --layers 2 --epochs 1 --threads 2 --batch 32"
	const card = " --emulate gpu=1,mem=1GiB"
	bare := strings.Replace(line, "graph", "bare", 1) + " --embedding 48"
	for _, flags := range []string{line + " --fanout 3,3", line + " --fanout 3,3 --placement host" + card,
		line + " --sampler full", line + " --fanout 3,3 --placement device",
		line + " --fanout 3,3 --placement device" + card, line + " --sampler full" + card,
		line + " --fanout 3,3 --placement storage", line + " --fanout 3,3 --placement storage" + card,
		bare + " --fanout 3,3", bare + " --bases 2 --fanout 3,3" + card, bare + " --sampler full",
		bare + " --fanout 3,3 --placement storage", line + " --fanout 3,3 --map", line + " --fanout 3,3 --map" + card,
		line + " --fanout 3,3 --placement storage --cache lru:900rows",
		line + " --fanout 3,3 --placement storage --cache optimal:900rows",
		line + " --fanout 3,3 --placement storage --cache presampled:200KiB",
		line + " --fanout 3,3 --placement storage --cache gns:900rows",
		line + " --fanout 3,3 --placement storage --cache degree:900rows",
		line + " --fanout 3,3 --placement storage --cache ducati:200KiB",
		line + " --fanout 3,3 --placement host --cache optimal:900rows" + card,
		line + " --fanout 3,3 --placement host --cache lru:900rows" + card,
		line + " --fanout 3,3 --placement storage --cache fifo:900rows" + card,
		line + " --fanout 3,3 --emulate gpu=2,mem=1GiB",
		line + " --fanout 3,3 --epochs 2 --schedule mode-1",
		line + " --fanout 3,3 --epochs 2 --schedule mode-1" + card,
		line + " --fanout 3,3 --epochs 2 --schedule multi-queue --queue 3 --sync-every 2 --emulate gpu=2,mem=1GiB",
		line + " --fanout 3,3 --placement host --cache lru:900rows --emulate gpu=2,mem=1GiB",
		line + " --fanout 3,3 --placement storage --cache optimal:900rows --emulate gpu=3,mem=1GiB",
		bare + " --fanout 3,3 --placement storage --cache lru:100rows",
	} {
		synctest.Test(t, func(t *testing.T) { // so that what is measured is the same each time
			p := peakOf(t, d, flags)
			ratio, onDevice := float64(p.planned)/float64(p.taken), float64(p.plannedDevice)/float64(p.device)
			t.Logf("%.3f %.3f: %+v: %s", ratio, onDevice, p, flags)
			if ratio < 1 || ratio > 1.1 || onDevice < 1 || onDevice > 1.1 {
				t.Errorf("%s: %+v", flags, p)
			}
		})
	}
	codes := map[int]bool{}
	for _, memory := range []string{"40MiB", "49MiB", "50MiB", "52MiB", "56MiB", "64MiB"} {
		o := hopfeed(t, d, line+" --fanout 3,3 --memory "+memory)
		if codes[o.code] = true; o.code != exitDone && o.code != exitDoesNotFit {
			t.Errorf("with %s: exit status %d: %s", memory, o.code, o.stderr)
		}
	}
	if len(codes) != 2 {
		t.Errorf("exit statuses %v, want both", codes)
	}
	// What is said to be too much for a device is the least that the place takes there.
	_, text, _ := strings.Cut(hopfeed(t, d, line+" --placement device --emulate gpu=1,mem=1MiB").stderr, "takes ")
	text, _, _ = strings.Cut(text, " of device memory")
	least, err := units.ParseBytes(strings.ReplaceAll(text, " ", ""))
	for percent, want := range map[units.Bytes]int{102: exitDone, 98: exitDoesNotFit} {
		o := hopfeed(t, d, fmt.Sprintf("%s --placement device --emulate gpu=1,mem=%dKiB", line, least*percent/100>>10))
		if err != nil || o.code != want {
			t.Errorf("on a device of %d %% of %v: status %d: %s, %v", percent, least, o.code, o.stderr, err)
		}
	}
	// Queues leave device memory for evaluation: a training that begins ends.
	for memory := 1000; memory < 9000; memory = memory * 9 / 8 {
		o := hopfeed(t, d, fmt.Sprintf("%s --fanout 9,9 --placement device --epochs 2 --schedule multi-queue "+
			"--queue 9 --emulate gpu=1,mem=%dKiB", line, memory))
		if strings.Contains(o.stderr, "rows: ") && o.code != exitDone {
			t.Errorf("queues on a device of %d KiB: %s", memory, o.stderr)
		}
	}
	// The larger the device, the nearer the features: there is no room, they are on the host, on the device.
	var seen []string
	for memory := 200; memory < 100_000; memory = memory * 5 / 4 {
		o := hopfeed(t, d, fmt.Sprintf("%s --fanout 3,3 --json --emulate gpu=1,mem=%dKiB", line, memory))
		where := "none"
		if o.code == exitDone {
			var r struct {
				Placement string
				Reasons   []string
			}
			readJSON(t, o.stdout, &r)
			if where = r.Placement; (where == "host") != strings.HasPrefix(r.Reasons[0], "not from device: ") {
				t.Errorf("%d KiB: %+v", memory, r)
			}
		} else if o.code != exitDoesNotFit {
			t.Errorf("%d KiB: exit status %d: %s", memory, o.code, o.stderr)
		}
		if len(seen) == 0 || seen[len(seen)-1] != where {
			seen = append(seen, where)
		}
		if where == "device" {
			break
		}
	}
	if !slices.Equal(seen, []string{"none", "host", "device"}) {
		t.Errorf("features are in the order %v", seen)
	}
}

// What a validation gathers is said beforehand, within a factor of the batches, which have edges too.
func TestThePlanOfATypedGraphSaysWhatAValidationGathers(t *testing.T) {
	d := wholeTypedDisk(t)
	var p struct{ Reasons []string }
	readJSON(t, must(t, d, "plan whole --model sage --hidden 8 --json").stdout, &p)
	_, said, found := strings.Cut(strings.Join(p.Reasons, "\n"), "each validation takes all in-neighbours of ")
	_, text, cut := strings.Cut(said, " rows of features, ")
	text, _, _ = strings.Cut(text, "\n")
	planned, err := units.ParseBytes(strings.ReplaceAll(text, " ", ""))
	if !found || !cut || err != nil {
		t.Fatalf("%q, %v", p.Reasons, err)
	}
	o := must(t, d, "train whole --model sage --hidden 8 --epochs 1 --run run --verbose")
	if !strings.Contains(o.stderr, "each validation takes all in-neighbours of "+said[:20]) {
		t.Errorf("train says nothing of it: %s", o.stderr)
	}
	var e struct {
		Load struct {
			Bytes int64 `json:"assembled_bytes"`
		}
	}
	readJSON(t, must(t, d, "evaluate whole --checkpoint run --rows valid --placement host --json "+
		"--emulate gpu=1,mem=1GiB").stdout, &e)
	if e.Load.Bytes == 0 || e.Load.Bytes > 2*int64(planned) || int64(planned) > 4*e.Load.Bytes {
		t.Errorf("%d bytes gathered, %d planned", e.Load.Bytes, planned)
	}
}

// A cache of a typed graph has of the first epoch's rows, by sample, what it has in training.
func TestSamplingATypedGraphCountsWhatCachesHave(t *testing.T) {
	d := wholeTypedDisk(t)
	lru := object(t, must(t, d, "sample whole --batch 20 --fanout 3,2 --cache lru:60rows --json"))
	if lru["cache_hit_rate"] == 0.0 {
		t.Error("lru has no row")
	}
	for _, policy := range []string{"degree:60rows", "optimal:60rows", "ducati:600", "presampled:60rows"} {
		flags := " whole --batch 20 --fanout 3,2 --json --cache " + policy
		s := object(t, must(t, d, "sample"+flags))
		traffic := object(t, must(t, d, "train --model sage --hidden 8 --epochs 1"+flags))["epoch_traffic"].(map[string]any)
		want := traffic["cached_rows"].(float64) / traffic["rows"].(float64)
		if got := s["cache_hit_rate"]; got != want || want == 0 || want == 1 {
			t.Errorf("%s: %v of the rows, in training %v", policy, got, want)
		}
	}
}

// A type without features has no cache that locality could ask.
func TestLocalityDoesNotSampleTypedGraphs(t *testing.T) {
	d := disk(t)
	writeTypedArrays(t, d)
	for _, flags := range []string{"", " --missing-features ones"} {
		must(t, d, "import npy arrays -o g --force"+flags)
		o := hopfeed(t, d, "sample g --sampler locality --cache degree:50rows --bias 4 --fanout 3,2")
		if o.code != exitUsage || !strings.Contains(o.stderr, "only neighbor and full sample it") {
			t.Errorf("%s: status %d, %s", flags, o.code, o.stderr)
		}
	}
}

// Several processes share the files of graphs of one type alone: each loads the relations of a typed graph.
func TestEachProcessHasTheRelationsOfATypedGraph(t *testing.T) {
	var bytes []int64
	for _, processes := range []int{1, 8} {
		graph, err := format.OpenTarget(typedDisk(t), "graph")
		if err != nil {
			t.Fatal(err)
		}
		defer graph.Close()
		var pool offheap.Pool
		graph.Share(&pool, offheap.Holders{Processes: processes})
		shape, err := sampling.ShapeOf(graph)
		if err != nil {
			t.Fatal(err)
		}
		terms := session.Source{Shape: shape, NoFeatures: true}.Terms()
		at := slices.IndexFunc(terms, func(term need.Term) bool { return term.Name == "topology" })
		bytes = append(bytes, terms[at].Bytes)
	}
	if bytes[0] != bytes[1] || bytes[0] == 0 {
		t.Errorf("bytes of one process, and of one of 8: %d", bytes)
	}
}
