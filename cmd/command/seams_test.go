package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// An option is one way to use a feature that shares memory, devices or files with other features.
type option struct {
	feature, flags string
	makesModel     bool   // the result depends on the option,
	unless         string // but not beside the option that has these flags
	before, after  string // command lines that run beside the pair, with those flags of it that make the model
}

// A refusal says that options a and b, given by the beginnings of their flags, are refused together.
type refusal struct{ a, b, says string }

func (r *refusal) covers(a, b option) bool {
	has := func(o option, flags string) bool { return strings.HasPrefix(o.flags, flags) }
	return has(a, r.a) && has(b, r.b) || has(a, r.b) && has(b, r.a)
}

// together is how many options a line has at most, and models how many of them make the model: each new set of those
// is trained alone, too.
const together, models = 4, 2

// tryPairs runs line with the flags of each two options of different features, and of up to two more: a line of four
// options tries six pairs. Two that refusals covers are run alone, and refused in its words. A refused line of three
// or four options is tried again with its first two. All other lines have the result of the line with those of their
// flags alone that make the model. None leaves memory behind. With -v it prints which pairs were tried (+) and which
// are refused (-).
func tryPairs(t *testing.T, line string, options []option, refusals []refusal, fresh func() *vfs.Mem,
	result func(*vfs.Mem) string) {
	t.Helper()
	alone, seen := map[string]string{}, map[refusal]bool{}
	withModel := func(line string, group []option) string {
		for _, a := range group {
			if a.makesModel && !slices.ContainsFunc(group, func(b option) bool { return a.unless == b.flags }) {
				line += " " + a.flags
			}
		}
		return line
	}
	says := func(a, b option) (words string) {
		for _, r := range refusals {
			if r.covers(a, b) {
				words = r.says
			}
		}
		return words
	}
	// try tells whether the line with a group of options is refused, and checks its result if not.
	try := func(group []option) (text string, o outcome, refused bool) {
		text, after := line, ""
		var lines []string
		for _, a := range group {
			text += " " + a.flags
			lines, after = append(lines, a.before), after+a.after
		}
		lines = append(lines, text)
		for _, a := range group {
			lines = append(lines, a.after)
		}
		d, used := fresh(), offheap.InUse()
		for _, l := range lines {
			switch {
			case l == text:
				o = hopfeed(t, d, l)
			case l != "":
				hopfeed(t, d, withModel(l, group))
			}
		}
		if left := offheap.InUse() - used; left != 0 {
			t.Errorf("%s: %d bytes are not freed", text, left)
		}
		if o.code == exitUsage || o.code == exitDoesNotFit {
			return text, o, true
		}
		if o.code != exitDone && after == "" {
			t.Errorf("%s: exit status %d, %s", text, o.code, o.stderr)
			return text, o, false
		}
		plain := withModel(line, group)
		if _, ok := alone[plain]; !ok {
			d := fresh()
			must(t, d, plain)
			alone[plain] = result(d)
		}
		if got := result(d); got != alone[plain] {
			t.Errorf("%s: another result than that of %s", text, plain)
		}
		return text, o, false
	}
	tried := map[[2]int]bool{} // a larger index first
	pair := func(i, j int) [2]int { return [2]int{max(i, j), min(i, j)} }
	// add returns the option that makes a group try most further pairs, or -1.
	add := func(group []int) (best int) {
		best, most := -1, 0
		for k, c := range options {
			further, model := 0, 0
			for _, i := range group {
				if options[i].feature == c.feature || says(options[i], c) != "" {
					further = -len(options)
				} else if !tried[pair(i, k)] {
					further++
				}
				if options[i].makesModel {
					model++
				}
			}
			if further > most && (model < models || !c.makesModel) {
				best, most = k, further
			}
		}
		return best
	}
	for i, b := range options {
		cells := ""
		for j, a := range options[:i] {
			words := says(a, b)
			switch {
			case a.feature == b.feature:
				cells += " "
				continue
			case words != "":
				cells += "-"
				for _, r := range refusals {
					seen[r] = seen[r] || r.covers(a, b)
				}
				if text, o, refused := try([]option{a, b}); !refused || !strings.Contains(o.stderr, words) {
					t.Errorf("%s: exit status %d, no %q in %s", text, o.code, words, o.stderr)
				}
				continue
			}
			cells += "+"
			if tried[pair(i, j)] {
				continue
			}
			group := []int{j, i}
			for k := 0; k >= 0 && len(group) < together; {
				if k = add(group); k >= 0 {
					group = append(group, k)
				}
			}
			var chosen []option
			for _, k := range group {
				chosen = append(chosen, options[k])
			}
			text, o, refused := try(chosen)
			if refused && len(group) > 2 {
				t.Logf("%s: %s", text, o.stderr)
				group = group[:2]
				text, o, refused = try(chosen[:2])
			}
			if refused {
				t.Errorf("%s: exit status %d, %s", text, o.code, o.stderr)
			}
			for _, k := range group {
				for _, l := range group {
					tried[pair(k, l)] = true
				}
			}
		}
		t.Logf("%-45.45s %s", b.flags, cells)
	}
	for _, r := range refusals {
		if !seen[r] {
			t.Errorf("no pair is refused as %q", r)
		}
	}
}

