package vfs

import (
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// everyOperation does each kind of operation once, and stops at the first error.
func everyOperation(fsys FS) (err error) {
	do := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	var pending PendingFile
	var file File
	do(func() error { return fsys.MkdirAll("/d") })
	do(func() error { pending, err = fsys.Create("/d/a"); return err })
	if pending != nil {
		defer pending.Abort()
	}
	do(func() error { _, err := pending.Write([]byte("abcd")); return err })
	do(func() error { _, err := pending.WriteAt([]byte("A"), 0); return err })
	do(func() error { return pending.Commit() })
	var direct PendingFile
	do(func() error { direct, err = fsys.(DirectCreator).CreateDirect("/d/c", PageBytes); return err })
	if direct != nil {
		defer direct.Abort()
	}
	do(func() error { _, err := direct.WriteAt(AlignedBytes(PageBytes, PageBytes), 0); return err })
	do(func() error { return direct.Truncate(1) })
	do(func() error { return direct.Commit() })
	do(func() error { return fsys.Rename("/d/a", "/d/b") })
	do(func() error { _, err := fsys.Stat("/d/b"); return err })
	do(func() error { _, err := fsys.ReadDir("/d"); return err })
	do(func() error { _, err := fsys.FreeBytes("/d"); return err })
	do(func() error { file, err = fsys.Open("/d/b"); return err })
	do(func() error { _, err := file.Size(); return err })
	do(func() error { _, err := file.ReadAt(make([]byte, 4), 0); return err })
	do(func() error { _, _, err := file.(Mapper).Map(); return err })
	do(func() error { _, err := fsys.(Directer).OpenDirect("/d/b"); return err })
	do(func() error { _, err := fsys.Lock("/lock"); return err })
	do(func() error { return fsys.Sync("/d") })
	do(func() error { return fsys.MkdirAll("/e") })
	do(func() error { return fsys.Exchange("/d", "/e") })
	do(func() error { return fsys.Exchange("/d", "/e") })
	do(func() error { return fsys.Remove("/d/b") })
	do(func() error { return fsys.(*Fault).RemoveAll("/d") })
	return err
}

const operations = 25 // of everyOperation

func TestEachOperationFailsOnItsNumber(t *testing.T) {
	failures := 0
	for n := int64(1); ; n++ {
		m := NewMem()
		f := NewFault(m)
		f.FailAt(n, syscall.EIO)
		err := everyOperation(f)
		if err == nil {
			break
		}
		failures++
		wantError(t, err, syscall.EIO)
		if f.Operations() != n {
			t.Errorf("operation %d failed instead of %d", f.Operations(), n)
		}
		for _, p := range tree(t, m, "/") {
			if strings.Contains(p, TempSuffix) {
				t.Errorf("failing operation %d leaves %s", n, p)
			}
		}
		if err := f.MkdirAll("/d"); err != nil {
			t.Errorf("after operation %d has failed, the next one does too: %v", n, err)
		}
	}
	if failures != operations {
		t.Errorf("%d operations could fail, want %d", failures, operations)
	}
}

func TestAfterFailFromNothingChangesAnyMore(t *testing.T) {
	for n := int64(1); n <= operations; n++ {
		m := NewMem()
		f := NewFault(m)
		f.FailFrom(n, syscall.EIO)
		wantError(t, everyOperation(f), syscall.EIO)
		before := tree(t, m, "/")
		if (n == 3 || n == 4 || n == 5) != slices.ContainsFunc(before,
			func(p string) bool { return strings.HasPrefix(p, "/d/a"+TempSuffix) }) {
			t.Errorf("after failing operation %d and all later ones there are %q", n, before)
		}
		wantError(t, everyOperation(f), syscall.EIO)
		wantError(t, f.RemoveAll("/d"), syscall.EIO)
		if after := tree(t, m, "/"); !slices.Equal(before, after) {
			t.Errorf("%q became %q", before, after)
		}
	}
}

func TestReadsGoWrongByTheirNumber(t *testing.T) {
	f := NewFault(NewMem())
	put(t, f, "/a", "0123456789")
	file := open(t, f, "/a")
	f.ShortenRead(2)
	f.FlipBit(3, 10*8+5)
	b := make([]byte, 10)
	for _, want := range []struct {
		n    int
		err  error
		data string
	}{{10, nil, "0123456789"}, {5, io.EOF, "01234"}, {10, nil, "\x10123456789"}, {10, nil, "0123456789"}} {
		if n, err := file.ReadAt(b, 0); n != want.n || err != want.err || string(b[:n]) != want.data {
			t.Errorf("read %d: %q, %v", f.Reads(), b[:n], err)
		}
	}
	if f.Reads() != 4 {
		t.Errorf("counted %d reads", f.Reads())
	}
}

func TestACommitMadeToFailRemovesItsFile(t *testing.T) {
	m := NewMem()
	put(t, m, "/a", "old")
	f := NewFault(m)
	pending := create(t, f, "/a")
	write(t, pending, "new")
	f.FailAt(f.Operations()+1, syscall.ENOSPC)
	wantError(t, pending.Commit(), syscall.ENOSPC)
	if got, want := tree(t, m, "/"), []string{"/a=old"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}
