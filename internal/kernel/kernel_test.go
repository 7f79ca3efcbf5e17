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
	m, err := syscall.Mmap(-1, 0, whole+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
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
	add    func(sum []float32, x []T, stride int, nodes []uint32, k int, coefficients []float32, byNode bool)
	value  func(T) float32
	fill   func(seed, i uint64) T
	benign func(seed, i uint64) T
}

var (
	ofFloat32 = summand[float32]{"float32", AddFloat32, func(f float32) float32 { return f }, someBits, ordinary}
	ofFloat16 = summand[uint16]{"float16", AddFloat16, Float16ToFloat32, someCode,
		func(seed, i uint64) uint16 { return Float32ToFloat16(ordinary(seed, i)) }}
	ofBFloat16 = summand[uint16]{"bfloat16", AddBFloat16, BFloat16ToFloat32, someCode,
		func(seed, i uint64) uint16 { return Float32ToBFloat16(ordinary(seed, i)) }}
)

// Kinds of coefficients.
const (
	none = iota
	inOrder
	byNode
)

// check compares one sum with the loop that AddFloat32 documents.
func (s summand[T]) check(t *testing.T, x []T, rows, columns, stride, k, ahead int, seed uint64, kind int) {
	t.Helper()
	const guard = 8
	nodes := make([]uint32, k+ahead)
	for i := range nodes {
		nodes[i] = uint32(rng.Hash(seed, uint64(i)) % uint64(rows))
	}
	var coefficients []float32
	if kind != none {
		count := k
		if kind == byNode {
			count = rows
		}
		coefficients = make([]float32, count)
		for i := range coefficients {
			coefficients[i] = ordinary(seed+1, uint64(i))
		}
	}
	padded := make([]float32, columns+2*guard)
	for i := range padded {
		padded[i] = ordinary(seed+2, uint64(i))
	}
	want := slices.Clone(padded)
	for i, u := range nodes[:k] {
		for j := range columns {
			c := float32(1)
			switch kind {
			case inOrder:
				c = coefficients[i]
			case byNode:
				c = coefficients[u]
			}
			want[guard+j] += float32(c * s.value(x[int(u)*stride+j]))
		}
	}
	s.add(padded[guard:guard+columns], x, stride, nodes, k, coefficients, kind == byNode)
	for j := range padded {
		if !same(padded[j], want[j]) {
			t.Fatalf("%s, %d columns of %d, %d rows and %d ahead, coefficients %d, seed %d: column %d is %g (%#x), want %g (%#x)",
				s.name, columns, stride, k, ahead, kind, seed, j-guard, padded[j], math.Float32bits(padded[j]), want[j], math.Float32bits(want[j]))
		}
	}
}

// run goes through all lengths around the widths of vectors, cache lines and
// groups of rows, on a matrix with no byte to read before and after it.
func (s summand[T]) run(t *testing.T) {
	const rows = 37
	var zero T
	seed := uint64(0)
	columns := []int{255, 256, 257, 1000, 1433}
	for f := range 131 {
		columns = append(columns, f)
	}
	lists := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 70}
	for _, f := range columns {
		for _, extra := range []int{0, 1, 3, 16} {
			stride := f + extra
			numbers := max(0, (rows-1)*stride+f)
			atEnd, atStart := fenced(t, numbers*int(unsafe.Sizeof(zero)))
			for place, b := range [][]byte{atEnd, atStart} {
				x := as[T](b)
				fill := s.benign
				if place == 1 {
					fill = s.fill
				}
				for i := range x {
					x[i] = fill(seed, uint64(i))
				}
				// One list for each matrix, so that all combinations are met in turn.
				for range 3 {
					k := lists[seed%uint64(len(lists))]
					s.check(t, x, rows, f, stride, k, int(seed%41), seed, int(seed%3))
					seed++
				}
			}
		}
	}
	for _, f := range []int{1, 16, 40} {
		x := make([]T, rows*f)
		for i := range x {
			x[i] = s.benign(seed, uint64(i))
		}
		for k := range 71 {
			s.check(t, x, rows, f, f, k, 0, seed, k%3)
			s.check(t, x, rows, f, f, k, k%9, seed, (k+1)%3)
			seed++
		}
		for _, k := range []int{1023, 1024, 1025, 2048, 2049} {
			s.check(t, x, rows, f, f, k, 3, seed, k%3)
			seed++
		}
	}
}

func TestRowsAreAddedAsByThePlainLoop(t *testing.T) {
	with(t, func(t *testing.T) {
		t.Run("float32", ofFloat32.run)
		t.Run("float16", ofFloat16.run)
		t.Run("bfloat16", ofBFloat16.run)
	})
}

