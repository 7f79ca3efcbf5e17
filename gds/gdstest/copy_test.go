package gdstest

import (
	"bytes"
	"errors"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
)

var allTypes = []gds.DType{gds.Float32, gds.Float16, gds.BFloat16, gds.Int32, gds.Uint32, gds.Int64, gds.Int8,
	gds.Uint8}

var copyTests = []test{
	{"Copy copies views of any type", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, t := range allTypes {
				for _, to := range layouts {
					values := b.random(rows * cols * t.Size())
					src, dst := b.array(l, rows, cols, t, values), b.array(to, rows, cols, t, nil)
					b.stream.Copy(dst.Tensor, src.Tensor)
					if !bytes.Equal(b.bytes(dst), values) || !bytes.Equal(b.bytes(src), values) {
						b.Errorf("%v to %v: other bytes", src.Tensor, dst.Tensor)
					}
				}
			}
		})
	}},
	{"what is copied from pinned memory to the device comes out again", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			for _, to := range layouts {
				values := b.random(rows * cols * 4)
				in := b.arrayIn(b.pin, l, rows, cols, gds.Int32, values)
				middle := b.array(to, rows, cols, gds.Int32, nil)
				out := b.arrayIn(b.pin, l, rows, cols, gds.Int32, nil)
				b.stream.Copy(middle.Tensor, in.Tensor)
				b.stream.Copy(out.Tensor, middle.Tensor)
				b.sync()
				if !bytes.Equal(b.bytes(middle), values) || !bytes.Equal(b.bytes(out), values) {
					b.Errorf("by %v: other bytes", middle.Tensor)
				}
			}
		})
	}},
	{"pinned memory is copied to pinned memory", func(b *fixture) {
		values := b.random(40 * 7)
		src, dst := b.arrayIn(b.pin, strided, 40, 7, gds.Uint8, values),
			b.arrayIn(b.pin, shifted, 40, 7, gds.Uint8, nil)
		b.stream.Copy(dst.Tensor, src.Tensor)
		if !bytes.Equal(b.bytes(dst), values) {
			b.Error("other bytes")
		}
	}},
	{"Upload and Download copy Go's memory, and refuse other lengths", func(b *fixture) {
		for _, l := range layouts {
			values, got := b.random(30*5*8), make([]byte, 30*5*8)
			x := b.array(l, 30, 5, gds.Int64, nil)
			before := b.device.Usage().PinnedInUse
			if err := errors.Join(gds.Upload(b.device, b.stream, x.Tensor, values),
				gds.Download(b.device, b.stream, got, x.Tensor)); err != nil {
				b.Fatal(err)
			}
			if !bytes.Equal(got, values) || !bytes.Equal(b.bytes(x), values) {
				b.Errorf("%s: other bytes", l.name)
			}
			for _, n := range []int{0, len(values) - 1, len(values) + 1} {
				other := make([]byte, n)
				if gds.Upload(b.device, b.stream, x.Tensor, other) == nil ||
					gds.Download(b.device, b.stream, other, x.Tensor) == nil {
					b.Errorf("%d bytes were copied for %d", n, len(values))
				}
			}
			if after := b.device.Usage().PinnedInUse; after != before {
				b.Errorf("%d bytes are pinned, %d before", after, before)
			}
		}
	}},
	{"memory of another device is copied from and to, by either's stream", func(b *fixture) {
		b.withPeer(func(b, peer *fixture) {
			b.eachShape(func(b *fixture, l layout, rows, cols int) {
				for _, to := range layouts {
					values := b.random(rows * cols * 2)
					src, there := b.array(l, rows, cols, gds.Float16, values),
						peer.array(to, rows, cols, gds.Float16, nil)
					here, again := b.array(to, rows, cols, gds.Float16, nil),
						peer.array(l, rows, cols, gds.Float16, nil)
					b.stream.Copy(there.Tensor, src.Tensor)
					b.stream.Copy(here.Tensor, there.Tensor)
					b.sync()
					peer.stream.Copy(again.Tensor, here.Tensor)
					for who, got := range map[string][]byte{"there": peer.bytes(there), "and back": b.bytes(here),
						"by the other's stream": peer.bytes(again)} {
						if !bytes.Equal(got, values) {
							b.Errorf("%v to %v %s: other bytes", src.Tensor, there.Tensor, who)
						}
					}
				}
			})
		})
	}},
	{"pinned memory of another device is as good", func(b *fixture) {
		b.withPeer(func(b, peer *fixture) {
			values := b.random(1000)
			in, x, out := peer.arrayIn(peer.pin, dense, 10, 100, gds.Int8, values),
				b.array(strided, 10, 100, gds.Int8, nil), peer.arrayIn(peer.pin, strided, 10, 100, gds.Int8, nil)
			b.stream.Copy(x.Tensor, in.Tensor)
			b.stream.Copy(out.Tensor, x.Tensor)
			b.sync()
			if !bytes.Equal(peer.bytes(out), values) {
				b.Error("other bytes")
			}
		})
	}},
	{"events order the work of streams of two devices", func(b *fixture) {
		// As of two streams of one device: see "events order the work of two streams".
		b.withPeer(func(b, peer *fixture) {
			here, there := b.floats(dense, 1, 1, []float32{1}), peer.floats(dense, 1, 1, nil)
			const rounds = 100
			for range rounds {
				peer.stream.WaitEvent(b.stream.Record())
				peer.stream.Copy(there.Tensor, here.Tensor)
				peer.stream.Axpy(1, there.Tensor, there.Tensor)
				b.stream.WaitEvent(peer.stream.Record())
				b.stream.Copy(here.Tensor, there.Tensor)
			}
			if got, want := float64(b.read(here)[0]), math.Ldexp(1, rounds); got != want {
				b.Errorf("got %v, want %v", got, want)
			}
		})
	}},
	{"operations but Copy refuse memory of another device", func(b *fixture) {
		b.withPeer(func(b, peer *fixture) {
			s := b.newStream()
			s.Fill(peer.floats(dense, 1, 1, nil).Tensor, 0)
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "Fill") {
				b.Errorf("filling another device's memory: %v", err)
			}
		})
	}},
}
