package tune

import (
	"math"
	"reflect"
	"testing"
)

// caches is a space in which a bias needs a cache.
func caches(t *testing.T) *Points {
	return list(t, Space{
		Base: Settings{"model": "sage"},
		Dimensions: []Dimension{
			{"bias", []string{"", "2", "8"}, 0},
			{"cache", []string{"", "degree:10rows", "lru:1000rows"}, 1},
			{"fanout", []string{"5,5", "10,5"}, 1},
		},
		Simplify: func(s Settings) Settings {
			if s["cache"] == "" {
				delete(s, "bias")
			}
			return s
		},
	})
}

func TestSettingsThatAreTheSameAreOnePoint(t *testing.T) {
	p := caches(t)
	if p.Len() != 2*(1+2*3) {
		t.Fatalf("%d points", p.Len())
	}
	for i := range p.Len() {
		if s := p.Settings(i); p.Find(s) != i || s["cache"] == "" && s["bias"] != "" {
			t.Errorf("point %d, %v, is found as %d", i, s, p.Find(s))
		}
	}
	if first := p.Random(1)(nil); !reflect.DeepEqual(first,
		Settings{"model": "sage", "cache": "degree:10rows", "fanout": "10,5"}) {
		t.Errorf("it begins with %v", first)
	}
	for _, s := range []Settings{{"model": "gcn", "fanout": "5,5"}, {"model": "sage", "fanout": "5,6"},
		{"model": "sage", "fanout": "5,5", "bias": "2"}} {
		if p.Find(s) >= 0 {
			t.Errorf("%v is in the space", s)
		}
	}
	if near := p.Nearest(Settings{"model": "gcn", "fanout": "5,5"}); !reflect.DeepEqual(near,
		Settings{"model": "sage", "fanout": "5,5"}) {
		t.Errorf("nearest is %v", near)
	}
}

// Worked by hand: bias has a number (0, 2, 8) and no word; cache a number on a logarithmic scale and the words
// "", degree:rows and lru:rows; fanout two numbers, the second always 5.
func TestValuesAreEncodedByTheirNumbersAndWords(t *testing.T) {
	p := caches(t)
	all := make([]Settings, p.Len())
	for i := range all {
		all[i] = p.Settings(i)
	}
	x := p.encode(all)
	ratio := math.Log1p(1) / math.Log1p(100)
	for _, c := range []struct {
		s    Settings
		want []float64
	}{
		{Settings{"model": "sage", "fanout": "5,5"}, []float64{0, 0, 1, 0, 0, 0}},
		{Settings{"model": "sage", "fanout": "10,5", "cache": "degree:10rows", "bias": "2"},
			[]float64{0.25, ratio, 0, 1, 0, 1}},
		{Settings{"model": "sage", "fanout": "10,5", "cache": "lru:1000rows", "bias": "8"},
			[]float64{1, 1, 0, 0, 1, 1}},
	} {
		got := x[p.Find(c.s)]
		if len(got) == len(c.want) {
			for k := range got {
				if math.Abs(got[k]-c.want[k]) > 1e-12 {
					t.Errorf("%v column %d: %v, want %v", c.s, k, got, c.want)
				}
			}
			continue
		}
		t.Errorf("%v: %v, want %v", c.s, got, c.want)
	}
}

func TestSpacesThatCannotBeListedAreRefused(t *testing.T) {
	many := make([]string, 1025)
	for i := range many {
		many[i] = string(rune('a' + i))
	}
	for _, s := range []Space{
		{Dimensions: []Dimension{{"a", nil, 0}}},
		{Dimensions: []Dimension{{"a", []string{"1"}, 1}}},
		{Dimensions: []Dimension{{"a", many, 0}, {"b", many, 0}}},
	} {
		if _, err := s.List(); err == nil {
			t.Errorf("%d dimensions are listed", len(s.Dimensions))
		}
	}
}
