package blas

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// general makes a matrix of numbers in [-1, 1) whose rows are further apart than they are long, with
// what must not be read, NaN, between them.
func general(seed uint64, transposed blas.Transpose, rows, columns int) blas32.General {
	if transposed != blas.NoTrans {
		rows, columns = columns, rows
	}
	m := blas32.General{Rows: rows, Cols: columns, Stride: columns + 1 + int(seed%3)}
	m.Data = slices.Repeat([]float32{float32(math.NaN())}, rows*m.Stride)
	for i := range rows {
		for j := range columns {
			m.Data[i*m.Stride+j] = 2*rng.Float32(rng.Hash(seed, uint64(i*columns+j))) - 1
		}
	}
	return m
}

// element is one of op(m).
func element(m blas32.General, transposed blas.Transpose, i, j int) float64 {
	if transposed != blas.NoTrans {
		i, j = j, i
	}
	return float64(m.Data[i*m.Stride+j])
}

func useOurs(t testing.TB) {
	if err := Load(); err != nil {
		t.Fatal(err)
	}
	blas32.Use(Implementation{})
	t.Cleanup(func() { blas32.Use(gonum.Implementation{}) })
}

// A number of c has inner + 3 roundings, each of 2^-24 of the sum of all magnitudes at most.
func TestSgemmIsThePlainLoop(t *testing.T) {
	useOurs(t)
	sizes := []int{0, 1, 2, 3, 7, 13, 14, 15, 16, 17, 31, 32, 33, 61}
	inners := []int{0, 1, 2, 5, 31, 100, 383, 384, 385, 801}
	factors := []float32{1, 0, -1, 0.5, 3}
	for seed := range uint64(500) {
		pick := func(list []int, place uint64) int { return list[rng.Hash(seed, place)%uint64(len(list))] }
		m, n, k := pick(sizes, 1), pick(sizes, 2), pick(inners, 3)
		if seed%100 == 99 {
			m, n, k = 300, 210, 300 // some parts
		}
		transA, transB := [3]blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}[seed%3], [2]blas.Transpose{blas.NoTrans, blas.Trans}[seed/3%2]
		alpha, beta := factors[rng.Hash(seed, 4)%5], factors[rng.Hash(seed, 5)%5]
		a, b, c := general(seed, transA, m, k), general(seed+1, transB, k, n), general(seed+2, blas.NoTrans, m, n)
		before := blas32.General{Rows: m, Cols: n, Stride: c.Stride, Data: slices.Clone(c.Data)}
		if beta == 0 {
			for i := range c.Data {
				c.Data[i] = float32(math.NaN())
			}
		}
		blas32.Gemm(transA, transB, alpha, a, b, beta, c)
		for i, x := range c.Data {
			i, j := i/c.Stride, i%c.Stride
			if j >= n {
				if x == x {
					t.Fatalf("[%d,%d,%d]: wrote beside row %d", m, n, k, i)
				}
				continue
			}
			var want, magnitude float64
			add := func(x float64) { want, magnitude = want+x, magnitude+math.Abs(x) }
			if alpha != 0 {
				for l := range k {
					add(float64(alpha) * element(a, transA, i, l) * element(b, transB, l, j))
				}
			}
			if beta != 0 {
				add(float64(beta) * element(before, blas.NoTrans, i, j))
			}
			if !(math.Abs(float64(x)-want) <= 0x1p-24*float64(k+3)*magnitude) {
				t.Fatalf("[%d,%d,%d], %c %c, alpha %v, beta %v: c[%d,%d] is %v, want %v", m, n, k, transA, transB, alpha, beta, i, j, x, want)
			}
		}
	}
}

