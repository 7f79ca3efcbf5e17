package gdstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// plainFS is a file system without any capability.
type plainFS struct{ vfs.FS }

// refusingFS has direct reads, but not for these files.
type refusingFS struct{ vfs.FS }

func (refusingFS) OpenDirect(path string) (vfs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: not today", vfs.ErrNoDirect)}
}

// oddFS has direct reads that fail from some offset on, as on file systems that take the opening and not the reading.
type oddFS struct {
	vfs.FS
	refused int64
}

type oddFile struct {
	vfs.File
	refused int64
}

func (o oddFS) OpenDirect(path string) (vfs.File, error) {
	f, err := o.Open(path)
	return oddFile{f, o.refused}, err
}

func (f oddFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset >= f.refused {
		return 0, &fs.PathError{Op: "read", Path: f.Path(), Err: syscall.EINVAL}
	}
	return f.File.ReadAt(p, offset)
}

const page = 4096

// onDisk writes a file of random bytes, and opens it on each kind of file system.
func (b *fixture) onDisk(size int, run func(b *fixture, path string, content []byte, file gds.File)) {
	path := filepath.Join(b.TempDir(), "part-0.arrow")
	content := b.random(size)
	writeFile(b, vfs.OS(), path, content)
	for _, c := range []struct {
		name string
		fs   vfs.FS
	}{
		{"the operating system's files", vfs.OS()},
		{"files without direct reads", plainFS{vfs.OS()}},
		{"files that refuse direct reads", refusingFS{vfs.OS()}},
		{"files that refuse direct reads once open", oddFS{vfs.OS(), 0}},
		{"files that refuse direct reads from their second page on", oddFS{vfs.OS(), page}},
		{"files that are read directly, without a descriptor", oddFS{vfs.OS(), 1 << 62}},
		{"files in memory, without a descriptor", inMemory(b, path, content)},
	} {
		b.at(c.name, func(b *fixture) {
			file, err := b.device.OpenFile(c.fs, path)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := file.Close(); err != nil {
					b.Error(err)
				}
			}()
			checkReceipt(b, path, file)
			run(b, path, content, file)
			checkReceipt(b, path, file)
		})
	}
}

// checkReceipt wants a path that there is, and a reason unless it is the best, the
// same for all files that it goes for.
func checkReceipt(b *fixture, path string, file gds.File) {
	b.Helper()
	switch r := file.Receipt(); r.Path {
	case "buffered":
		if r.Reason == "" {
			b.Error("buffered for no reason")
		}
		if strings.Contains(r.Reason, path) {
			b.Errorf("buffered for a reason of one file: %s", r.Reason)
		}
	case "gds-compat":
		if r.Reason == "" {
			b.Error("in compatibility mode for no reason")
		}
	case "gds", "direct":
	default:
		b.Errorf("read by %q", r.Path)
	}
}

// inMemory is a disk in memory that has the file too.
func inMemory(b *fixture, path string, content []byte) vfs.FS {
	b.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll(filepath.Dir(path)); err != nil {
		b.Fatal(err)
	}
	writeFile(b, disk, path, content)
	return disk
}

func writeFile(b *fixture, fsys vfs.FS, path string, content []byte) {
	b.Helper()
	f, err := fsys.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Commit()); err != nil {
		b.Fatal(err)
	}
}

// checkRead reads into the middle of a buffer and looks at all of it.
func checkRead(b *fixture, file gds.File, content []byte, at, length, offset int) {
	b.Helper()
	buffer := b.alloc(int64(at + (length+page-1)/page*page + page))
	set := bytes.Repeat([]byte{0xee}, int(buffer.Len()))
	b.upload(buffer, set)
	if err := file.ReadInto(buffer, int64(at), int64(length), int64(offset)); err != nil {
		b.Errorf("%d bytes at %d: %v", length, offset, err)
		return
	}
	got := b.download(buffer)
	if !bytes.Equal(got[at:at+length], content[offset:offset+length]) {
		b.Errorf("%d bytes at %d: other bytes", length, offset)
	}
	end := at + (length+page-1)/page*page
	if !bytes.Equal(got[:at], set[:at]) || !bytes.Equal(got[end:], set[end:]) {
		b.Errorf("%d bytes at %d: bytes outside of the pages have changed", length, offset)
	}
}

