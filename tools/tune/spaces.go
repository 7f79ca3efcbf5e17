package tune

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Defaults are the settings of a training around which a search looks.
type Defaults struct {
	BatchRows, TrainRows int64
	// For a store:
	LearningRate, WeightDecay float64
	Dropout                   *float64 // nil: the model has none
	Operators                 []string // that the store has
	Hops                      int      // that all operators have
	// For a graph:
	Nodes   int64
	Fanouts []int
	Threads int
	Buffers int // batches on the device
}

// dimension has each value once, and begins with first.
func dimension[T any](name string, first T, values ...T) Dimension {
	d := Dimension{Name: name}
	for _, v := range values {
		if text := fmt.Sprint(v); !slices.Contains(d.Values, text) {
			d.Values = append(d.Values, text)
		}
	}
	d.Default = max(0, slices.Index(d.Values, fmt.Sprint(first)))
	return d
}

// batch is from a quarter of the default to four times.
func (d *Defaults) batch() Dimension {
	batch := min(d.BatchRows, d.TrainRows)
	var values []int64
	for i := range 5 {
		values = append(values, min(max(1, batch<<i>>2), max(d.TrainRows, 1)))
	}
	return dimension("batch", batch, values...)
}

// around has four values on both sides of one, each a factor from the next.
func around(name string, v, factor float64) Dimension {
	var values []string
	for i := -4; i <= 4; i++ {
		digits := 2
		if i == 0 {
			digits = -1
		}
		values = append(values, strconv.FormatFloat(v*math.Pow(factor, float64(i)), 'g', digits, 64))
	}
	return dimension(name, values[4], values...)
}

// Store is what trials of a training on a store vary.
func (d *Defaults) Store() []Dimension {
	all := []Dimension{around("lr", d.LearningRate, math.Pow(10, 0.25))}
	if d.WeightDecay > 0 {
		all = append(all, around("weight-decay", d.WeightDecay, math.Sqrt(10)))
	}
	all = append(all, d.batch())
	if d.Dropout != nil {
		shares := []float64{*d.Dropout, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}
		slices.Sort(shares)
		all = append(all, dimension("dropout", *d.Dropout, shares...))
	}
	if len(d.Operators) > 0 {
		var hops []int
		for h := range d.Hops {
			hops = append(hops, h+1)
		}
		together := strings.Join(d.Operators, ",")
		all = append(all, dimension("hops", d.Hops, hops...),
			dimension("operator", together, append(slices.Clone(d.Operators), together)...))
	}
	return slices.DeleteFunc(all, func(d Dimension) bool { return len(d.Values) < 2 })
}

// Graph is what trials of a training on a graph vary (a3gnn Table I).
func (d *Defaults) Graph() []Dimension {
	var fanouts []string // the default, scaled
	for _, percent := range []int{34, 67, 100, 200} {
		var numbers []string
		for _, f := range d.Fanouts {
			if f > 0 {
				f = max(1, f*percent/100)
			}
			numbers = append(numbers, fmt.Sprint(f))
		}
		fanouts = append(fanouts, strings.Join(numbers, ","))
	}
	caches := []string{""}
	for _, policy := range []string{"degree", "presampled", "lru"} {
		for _, percent := range []int64{10, 30} {
			if rows := d.Nodes * percent / 100; rows > 0 {
				caches = append(caches, fmt.Sprintf("%s:%drows", policy, rows))
			}
		}
	}
	var workers []int
	for w := 1; w < d.Threads; w *= 2 {
		workers = append(workers, w)
	}
	return []Dimension{
		d.batch(),
		dimension("fanout", fanouts[2], fanouts...),
		dimension("sampler", "neighbor", "neighbor", "labor", "locality"),
		dimension("bias", 2, 2, 8),
		dimension("cache", "", caches...),
		dimension("placement", "auto", "auto", "host", "storage"),
		dimension("schedule", "", "", "sequential", "mode-2", "mode-1"),
		dimension("workers", d.Threads, append(workers, d.Threads)...),
		dimension("buffers", d.Buffers, 1, 2, 4),
	}
}

// fixedCaches are the policies whose caches stay as they are during an epoch.
var fixedCaches = []string{"degree", "presampled", "gns", "ducati"}

// SimplifyGraph drops settings of a training on a graph that change nothing: a cache in the same memory as the features
// (unified), a preference for cached nodes without a cache that keeps them, a bias without the preference, workers and
// buffers of the sequential schedule, flags of schedules other than the one chosen, and fanouts of samplers that take
// all edges. A schedule excludes a cache that changes from batch to batch: it drops the one that base does not have.
func SimplifyGraph(base Settings, unified bool, takesAllEdges func(sampler string) bool) func(Settings) Settings {
	return func(s Settings) Settings {
		if unified && s["placement"] != "storage" {
			delete(s, "cache")
		}
		fixed := func() bool {
			policy, _, _ := strings.Cut(s["cache"], ":")
			return slices.Contains(fixedCaches, policy)
		}
		if s["cache"] != "" && s["schedule"] != "" && !fixed() {
			drop := "schedule"
			if base[drop] != "" {
				drop = "cache"
			}
			if base[drop] == "" {
				delete(s, drop)
			}
		}
		if s["sampler"] == "locality" && !fixed() {
			s["sampler"] = "neighbor"
		}
		var idle []string
		if s["sampler"] != "locality" {
			idle = append(idle, "bias")
		}
		if s["schedule"] != "mixed" {
			idle = append(idle, "cpu-share")
		}
		switch s["schedule"] {
		case "multi-queue":
			idle = append(idle, "buffers")
		case "sequential":
			idle = append(idle, "workers", "buffers", "queue", "gradients", "sync-every")
		default:
			idle = append(idle, "queue", "gradients", "sync-every")
		}
		if takesAllEdges(s["sampler"]) {
			idle = append(idle, "fanout")
		}
		for _, name := range idle {
			delete(s, name)
		}
		return s
	}
}