func TestSgemmDoesNotDependOnThreads(t *testing.T) {
	useOurs(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, s := range [][3]int{{700, 500, 100}, {47, 100, 8000}, {1, 512, 4000}, {3000, 1, 700}, {512, 512, 512}} {
		for form := range 4 {
			transA, transB := [2]blas.Transpose{blas.NoTrans, blas.Trans}[form%2], [2]blas.Transpose{blas.NoTrans, blas.Trans}[form/2]
			a, b := general(1, transA, s[0], s[2]), general(2, transB, s[2], s[1])
			var want []float32
			for _, threads := range []int{1, 2, 7} {
				runtime.GOMAXPROCS(threads)
				c := blas32.General{Rows: s[0], Cols: s[1], Stride: s[1], Data: make([]float32, s[0]*s[1])}
				blas32.Gemm(transA, transB, 1, a, b, 0, c)
				if want != nil && !slices.Equal(c.Data, want) {
					t.Errorf("%v, form %d: %d threads give other bits than one", s, form, threads)
				}
				if want == nil {
					want = c.Data
				}
			}
		}
	}
}

func TestSgemmPanicsWhereAMatrixIsShort(t *testing.T) {
	useOurs(t)
	x := make([]float32, 6)
	for name, call := range map[string]func(){
		"a is short":       func() { Implementation{}.Sgemm('N', 'N', 2, 2, 3, 1, x[:5], 3, x, 2, 0, x[:4], 2) },
		"b is short":       func() { Implementation{}.Sgemm('N', 'N', 2, 2, 3, 1, x, 3, x[:5], 2, 0, x[:4], 2) },
		"c is short":       func() { Implementation{}.Sgemm('N', 'N', 2, 2, 3, 1, x, 3, x, 2, 0, x[:3], 2) },
		"rows overlap":     func() { Implementation{}.Sgemm('N', 'N', 2, 2, 3, 1, x, 2, x, 2, 0, x[:4], 2) },
		"negative":         func() { Implementation{}.Sgemm('N', 'N', -2, 2, 3, 1, x, 3, x, 2, 0, x[:4], 2) },
		"no transposition": func() { Implementation{}.Sgemm('X', 'N', 2, 2, 3, 1, x, 3, x, 2, 0, x[:4], 2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it went through")
				}
			}()
			call()
		})
	}
}

// libraries is what a benchmark compares; the tag openblas adds OpenBLAS, as it is used here, and with
// threads of its own.
var libraries = []library{
	{"builtin", func(p Product) { run(&builtin, p) }},
	{"gonum", func(p Product) {
		trans := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
		gonum.Implementation{}.Sgemm(trans[p.TransA], trans[p.TransB], p.Rows, p.Columns, p.Inner,
			p.Alpha, p.A, p.AStride, p.B, p.BStride, p.Beta, p.C, p.CStride)
	}},
}

type library struct {
	name     string
	multiply func(p Product)
}

var builtin kernel.Gemm

// BenchmarkSgemm compares what computes the products of a layer: forward, of the gradient of its
// weights, and of that of its input, on GOMAXPROCS threads. They take turns, and the fastest turn of
// each is reported, so that what else the machine does matters little.
func BenchmarkSgemm(b *testing.B) {
	if err := Load(); err != nil {
		b.Fatal(err)
	}
	for _, s := range []struct{ rows, in, out int }{{8192, 512, 512}, {8000, 100, 512}, {8000, 512, 47}, {8000, 100, 47}} {
		x, w, y := make([]float32, s.rows*s.in), make([]float32, s.out*s.in), make([]float32, s.rows*s.out)
		for seed, m := range [][]float32{x, w, y} {
			for i := range m {
				m[i] = 2*rng.Float32(rng.Hash(uint64(seed), uint64(i))) - 1
			}
		}
		for _, c := range []struct {
			name    string
			product Product
		}{
			{"forward", Product{TransB: true, Rows: s.rows, Columns: s.out, Inner: s.in, A: x, AStride: s.in, B: w, BStride: s.in, C: y, CStride: s.out}},
			{"weightgrad", Product{TransA: true, Rows: s.out, Columns: s.in, Inner: s.rows, A: y, AStride: s.out, B: x, BStride: s.in, C: w, CStride: s.in}},
			{"inputgrad", Product{Rows: s.rows, Columns: s.in, Inner: s.out, A: y, AStride: s.out, B: w, BStride: s.in, C: x, CStride: s.in}},
		} {
			b.Run(fmt.Sprintf("rows=%d/in=%d/out=%d/product=%s", s.rows, s.in, s.out, c.name), func(b *testing.B) {
				p := c.product
				p.Alpha, p.C = 1, slices.Clone(p.C) // the inputs stay as they are
				fastest := slices.Repeat([]time.Duration{math.MaxInt64}, len(libraries))
				for b.Loop() {
					for i, l := range libraries {
						start := time.Now()
						l.multiply(p)
						fastest[i] = min(fastest[i], time.Since(start))
					}
				}
				for i, l := range libraries {
					b.ReportMetric(2*float64(p.Rows)*float64(p.Columns)*float64(p.Inner)/float64(fastest[i].Nanoseconds()), l.name+"-Gflop/s")
				}
			})
		}
	}
}
