package tune

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Dimension is a setting that a search varies, and its distinct values. The value "" leaves the setting out.
type Dimension struct {
	Name    string
	Values  []string
	Default int // the value to begin with
}

// Space has the settings that a search chooses among: all combinations of a value of each dimension, added to Base.
type Space struct {
	Base       Settings
	Dimensions []Dimension
	// Simplify drops settings that have no effect beside the others, so that one training has one text. Simplifying
	// twice changes nothing more. It may change its argument; nil: nothing is dropped.
	Simplify func(Settings) Settings
}

const mostPoints = 1 << 20

// Points are the distinct settings of a space, by number. They are few bytes each, since they count in the memory of
// trials: settings are made when they are asked for.
type Points struct {
	Space
	seed   maphash.Seed
	index  map[uint64]int // number by hash
	first  []int32        // of each number, the first combination that has these settings
	number []int32        // of each combination
}

// List numbers the settings of a space, in the order of combinations. It fails where there are too many.
func (s Space) List() (*Points, error) {
	p := &Points{Space: s, seed: maphash.MakeSeed(), index: map[uint64]int{}}
	p.Base = Settings{}.With(s.Base)
	maps.DeleteFunc(p.Base, func(_, value string) bool { return value == "" })
	size := 1
	for _, d := range s.Dimensions {
		if len(d.Values) == 0 || d.Default < 0 || d.Default >= len(d.Values) {
			return nil, fmt.Errorf("%s has %d values, and number %d is the one to begin with", d.Name, len(d.Values),
				d.Default)
		}
		if size *= len(d.Values); size > mostPoints {
			return nil, fmt.Errorf("there are more than %d combinations of values", mostPoints)
		}
	}
	all := Settings{} // used again and again: most of the time goes to making maps
	for n := range size {
		all = p.fill(all, p.combination(n))
		hash := p.hash(all)
		i, seen := p.index[hash]
		if !seen {
			i = len(p.first)
			p.index[hash] = i
			p.first = append(p.first, int32(n))
		}
		p.number = append(p.number, int32(i))
	}
	return p, nil
}

// hash tells settings apart by 64 bits; it does not depend on the order of names.
func (p *Points) hash(s Settings) (sum uint64) {
	for name, value := range s {
		sum += rng.Hash(maphash.String(p.seed, name), maphash.String(p.seed, value))
	}
	return sum
}

// combination is the n-th combination of values, the last dimension varying fastest.
func (s *Space) combination(n int) []int {
	place := make([]int, len(s.Dimensions))
	for d := len(place) - 1; d >= 0; d-- {
		k := len(s.Dimensions[d].Values)
		place[d], n = n%k, n/k
	}
	return place
}

// settings are Base with a value of each dimension, simplified.
func (s *Space) settings(place []int) Settings { return s.fill(Settings{}, place) }

// fill is settings in a map that is overwritten.
func (s *Space) fill(all Settings, place []int) Settings {
	clear(all)
	maps.Copy(all, s.Base)
	for d, at := range place {
		if value := s.Dimensions[d].Values[at]; value != "" {
			all[s.Dimensions[d].Name] = value
		} else {
			delete(all, s.Dimensions[d].Name)
		}
	}
	if s.Simplify != nil {
		all = s.Simplify(all)
	}
	return all
}

// Len is the number of distinct settings.
func (p *Points) Len() int { return len(p.first) }

// Settings returns the settings of a number from 0 to Len()-1.
func (p *Points) Settings(i int) Settings { return p.settings(p.place(i)) }

// place is the first combination of values with the settings of a number.
func (p *Points) place(i int) []int { return p.combination(int(p.first[i])) }

// Find is the number of settings, -1 if they are not in the space.
func (p *Points) Find(s Settings) int {
	if i, ok := p.index[p.hash(s)]; ok {
		return i
	}
	return -1
}

// Nearest are the settings of the space that differ in the fewest from some others.
func (p *Points) Nearest(to Settings) Settings {
	best, least := 0, math.MaxInt
	for i := range p.Len() {
		if n := len(Differing(p.Settings(i), to)); n < least {
			best, least = i, n
		}
	}
	return p.Settings(best)
}

