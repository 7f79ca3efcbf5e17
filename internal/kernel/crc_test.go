package kernel

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"
)

func TestCRC32CIsThatOfTheStandardLibrary(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	table := crc32.MakeTable(crc32.Castagnoli)
	with(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 20*crcStep)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for trial := range 2000 {
			length := r.IntN(len(data) + 1)
			if trial < 3*crcStep {
				length = trial
			}
			at := r.IntN(len(data) - length + 1)
			crc := r.Uint32() * uint32(trial%2)
			if got, want := CRC32C(crc, data[at:at+length]), crc32.Update(crc, table, data[at:at+length]); got != want {
				t.Fatalf("%d bytes at %d after %08x: %08x, want %08x", length, at, crc, got, want)
			}
		}
	})
	if got := CRC32C(0, []byte("123456789")); got != 0xe3069283 {
		t.Errorf("the check value of CRC-32C is e3069283, not %08x", got)
	}
}

func BenchmarkCRC32C(b *testing.B) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, size := range []struct {
		name  string
		bytes int
	}{{"16KiB", 16 << 10}, {"256MiB", 256 << 20}} {
		data := make([]byte, size.bytes)
		for i := range data { // else all of it is one page
			data[i] = byte(i)
		}
		for name, sum := range map[string]func() uint32{
			"ours":    func() uint32 { return CRC32C(0, data) },
			"library": func() uint32 { return crc32.Checksum(data, table) },
		} {
			b.Run("bytes="+size.name+"/by="+name, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					sum()
				}
			})
		}
	}
}
