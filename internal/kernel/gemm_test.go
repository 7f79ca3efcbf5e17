package kernel

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// run multiplies on so many goroutines.
func (g *Gemm) run(p Product, threads int) {
	g.Begin(p, threads)
	loop := func(n int, part func(i int)) {
		var next atomic.Int64
		var all sync.WaitGroup
		for range min(threads, n) {
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					part(i)
				}
			})
		}
		all.Wait()
	}
	for g.Next() {
		loop(g.Packs(), g.Pack)
		loop(g.Parts(), g.Multiply)
	}
}

// gemmGuard is what c has around it and between its rows, and NaN what a and b have.
const gemmGuard = 12345

// someProduct makes a product of numbers around 1 whose rows are more apart than they are long. a and
// b lie in memory that none can be read before, or behind.
func someProduct(t *testing.T, seed uint64, transA, transB bool, rows, columns, inner int, alpha,
	beta float32) (p Product, padded []float32) {
	t.Helper()
	matrix := func(seed uint64, transposed bool, rows, columns, gap int) ([]float32, int) {
		if transposed {
			rows, columns = columns, rows
		}
		stride := columns + gap
		atEnd, atStart := fenced(t, max(0, 4*(rows*stride-gap)))
		x := as[float32](atEnd)
		if seed%2 == 1 {
			x = as[float32](atStart)
		}
		for i := range x {
			x[i] = ordinary(seed, uint64(i))
			if i%stride >= columns {
				x[i] = float32(math.NaN())
			}
		}
		return x, stride
	}
	p = Product{TransA: transA, TransB: transB, Rows: rows, Columns: columns, Inner: inner, Alpha: alpha, Beta: beta}
	p.A, p.AStride = matrix(seed, transA, rows, inner, int(seed%3))
	p.B, p.BStride = matrix(seed/2+1, transB, inner, columns, int(seed%5))
	const guard = 40
	p.CStride = columns + int(seed%4)
	padded = slices.Repeat([]float32{gemmGuard}, rows*p.CStride+2*guard)
	p.C = padded[guard : len(padded)-guard]
	for i := range rows {
		for j := range columns {
			p.C[i*p.CStride+j] = ordinary(seed+2, uint64(i*columns+j))
			if beta == 0 {
				p.C[i*p.CStride+j] = float32(math.NaN())
			}
		}
	}
	return p, padded
}

// lines are the lines of op(x) along the inner dimension, one after another.
func lines(x []float32, stride int, byColumn bool, count, inner int) []float64 {
	out := make([]float64, 0, count*inner)
	for i := range count {
		for l := range inner {
			at := i*stride + l
			if byColumn {
				at = l*stride + i
			}
			out = append(out, float64(x[at]))
		}
	}
	return out
}

// checkProduct multiplies and compares with the plain loop in float64: each of the inner + 3
// roundings of a number errs by no more than 2^-24 of the sum of all magnitudes.
func checkProduct(t *testing.T, g *Gemm, p Product, padded []float32, threads int) {
	t.Helper()
	name := fmt.Sprintf("op(a) [%d,%d], op(b) [%d,%d], transposed %t %t, alpha %g, beta %g, %d goroutines",
		p.Rows, p.Inner, p.Inner, p.Columns, p.TransA, p.TransB, p.Alpha, p.Beta, threads)
	before := slices.Clone(p.C)
	others := 0 // numbers of padded that are not of c
	for _, x := range padded {
		if x == gemmGuard {
			others++
		}
	}
	g.run(p, threads)
	a := lines(p.A, p.AStride, p.TransA, p.Rows, p.Inner)
	b := lines(p.B, p.BStride, !p.TransB, p.Columns, p.Inner)
	for i := range p.Rows {
		for j := range p.Columns {
			var want, magnitude float64
			if p.Alpha != 0 {
				y := b[j*p.Inner:][:p.Inner]
				for l, x := range a[i*p.Inner:][:p.Inner] {
					term := float64(p.Alpha) * x * y[l]
					want, magnitude = want+term, magnitude+math.Abs(term)
				}
			}
			if p.Beta != 0 {
				term := float64(p.Beta) * float64(before[i*p.CStride+j])
				want, magnitude = want+term, magnitude+math.Abs(term)
			}
			if got := float64(p.C[i*p.CStride+j]); !(math.Abs(got-want) <= 0x1p-24*float64(p.Inner+3)*magnitude) {
				t.Fatalf("%s: c[%d,%d] is %v, want %v", name, i, j, got, want)
			}
		}
	}
	for _, x := range padded {
		if x == gemmGuard {
			others--
		}
	}
	if others != 0 {
		t.Fatalf("%s: %d numbers beside c were written to", name, others)
	}
}