func TestTwoFeaturesTrainTheModelOfOneOnAGraph(t *testing.T) {
	const (
		line   = "train graph --run run --model sage --hidden 8 --batch 32 --epochs 2 --seed 3 --quiet"
		device = " --emulate gpu=1,mem=1GiB"
		queues = " --queue 3 --gradients 3 --sync-every 4"
		// No gradient waits, so two devices make the same steps whenever gradients arrive.
		arrival = "--schedule multi-queue --updates arrival --gradients 1 --emulate gpu=2,mem=1GiB"
	)
	options := []option{
		{feature: "model", flags: "--model gcn", makesModel: true},
		{feature: "model", flags: "--model gat", makesModel: true},
		{feature: "sampler", flags: "--sampler labor", makesModel: true},
		{feature: "sampler", flags: "--sampler ladies --fanout 40,40", makesModel: true},
		{feature: "sampler", flags: "--sampler saint-edge", makesModel: true},
		{feature: "sampler", flags: "--sampler full", makesModel: true},
		{feature: "cache", flags: "--cache degree:600"},
		{feature: "cache", flags: "--cache presampled:60rows"},
		{feature: "cache", flags: "--cache lru:50rows"},
		{feature: "cache", flags: "--cache fifo:50rows"},
		{feature: "cache", flags: "--cache gns:60rows"},
		{feature: "cache", flags: "--cache optimal:50rows"},
		{feature: "cache", flags: "--cache ducati:9000"},
		{feature: "cache", flags: "--cache gns:60rows --sampler locality --bias 4 --fanout -1,-1", makesModel: true},
		{feature: "schedule", flags: "--schedule auto"},
		{feature: "schedule", flags: "--schedule cpu"},
		{feature: "schedule", flags: "--schedule sequential"},
		{feature: "schedule", flags: "--schedule mode-1"},
		{feature: "schedule", flags: "--schedule mode-2"},
		{feature: "schedule", flags: "--schedule gpu" + device},
		{feature: "schedule", flags: "--schedule mixed" + device},
		{feature: "schedule", flags: "--schedule collective" + device},
		{feature: "schedule", flags: "--schedule collective-paper" + device},
		{feature: "schedule", flags: "--schedule multi-queue" + queues, makesModel: true},
		{feature: "devices", flags: "--schedule multi-queue" + queues + " --emulate gpu=2,mem=1GiB", makesModel: true},
		{feature: "devices", flags: arrival, makesModel: true},
		{feature: "devices", flags: device[1:]},
		{feature: "devices", flags: "--emulate gpu=1,mem=5MiB"},
		{feature: "placement", flags: "--placement device"},
		{feature: "placement", flags: "--placement host"},
		{feature: "placement", flags: "--placement storage"},
		{feature: "topology", flags: "--map"},
		{feature: "partitions", flags: "--partitions 3", makesModel: true},
		{feature: "scratch", flags: "--scratch scratch"},
		{feature: "memory", flags: "--memory 75MiB"},
		{feature: "threads", flags: "--threads 1"},
		{feature: "threads", flags: "--workers 3"},
		{feature: "buffers", flags: "--buffers 5"},
		{feature: "runs", flags: "--runs 2", makesModel: true},
		{feature: "learning rate", flags: "--lr-schedule cosine", makesModel: true},
		{feature: "start", flags: "--save-every 1s", before: line + " --save-every 0s --max-time 1ns"},
		{feature: "start", flags: "--save-every 0s --max-time 1ns", after: line},
		{feature: "start", flags: "--force", before: strings.Replace(line, "--seed 3", "--seed 9", 1)},
	}
	refusals := []refusal{
		{"--sampler ladies", "--cache gns:60rows --sampler locality", "--fanout has 4 numbers for 2 layers"},
		{"--sampler saint-edge", "--schedule multi-queue" + queues + " --emulate gpu=2", "which 2 ranks cannot share"},
		{"--sampler saint-edge", arrival, "which 2 ranks cannot share"},
		{"--schedule multi-queue", "--buffers", "give --queue"},
		{"--cache optimal", "--memory", "at least, --memory allows 75 MiB"},
	}
	byDevice := []string{"--schedule gpu", "--schedule mixed", "--schedule collective"}
	byProcessor := []string{"--schedule cpu", "--schedule sequential", "--schedule mode-1", "--schedule mode-2"}
	for _, schedule := range slices.Concat(byProcessor, byDevice) {
		for _, cache := range []string{"--cache lru", "--cache fifo", "--cache optimal"} {
			refusals = append(refusals, refusal{schedule, cache, "changes from batch to batch"})
		}
	}
	for _, schedule := range byDevice {
		refusals = append(refusals, refusal{schedule, "--placement storage", "the topology is not in pinned memory"})
		for _, sampler := range []string{"--sampler ladies", "--sampler saint-edge",
			"--cache gns:60rows --sampler locality"} {
			refusals = append(refusals, refusal{schedule, sampler, "runs on the processor alone"})
		}
	}
	graph := disk(t, generateLine)
	tryPairs(t, line, options, refusals, func() *vfs.Mem { return graph.CrashClone() },
		func(d *vfs.Mem) string { return parametersOf(t, tree(t, d, "run")) })
}

