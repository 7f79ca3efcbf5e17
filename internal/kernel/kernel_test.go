package kernel

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// with runs a test under each implementation that this processor has.
func with(t *testing.T, test func(t *testing.T)) {
	before := active
	defer func() { active = before }()
	for _, active = range available() {
		t.Run(active.name, test)
	}
}

// fenced is memory that ends, and starts, where no byte can be read.
func fenced(t *testing.T, bytes int) (atEnd, atStart []byte) {
	t.Helper()
	page := syscall.Getpagesize()
	whole := (bytes + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, whole+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	for _, fence := range [][]byte{m[:page], m[page+whole:]} {
		if err := syscall.Mprotect(fence, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return m[page+whole-bytes : page+whole], m[page : page+bytes]
}

func as[T any](b []byte) []T {
	var zero T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(zero)))
}

// someBits is a float32 that is often special: any bits, or small, or around 1.
func someBits(seed, i uint64) float32 {
	h := rng.Hash(seed, i)
	bits := uint32(h)
	switch h >> 32 % 16 {
	case 0: // any, NaN and infinities among them
	case 1:
		bits = bits&0x80000000 | 0x7f800000
	case 2:
		bits &= 0x807fffff // subnormal
	case 3:
		bits &= 0x80000000 // zero
	default:
		bits = bits&0x807fffff | (120+uint32(h>>40)%16)<<23
	}
	return math.Float32frombits(bits)
}

// someCode is a 16-bit number, often special too.
func someCode(seed, i uint64) uint16 { return uint16(rng.Hash(seed, i)) }

// ordinary is a number around 1.
func ordinary(seed, i uint64) float32 {
	return math.Float32frombits(uint32(rng.Hash(seed, i))&0x81ffffff | 0x3e000000)
}

func same(a, b float32) bool {
	return a != a && b != b || math.Float32bits(a) == math.Float32bits(b)
}

// summand is a kernel of addition.
type summand[T float32 | uint16] struct {
	name   string
	sum    func(sums []float32, x []T, stride, columns int, t *Terms) int
	value  func(T) float32
	fill   func(seed, i uint64) T
	benign func(seed, i uint64) T
}

var (
	ofFloat32 = summand[float32]{"float32", SumListsFloat32, func(f float32) float32 { return f }, someBits, ordinary}
	ofFloat16 = summand[uint16]{"float16", SumListsFloat16, Float16ToFloat32, someCode,
		func(seed, i uint64) uint16 { return Float32ToFloat16(ordinary(seed, i)) }}
	ofBFloat16 = summand[uint16]{"bfloat16", SumListsBFloat16, BFloat16ToFloat32, someCode,
		func(seed, i uint64) uint16 { return Float32ToBFloat16(ordinary(seed, i)) }}
)

// termsOf are lists of these lengths, one after another. byNode: there is a coefficient for each row of the matrix, not
// for each node.
func termsOf(nodes []uint32, lengths []int, coefficients []float32, byNode bool) *Terms {
	t := &Terms{Nodes: nodes, Edges: coefficients}
	if byNode {
		t.Edges, t.Factors = nil, coefficients
	}
	at := int64(0)
	for _, k := range lengths {
		t.Lists = append(t.Lists, List{at, at + int64(k), -1})
		at += int64(k)
	}
	return t
}

// Kinds of coefficients.
const (
	none = iota
	inOrder
	byNode
)

// check compares sums with the plain loop.
func (s summand[T]) check(t *testing.T, x []T, rows, columns int, lengths []int, more int, seed uint64, kind int) {
	t.Helper()
	const guard = 8
	terms := 0
	for _, k := range lengths {
		terms += k
	}
	nodes := make([]uint32, terms+more)
	for i := range nodes {
		nodes[i] = uint32(rng.Hash(seed, uint64(i)) % uint64(rows))
	}
	var coefficients []float32
	if kind != none {
		count := terms + more
		if kind == byNode {
			count = rows
		}
		coefficients = make([]float32, count)
		for i := range coefficients {
			coefficients[i] = ordinary(seed+1, uint64(i))
		}
	}
	padded := make([]float32, len(lengths)*columns+2*guard)
	for i := range padded {
		padded[i] = ordinary(seed+2, uint64(i))
	}
	want := slices.Clone(padded)
	at := 0
	for l, k := range lengths {
		sum := want[guard+l*columns:][:columns]
		clear(sum)
		for i, u := range nodes[at : at+k] {
			for j := range sum {
				c := float32(1)
				switch kind {
				case inOrder:
					c = coefficients[at+i]
				case byNode:
					c = coefficients[u]
				}
				sum[j] += float32(c * s.value(x[int(u)*columns+j]))
			}
		}
		at += k
	}
	s.sum(padded[guard:len(padded)-guard], x, columns, columns, termsOf(nodes, lengths, coefficients, kind == byNode))
	for j := range padded {
		if !same(padded[j], want[j]) {
			t.Fatalf("%s, %d columns, lists of %d, coefficients %d, seed %d: sum %d is %g (%#x), want %g (%#x)",
				s.name, columns, lengths, kind, seed, j-guard, padded[j], math.Float32bits(padded[j]), want[j],
				math.Float32bits(want[j]))
		}
	}
}

// run goes through all widths around those of vectors, cache lines and registers,
// on a matrix with no byte to read before and after it.
func (s summand[T]) run(t *testing.T) {
	const rows = 37
	var zero T
	seed := uint64(0)
	columns := []int{191, 192, 193, 255, 256, 257, 1000, 1433}
	for f := range 150 {
		columns = append(columns, f)
	}
	lists := [][]int{{}, {0}, {1}, {2, 3}, {0, 7, 0, 0, 1}, {31}, {1, 1, 1, 1, 1, 1}, {70, 2}, {0, 0}, {5, 40, 9}}
	for _, f := range columns {
		atEnd, atStart := fenced(t, rows*f*int(unsafe.Sizeof(zero)))
		for place, b := range [][]byte{atEnd, atStart} {
			x := as[T](b)
			fill := s.benign
			if place == 1 {
				fill = s.fill
			}
			for i := range x {
				x[i] = fill(seed, uint64(i))
			}
			// Some lists for each matrix, so that all combinations are met in turn.
			for range 7 {
				s.check(t, x, rows, f, lists[seed%uint64(len(lists))], int(seed%3), seed, int(seed%7%3))
				seed++
			}
		}
	}
	for _, f := range []int{1, 16, 40} {
		x := make([]T, rows*f)
		for i := range x {
			x[i] = s.benign(seed, uint64(i))
		}
		for k := range 71 {
			for kind := range 3 {
				s.check(t, x, rows, f, []int{k, 71 - k}, 0, seed, kind)
				seed++
			}
		}
		for _, k := range []int{1023, 1024, 1025, 2048, 2049} {
			s.check(t, x, rows, f, []int{k, 5}, 3, seed, k%3)
			seed++
		}
	}
}

func TestRowsAreSummedAsByThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		t.Run("float32", ofFloat32.run)
		t.Run("float16", ofFloat16.run)
		t.Run("bfloat16", ofBFloat16.run)
	})
}

