package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestGuardTurnsATruncatedMappingIntoErrFault(t *testing.T) {
	for _, read := range []struct {
		name string
		from func(b []byte) int
	}{
		{"byte by byte", func(b []byte) (sum int) {
			for _, v := range b {
				sum += int(v)
			}
			return sum
		}},
		{"by copy", func(b []byte) int { return copy(make([]byte, len(b)), b) }},
	} {
		t.Run(read.name, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "a")
			put(t, OS(), p, strings.Repeat("x", 1<<20))
			b, unmap, err := open(t, OS(), p).(Mapper).Map()
			if err != nil {
				t.Fatal(err)
			}
			defer unmap()
			got := 0
			touch := func() error {
				got = read.from(b)
				return nil
			}
			if err := Guard(touch); err != nil || got < 1<<20 {
				t.Fatalf("the whole file: %d, %v", got, err)
			}
			if err := os.Truncate(p, 100); err != nil {
				t.Fatal(err)
			}
			if err := Guard(touch); !errors.Is(err, ErrFault) {
				t.Errorf("truncated: %v", err)
			}
		})
	}
}

func TestGuardPassesOnErrorsAndPanics(t *testing.T) {
	want := errors.New("own")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
	var none *int
	var index = 3
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"a panic of the code", func() error { panic("broken invariant") }},
		{"a panic with an error", func() error { panic(want) }},
		{"a nil pointer", func() error { return fmt.Errorf("%d", *none) }},
		{"an index out of range", func() error { return fmt.Errorf("%d", []int{1}[index]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			err := Guard(c.call)
			t.Errorf("returned %v", err)
		})
	}
}

func TestGuardRestoresHowFaultsAreTaken(t *testing.T) {
	outside := debug.SetPanicOnFault(false)
	defer debug.SetPanicOnFault(outside)
	for _, before := range []bool{false, true} {
		debug.SetPanicOnFault(before)
		if err := Guard(func() error { return Guard(func() error { return nil }) }); err != nil {
			t.Fatal(err)
		}
		if after := debug.SetPanicOnFault(false); after != before {
			t.Errorf("%t before, %t after", before, after)
		}
	}
}