func TestProductsAreRoundedBeforeTheyAreAdded(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, f := range []int{1, 7, 8, 16, 33} { // every kind of vector, and single columns
			// (1+2^-12)^2 = 1 + 2^-11 + 2^-24, a tie that rounds to 1 + 2^-11. Fused
			// with the sum it would leave 2^-24.
			p11, p12 := float32(1.0/(1<<11)), float32(1.0/(1<<12))
			x := slices.Repeat([]float32{1 + p12}, f)
			sum := slices.Repeat([]float32{-(1 + p11)}, f)
			AddFloat32(sum, x, f, []uint32{0}, 1, []float32{1 + p12}, false)
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
			AddFloat32(sum, x, f, []uint32{0}, 1, []float32{0.5}, false)
			if math.Float32bits(sum[f-1]) != 3 {
				t.Errorf("%d columns: %g", f, sum[f-1])
			}
			AddFloat16(sum, slices.Repeat([]uint16{1}, f), f, []uint32{0}, 1, []float32{0x1p-125}, false)
			if math.Float32bits(sum[f-1]) != 4 { // 2^-149, the last bit
				t.Errorf("%d columns of float16: %g", f, sum[f-1])
			}
			if ScaleFloat32(x, sum, 0.25); math.Float32bits(x[f-1]) != 1 {
				t.Errorf("%d columns scaled: %g", f, x[f-1])
			}
		}
	})
}

func TestRowsThatAreNotInTheMatrixPanic(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name              string
			sum, x, stride, k int
			nodes             []uint32
			coefficients      []float32
			byNode            bool
		}{
			{"the row after the last", 20, 60, 20, 1, []uint32{3}, nil, false},
			{"the last row is short", 20, 59, 20, 1, []uint32{2}, nil, false},
			{"the fourth of four", 20, 60, 20, 4, []uint32{0, 1, 2, 3}, nil, false},
			{"a huge row", 20, 60, 20, 1, []uint32{math.MaxUint32}, nil, false},
			{"the matrix is empty", 1, 0, 1, 1, []uint32{0}, nil, false},
			{"more rows than nodes", 20, 60, 20, 2, []uint32{1}, nil, false},
			{"too few coefficients", 20, 60, 20, 2, []uint32{1, 1}, []float32{1}, false},
			{"coefficients of some nodes only", 20, 60, 20, 1, []uint32{1}, []float32{1, 1}, true},
			{"rows that overlap", 20, 60, 19, 1, []uint32{1}, nil, false},
			{"a negative count", 20, 60, 20, -1, []uint32{1}, nil, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("it went through")
					}
				}()
				AddFloat32(make([]float32, c.sum), make([]float32, c.x), c.stride, c.nodes, c.k, c.coefficients, c.byNode)
			})
		}
		// Those ahead are not read, and may be anything.
		AddFloat32(make([]float32, 20), make([]float32, 60), 20, slices.Repeat([]uint32{math.MaxUint32}, 99), 0, nil, false)
		AddFloat32(make([]float32, 20), make([]float32, 60), 20, append([]uint32{2}, slices.Repeat([]uint32{math.MaxUint32}, 99)...), 1, nil, true)
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
	scale   func(dst []T, src []float32, s float32) bool
	encode  func(float32) T
	value   func(T) float32
	largest float32 // rounds to a finite number
}

var (
	toFloat32  = scaler[float32]{"float32", ScaleFloat32, func(f float32) float32 { return f }, func(f float32) float32 { return f }, math.MaxFloat32}
	toFloat16  = scaler[uint16]{"float16", ScaleFloat16, Float32ToFloat16, Float16ToFloat32, 65519.996}
	toBFloat16 = scaler[uint16]{"bfloat16", ScaleBFloat16, Float32ToBFloat16, BFloat16ToFloat32, math.Float32frombits(0x7f7f7fff)}
)

func (s scaler[T]) check(t *testing.T, src []float32, factor float32) {
	t.Helper()
	const guard = 8
	padded := make([]T, len(src)+2*guard)
	for i := range padded {
		padded[i] = T(i)
	}
	want, finite := slices.Clone(padded), true
	for j, v := range src {
		want[guard+j] = s.encode(float32(factor * v))
		finite = finite && isFinite(s.value(want[guard+j]))
	}
	if got := s.scale(padded[guard:guard+len(src)], src, factor); got != finite {
		t.Fatalf("%s, %d numbers, times %g: finite is %t", s.name, len(src), factor, got)
	}
	for j := range padded {
		if !same(s.value(padded[j]), s.value(want[j])) {
			t.Fatalf("%s, %d numbers, times %g: number %d is %v, want %v", s.name, len(src), factor, j-guard, padded[j], want[j])
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
		for i := range src { // each place is looked at
			was := src[i]
			for _, v := range []float32{s.largest, -s.largest, math.Nextafter32(s.largest, float32(math.Inf(1))), float32(math.Inf(-1)), float32(math.NaN())} {
				src[i] = v
				if length < 70 {
					s.check(t, src, 1)
				}
			}
			src[i] = was
		}
		for i := range src {
			src[i] = someBits(uint64(n), uint64(i))
		}
		s.check(t, src, 1)
		s.check(t, src, -3)
	}
	// Every code of 16 bits, the ties above it, and their neighbours.
	src := make([]float32, 0, 1<<19)
	for code := range uint32(1 << 16) {
		f := Float16ToFloat32(uint16(code))
		bits := math.Float32bits(f)
		for _, b := range []uint32{bits, bits + 0xfff, bits + 0x1000, bits + 0x1001, code << 16, code<<16 + 0x7fff, code<<16 + 0x8000, code<<16 + 0x8001} {
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
