package offheap

import (
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestAllocGivesZeroedAlignedMemoryOfTheAskedSize(t *testing.T) {
	for _, n := range []int64{0, 1, 4095, 4096, hugePage - 1, hugePage, 3*hugePage + 5} {
		b, err := Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(b.Bytes())) != n {
			t.Fatalf("asked for %d bytes, got %d", n, len(b.Bytes()))
		}
		for i, v := range b.Bytes() {
			if v != 0 {
				t.Fatalf("byte %d of %d is %d", i, n, v)
			}
		}
		if n > 0 {
			if at := uintptr(unsafe.Pointer(&b.Bytes()[0])); at%4096 != 0 {
				t.Errorf("%d bytes start at %#x", n, at)
			}
			b.Bytes()[n-1] = 1
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
		if err := b.Free(); !errors.Is(err, ErrFreed) {
			t.Errorf("second Free of %d bytes: %v", n, err)
		}
	}
}

func TestAllocRefusesWhatCannotBe(t *testing.T) {
	for _, n := range []int64{-1, 1 << 62} {
		if b, err := Alloc(n); err == nil {
			b.Free()
			t.Errorf("%d bytes were allocated", n)
		}
	}
}

func TestAllOfABufferCanBeWrittenAndBuffersDoNotOverlap(t *testing.T) {
	sizes := []int64{1, 4097, hugePage + 1, 2 * hugePage}
	var buffers []*Buffer
	for i, n := range sizes {
		b, err := Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, b)
		for j := range b.Bytes() {
			b.Bytes()[j] = byte(i + 1)
		}
	}
	for i, b := range buffers {
		for j, v := range b.Bytes() {
			if v != byte(i+1) {
				t.Fatalf("byte %d of buffer %d became %d", j, i, v)
			}
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
		if b.Bytes() != nil {
			t.Error("a freed buffer still has bytes")
		}
	}
}

func TestOfManyFreesOneWorks(t *testing.T) {
	b, err := Alloc(hugePage)
	if err != nil {
		t.Fatal(err)
	}
	var freed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := b.Free(); err == nil {
				freed.Add(1)
			} else if !errors.Is(err, ErrFreed) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if freed.Load() != 1 {
		t.Errorf("freed %d times", freed.Load())
	}
}

func TestLockedMemoryIsThereAndCanBeFreed(t *testing.T) {
	for _, n := range []int64{0, 1, 3 * 4096} {
		b, err := Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Lock(); err != nil && !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) &&
			!errors.Is(err, unix.EAGAIN) {
			t.Errorf("%d bytes: %v, which is no limit", n, err)
		}
		for i := range b.Bytes() {
			b.Bytes()[i] = 1
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
		if err := b.Lock(); !errors.Is(err, ErrFreed) {
			t.Errorf("Lock after Free: %v", err)
		}
	}
}

func TestTheHeapGetsWhatBuffersLeaveOfTheLimit(t *testing.T) {
	defer LimitProcess(0)
	before := InUse()
	const limit = 200 << 20
	want := func(what string, bytes int64) {
		t.Helper()
		if found := debug.SetMemoryLimit(-1); found != bytes {
			t.Errorf("%s: the heap may have %d bytes, want %d", what, found, bytes)
		}
	}
	LimitProcess(limit)
	want("at first", limit-codeBytes-before)
	b, err := Alloc(50 << 20)
	if err != nil {
		t.Fatal(err)
	}
	want("with a buffer", limit-codeBytes-before-50<<20)
	c, err := Alloc(limit)
	if err != nil {
		t.Fatal(err)
	}
	want("with more than the limit", minHeapBytes)
	if err := errors.Join(b.Free(), c.Free()); err != nil {
		t.Fatal(err)
	}
	want("without buffers", limit-codeBytes-before)
	LimitProcess(0)
	want("without a limit", math.MaxInt64)
}