var fileTests = []test{
	{"any range from a page's start is read", func(b *fixture) {
		const size = 5*page + 100
		b.onDisk(size, func(b *fixture, _ string, content []byte, file gds.File) {
			for _, r := range [][2]int{ // offset, length
				{0, size}, {0, page}, {0, 1}, {page, 2 * page}, {2 * page, 5000}, {5 * page, 100},
				{4 * page, page + 100}, {3 * page, 0},
				{5 * page, 99}, {4 * page, page + 1},
			} {
				checkRead(b, file, content, 0, r[1], r[0])
				checkRead(b, file, content, 2*page, r[1], r[0])
			}
		})
	}},
	{"a range may end where the buffer ends", func(b *fixture) {
		b.onDisk(3*page, func(b *fixture, _ string, content []byte, file gds.File) {
			buffer := b.alloc(page + 10)
			if err := file.ReadInto(buffer, 0, page+10, page); err != nil {
				b.Fatal(err)
			}
			if !bytes.Equal(b.download(buffer), content[page:2*page+10]) {
				b.Error("other bytes")
			}
		})
	}},
	{"pinned memory is read into as well", func(b *fixture) {
		b.onDisk(3*page, func(b *fixture, _ string, content []byte, file gds.File) {
			buffer := b.pin(3 * page)
			if err := file.ReadInto(buffer, page, page, 2*page); err != nil {
				b.Fatal(err)
			}
			if !bytes.Equal(buffer.Bytes()[page:2*page], content[2*page:]) {
				b.Error("other bytes")
			}
		})
	}},
	{"many goroutines read one file", func(b *fixture) {
		const pages = 64
		b.onDisk(pages*page, func(b *fixture, _ string, content []byte, file gds.File) {
			buffer := b.alloc(pages * page)
			var wait sync.WaitGroup
			for i := range int64(pages) {
				wait.Go(func() {
					at := (i * 37 % pages) * page
					if err := file.ReadInto(buffer, at, page, at); err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
			if !bytes.Equal(b.download(buffer), content) {
				b.Error("other bytes")
			}
		})
	}},
	{"a file that ends early is named", func(b *fixture) {
		b.onDisk(page+100, func(b *fixture, path string, _ []byte, file gds.File) {
			buffer := b.alloc(4 * page)
			for _, r := range [][2]int64{{0, page + 101}, {page, 101}, {page, 2 * page}, {2 * page, 1},
				{100 * page, page}} {
				err := file.ReadInto(buffer, 0, r[1], r[0])
				if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), path) ||
					!strings.Contains(err.Error(), fmt.Sprint(r[0])) {
					b.Errorf("%d bytes at %d of %d: %v", r[1], r[0], page+100, err)
				}
			}
		})
	}},
	{"what cannot be read is refused", func(b *fixture) {
		b.onDisk(4*page, func(b *fixture, _ string, content []byte, file gds.File) {
			buffer := b.alloc(2 * page)
			for _, c := range []struct {
				name               string
				into               gds.Buffer
				at, length, offset int64
			}{
				{"a place in the buffer that is not aligned", buffer, 512, 100, 0},
				{"a place in the file that is not aligned", buffer, 0, 100, 512},
				{"more than the buffer has", buffer, 0, 2*page + 1, 0},
				{"a place beyond the buffer", buffer, 3 * page, 1, 0},
				{"a place before the buffer", buffer, -page, 1, 0},
				{"a place before the file", buffer, 0, 1, -page},
				{"less than nothing", buffer, 0, -1, 0},
				{"a buffer of another device", foreign{buffer}, 0, page, 0},
			} {
				if err := file.ReadInto(c.into, c.at, c.length, c.offset); err == nil {
					b.Errorf("%s was read", c.name)
				}
			}
			freed, err := b.device.Alloc(page)
			if err != nil {
				b.Fatal(err)
			}
			if err := freed.Free(); err != nil {
				b.Fatal(err)
			}
			if err := file.ReadInto(freed, 0, page, 0); err == nil {
				b.Error("a freed buffer was read into")
			}
			checkRead(b, file, content, 0, page, 0)
		})
	}},
	{"where direct reads are refused midway, the receipt says so and the bytes are right", func(b *fixture) {
		path := filepath.Join(b.TempDir(), "part-0.arrow")
		content := b.random(3 * page)
		writeFile(b, vfs.OS(), path, content)
		file, err := b.device.OpenFile(oddFS{vfs.OS(), page}, path)
		if err != nil {
			b.Fatal(err)
		}
		checkRead(b, file, content, 0, page, 0)
		before := file.Receipt()
		checkRead(b, file, content, 0, 2*page, page)
		checkRead(b, file, content, 0, 3*page, 0)
		if after := file.Receipt(); before.Path == "direct" &&
			(after.Path != "buffered" || !strings.Contains(after.Reason, vfs.ErrNoDirect.Error()) ||
				!strings.Contains(after.Reason, "4096")) {
			b.Errorf("read by %+v, then by %+v", before, after)
		}
		if err := file.Close(); err != nil {
			b.Error(err)
		}
	}},
	{"a disk that fails is an error that names file and place, not another path", func(b *fixture) {
		const path = "/part-0.arrow"
		fault := vfs.NewFault(vfs.NewMem())
		writeFile(b, fault, path, b.random(3*page))
		for _, fsys := range []vfs.FS{fault, plainFS{fault}} {
			file, err := b.device.OpenFile(fsys, path)
			if err != nil {
				b.Fatal(err)
			}
			before := file.Receipt()
			buffer := b.alloc(page)
			fault.FailAt(fault.Operations()+1, syscall.EIO)
			err = file.ReadInto(buffer, 0, page, page)
			if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "4096 bytes at 4096") {
				b.Errorf("got %v", err)
			}
			if after := file.Receipt(); after != before {
				b.Errorf("read by %+v, after a failure by %+v", before, after)
			}
			if err := file.ReadInto(buffer, 0, page, page); err != nil {
				b.Errorf("after the failure: %v", err)
			}
			if err := file.Close(); err != nil {
				b.Error(err)
			}
		}
	}},
	{"a file that is not there is named", func(b *fixture) {
		path := filepath.Join(b.TempDir(), "no such file")
		_, err := b.device.OpenFile(vfs.OS(), path)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			b.Errorf("got %v", err)
		}
	}},
	{"a closed file cannot be read", func(b *fixture) {
		b.onDisk(page, func(b *fixture, path string, _ []byte, _ gds.File) {
			file, err := b.device.OpenFile(vfs.OS(), path)
			if err != nil {
				b.Fatal(err)
			}
			if err := file.Close(); err != nil {
				b.Error(err)
			}
			if err := file.ReadInto(b.alloc(page), 0, page, 0); err == nil {
				b.Error("read after Close")
			}
		})
	}},
}
