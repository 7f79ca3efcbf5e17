package tune

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Dimension is a setting that a search varies, and its values, each of them once. A value of "" leaves
// the setting out.
type Dimension struct {
	Name    string
	Values  []string
	Default int // the value to begin with
}

// Space is what a search chooses among: all combinations of a value of each dimension, added to Base.
type Space struct {
	Base       Settings
	Dimensions []Dimension
	// Simplify drops settings that have no effect beside the others, so that one training has one text;
	// nil: there are none. It may change what it is given.
	Simplify func(Settings) Settings
}

// mostPoints is how many combinations there may be: searches list them.
const mostPoints = 1 << 20

// Points is a space whose distinct settings are numbered. Settings are made anew each time: lists of them would
// count in the memory of trials.
type Points struct {
	Space
	index  map[string]int // of settings, by text
	place  [][]int        // of each of them, the value of each dimension
	number []int32        // of each combination of values, in order, the number of its settings
}

// List lists the distinct settings of a space, the last dimension varying fastest. It fails where there
// are too many.
func (s Space) List() (*Points, error) {
	size := 1
	for _, d := range s.Dimensions {
		if len(d.Values) == 0 || d.Default < 0 || d.Default >= len(d.Values) {
			return nil, fmt.Errorf("%s has %d values, and number %d is the one to begin with", d.Name, len(d.Values), d.Default)
		}
		if size *= len(d.Values); size > mostPoints {
			return nil, fmt.Errorf("there are more than %d combinations of values", mostPoints)
		}
	}
	p := &Points{Space: s, index: map[string]int{}}
	for n := range size {
		place := make([]int, len(s.Dimensions))
		for d := len(place) - 1; d >= 0; d-- {
			k := len(s.Dimensions[d].Values)
			place[d], n = n%k, n/k
		}
		text := s.settings(place).text()
		i, seen := p.index[text]
		if !seen {
			i = len(p.place)
			p.index[text] = i
			p.place = append(p.place, place)
		}
		p.number = append(p.number, int32(i))
	}
	return p, nil
}

