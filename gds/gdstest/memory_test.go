package gdstest

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"unsafe"

	"github.com/hopfeed/hopfeed/gds"
)

var memoryTests = []test{
	{"new memory is zero even where there was something else", func(b *fixture) {
		for range 3 {
			buffer, err := b.device.Alloc(100_003)
			if err != nil {
				b.Fatal(err)
			}
			if !bytes.Equal(b.download(buffer), make([]byte, 100_003)) {
				b.Error("memory is not zero")
			}
			b.upload(buffer, bytes.Repeat([]byte{0xa5}, 100_003))
			if err := buffer.Free(); err != nil {
				b.Error(err)
			}
		}
	}},
	{"pinned memory is host memory, zero and aligned, and says so", func(b *fixture) {
		buffer := b.pin(5000)
		if !buffer.Pinned() || b.alloc(1).Pinned() {
			b.Error("pinned memory is not told from device memory")
		}
		memory := buffer.Bytes()
		if len(memory) != 5000 || !bytes.Equal(memory, make([]byte, 5000)) {
			b.Errorf("%d bytes, not all zero", len(memory))
		}
		checkAligned(b, memory)
	}},
	{"unified memory can be touched and other memory cannot", func(b *fixture) {
		buffer := b.alloc(5000)
		memory := buffer.Bytes()
		if !b.device.Info().Unified {
			if memory != nil {
				b.Error("Bytes of memory that is not unified")
			}
			return
		}
		if len(memory) != 5000 {
			b.Fatalf("Bytes has length %d of 5000", len(memory))
		}
		checkAligned(b, memory)
		memory[4999] = 7
		if b.download(buffer)[4999] != 7 {
			b.Error("Bytes is other memory than the tensors see")
		}
	}},
	{"a buffer is as long as asked for", func(b *fixture) {
		for _, n := range []int64{0, 1, 4095, 4096, 4097} {
			for _, buffer := range []gds.Buffer{b.alloc(n), b.pin(n)} {
				if got := buffer.Len(); got != n {
					b.Errorf("%d bytes, asked for %d", got, n)
				}
			}
		}
	}},
	{"usage counts what is allocated, and its peak", func(b *fixture) {
		start := b.device.Usage()
		first, second := b.alloc(1<<20), b.alloc(3<<20)
		pinned, err := b.device.AllocPinned(2 << 20)
		if err != nil {
			b.Fatal(err)
		}
		full := b.device.Usage()
		if full.InUse < start.InUse+4<<20 || full.InUse > start.InUse+5<<20 || full.Peak < full.InUse {
			b.Errorf("4 MiB more than %+v gave %+v", start, full)
		}
		if full.PinnedInUse < start.PinnedInUse+2<<20 || full.PinnedPeak < full.PinnedInUse {
			b.Errorf("2 MiB pinned more than %+v gave %+v", start, full)
		}
		if full.PinnedLocked > full.PinnedInUse || full.PinnedLocked < full.PinnedInUse && full.NotLocked == "" {
			b.Errorf("pinned memory that is not locked, and no word of why: %+v", full)
		}
		for _, buffer := range []gds.Buffer{first, second, pinned} {
			if err := buffer.Free(); err != nil {
				b.Error(err)
			}
		}
		b.buffers = nil
		if err := b.alloc(1).Free(); err != nil { // changes no peak
			b.Error(err)
		}
		b.buffers = nil
		want := gds.Usage{InUse: start.InUse, Peak: full.Peak, PinnedInUse: start.PinnedInUse,
			PinnedPeak:   full.PinnedPeak,
			PinnedLocked: start.PinnedLocked, NotLocked: full.NotLocked}
		if end := b.device.Usage(); end != want {
			b.Errorf("usage at the end %+v, want %+v", end, want)
		}
	}},
	{"more than there is is refused and costs nothing", func(b *fixture) {
		start := b.device.Usage()
		_, err := b.device.Alloc(1 << 60)
		if !errors.Is(err, gds.ErrOutOfMemory) {
			b.Errorf("an exbibyte: %v", err)
		}
		if _, err := b.device.Alloc(-1); err == nil {
			b.Error("minus one byte was allocated")
		}
		if end := b.device.Usage(); end.InUse != start.InUse {
			b.Errorf("%d bytes in use before, %d after", start.InUse, end.InUse)
		}
		b.alloc(1000) // the device goes on
	}},
	{"freeing twice is an error and counts once", func(b *fixture) {
		buffer, err := b.device.Alloc(1000)
		if err != nil {
			b.Fatal(err)
		}
		if err := buffer.Free(); err != nil {
			b.Error(err)
		}
		free := b.device.Usage()
		if err := buffer.Free(); !errors.Is(err, gds.ErrClosed) {
			b.Errorf("second Free: %v", err)
		}
		if b.device.Usage() != free {
			b.Error("the second Free changed the accounting")
		}
		if buffer.Bytes() != nil {
			b.Error("a freed buffer has Bytes")
		}
	}},
	{"goroutines allocate and free at once", func(b *fixture) {
		start := b.device.Usage().InUse
		var wait sync.WaitGroup
		for worker := range int64(8) {
			wait.Go(func() {
				for i := range int64(50) {
					buffer, err := b.device.Alloc(1 + 1000*worker + i)
					if err == nil {
						err = buffer.Free()
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		wait.Wait()
		if end := b.device.Usage().InUse; end != start {
			b.Errorf("%d bytes in use before, %d after", start, end)
		}
	}},
	{"what is left at Close is reported, and nothing works after it", func(b *fixture) {
		b.closed = true // by this test
		if err := b.stream.Close(); err != nil {
			b.Error(err)
		}
		for range 3 {
			b.alloc(4096)
		}
		err := b.device.Close()
		if err == nil || !strings.Contains(err.Error(), "3 buffers of 12288 bytes") {
			b.Errorf("closed with three buffers of 4096 bytes allocated: %v", err)
		}
		b.freeAll()
		if _, err := b.device.Alloc(1); !errors.Is(err, gds.ErrClosed) {
			b.Errorf("Alloc on a closed device: %v", err)
		}
		if _, err := b.device.AllocPinned(1); !errors.Is(err, gds.ErrClosed) {
			b.Errorf("AllocPinned on a closed device: %v", err)
		}
		if _, err := b.device.NewStream(); !errors.Is(err, gds.ErrClosed) {
			b.Errorf("NewStream on a closed device: %v", err)
		}
		if err := b.device.Close(); !errors.Is(err, gds.ErrClosed) {
			b.Errorf("second Close: %v", err)
		}
	}},
	{"a stream left open is reported at Close", func(b *fixture) {
		b.closed = true
		if err := b.device.Close(); err == nil || !strings.Contains(err.Error(), "stream") {
			b.Errorf("closed with a stream open: %v", err)
		}
		if err := b.stream.Close(); err != nil {
			b.Error(err)
		}
	}},
}

func checkAligned(b *fixture, memory []byte) {
	b.Helper()
	if address := uintptr(unsafe.Pointer(unsafe.SliceData(memory))); address%4096 != 0 {
		b.Errorf("memory at %#x is not aligned to 4096", address)
	}
}