func TestMatricesAreMultipliedAsByThePlainLoop(t *testing.T) {
	factors := []float32{1, 0, -1, 0.5, 3}
	with(t, func(t *testing.T) {
		rows, columns := active.gemm.rows, active.gemm.columns
		var g Gemm
		seed := uint64(0)
		check := func(rows, columns, inner int) {
			seed++
			transA, transB := seed%2 == 1, seed/2%2 == 1
			alpha, beta := factors[rng.Hash(seed, 1)%8%5], factors[rng.Hash(seed, 2)%8%5]
			p, padded := someProduct(t, seed, transA, transB, rows, columns, inner, alpha, beta)
			checkProduct(t, &g, p, padded, 1+int(seed/4%3))
		}
		pick := func(list []int, place uint64) int { return list[rng.Hash(seed, place)%uint64(len(list))] }
		cases, turns := 400, 4
		if testing.Short() {
			cases, turns = 100, 1
		}
		for range cases {
			check(pick([]int{0, 1, 2, rows - 1, rows, rows + 1, 2*rows - 1, 2 * rows, 2*rows + 1, 31, 53}, 3),
				pick([]int{0, 1, 2, 7, 8, 9, 15, 16, 17, columns - 1, columns, columns + 1, 2*columns - 1, 2*columns +
					3, 97}, 4),
				pick([]int{0, 1, 2, 3, 5, 17, 64, 101, gemmInner - 1, gemmInner, gemmInner + 1, 2*gemmInner + 7}, 5))
		}
		// Several steps by columns, by the inner dimension, and both; parts of columns, and of rows.
		for _, s := range [][3]int{{3, 2700, 5}, {5, 1500, 800}, {rows + 1, 2900, 391}, {40, 700, 401}, {1100, 20, 400},
			{150, 90, 390}, {2, 3, 70_000}} {
			for range turns {
				check(s[0], s[1], s[2])
			}
		}
	})
}

// bitsOf is what a product makes of c, row by row.
func bitsOf(p Product, threads int) []uint32 {
	p.C = slices.Clone(p.C)
	new(Gemm).run(p, threads)
	out := make([]uint32, 0, p.Rows*p.Columns)
	for i := range p.Rows {
		for _, x := range p.C[i*p.CStride:][:p.Columns] {
			out = append(out, math.Float32bits(x))
		}
	}
	return out
}

func TestANumberOfAProductDependsOnItsRowAndColumnAlone(t *testing.T) {
	with(t, func(t *testing.T) {
		const rows, columns, inner = 61, 75, 900
		for form := range 4 {
			p, _ := someProduct(t, uint64(form), form%2 == 1, form/2 == 1, rows, columns, inner, 0.3, 1.7)
			want := bitsOf(p, 1)
			for _, threads := range []int{2, 3, 16} {
				if !slices.Equal(bitsOf(p, threads), want) {
					t.Errorf("form %d: %d goroutines give other bits than one", form, threads)
				}
			}
			for first := range 20 {
				part := p
				part.Rows, part.Columns = rows-2*first, columns-3*first
				part.C = p.C[first*p.CStride+first:]
				part.A, part.B = p.A[first*p.AStride:], p.B[first:]
				if p.TransA {
					part.A = p.A[first:]
				}
				if p.TransB {
					part.B = p.B[first*p.BStride:]
				}
				for i, got := range bitsOf(part, 2) {
					if want := want[(first+i/part.Columns)*columns+first+i%part.Columns]; got != want {
						t.Fatalf("form %d: number %d of a part from %d on has bits %#x, in the whole %#x", form, i,
							first, got, want)
					}
				}
			}
		}
	})
}

func TestImplementationsThatFuseGiveTheSameBits(t *testing.T) {
	defer func(before *implementation) { active = before }(active)
	p, _ := someProduct(t, 7, false, true, 50, 70, 1000, 0.3, 1.7)
	var want []uint32
	for _, active = range available() {
		if active.gemm.columns == portable.gemm.columns {
			continue
		}
		got := bitsOf(p, 2)
		if want != nil && !slices.Equal(got, want) {
			t.Errorf("%s gives other bits", active.name)
		}
		want = got
	}
}

