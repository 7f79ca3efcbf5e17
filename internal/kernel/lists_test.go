package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// listSummand is a kernel that sums lists.
type listSummand[T float32 | uint16] struct {
	sum   func(sums []float32, x []T, stride, columns int, t *Terms) int
	value func(T) float32
	fill  func(seed, i uint64) T
}

// check compares sums of lists, some empty and some with their own row, with the loop that SumLists documents.
func (s listSummand[T]) check(t *testing.T, columns int, seed uint64, coefficients, factors bool, codes bool) {
	t.Helper()
	const rows = 37
	random := func(i, n uint64) int64 { return int64(rng.Hash(seed, i) % n) }
	x := make([]T, rows*columns)
	for i := range x {
		x[i] = s.fill(seed+1, uint64(i))
	}
	numbers := func(n int, seed uint64) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = ordinary(seed, uint64(i))
		}
		return out
	}
	terms := &Terms{Nodes: []uint32{math.MaxUint32}} // before the first list, and after the last: not read
	for l := range uint64(23) {
		k := []int64{0, 1, 2, 5, 9, 40}[random(100+l, 6)]
		start := int64(len(terms.Nodes))
		for i := range k {
			terms.Nodes = append(terms.Nodes, uint32(random(1000*l+uint64(i), rows)))
		}
		slices.Sort(terms.Nodes[start:])
		terms.Lists = append(terms.Lists, List{start, start + k, random(200+l, rows+9) - 9})
		if l%4 == 0 { // a gap
			terms.Nodes = append(terms.Nodes, math.MaxUint32)
		}
	}
	terms.Nodes = append(terms.Nodes, math.MaxUint32)
	if coefficients {
		terms.Edges = numbers(len(terms.Nodes), seed+2)
	}
	if codes {
		terms.Edges, terms.Codes = numbers(1<<16, seed+2), make([]uint16, len(terms.Nodes))
		for i := range terms.Codes {
			terms.Codes[i] = uint16(rng.Hash(seed+3, uint64(i)))
		}
	}
	if factors {
		terms.Factors, terms.Selves = numbers(rows, seed+4), numbers(rows, seed+5)
	}
	want, inserted := make([]float32, len(terms.Lists)*columns), 0
	for l, list := range terms.Lists {
		sum, self := want[l*columns:][:columns], list.Self
		add := func(row int64, c float32) {
			for j := range sum {
				sum[j] += float32(c * s.value(x[int(row)*columns+j]))
			}
		}
		own := func() {
			c := float32(1)
			if terms.Selves != nil {
				c = terms.Selves[self]
			}
			add(self, c)
			inserted++
		}
		own = map[bool]func(){true: own, false: func() {}}[self >= 0 &&
			!slices.Contains(terms.Nodes[list.Start:list.End], uint32(max(self, 0)))]
		before := false
		for i := list.Start; i < list.End; i++ {
			row := int64(terms.Nodes[i])
			if !before && row > self {
				own()
				before = true
			}
			c := float32(1)
			switch {
			case codes:
				c = terms.Edges[terms.Codes[i]]
			case coefficients:
				c = terms.Edges[i]
			}
			if factors {
				c *= terms.Factors[row]
			}
			add(row, c)
		}
		if !before {
			own()
		}
	}
	sums := slices.Repeat([]float32{7}, len(want))
	if n := s.sum(sums, x, columns, columns, terms); n != inserted {
		t.Errorf("%d columns, seed %d: %d rows themselves, want %d", columns, seed, n, inserted)
	}
	for i, v := range sums {
		if !same(v, want[i]) {
			t.Fatalf("%d columns, seed %d, coefficients %t, factors %t, codes %t: column %d of list %d is %v, want %v",
				columns, seed, coefficients, factors, codes, i%columns, i/columns, v, want[i])
		}
	}
}

func (s listSummand[T]) run(t *testing.T) {
	seed := uint64(0)
	for _, columns := range []int{1, 3, 8, 15, 16, 17, 22, 32, 48, 64, 65, 80, 96, 112, 128, 131, 260} {
		for kind := range 6 {
			seed++
			s.check(t, columns, seed, kind%3 == 1, kind >= 3, kind%3 == 2)
		}
	}
}

func TestListsAreSummedAsByThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		t.Run("float32", listSummand[float32]{SumListsFloat32, func(f float32) float32 { return f }, ordinary}.run)
		t.Run("float16", listSummand[uint16]{SumListsFloat16, Float16ToFloat32, someCode}.run)
		t.Run("bfloat16", listSummand[uint16]{SumListsBFloat16, BFloat16ToFloat32, someCode}.run)
	})
}

func TestListsOfWhatIsNotThereAreRefused(t *testing.T) {
	with(t, func(t *testing.T) {
		for name, c := range map[string]Terms{
			"a row after the last":              {Lists: []List{{0, 1, -1}}, Nodes: []uint32{3}},
			"a huge row":                        {Lists: []List{{0, 1, -1}}, Nodes: []uint32{math.MaxUint32}},
			"its own row after the last":        {Lists: []List{{0, 0, 3}}},
			"a list beyond the nodes":           {Lists: []List{{0, 2, -1}}, Nodes: []uint32{1}},
			"a list that ends before it begins": {Lists: []List{{1, 0, -1}}, Nodes: []uint32{1}},
			"a list before the nodes":           {Lists: []List{{-1, 0, -1}}, Nodes: []uint32{1}},
			"too few coefficients":              {Lists: []List{{0, 1, -1}}, Nodes: []uint32{1, 1}, Edges: []float32{1}},
			"too few codes": {Lists: []List{{0, 1, -1}}, Nodes: []uint32{1, 1}, Codes: []uint16{1},
				Edges: make([]float32, 1<<16)},
			"codes of too few coefficients": {Lists: []List{{0, 1, -1}}, Nodes: []uint32{1}, Codes: []uint16{1},
				Edges: make([]float32, 9)},
			"a huge row with factors": {Lists: []List{{0, 1, -1}}, Nodes: []uint32{math.MaxUint32},
				Factors: make([]float32, 3)},
			"too few factors":            {Lists: []List{{0, 1, -1}}, Nodes: []uint32{1}, Factors: make([]float32, 2)},
			"too few factors of its own": {Lists: []List{{0, 0, 2}}, Selves: make([]float32, 2)},
			"too few sums":               {Lists: make([]List, 3)},
		} {
			for _, columns := range []int{3, 20} {
				t.Run(fmt.Sprint(name, columns), func(t *testing.T) {
					defer func() {
						if recover() == nil {
							t.Error("it went through")
						}
					}()
					SumListsFloat32(make([]float32, 2*columns), make([]float32, 3*columns), columns, columns, &c)
				})
			}
		}
	})
}