// Differing lists the names of the settings that are not the same.
func Differing(a, b Settings) (names []string) {
	for name, value := range a {
		if b[name] != value {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// numberOf is the number of the settings with these values of the dimensions.
func (p *Points) numberOf(place []int) int {
	n := 0
	for d, v := range place {
		n = n*len(p.Dimensions[d].Values) + v
	}
	return int(p.number[n])
}

func (p *Points) tried(done []Trial) []bool {
	tried := make([]bool, p.Len())
	for _, t := range done {
		if i := p.Find(t.Settings); i >= 0 {
			tried[i] = true
		}
	}
	return tried
}

func (p *Points) untried(done []Trial) (left []int) {
	for i, tried := range p.tried(done) {
		if !tried {
			left = append(left, i)
		}
	}
	return left
}

// Grid proposes all settings in their order.
func (p *Points) Grid() Proposer {
	return func(done []Trial) Settings {
		if i := slices.Index(p.tried(done), false); i >= 0 {
			return p.Settings(i)
		}
		return nil
	}
}

// mostDraws is how many combinations Random draws before it lists what is left.
const mostDraws = 200

// Random proposes the default of each dimension, and then combinations that the seed determines, none twice.
func (p *Points) Random(seed uint64) Proposer {
	seed = rng.Derive(seed, "tune")
	return func(done []Trial) Settings {
		tried := p.tried(done)
		begin := make([]int, len(p.Dimensions))
		for d := range begin {
			begin[d] = p.Dimensions[d].Default
		}
		if i := p.numberOf(begin); !tried[i] {
			return p.Settings(i)
		}
		seed := rng.Hash(seed, uint64(len(done)))
		for draw := range uint64(mostDraws) {
			if i := p.number[rng.Hash(seed, draw)%uint64(len(p.number))]; !tried[i] {
				return p.Settings(int(i))
			}
		}
		if left := p.untried(done); len(left) > 0 {
			return p.Settings(left[rng.Hash(seed, mostDraws)%uint64(len(left))])
		}
		return nil
	}
}

var numberPattern = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?`)

// partsOf takes a value apart: its numbers, and the rest.
func partsOf(value string) (numbers []float64, word string) {
	for _, text := range numberPattern.FindAllString(value, -1) {
		v, _ := strconv.ParseFloat(text, 64) // the pattern is a number
		numbers = append(numbers, v)
	}
	return numbers, numberPattern.ReplaceAllString(value, "")
}

// CompareValues orders values by their words, and by their numbers where words are the same.
func CompareValues(a, b string) int {
	x, word := partsOf(a)
	y, other := partsOf(b)
	return cmp.Or(cmp.Compare(word, other), slices.Compare(x, y), cmp.Compare(a, b))
}

// encode returns the columns that models of the outcome read, for each of some settings: see columnsOf.
func (s *Space) encode(all []Settings) [][]float64 {
	var names []string
	for _, d := range s.Dimensions {
		names = append(names, d.Name)
	}
	return columnsOf(names, all).rows(all)
}

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
	Buffers int  // batches on the device
	Unified bool // the memory of the device is the host's, so that it cannot sample by itself
}

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

// Store is the default space of a training on a store.
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

// Graph is the default space of a training on a graph (a3gnn Table I).
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
	schedules := []string{"", "sequential", "mode-2", "mode-1"}
	if !d.Unified {
		schedules = append(schedules, "gpu") // the sampling device
	}
	return []Dimension{
		d.batch(),
		dimension("fanout", fanouts[2], fanouts...),
		dimension("sampler", "neighbor", "neighbor", "labor", "locality"),
		dimension("bias", 2, 2, 8),
		dimension("partitions", "", "", "2", "4"),
		dimension("cache", "", caches...),
		dimension("placement", "auto", "auto", "host", "storage"),
		dimension("schedule", "", schedules...),
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
		if s["schedule"] == "gpu" && base["schedule"] == "" && (s["sampler"] == "locality" || s["placement"] == "storage") {
			delete(s, "schedule") // the processor samples
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
		case "sequential", "gpu":
			idle = append(idle, "workers", "buffers", "queue", "gradients", "sync-every", "updates")
		default:
			idle = append(idle, "queue", "gradients", "sync-every", "updates")
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