// sum32 sums lists of rows of float32, one behind the other, with a coefficient for each row of a list.
func sum32(sums, x []float32, columns int, nodes []uint32, lengths []int, coefficients []float32) {
	SumListsFloat32(sums, x, columns, columns, termsOf(nodes, lengths, coefficients, false))
}

func TestProductsAreRoundedBeforeTheyAreAdded(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, f := range []int{1, 7, 8, 16, 33} { // every kind of vector, and single columns
			// (1+2^-12)^2 = 1 + 2^-11 + 2^-24, a tie that rounds to 1 + 2^-11. Fused with the sum it would leave 2^-24.
			p11, p12 := float32(1.0/(1<<11)), float32(1.0/(1<<12))
			x := append(slices.Repeat([]float32{-(1 + p11)}, f), slices.Repeat([]float32{1 + p12}, f)...)
			sum := make([]float32, f)
			sum32(sum, x, f, []uint32{0, 1}, []int{2}, []float32{1, 1 + p12})
			if i := slices.IndexFunc(sum, func(s float32) bool { return s != 0 }); i >= 0 {
				t.Errorf("%d columns: column %d is %g, want 0", f, i, sum[i])
			}
		}
	})
}

func TestSubnormalNumbersAreKept(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, f := range []int{1, 8, 16} {
			x, sum := make([]float32, f), make([]float32, f)
			for i := range x {
				x[i] = math.Float32frombits(6)
			}
			sum32(sum, x, f, []uint32{0}, []int{1}, []float32{0.5})
			if math.Float32bits(sum[f-1]) != 3 {
				t.Errorf("%d columns: %g", f, sum[f-1])
			}
			SumListsFloat16(sum, slices.Repeat([]uint16{1}, f), f, f,
				termsOf([]uint32{0}, []int{1}, []float32{0x1p-125}, false))
			if math.Float32bits(sum[f-1]) != 1 { // 2^-149, the last bit
				t.Errorf("%d columns of float16: %g", f, sum[f-1])
			}
			sum[f-1] = math.Float32frombits(4)
			if ScaleFloat32(x, sum, []float32{0.25}, false); math.Float32bits(x[f-1]) != 1 {
				t.Errorf("%d columns scaled: %g", f, x[f-1])
			}
		}
	})
}

