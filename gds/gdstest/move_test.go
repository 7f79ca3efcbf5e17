package gdstest

import (
	"bytes"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// random is n random bytes, other ones at each call.
func (b *fixture) random(n int) []byte {
	b.seed++
	x := make([]byte, n)
	for i := range x {
		x[i] = byte(rng.Hash(b.seed, uint64(i)))
	}
	return x
}

var moveTests = []test{
	{"Gather copies the rows of an index", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, t := range allTypes {
				const sources = 97
				values := b.random(sources * cols * t.Size())
				var index []uint32
				var index64 []int64
				var want []byte
				for i := range rows {
					r := uint32(rng.Hash(b.seed, uint64(i)) % sources)
					switch i {
					case 0:
						r = sources - 1
					case 1:
						r = 0
					}
					index, index64 = append(index, r), append(index64, int64(r))
					want = append(want, values[int(r)*cols*t.Size():][:cols*t.Size()]...)
				}
				src := b.array(l, sources, cols, t, values)
				for _, index := range []*array{
					b.array(shifted, 1, rows, gds.Uint32, dtype.BytesOf(index)),
					b.array(shifted, 1, rows, gds.Int64, dtype.BytesOf(index64)),
				} {
					dst := b.array(l, rows, cols, t, nil)
					b.stream.Gather(dst.Tensor, src.Tensor, index.Tensor)
					if !bytes.Equal(b.bytes(dst), want) {
						b.Errorf("%v from %v by %v: other rows", dst.Tensor, src.Tensor, index.DType)
					}
				}
			}
		})
	}},
	{"Scatter copies rows to those of an index", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, t := range allTypes {
				targets := 2*rows + 1
				values, before := b.random(rows*cols*t.Size()), b.random(targets*cols*t.Size())
				slices.Reverse(before)
				index, want := make([]uint32, rows), slices.Clone(before)
				for i := range index {
					index[i] = uint32((targets - 1 - i*2) % targets) // the last first, then every other
					copy(want[int(index[i])*cols*t.Size():], values[i*cols*t.Size():][:cols*t.Size()])
				}
				src, dst := b.array(l, rows, cols, t, values), b.array(l, targets, cols, t, before)
				b.stream.Scatter(dst.Tensor, src.Tensor,
					b.array(shifted, 1, rows, gds.Uint32, dtype.BytesOf(index)).Tensor)
				if !bytes.Equal(b.bytes(dst), want) {
					b.Errorf("%v to %v: other rows", src.Tensor, dst.Tensor)
				}
			}
		})
	}},
	{"Fill sets float32 to anything and all types to zero", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			a := b.floats(l, rows, cols, nil)
			b.stream.Fill(a.Tensor, -2.5)
			b.expect(b.read(a), rows*cols, func(int) (float64, float64) { return -2.5, 0 })
			for _, t := range allTypes {
				a := b.array(l, rows, cols, t, nil)
				b.stream.Fill(a.Tensor, 0)
				if got := b.bytes(a); !bytes.Equal(got, make([]byte, rows*cols*t.Size())) {
					b.Errorf("%v is not zero", a.Tensor)
				}
			}
		})
	}},
	{"Convert decodes every half float exactly", func(b *fixture) {
		for _, t := range []gds.DType{gds.Float16, gds.BFloat16} {
			half := make([]uint16, 1<<16)
			for i := range half {
				half[i] = uint16(i)
			}
			src, dst := b.array(dense, 256, 256, t, dtype.BytesOf(half)), b.floats(strided, 256, 256, nil)
			b.stream.Convert(dst.Tensor, src.Tensor)
			for i, got := range b.read(dst) {
				want := halfValue(uint16(i), t)
				if float64(got) != want && !(math.IsNaN(want) && got != got) {
					b.Fatalf("%v %#x became %v, want %v", t, i, got, want)
				}
			}
		}
	}},
	{"Convert rounds to the nearest half float, ties to even", func(b *fixture) {
		for _, t := range []gds.DType{gds.Float16, gds.BFloat16} {
			// Around every halfway point between two neighbours, and beyond the largest.
			var values []float32
			for h := range uint16(0x7f80) {
				low, high := halfValue(h, t), halfValue(h+1, t)
				if math.IsInf(low, 0) || math.IsNaN(low) {
					break
				}
				if math.IsInf(high, 0) { // as if the exponent went on
					high = 2*low - halfValue(h-1, t)
				}
				tie := float32((low + high) / 2)
				for _, v := range []float32{tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, math.MaxFloat32)} {
					values = append(values, v, -v)
				}
			}
			values = append(values, float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, 0)
			src, dst := b.floats(shifted, 1, len(values), values), b.array(strided, 1, len(values), t, nil)
			b.stream.Convert(dst.Tensor, src.Tensor)
			for i, got := range dtype.Uint16s(b.bytes(dst)) {
				if want := nearestHalf(float64(values[i]), t); got != want {
					b.Fatalf("%v became %v %#x, want %#x", values[i], t, got, want)
				}
			}
		}
	}},
	{"Convert goes between all float types and layouts", func(b *fixture) {
		types := []gds.DType{gds.Float32, gds.Float16, gds.BFloat16}
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, from := range types {
				for _, to := range types {
					// Small integers and their halves are exact in all of them.
					values := make([]float32, rows*cols)
					for i := range values {
						values[i] = float32(i%255)/2 - 60
					}
					src, dst := b.array(l, rows, cols, from, encode(values, from)),
						b.array(strided, rows, cols, to, nil)
					b.stream.Convert(dst.Tensor, src.Tensor)
					if !bytes.Equal(b.bytes(dst), encode(values, to)) {
						b.Errorf("%v to %v: other numbers", src.Tensor, dst.Tensor)
					}
				}
			}
		})
	}},
}

func encode(values []float32, t gds.DType) []byte {
	out := make([]byte, len(values)*t.Size())
	dtype.Encode(out, values, t)
	return out
}

// fractionBits are those stored of a half float's significand, and bias its
// exponent's.
func fractionBits(t gds.DType) (fraction, bias int) {
	if t == gds.Float16 {
		return 10, 15
	}
	return 7, 127
}

// halfValue is what the bits of a half float stand for, by the definition.
func halfValue(h uint16, t gds.DType) float64 {
	bits, bias := fractionBits(t)
	fraction := int(h) & (1<<bits - 1)
	exponent, top := int(h&0x7fff)>>bits, 0x7fff>>bits
	sign := 1 - 2*float64(h>>15)
	switch {
	case exponent == top && fraction != 0:
		return math.NaN()
	case exponent == top:
		return math.Inf(int(sign))
	case exponent == 0:
		exponent = 1
	default:
		fraction += 1 << bits
	}
	return sign * math.Ldexp(float64(fraction), exponent-bias-bits)
}

// nearestHalf rounds by the definition: in units of the last place at v.
func nearestHalf(v float64, t gds.DType) uint16 {
	bits, bias := fractionBits(t)
	var sign uint16
	if v < 0 {
		sign, v = 0x8000, -v
	}
	infinity := uint16(0x7fff>>bits) << bits
	switch {
	case v == 0:
		return 0
	case math.IsInf(v, 0):
		return sign | infinity
	}
	_, exponent := math.Frexp(v) // v = f * 2^exponent, f in [1/2, 1)
	e := max(exponent-1, 1-bias)
	steps := math.RoundToEven(math.Ldexp(v, bits-e))
	// Bits count upward from zero, a step each, through all exponents.
	h := uint64(steps) + uint64(e+bias-1)<<bits
	return sign | uint16(min(h, uint64(infinity)))
}
