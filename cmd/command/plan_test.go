package command

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

const toyMachine = `
cores: 4
memory: 1GB
memory_bandwidth: 10GB/s
devices: {memory: 100MB, link: 1GB/s, bandwidth: 50GB/s, gflops: 100}
storage: {read: 500MB/s, write: 500MB/s}
`

func TestPlanSaysWhatScriptsRelyOn(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "machine.yaml", toyMachine)
	for _, line := range []string{
		"plan store --emulate gpu=2,mem=4MiB", // this measures the machine
		"plan store --hardware machine.yaml --model sgc --placement storage",
		"plan store --hardware machine.yaml --split 0 --shuffle chunk --chunk-rows 5",
		"plan store --hardware machine.yaml", "plan --hardware machine.yaml --nodes 1000 --features 5",
		"plan --hardware machine.yaml --dataset pokec --hops 1",
	} {
		p := object(t, must(t, d, line+" --json"))
		for _, key := range strings.Fields("placement shuffle buffers predicted_epoch_seconds store_bytes reasons " +
			"alternatives") {
			if p[key] == nil {
				t.Errorf("%s: no %s in %v", line, key, p)
			}
		}
		alternatives := p["alternatives"].([]any)
		found := false
		for _, a := range alternatives {
			a := a.(map[string]any)
			found = found || a["placement"] == p["placement"] && a["shuffle"] == p["shuffle"] && a["obstacle"] == nil &&
				a["predicted_epoch_seconds"] == p["predicted_epoch_seconds"]
		}
		if !found || len(alternatives) != 5 {
			t.Errorf("%s: %v %v is not among %v", line, p["placement"], p["shuffle"], alternatives)
		}
		if !strings.Contains(line, "machine.yaml") { // to measure once is enough
			continue
		}
		text := must(t, d, line).stdout
		for _, word := range []string{"plan: ", p["placement"].(string), "by chunk", "placement  ",
			p["reasons"].([]any)[0].(string)} {
			if !strings.Contains(text, word) {
				t.Errorf("%s: no %q in\n%s", line, word, text)
			}
		}
	}
	if now := tree(t, d, "store"); !reflect.DeepEqual(now, tree(t, disk(t, generateLine, propagateLine), "store")) {
		t.Error("plan changed the store")
	}
}

// A data set in numbers is planned as the store that it would be.
func TestADescribedDataSetIsPlannedAsItsStore(t *testing.T) {
	for _, half := range []string{"float32", "float16"} {
		d := disk(t, "generate sbm -o graph --nodes 4000 --edges 9000 --features 24 --classes 3 --labeled 1 --seed 7",
			"propagate graph -o store --hops 2 --operator sym --dtype "+half)
		write(t, d, "machine.yaml", toyMachine)
		options := " --json --hardware machine.yaml --model sign --hidden 16 --batch 128"
		whole := object(t, must(t, d, "plan store"+options))
		train, valid := whole["train_rows"].(float64)/4000, whole["valid_rows"].(float64)/4000
		const line = "plan --nodes 4000 --features 24 --classes 3 --hops 2 --dtype %s --split-shares %v,%v,%v"
		numbers := object(t, must(t, d, fmt.Sprintf(line, half, train, valid, 1-train-valid)+options))
		for _, key := range strings.Fields("machine matrices features dtype rows train_rows valid_rows input_bytes " +
			"work_bytes placement shuffle reasons predicted_epoch_seconds alternatives") {
			if !reflect.DeepEqual(whole[key], numbers[key]) {
				t.Errorf("%s: %v of the store, %v in numbers", key, whole[key], numbers[key])
			}
		}
		if a, b := whole["store_bytes"].(float64), numbers["store_bytes"].(float64); b > a || b < a/2 {
			t.Errorf("a store of %v bytes is planned to have %v", a, b)
		}
	}
}

