package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// readJSON decodes what a command has printed.
func readJSON(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

const graphLine = "train graph --model gcn --hidden 8 --epochs 12 --lr 0.02"

func TestModelsAreTrainedEvaluatedAndAppliedOnAGraph(t *testing.T) {
	d := disk(t, generateLine)
	for _, model := range []string{"gcn", "sage", "gat"} {
		run := "run-" + model
		line := strings.Replace(graphLine, "gcn", model, 1)
		var trained struct {
			Test  float64 `json:"test_metric"`
			Seeds []int
			Runs  []struct {
				Test float64 `json:"test_metric"`
			}
		}
		readJSON(t, must(t, d, line+" --json --runs 2 --seed 3 --run "+run).stdout, &trained)
		if trained.Test < 0.4 || trained.Test > 1 || len(trained.Seeds) != 2 { // of three classes
			t.Errorf("%s: %+v", model, trained)
		}
		// The model of the better run is applied as it was tested.
		var evaluated struct {
			Value float64
			Rows  int64
		}
		readJSON(t, must(t, d, "evaluate graph --json --checkpoint "+run).stdout, &evaluated)
		must(t, d, "predict graph -o "+run+".csv --checkpoint "+run)
		must(t, d, "predict graph -o "+run+"-test.csv --rows test --checkpoint "+run)
		all := strings.Split(strings.TrimSpace(content(t, d, run+".csv")), "\n")
		if len(all) != 301 {
			t.Fatalf("%s: %d lines", model, len(all))
		}
		for _, line := range strings.Split(strings.TrimSpace(content(t, d, run+"-test.csv")), "\n")[1:] {
			found := false
			for _, other := range all {
				found = found || line == other
			}
			if !found {
				t.Errorf("%s: %q is not among the predictions of all nodes", model, line)
			}
		}
		if evaluated.Rows == 0 || evaluated.Value != trained.Runs[0].Test && evaluated.Value != trained.Runs[1].Test {
			t.Errorf("%s: evaluated %+v, trained %+v", model, evaluated, trained)
		}
	}
}

// A training on a graph that is stopped goes on to the same bits, on any number of threads.
func TestATrainingOnAGraphThatIsStoppedEndsTheSame(t *testing.T) {
	for _, flags := range []string{
		"--sampler full", "--sampler full --batch 50", "--batch 40",
		"--sampler labor --fanout 4,3 --batch 40 --cache lru:100rows",
		"--sampler ladies --fanout 60,60 --batch 40 --cache degree:9000",
		"--sampler ladies-paper --fanout 40,60 --batch 40 --cache degree:9000",
		"--sampler fastgcn-debias-paper --fanout 60,30 --batch 40 --emulate gpu=1,mem=1GiB", "--fanout -1,3 --batch 40",
		"--sampler saint-node --batch 60", "--sampler saint-edge --batch 30 --lr-schedule cosine",
		"--sampler saint-rw --batch 30 --cache fifo:50rows",
		"--sampler locality --fanout 4,3 --bias 4 --batch 40 --cache gns:60rows",
		"--sampler locality --fanout 4,3 --bias 2.5 --batch 40 --cache presampled:60rows --debias",
		"--sampler fastgcn-paper --fanout 60,30 --batch 40 --replace", "--batch 40 --emulate gpu=3,mem=1GiB",
	} {
		whole, d := disk(t, generateLine), disk(t, generateLine)
		line := graphLine + " --run run --epochs 4 " + flags
		stoppedEndsTheSame(t, whole, d, line, flags)
	}
}

// stoppedEndsTheSame trains by a line on one disk, stops and goes on on the other, and compares the parameters, which a
// training by the saved config.yaml has too.
func stoppedEndsTheSame(t *testing.T, whole, d vfs.FS, line, flags string) {
	t.Helper()
	must(t, whole, line+" --threads 1")
	if o := hopfeed(t, d, line+" --save-every 0s --max-time 1ns"); o.code == exitDone {
		t.Fatal("it was not stopped")
	}
	must(t, d, line+" --threads 3")
	must(t, d, "train --config run/config.yaml --run again") // which has all settings
	parameters := 0
	for name, text := range tree(t, whole, "run") {
		if strings.HasPrefix(name, "run/parameters-") {
			parameters++
			if content(t, d, name) != text || content(t, d, strings.Replace(name, "run/", "again/", 1)) != text {
				t.Errorf("%s: %s differs", flags, name)
			}
		}
	}
	if parameters != 1 {
		t.Errorf("%d files of parameters", parameters)
	}
}

func TestDrawsAreIndependentOrUnbiasedIfAskedFor(t *testing.T) {
	d := disk(t, generateLine)
	for flags, more := range map[string]string{
		"--sampler fastgcn-paper --fanout 60,30":                         " --replace",
		"--sampler locality --bias 4 --cache degree:60rows --fanout 4,3": " --debias",
	} {
		var losses [2]struct {
			Loss float64 `json:"train_loss"`
		}
		for i := range losses {
			readJSON(t, must(t, d, graphLine+" --json --epochs 2 --batch 40 "+flags+strings.Repeat(more, i)).stdout, &losses[i])
		}
		if losses[0] == losses[1] {
			t.Errorf("%s: the loss is %v with%s too", flags, losses[0].Loss, more)
		}
	}
}

// A run is a function of its own seed, whatever runs come before it and share the cache.
func TestARunThatPrefersCachedNodesIsAFunctionOfItsSeed(t *testing.T) {
	d := disk(t, generateLine)
	line := "train graph --json --model sage --hidden 8 --epochs 3 --batch 40 --sampler locality --fanout 3,3 " +
		"--bias 8 --cache gns:60rows"
	var two, one struct {
		Runs []struct {
			Loss float64 `json:"train_loss"`
		}
	}
	readJSON(t, must(t, d, line+" --runs 2 --seed 3").stdout, &two)
	readJSON(t, must(t, d, line+" --seed 4").stdout, &one)
	if len(two.Runs) != 2 || two.Runs[1] != one.Runs[0] || two.Runs[0] == two.Runs[1] {
		t.Errorf("the losses of runs 3 and 4 are %v, and of run 4 alone %v", two.Runs, one.Runs)
	}
}

func TestSubgraphsAreTrainedOn(t *testing.T) {
	d := disk(t, generateLine)
	for _, sampler := range []string{"saint-node", "saint-node-paper", "saint-edge", "saint-rw"} {
		for _, model := range []string{"gcn", "sage", "gat"} {
			var trained struct {
				Test float64 `json:"test_metric"`
				Loss float64 `json:"train_loss"`
			}
			readJSON(t, must(t, d, strings.Replace(graphLine, "gcn", model,
				1)+" --json --dropout 0.5 --batch 40 --epochs 20 --sampler "+sampler).stdout, &trained)
			// of three classes, whose loss begins at log 3
			if trained.Test < 0.4 || !(trained.Loss > 0 && trained.Loss < 1.2) {
				t.Errorf("%s, %s: %+v", sampler, model, trained)
			}
		}
	}
	// One draw a batch: some batches have no training node.
	must(t, d, graphLine+" --batch 1 --epochs 2 --sampler saint-node")
}

func TestAGraphAndAStoreAreToldApart(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	must(t, d, graphLine+" --run run")
	must(t, d, trainLine+"-of-store")
	for line, want := range map[string]string{
		"train store --model gcn": "store is a hop store, and " +
			"gcn reads the graph that it was made of",
		"train graph --model sign": "graph is a graph, and sign " +
			"reads a hop store: run hopfeed propagate graph",
		"train store --model sign --sampler full": "--sampler: sign reads a hop " +
			"store",
		"train graph --model gcn --hops 2": "--hops: gcn reads a graph, " +
			"which has no hops",
		"train graph --model gcn --sampler none": `--sampler "none"`,
		"train graph --model gcn --fanout 5": "--fanout has 1 numbers for 2 " +
			"layers",
		"train graph --model gcn --cache lru": "--cache",
		"train graph --model gcn --sampler saint-rw --fanout 5,5": "--fanout: --sampler saint-rw " +
			"takes all edges",
		"train graph --model gcn --sampler locality --cache degree:9rows":            "give --bias",
		"train graph --model gcn --sampler locality --bias 4":                        "it needs a cache",
		"train graph --model gcn --sampler locality --bias 0.5 --cache degree:9rows": "want 1 or more",
		"train graph --model gcn --sampler locality --bias NaN --cache degree:9rows": "want 1 or more",
		"train graph --model gcn --sampler locality --bias 4 --cache lru:9rows":      "changes from batch to batch",
		"train graph --model gcn --debias":                                           "--debias: sampler neighbor",
		"train graph --model gcn --sampler full --replace":                           "--replace: --sampler full takes all",
		"train graph --model gcn --sampler labor --replace":                          "it cannot draw with replacement",
		"train graph --model sage --sampler ladies-paper --batch 40": "--sampler ladies-paper: its blocks " +
			"lack the rows of destinations themselves, which this sage reads (use --model gcn without --residual, or " +
			"--sampler ladies)",
		"train graph --model gcn --residual 1 --sampler fastgcn-debias-paper --batch 40": "or --sampler fastgcn-debias)",
		"train graph --model gcn --bias 4": "--bias: sampler neighbor " +
			"ignores",
		"train store --model sign --bias 4":            "--bias: sign reads a hop store",
		"train graph --model gat --hidden 5 --heads 2": "must be a multiple of heads",
		"evaluate store --checkpoint run":              "gcn reads the graph",
		"evaluate graph --checkpoint run-of-store":     "sign reads a hop store",
		"predict store -o out.csv --checkpoint run":    "gcn reads the graph",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("hopfeed %s: exit status %d, no %q in %s", line, o.code, want, o.stderr)
		}
	}
}