func TestRowsThatAreNotInTheMatrixPanic(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name             string
			sums, x, columns int
			nodes            []uint32
			lengths          []int
			coefficients     []float32
		}{
			{"the row after the last", 20, 60, 20, []uint32{3}, []int{1}, nil},
			{"the last row is short", 20, 59, 20, []uint32{2}, []int{1}, nil},
			{"the last row of many columns is short", 300, 899, 300, []uint32{2}, []int{1}, nil},
			{"the fourth of four", 20, 60, 20, []uint32{0, 1, 2, 3}, []int{4}, nil},
			{"in the second list", 40, 60, 20, []uint32{0, 1, 2, 3}, []int{2, 2}, nil},
			{"a huge row", 20, 60, 20, []uint32{math.MaxUint32}, []int{1}, nil},
			{"the matrix is empty", 1, 0, 1, []uint32{0}, []int{1}, nil},
			{"more rows than nodes", 20, 60, 20, []uint32{1}, []int{2}, nil},
			{"more rows than nodes in all", 40, 60, 20, []uint32{1, 1}, []int{1, 2}, nil},
			{"as many rows as numbers wrap round to", 60, 60, 20, []uint32{1, 1}, []int{math.MaxInt, math.MaxInt, 3}, nil},
			{"too few coefficients", 20, 60, 20, []uint32{1, 1}, []int{2}, []float32{1}},
			{"a negative count", 40, 60, 20, []uint32{1}, []int{2, -1}, nil},
			{"too few sums", 39, 60, 20, []uint32{1, 1}, []int{1, 1}, nil},
			{"negative columns", 39, 60, -20, []uint32{1, 1}, []int{1, 1}, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("it went through")
					}
				}()
				sum32(make([]float32, c.sums), make([]float32, c.x), c.columns, c.nodes, c.lengths, c.coefficients)
			})
		}
		// Nodes after the lists are not read, and may be anything.
		sum32(make([]float32, 20), make([]float32, 60), 20,
			append([]uint32{2}, slices.Repeat([]uint32{math.MaxUint32}, 99)...), []int{1}, nil)
	})
}

var lengths = func() []int {
	list := []int{255, 256, 257, 1000, 1433}
	for n := range 131 {
		list = append(list, n)
	}
	return list
}()

// scaler is a kernel of scaling.
type scaler[T float32 | uint16] struct {
	name    string
	scale   func(dst []T, src, factors []float32, stream bool) bool
	encode  func(float32) T
	value   func(T) float32
	largest float32 // rounds to a finite number
}

var (
	toFloat32 = scaler[float32]{"float32", ScaleFloat32, func(f float32) float32 { return f },
		func(f float32) float32 { return f }, math.MaxFloat32}
	toFloat16  = scaler[uint16]{"float16", ScaleFloat16, Float32ToFloat16, Float16ToFloat32, 65519.996}
	toBFloat16 = scaler[uint16]{"bfloat16", ScaleBFloat16, Float32ToBFloat16, BFloat16ToFloat32,
		math.Float32frombits(0x7f7f7fff)}
)

