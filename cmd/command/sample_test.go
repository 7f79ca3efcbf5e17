package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/loader/sampling"
)

func sampled(t *testing.T, line string) map[string]any {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal([]byte(must(t, disk(t, generateLine), line+" --json").stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSampleMeasuresEverySampler(t *testing.T) {
	for _, name := range sampling.Names() {
		line := "sample graph --seeds all --batch 50 --fanout 4,3 --sampler " + name
		if name == "locality" {
			line += " --cache degree:100rows --bias 4"
		}
		r := sampled(t, line)
		if r["sampler"] != name || r["batches"] != 6.0 {
			t.Errorf("%s: %v", name, r)
		}
		for _, key := range []string{"seeds_per_second", "edges_per_second", "nodes_per_batch"} {
			if x, ok := r[key].(float64); !ok || x <= 0 {
				t.Errorf("%s: %s is %v", name, key, r[key])
			}
		}
	}
}

func TestSampleGivesTheSameBatchesByAnyThreadsLoadedOrMapped(t *testing.T) {
	want := sampled(t, "sample graph --batch 20 --epochs 2 --cache lru:80rows --threads 1")
	if want["batches"] != 16.0 || want["cache_hit_rate"].(float64) <= 0 {
		t.Errorf("%v", want)
	}
	for _, flags := range []string{"--threads 3", "--threads 2 --map"} {
		got := sampled(t, "sample graph --batch 20 --epochs 2 --cache lru:80rows "+flags)
		for _, key := range []string{"batches", "seeds_per_batch", "edges_per_batch", "nodes_per_batch",
			"cache_hit_rate"} {
			if got[key] != want[key] {
				t.Errorf("%s: %s is %v, want %v", flags, key, got[key], want[key])
			}
		}
	}
}

func TestSampleCountsHitsOfEveryPolicy(t *testing.T) {
	rates := map[string]float64{}
	for _, policy := range []string{"degree:60rows", "presampled:60rows", "fifo:60rows", "lru:60rows", "gns:60rows",
		"optimal:60rows", "ducati:4KiB"} {
		rates[policy] = sampled(t,
			"sample graph --batch 20 --epochs 2 --fanout 3,2 --cache "+policy)["cache_hit_rate"].(float64)
		if rates[policy] <= 0 || rates[policy] >= 1 {
			t.Errorf("%s: hit rate %v", policy, rates[policy])
		}
	}
	for policy, rate := range rates {
		if rate > rates["optimal:60rows"] && !strings.HasPrefix(policy, "ducati") {
			t.Errorf("%s finds %v, more than the optimal cache: %v", policy, rate, rates["optimal:60rows"])
		}
	}
}

func TestAJointCacheHasListsToo(t *testing.T) {
	const line = "sample graph --batch 20 --epochs 2 --fanout 3,2 --cache ducati:"
	want := sampled(t, line+"8KiB")
	rate, ok := want["cache_list_hit_rate"].(float64)
	if bytes := want["cache_list_bytes"].(float64); !ok || rate <= 0 || rate >= 1 || bytes <= 0 || bytes > 8<<10+8 {
		t.Errorf("%v", want)
	}
	mapped := sampled(t, line+"8KiB --map --threads 3")
	for _, key := range []string{"cache_list_hit_rate", "cache_list_bytes", "edges_per_batch", "cache_hit_rate"} {
		if mapped[key] != want[key] {
			t.Errorf("mapped, %s is %v, want %v", key, mapped[key], want[key])
		}
	}
	// all lists that the presampled epoch visited
	if all := sampled(t, line+"1GiB"); all["cache_list_hit_rate"].(float64) < 0.9 {
		t.Errorf("%v", all)
	}
	for _, flags := range []string{"--cache lru:80rows", "--cache ducati:8KiB --sampler saint-rw"} {
		if none := sampled(t, "sample graph --batch 20 "+flags); none["cache_list_hit_rate"] != nil {
			t.Errorf("%s: %v", flags, none)
		}
	}
}

func TestSampleRefuses(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for _, c := range []struct{ line, want string }{
		{"sample graph --sampler walk", `--sampler "walk": want one of`},
		{"sample graph --fanout 3,0", "fanout 0 of layer 1"},
		{"sample graph --batch 0", "--batch 0"},
		{"sample graph --seeds night", `"night"`},
		{"sample graph --split 7", "split 7"},
		{"sample graph --by-weight", "the graph has no weights"},
		{"sample graph --sampler locality", "needs a cache"},
		{"sample graph --sampler locality --cache lru:20rows", "changes from batch to batch"},
		{"sample graph --cache degree", "it has no size"},
		{"sample graph --cache lru:10B", "has no room for a row, of 24 bytes: give lru:24 or more"},
		{"sample graph --cache ducati:10B", "has no room for a row"},
		{"sample store", "store is a hop store: give the graph that it was made from"},
		{"sample graph --aggregation sum", `no aggregation is called "sum"`},
	} {
		o := hopfeed(t, d, c.line)
		if o.code != exitUsage || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: status %d, %q", c.line, o.code, o.stderr)
		}
	}
}
