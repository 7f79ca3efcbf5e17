package vfs

import (
	"errors"
	"testing"
)

func TestBytesThatPassAreCounted(t *testing.T) {
	c := NewCount(NewMem())
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
	if c.Read() != 7 || c.Written() != 14 {
		t.Errorf("%d read and %d written, want 7 and 14", c.Read(), c.Written())
	}
}

func TestOfAStreamTheBytesOfTheFileAreCounted(t *testing.T) {
	for _, bytes := range []int{0, 1, 100_003} {
		for _, guess := range []int64{0, 100_003} {
			c := NewCount(NewMem())
			s, err := CreateStream(c, "a", guess)
			if err == nil {
				err = errors.Join(writeInPieces(s, 0, make([]byte, bytes)), s.Commit())
			}
			if r := c.WriteReceipt(); err != nil || c.Written() != int64(bytes) ||
				r != (WriteReceipt{Direct: int64(bytes)}) {
				t.Errorf("%d bytes are %d, %+v, %v", bytes, c.Written(), r, err)
			}
		}
	}
}

func TestAReceiptSaysWhyAFileWentThroughTheCache(t *testing.T) {
	for _, size := range []int64{10, 2 * MinDirect} {
		disk := NewMem()
		disk.RefuseDirect()
		c := NewCount(disk)
		s, err := CreateStream(c, "a", size)
		if err == nil {
			err = errors.Join(writeInPieces(s, 0, make([]byte, size)), s.Commit())
		}
		if r := c.WriteReceipt(); err != nil || r.Direct != 0 || r.Buffered != size ||
			errors.Is(r.Why, ErrNoDirect) != (size > MinDirect) {
			t.Errorf("%d bytes: %+v, %v", size, r, err)
		}
	}
}