func TestTheDataSetsOfThePaperArePlannedOnItsMachine(t *testing.T) {
	text, err := os.ReadFile("../../docs/paper-machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := disk(t)
	write(t, d, "paper.yaml", string(text))
	for _, c := range []struct{ dataset, one, four string }{
		{"products", "device rr", "device rr"},
		{"pokec", "device rr", "device rr"},
		{"wiki", "device rr", "device rr"},
		{"papers100M", "device rr", "device rr"},
		{"igb-medium", "host chunk", "device rr"},
		{"igb-large", "storage chunk", "storage chunk"},
	} {
		for devices, want := range map[int]string{1: c.one, 4: c.four} {
			p := object(t, must(t, d,
				fmt.Sprintf("plan --json --hardware paper.yaml --dataset %s --devices %d --model sign --hidden 512 "+
					"--batch 8000", c.dataset, devices)))
			if got := fmt.Sprint(p["placement"], " ", p["shuffle"]); got != want {
				t.Errorf("%s on %d devices: %s, want %s: %v", c.dataset, devices, got, want, p["reasons"])
			}
		}
	}
}

func TestPropagationsByTasksOfRentedMachinesArePlanned(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster/machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := disk(t)
	write(t, d, "machine.yaml", string(text))
	for line, want := range map[string][]string{ // as docs/cluster.md has them
		"--machines 32 --dataset igb-large --edges 1200000000": {"32 machines, 32 tasks of each kind: 326 s, 2.9 ",
			"2.41 TiB read and 3.35 TiB written", "hops: 32 tasks of 32.2 GiB of memory"},
		"--machines 8 --tasks 16 --dataset igb-large --edges 1200000000": {"8 machines, 16 tasks of each kind: "},
		"--machines 32 --nodes 1000000000 --edges 40000000000 --features 1024 --dtype float16 --labeled 0.1 --hops 3": {
			"hops: 32 tasks of 119 GiB of memory", "763 GiB read, 763 GiB written"},
	} {
		said := must(t, d, "plan --hardware machine.yaml "+line).stdout
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("%s: no %q in\n%s", line, part, said)
			}
		}
	}
}

func TestAPlanTellsHowMuchCanBePinned(t *testing.T) {
	text, err := os.ReadFile("../../docs/paper-machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := disk(t)
	write(t, d, "all.yaml", string(text))
	write(t, d, "some.yaml", string(text)+"pinnable: 64GB\n")
	const line = "plan --dataset igb-medium --devices 1 --model sign --hidden 512 --batch 8000 --hardware "
	all, some := object(t, must(t, d, line+"all.yaml --json")), object(t, must(t, d, line+"some.yaml --json"))
	if m := all["machine"].(map[string]any); m["pinnable_bytes"] != nil || all["shuffle"] != "chunk" {
		t.Errorf("where all can be pinned: %v of %v, shuffled by %v", m["pinnable_bytes"], m["memory_bytes"],
			all["shuffle"])
	}
	if m := some["machine"].(map[string]any); m["pinnable_bytes"] != 64e9 ||
		m["pinnable_by"] != "the machine's limit" || some["shuffle"] != "rr" {
		t.Errorf("where 64 GB can be pinned: %v by %v, shuffled by %v", m["pinnable_bytes"], m["pinnable_by"],
			some["shuffle"])
	}
	if out := must(t, d, line+"some.yaml").stdout; !strings.Contains(out, "59.6 GiB of it can be pinned") {
		t.Errorf("nothing of pinning in %q", out)
	}
}

func TestPlansThatCannotBeAreRefused(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "machine.yaml", toyMachine)
	write(t, d, "processor.yaml",
		"cores: 2\nmemory: 1GB\nmemory_bandwidth: 1GB/s\nstorage: {read: 1GB/s, write: 1GB/s}\n")
	write(t, d, "bad.yaml", "cores: none\n")
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"plan", exitUsage, "--hardware"},
		{"plan --dataset pokec", exitUsage, "--hardware"},
		{"plan graph", exitUsage, "propagate"},
		{"plan none", exitFailed, "none"},
		{"plan store --nodes 5", exitUsage, "--nodes: STORE determines it"},
		{"plan --dataset pokec --nodes 5 --hardware machine.yaml", exitUsage, "--nodes: --dataset pokec determines it"},
		{"plan --dataset cora --hardware machine.yaml", exitUsage, "papers100M"},
		{"plan --hardware machine.yaml", exitUsage, "0 nodes"},
		{"plan --hardware machine.yaml --nodes 5 --features 2 --split-shares 0.5,0.5", exitUsage, "want three"},
		{"plan --hardware machine.yaml --nodes 5 --features 2 --operator magic", exitUsage, "magic"},
		{"plan --hardware machine.yaml --nodes 5 --features 2 --dtype int8", exitUsage, "int8"},
		{"plan --hardware machine.yaml --nodes 5 --features 2 --model gpt", exitUsage, "gpt"},
		{"plan store --devices 2", exitUsage, "--emulate"},
		{"plan store --device cpu", exitUsage, "--device: it is for the propagation"},
		{"plan --hardware machine.yaml --dataset igb-large --machines 4", exitUsage, "give --edges"},
		{"plan --hardware machine.yaml --dataset igb-large --edges 5 --tasks 4", exitUsage, "--tasks needs --machines"},
		{"plan store --emulate mem=1GiB --hardware machine.yaml", exitUsage,
			"--emulate with --hardware: the first is for this machine"},
		{"plan store --devices 2 --hardware machine.yaml", exitUsage, "the machine has 1"},
		{"plan store --devices -1 --hardware machine.yaml", exitUsage, "want 0 or more"},
		{"plan store --hardware bad.yaml", exitCorrupt, "bad.yaml: line 1"},
		{"plan store --hardware none.yaml", exitFailed, "none.yaml"},
		{"plan store --placement cloud", exitUsage, "device"},
		{"plan store --placement storage --shuffle rr", exitUsage, "chunk"},
		{"plan --hardware machine.yaml --dataset igb-large --placement host", exitDoesNotFit, "memory budget"},
		{"plan --hardware machine.yaml --dataset products --placement device", exitDoesNotFit, "free on device"},
		{"plan store --placement device --memory 49MiB", exitDoesNotFit, "device"},
	} {
		o := hopfeed(t, d, c.line)
		if o.code != c.code || !strings.Contains(o.stderr, c.want) || strings.Count(o.stderr, "\n") != 1 ||
			o.stdout != "" {
			t.Errorf("%s: exit status %d, want %d, with %q in %q", c.line, o.code, c.code, c.want, o.stderr)
		}
	}
	// Nothing is known of how fast it computes: times are of loading alone.
	p := object(t, must(t, d, "plan store --hardware processor.yaml --json"))
	if p["predicted_epoch_seconds"] != nil || !strings.Contains(fmt.Sprint(p["reasons"]), "loading alone") {
		t.Errorf("%v", p)
	}
}