func (s scaler[T]) check(t *testing.T, src []float32, factors ...float32) {
	t.Helper()
	const guard = 64 / 2
	columns := len(src) / len(factors)
	encoded, finite := make([]T, len(src)), true
	for j, v := range src {
		encoded[j] = s.encode(float32(factors[j/columns] * v))
		finite = finite && isFinite(s.value(encoded[j]))
	}
	for _, stream := range []bool{false, true} {
		for _, shift := range []int{0, 1} { // from the start of a cache line
			padded := make([]T, len(src)+3*guard)
			for uintptr(unsafe.Pointer(&padded[guard]))%64 != 0 {
				padded = padded[1:]
			}
			padded = padded[shift : shift+len(src)+2*guard]
			for i := range padded {
				padded[i] = T(i)
			}
			want := slices.Clone(padded)
			copy(want[guard:], encoded)
			if got := s.scale(padded[guard:guard+len(src)], src, factors, stream); got != finite {
				t.Fatalf("%s, %d numbers, times %g: finite is %t", s.name, len(src), factors, got)
			}
			for j := range padded {
				if !same(s.value(padded[j]), s.value(want[j])) {
					t.Fatalf("%s, %d numbers, times %g, stream %t: number %d is %v, want %v", s.name, len(src), factors,
						stream, j-guard, padded[j], want[j])
				}
			}
		}
	}
}

func (s scaler[T]) run(t *testing.T) {
	for n, length := range lengths {
		b, _ := fenced(t, 4*length)
		src := as[float32](b)
		for i := range src {
			src[i] = ordinary(uint64(n), uint64(i))
		}
		s.check(t, src, 1)
		s.check(t, src, 0.37)
		for i := range src { // each place is looked at: of up to two vectors and what is left, and of four
			if length > 34 && (length < 63 || length > 66) {
				break
			}
			was := src[i]
			for _, v := range []float32{s.largest, -s.largest, math.Nextafter32(s.largest, float32(math.Inf(1))),
				float32(math.Inf(-1)), float32(math.NaN())} {
				src[i] = v
				s.check(t, src, 1)
			}
			src[i] = was
		}
		for i := range src {
			src[i] = someBits(uint64(n), uint64(i))
		}
		s.check(t, src, 1)
		s.check(t, src, -3)
		if length > 0 {
			s.check(t, slices.Concat(src, src, src), 0.3, -1, 5)
		}
	}
	// Every code of 16 bits, the ties above it, and their neighbours.
	src := make([]float32, 0, 1<<19)
	for code := range uint32(1 << 16) {
		f := Float16ToFloat32(uint16(code))
		bits := math.Float32bits(f)
		for _, b := range []uint32{bits, bits + 0xfff, bits + 0x1000, bits + 0x1001, code << 16, code<<16 + 0x7fff,
			code<<16 + 0x8000, code<<16 + 0x8001} {
			src = append(src, math.Float32frombits(b))
		}
	}
	s.check(t, src, 1)
	s.check(t, src, 0x1p-14)
	s.check(t, src, 0x1p-22)
	s.check(t, src, 1.0/3)
}

func TestNumbersAreScaledAsByThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		t.Run("float32", toFloat32.run)
		t.Run("float16", toFloat16.run)
		t.Run("bfloat16", toBFloat16.run)
	})
}

func TestNumbersAreDecodedAsByThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			decode func([]float32, []uint16)
			value  func(uint16) float32
		}{{"float16", DecodeFloat16, Float16ToFloat32}, {"bfloat16", DecodeBFloat16, BFloat16ToFloat32}} {
			for _, n := range append(lengths, 1<<16) {
				b, _ := fenced(t, 2*n)
				src := as[uint16](b)
				for i := range src {
					src[i] = uint16(i * 7)
				}
				dst := slices.Repeat([]float32{99}, n+2)
				c.decode(dst[1:n+1], src)
				for i, code := range src {
					if want := c.value(code); !same(dst[i+1], want) {
						t.Fatalf("%s, %d numbers: %#x is %g, want %g", c.name, n, code, dst[i+1], want)
					}
				}
				if dst[0] != 99 || dst[n+1] != 99 {
					t.Fatalf("%s, %d numbers: wrote outside", c.name, n)
				}
			}
		}
	})
}

func TestPortableIsAlwaysAvailable(t *testing.T) {
	list := available()
	if list[len(list)-1] != &portable || active != list[0] || Name() != list[0].name {
		t.Errorf("active is %s of %d", Name(), len(list))
	}
	t.Log(fmt.Sprint("running with ", Name()))
}