func TestWhatIsNoNumberIsMultiplied(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name              string
			alpha, a, b, beta float32
			c, want           float32
		}{
			{"zero times NaN", 1, 0, nan, 0, 1, nan},
			{"infinity times zero", 1, inf, 0, 0, 1, nan},
			{"an infinite sum", 1, inf, 2, 1, 1, inf},
			{"beta is NaN", 1, 1, 1, nan, 0, nan},
			{"beta is zero, c is not read", 1, 2, 3, 0, nan, 6},
			{"beta is minus zero, c is not read", 1, 2, 3, float32(math.Copysign(0, -1)), nan, 6},
			{"alpha is zero, a is not read", 0, nan, 1, 2, 3, 6},
			{"both are zero", 0, nan, inf, 0, nan, 0},
		} {
			p := Product{Rows: 3, Columns: 5, Inner: 1, Alpha: c.alpha, Beta: c.beta, AStride: 1, BStride: 5,
				CStride: 5,
				A:       slices.Repeat([]float32{c.a}, 3), B: slices.Repeat([]float32{c.b}, 5),
				C: slices.Repeat([]float32{c.c}, 15)}
			new(Gemm).run(p, 1)
			for _, got := range p.C {
				if !same(got, c.want) {
					t.Errorf("%s: got %v, want %v", c.name, got, c.want)
					break
				}
			}
		}
	})
}

func TestProductsThatAreNotInTheirMatricesPanic(t *testing.T) {
	whole := Product{Rows: 3, Columns: 4, Inner: 5, Alpha: 1, A: make([]float32, 15), AStride: 5,
		B: make([]float32, 20), BStride: 4, C: make([]float32, 12), CStride: 4}
	new(Gemm).run(whole, 1)
	for name, change := range map[string]func(p *Product){
		"a is short":            func(p *Product) { p.A = p.A[:14] },
		"b is short":            func(p *Product) { p.B = p.B[:19] },
		"c is short":            func(p *Product) { p.C = p.C[:11] },
		"a's rows overlap":      func(p *Product) { p.AStride = 4 },
		"b is not transposed":   func(p *Product) { p.TransB = true },
		"c's rows overlap":      func(p *Product) { p.CStride = 3 },
		"negative rows":         func(p *Product) { p.Rows = -1 },
		"negative inner":        func(p *Product) { p.Inner = -1 },
		"a negative stride":     func(p *Product) { p.BStride = -4 },
		"a stride beyond all":   func(p *Product) { p.AStride = math.MaxInt },
		"rows beyond all":       func(p *Product) { p.Rows = math.MaxInt / 4 },
		"alpha 0, c is missing": func(p *Product) { p.Alpha, p.C = 0, nil },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it went through")
				}
			}()
			p := whole
			change(&p)
			new(Gemm).Begin(p, 1)
		})
	}
}

func TestMemoryOfProductsIsBoundedAndKept(t *testing.T) {
	with(t, func(t *testing.T) {
		var g Gemm
		for _, s := range [][3]int{{1, 9000, 1100}, {15, 2688, 2000}, {1024, 1700, 500}, {15, 47, 30_000},
			{1, 1, 200_000}} {
			rows, columns, inner := s[0], s[1], s[2]
			p := Product{TransA: true, Rows: rows, Columns: columns, Inner: inner, Alpha: 1,
				A: make([]float32, rows*inner), AStride: rows,
				B: make([]float32, inner*columns), BStride: columns, C: make([]float32, rows*columns), CStride: columns}
			for _, threads := range []int{1, 40} {
				g.Begin(p, threads)
				for g.Next() {
				}
				if got := 4 * cap(g.packed); got > 4<<20+64 {
					t.Errorf("[%d,%d,%d] on %d goroutines keeps %d bytes", rows, columns, inner, threads, got)
				}
			}
		}
		p, _ := someProduct(t, 1, true, true, 30, 50, 400, 1, 0)
		if n := testing.AllocsPerRun(10, func() {
			g.Begin(p, 2)
			for g.Next() {
				for i := range g.Packs() {
					g.Pack(i)
				}
				for i := range g.Parts() {
					g.Multiply(i)
				}
			}
		}); n != 0 {
			t.Errorf("%v allocations by a product", n)
		}
		if g.product.A != nil || g.product.C != nil {
			t.Error("the matrices of a product that has ended are kept")
		}
	})
}