func TestTrainSaysWhatItPredicted(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 2000 --edges 4500 --features 100 --classes 3 --labeled 1 --seed 7",
		"propagate graph -o store --hops 2 --operator sym")
	const line = "train store --hidden 8 --epochs 1 --batch 512"
	for _, flags := range []string{"--placement device", "--placement host --shuffle chunk", "--placement storage",
		"--emulate gpu=1,mem=64MiB,link=1GiB/s --eval-every 3"} {
		var trained struct {
			Predicted float64 `json:"predicted_epoch_seconds"`
			Measured  float64 `json:"epoch_seconds"`
		}
		if err := json.Unmarshal([]byte(must(t, d, line+" --json "+flags).stdout), &trained); err != nil ||
			trained.Predicted <= 0 || trained.Measured <= 0 {
			t.Errorf("%s: %+v (%v)", flags, trained, err)
		}
	}
	if out := must(t, d, line+" --placement storage").stdout; !strings.Contains(out, "s an epoch (predicted ") {
		t.Errorf("no prediction in %s", out)
	}
}

func TestAGraphThatIsNotThereIsPlannedFor(t *testing.T) {
	d := disk(t)
	write(t, d, "machine.yaml", toyMachine)
	const line = "plan --hardware machine.yaml --nodes 1000000000 --edges 100000000000 --features 128 --labeled 0.1 " +
		"--memory 64GiB"
	p := object(t, must(t, d, line+" --json"))
	if plan := p["propagation"].(map[string]any); plan["panels"].(float64) < 2 || p["rows"].(float64) != 1e8 {
		t.Errorf("%v", p)
	}
	if text := must(t, d, line).stdout; !strings.Contains(text, "panels of up to") ||
		!strings.Contains(text, "plan: storage") {
		t.Error(text)
	}
	if p := object(t, must(t, d, strings.Replace(line, "--edges 100000000000 ", "",
		1)+" --json")); p["propagation"] != nil {
		t.Errorf("%v", p["propagation"])
	}
	for wrong, says := range map[string]string{
		strings.Replace(line, "--edges 1", "--edges -1", 1):    "edges",
		strings.Replace(line, "64GiB", "1MiB", 1):              "memory",
		"propagate --dry-run --nodes 5 --edges 9 --features 3": "--nodes",
	} {
		if o := hopfeed(t, d, wrong); o.code == exitDone || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: status %d, %s", wrong, o.code, o.stderr)
		}
	}
}