// settings are those with these values of the dimensions.
func (s *Space) settings(place []int) Settings {
	all := make(Settings, len(s.Base)+len(place))
	maps.Copy(all, s.Base)
	for d, at := range place {
		all[s.Dimensions[d].Name] = s.Dimensions[d].Values[at]
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	if s.Simplify != nil {
		all = s.Simplify(all)
	}
	return all
}

// text tells settings apart: it gives the lengths of names and values, which may hold any characters.
func (s Settings) text() string {
	names, size := make([]string, 0, len(s)), 0
	for name, value := range s {
		names = append(names, name)
		size += len(name) + len(value) + len("100:1000=")
	}
	slices.Sort(names)
	b := make([]byte, 0, size)
	for _, name := range names {
		b = append(strconv.AppendInt(b, int64(len(name)), 10), ':')
		b = strconv.AppendInt(append(b, name...), int64(len(s[name])), 10)
		b = append(append(b, '='), s[name]...)
	}
	return string(b)
}

// Len is the number of distinct settings.
func (p *Points) Len() int { return len(p.place) }

// Settings are those of a number.
func (p *Points) Settings(i int) Settings { return p.settings(p.place[i]) }

// Find is the number of settings, -1 if they are none of the space.
func (p *Points) Find(s Settings) int {
	if i, ok := p.index[s.text()]; ok {
		return i
	}
	return -1
}

// Nearest are the settings of the space that differ in the fewest from some others.
func (p *Points) Nearest(to Settings) Settings {
	best, least := 0, math.MaxInt
	for i := range p.place {
		s, n := p.Settings(i), 0
		for name, value := range s {
			if to[name] != value {
				n++
			}
		}
		for name := range to {
			if _, ok := s[name]; !ok {
				n++
			}
		}
		if n < least {
			best, least = i, n
		}
	}
	return p.Settings(best)
}

// first is the number of the settings to begin with.
func (p *Points) first() int {
	place := make([]int, len(p.Dimensions))
	for d := range place {
		place[d] = p.Dimensions[d].Default
	}
	return p.numberOf(place)
}

// numberOf is the number of the settings with these values of the dimensions.
func (p *Points) numberOf(place []int) int {
	n := 0
	for d, v := range place {
		n = n*len(p.Dimensions[d].Values) + v
	}
	return int(p.number[n])
}

// untried lists the settings that none of some trials was of, ascending.
func (p *Points) untried(done []Trial) (left []int) {
	tried := make([]bool, len(p.place))
	for _, t := range done {
		if i := p.Find(t.Settings); i >= 0 {
			tried[i] = true
		}
	}
	for i, was := range tried {
		if !was {
			left = append(left, i)
		}
	}
	return left
}

// Grid proposes all settings in their order.
func (p *Points) Grid() Proposer {
	return func(done []Trial) Settings {
		if left := p.untried(done); len(left) > 0 {
			return p.Settings(left[0])
		}
		return nil
	}
}

// Random proposes the settings to begin with, and then others that the seed determines, none twice.
func (p *Points) Random(seed uint64) Proposer {
	seed = rng.Derive(seed, "tune")
	return func(done []Trial) Settings {
		left := p.untried(done)
		if len(left) == 0 {
			return nil
		}
		if first := p.first(); slices.Contains(left, first) {
			return p.Settings(first)
		}
		return p.Settings(left[int(rng.Float64(rng.Hash(seed, uint64(len(done))))*float64(len(left)))])
	}
}

// pieces of a value: numbers, and what is between them.
var pieces = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?`)

// encode returns the columns that models of the outcome read, of each setting of the space, in [0,1]. A
// value is taken apart into its numbers, of which there is a column for each place, and the rest, of which
// there is a column for each that occurs: 10,5 has two numbers, and degree:20MiB one and the word degree:MiB.
// Numbers that differ by more than ten times are taken as logarithms.
func (p *Points) encode() [][]float64 {
	x := make([][]float64, len(p.place))
	all := make([]Settings, len(p.place))
	for i := range all {
		all[i] = p.Settings(i)
	}
	add := func(column []float64) {
		low, high := slices.Min(column), slices.Max(column)
		if low == high {
			return
		}
		for i, v := range column {
			x[i] = append(x[i], (v-low)/(high-low))
		}
	}
	for _, d := range p.Dimensions {
		numbers := [][]float64{}
		words := map[string][]float64{}
		for i, s := range all {
			value := s[d.Name]
			for k, text := range pieces.FindAllString(value, -1) {
				if k == len(numbers) {
					numbers = append(numbers, make([]float64, len(all)))
				}
				numbers[k][i], _ = strconv.ParseFloat(text, 64)
			}
			word := pieces.ReplaceAllString(value, "")
			if words[word] == nil {
				words[word] = make([]float64, len(all))
			}
			words[word][i] = 1
		}
		for _, column := range numbers {
			least := math.Inf(1) // above zero
			for _, v := range column {
				if v > 0 {
					least = min(least, v)
				}
			}
			if slices.Max(column) > 10*least {
				for i, v := range column {
					column[i] = math.Log1p(v / least)
				}
			}
			add(column)
		}
		for _, word := range slices.Sorted(maps.Keys(words)) {
			add(words[word])
		}
	}
	return x
}

// PointsOf are the distinct settings of trials, with what varies among them as dimensions, beginning with those of
// the first. A combination of values that no trial has stands for the trial that differs from it in the fewest.
func PointsOf(trials []Trial) (*Points, error) {
	if len(trials) == 0 {
		return nil, errors.New("there are no trials")
	}
	values := map[string]map[string]bool{}
	for _, t := range trials {
		for name := range t.Settings {
			values[name] = map[string]bool{}
		}
	}
	p := &Points{Space: Space{Base: Settings{}}, index: map[string]int{}}
	var all []Settings
	for _, t := range trials {
		for name := range values {
			values[name][t.Settings[name]] = true
		}
		if text := t.Settings.text(); p.Find(t.Settings) < 0 {
			p.index[text] = len(all)
			all = append(all, t.Settings)
		}
	}
	size := 1
	for _, name := range slices.Sorted(maps.Keys(values)) {
		of := slices.SortedFunc(maps.Keys(values[name]), compareValues)
		if len(of) == 1 {
			p.Base[name] = of[0]
			continue
		}
		p.Dimensions = append(p.Dimensions, Dimension{name, of, slices.Index(of, trials[0].Settings[name])})
		if size *= len(of); size > mostPoints {
			return nil, fmt.Errorf("there are more than %d combinations of values", mostPoints)
		}
	}
	for _, s := range all {
		place := make([]int, len(p.Dimensions))
		for d, dim := range p.Dimensions {
			place[d] = slices.Index(dim.Values, s[dim.Name])
		}
		p.place = append(p.place, place)
	}
	for n := range size {
		best, least := 0, math.MaxInt
		for i, place := range p.place {
			differs, rest := 0, n
			for d := len(place) - 1; d >= 0; d-- {
				k := len(p.Dimensions[d].Values)
				if place[d] != rest%k {
					differs++
				}
				rest /= k
			}
			if differs < least {
				best, least = i, differs
			}
		}
		p.number = append(p.number, int32(best))
	}
	return p, nil
}

// compareValues orders values by their words, and by their numbers among those of the same words.
func compareValues(a, b string) int {
	if c := cmp.Compare(pieces.ReplaceAllString(a, ""), pieces.ReplaceAllString(b, "")); c != 0 {
		return c
	}
	other := pieces.FindAllString(b, -1)
	for i, text := range pieces.FindAllString(a, -1) {
		if i == len(other) {
			return 1
		}
		x, _ := strconv.ParseFloat(text, 64) // a piece is a number
		y, _ := strconv.ParseFloat(other[i], 64)
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(a, b)
}
