package vfs

import (
	"errors"
	"testing"
)

func TestBytesThatPassAreCounted(t *testing.T) {
	c := NewPastCache(NewMem())
	f := create(t, c, "a")
	write(t, f, "twelve bytes")
	if _, err := f.WriteAt([]byte("12"), 3); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := c.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.ReadAt(make([]byte, 5), 0)
	r.ReadAt(make([]byte, 5), 10) // two of them
	if c.Read().Bytes() != 7 || c.Written().Bytes() != 14 {
		t.Errorf("%d read and %d written, want 7 and 14", c.Read().Bytes(), c.Written().Bytes())
	}
}

func TestTheFileBytesOfAStreamAreCountedWithoutPadding(t *testing.T) {
	for _, bytes := range []int{0, 1, 100_003} {
		for _, guess := range []int64{0, 100_003} {
			c := NewPastCache(NewMem())
			s, err := CreateStream(c, "a", guess)
			if err == nil {
				err = errors.Join(writeInPieces(s, 0, make([]byte, bytes)), s.Commit())
			}
			if r := c.Written(); err != nil || r.Bytes() != int64(bytes) || r != (Receipt{Direct: int64(bytes)}) {
				t.Errorf("%d bytes are %d, %+v, %v", bytes, r.Bytes(), r, err)
			}
		}
	}
}

func TestAReceiptSaysWhyAFileWentThroughTheCache(t *testing.T) {
	for _, size := range []int64{10, 2 * MinDirect} {
		disk := NewMem()
		disk.NoDirect = true
		c := NewPastCache(disk)
		s, err := CreateStream(c, "a", size)
		if err == nil {
			err = errors.Join(writeInPieces(s, 0, make([]byte, size)), s.Commit())
		}
		if r := c.Written(); err != nil || r.Direct != 0 || r.Buffered != size ||
			errors.Is(r.Why, ErrNoDirect) != (size > MinDirect) {
			t.Errorf("%d bytes: %+v, %v", size, r, err)
		}
	}
}
