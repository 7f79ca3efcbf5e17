package command

import (
	"reflect"
	"strings"
	"testing"
)

// TestPlanSaysOfAGraphWhatTrainDoes plans trainings of all models on a graph, by samples and by all nodes, in all
// placements, by schedules and by queues.
func TestPlanSaysOfAGraphWhatTrainDoes(t *testing.T) {
	d := disk(t, generateLine)
	before := tree(t, d, "graph")
	for _, options := range []string{
		"--model gcn --placement device --batch 60 --fanout 3,3",
		"--model sage --placement storage --batch 60 --fanout 3,3 --cache degree:20rows",
		"--model gat --heads 1 --sampler full",
		"--model sage --sampler saint-node --batch 20 --placement host",
		"--model sage --schedule auto --batch 60 --emulate gpu=1,mem=64MiB,link=1GiB/s",
		"--model sage --schedule multi-queue --batch 60 --emulate gpu=2,mem=64MiB",
	} {
		options += " --hidden 4"
		o := must(t, d, "plan graph "+options+" --json")
		p := object(t, o)
		for _, key := range strings.Fields("dataset placement shuffle buffers predicted_epoch_seconds store_bytes " +
			"input_bytes work_bytes reasons alternatives sampler batch") {
			if p[key] == nil {
				t.Errorf("%s: no %s in %v", options, key, p)
			}
		}
		if !(p["predicted_epoch_seconds"].(float64) > 0) || p["train_rows"] != 160.0 || p["dataset"] != "sbm" {
			t.Errorf("%s: %v", options, p)
		}
		trained := object(t, must(t, d, "train graph "+options+" --epochs 1 --json"))
		for _, key := range []string{"placement", "shuffle", "devices", "dataset"} {
			if p[key] != trained[key] {
				t.Errorf("%s: plan says %s %v, train %v", options, key, p[key], trained[key])
			}
		}
		if scheduled := strings.Contains(options, "--schedule"); scheduled != (p["schedule"] != nil ||
			p["multi_queue"] != nil) {
			t.Errorf("%s: %v", options, p)
		}
		all := p["alternatives"].([]any)
		found := false
		for _, a := range all {
			a := a.(map[string]any)
			found = found || a["placement"] == p["placement"] && a["obstacle"] == nil &&
				a["device_bytes"].(float64) > 0 &&
				a["predicted_epoch_seconds"] == p["predicted_epoch_seconds"]
		}
		if len(all) != 3 || !found {
			t.Errorf("%s: %v is not among %v", options, p["placement"], all)
		}
	}
	text := must(t, d, "plan graph --model gcn --hidden 4 --cache degree:20rows").stdout
	for _, says := range []string{"sbm: 300 nodes", "neighbor, batches of 160, fanout 15,10, cache degree:20rows",
		"plan: device", "training on an epoch should take"} {
		if !strings.Contains(text, says) {
			t.Errorf("no %q in\n%s", says, text)
		}
	}
	text = must(t, d, "plan graph --model sage --hidden 4 --schedule multi-queue --batch 60").stdout
	if strings.Contains(text, "  0 B") {
		t.Errorf("what an epoch reads, which is not measured, is 0 B in\n%s", text)
	}
	if !reflect.DeepEqual(tree(t, d, "graph"), before) {
		t.Error("plan changed the graph")
	}
}

func TestPlanRefusesWhatTrainRefuses(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "machine.yaml", toyMachine)
	for line, says := range map[string]string{
		"plan graph":             "sign reads a hop store",
		"plan store --model gcn": "gcn reads the graph",
		"plan --model gcn":       "give a GRAPH",
		"plan graph --model gcn --hardware machine.yaml":                  "--hardware",
		"plan --model gcn --hardware machine.yaml --nodes 9 --features 2": "give a GRAPH",
		"plan graph --model gcn --hops 2":                                 "--hops",
		"plan store --model sign --sampler full":                          "--sampler",
		"plan store --schedule cpu":                                       "--schedule",
		"plan graph --model gcn --split 0-1":                              "one split",
		"plan graph --model gcn --sampler full --placement host":          "--placement host",
		"plan graph --model gcn --sampler full --schedule cpu":            "--schedule cpu",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}
