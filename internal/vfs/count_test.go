package vfs

import "testing"

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