func TestTwoFeaturesTrainTheModelOfOneOnAStore(t *testing.T) {
	const line = "train store --run run --model sign --hidden 8 --batch 80 --shuffle chunk --epochs 2 --seed 3 --quiet"
	options := []option{
		{feature: "model", flags: "--model sgc", makesModel: true},
		{feature: "model", flags: "--model ssgc", makesModel: true},
		{feature: "model", flags: "--model gamlp", makesModel: true},
		{feature: "model", flags: "--model hoga", makesModel: true},
		{feature: "matrices", flags: "--hops 1 --operator rw", makesModel: true},
		{feature: "standardize", flags: "--standardize column", makesModel: true},
		{feature: "architecture", flags: "--as-printed 1", makesModel: true},
		{feature: "shuffle", flags: "--shuffle rr", makesModel: true},
		{feature: "shuffle", flags: "--chunk-rows 8", makesModel: true},
		{feature: "placement", flags: "--placement device"},
		{feature: "placement", flags: "--placement host"},
		{feature: "placement", flags: "--placement storage"},
		{feature: "devices", flags: "--emulate gpu=1,mem=1GiB"},
		{feature: "devices", flags: "--emulate gpu=1,mem=184KiB"},
		{feature: "devices", flags: "--emulate gpu=3,mem=1GiB", makesModel: true, unless: "--placement storage"},
		{feature: "memory", flags: "--memory 66MiB"},
		{feature: "threads", flags: "--threads 1"},
		{feature: "runs", flags: "--runs 2", makesModel: true},
		{feature: "learning rate", flags: "--lr-schedule cosine", makesModel: true},
		{feature: "search", flags: "--tune 2", makesModel: true},
		{feature: "start", flags: "--save-every 1s", before: line + " --save-every 0s --max-time 1ns"},
		{feature: "start", flags: "--save-every 0s --max-time 1ns", after: line},
		{feature: "start", flags: "--force", before: strings.Replace(line, "--seed 3", "--seed 9", 1)},
	}
	refusals := []refusal{
		{"--shuffle rr", "--placement storage", "single rows cannot be reshuffled"},
		{"--chunk-rows 8", "--placement storage", "must be a multiple of the store's"},
		{"--model hoga", "--emulate gpu=1,mem=184KiB", "in the 184 KiB that is free on device"},
	}
	store := disk(t, generateLine, propagateLine)
	tryPairs(t, line, options, refusals, func() *vfs.Mem { return store.CrashClone() },
		func(d *vfs.Mem) string { return parametersOf(t, tree(t, d, "run")) })
}

func TestTwoFeaturesPropagateTheBytesOfOne(t *testing.T) {
	const line = "propagate graph -o store --hops 2 --operator sym,rw --chunk-rows 128 --seed 7 --quiet"
	options := []option{
		{feature: "dtype", flags: "--dtype float16", makesModel: true},
		{feature: "rows", flags: "--rows all", makesModel: true},
		{feature: "operator", flags: "--operator sym,rw,ppr:alpha=0.2:undirected", makesModel: true},
		{feature: "split", flags: "--split 0", makesModel: true},
		{feature: "memory", flags: "--memory 68MiB"},
		{feature: "threads", flags: "--threads 1"},
		{feature: "scratch", flags: "--scratch scratch"},
		{feature: "device", flags: "--device emulated:0 --emulate gpu=1,mem=1GiB"},
		{feature: "device", flags: "--device emulated:0 --emulate gpu=1,mem=1MiB"},
		{feature: "start", flags: "--max-time 1h", before: line + " --max-time 1ns"},
		{feature: "start", flags: "--max-time 1ns", after: line},
		{feature: "start", flags: "--force", before: strings.Replace(line, "--seed 7", "--seed 9", 1)},
		{feature: "growth", flags: "--hops 2", before: strings.Replace(line, "--hops 2", "--hops 1", 1)},
		{feature: "growth", flags: "--operator sym,rw", before: strings.Replace(line, "sym,rw", "rw", 1)},
	}
	graph := disk(t, "generate sbm -o graph --nodes 1200 --edges 5000 --features 64 --classes 3 --labeled 0.9 --seed 7")
	tryPairs(t, line, options, nil, func() *vfs.Mem { return graph.CrashClone() }, func(d *vfs.Mem) string {
		return fmt.Sprint(digest(t, d, "store"))
	})
}