// Chunks have at most 8192 nodes, so the graph comes in two or more.
func TestATrainingOnAGraphIsTheSameWhereverItsFeaturesAre(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 9000 --edges 40000 --features 6 --classes 3 --labeled 0.2 --seed 5")
	for _, flags := range []string{"--model gcn --fanout 4,3", "--model sage --sampler saint-edge",
		"--model gat --layers 1 --fanout 5 --cache lru:500rows --norm 0"} {
		want := ""
		for i, place := range []string{"device", "host", "storage", "host --emulate gpu=1,mem=40MiB",
			"storage --emulate gpu=1,mem=40MiB", "auto --emulate gpu=1,mem=4800KiB", "device --emulate gpu=1,mem=40MiB"} {
			placed := strings.Fields(place)[0]
			if placed == "auto" { // the graph as a whole does not fit
				if placed = "host"; !strings.Contains(flags, "gat") {
					continue
				}
			}
			run := fmt.Sprintf("run-%d", i)
			var trained struct {
				Placement string
				Reasons   []string
				Test      float64 `json:"test_metric"`
			}
			line := "train graph --json --force --hidden 8 --epochs 2 --batch 300 --lr 0.02 " + flags
			readJSON(t, must(t, d, line+" --placement "+place+" --run "+run).stdout, &trained)
			if trained.Placement != placed || len(trained.Reasons) == 0 {
				t.Errorf("%s, %s: %+v", flags, place, trained)
			}
			got := ""
			for name, text := range tree(t, d, run) {
				if strings.Contains(name, "parameters-") {
					got = text
				}
			}
			var evaluated struct{ Value float64 }
			readJSON(t, must(t, d, "evaluate graph --json --checkpoint "+run+" --placement "+place).stdout, &evaluated)
			if evaluated.Value != trained.Test {
				t.Errorf("%s, %s: evaluated %+v, trained %+v", flags, place, evaluated, trained)
			}
			must(t, d, "predict graph --force --checkpoint "+run+" --placement "+place+" -o out.csv")
			if got += content(t, d, "out.csv"); i == 0 {
				want = got
			}
			if got != want {
				t.Errorf("%s: --placement %s gives another model, or other predictions", flags, place)
			}
		}
	}
	for line, want := range map[string]int{
		"train graph --model gcn --sampler full --placement host":                           exitUsage,
		"train graph --model gcn --epochs 1 --sampler full --emulate gpu=2,mem=1GiB":        exitUsage,
		"train graph --model gcn --epochs 1 --batch 300 --emulate gpu=1,mem=1MiB":           exitDoesNotFit,
		"train graph --model gcn --epochs 1 --placement device --emulate gpu=1,mem=1MiB":    exitDoesNotFit,
		"train graph --model gcn --epochs 1 --placement storage --batch 300 --memory 20MiB": exitDoesNotFit,
		// as batches show
		"train graph --model gcn --epochs 1 --hidden 1024 --emulate gpu=1,mem=30MiB --batch 1800": exitDoesNotFit,
	} {
		if o := hopfeed(t, d, line); o.code != want {
			t.Errorf("hopfeed %s: exit status %d, want %d: %s", line, o.code, want, o.stderr)
		}
	}
	o := hopfeed(t, d,
		"train graph --model sage --epochs 1 --hidden 64 --fanout 10,10 --emulate gpu=1,mem=20MiB --batch 1800")
	if o.code != exitDoesNotFit || !strings.Contains(o.stderr, "were expected to need") {
		t.Errorf("batches that do not fit: %s", o.stderr)
	}
}
