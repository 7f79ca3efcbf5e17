package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// A gate in a stream's queue shows, without a clock, what goes on around work
// that does not end.
func TestABlockedStreamBlocksNobodyElse(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *stream {
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		return s.(*stream)
	}
	blocked, waiting, free := open(), open(), open()
	gate := make(chan struct{})
	blocked.push(func() { <-gate })
	event := blocked.Record()
	waiting.WaitEvent(event)
	for range 10_000 {
		waiting.Fill(gds.Tensor{}, 0)
		blocked.Fill(gds.Tensor{}, 0)
	}
	if err := free.Synchronize(context.Background()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, e := range map[string]gds.Event{"the blocked stream": event, "the stream that waits for it": waiting.Record()} {
		if err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s has got on: %v", name, err)
		}
	}
	close(gate)
	for _, s := range []*stream{waiting, blocked, free} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// refusal is an FS whose direct reads are of another alignment, or fail with
// EINVAL from some offset on.
type refusal struct {
	vfs.FS
	align int
	from  int64
}

type refusedFile struct {
	vfs.File
	from int64
}

func (r refusal) OpenDirect(path string) (vfs.File, int, error) {
	f, err := r.Open(path)
	return refusedFile{f, r.from}, r.align, err
}

func (f refusedFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset >= f.from {
		return 0, &fs.PathError{Op: "read", Path: f.Path(), Err: syscall.EINVAL}
	}
	return f.File.ReadAt(p, offset)
}

func TestDirectReadsFallBack(t *testing.T) {
	path := t.TempDir() + "/part-0.arrow"
	pending, err := vfs.OS().Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = pending.Write(make([]byte, 2*page+1)); err == nil {
		err = pending.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		fs            vfs.FS
		before, after string // paths
		reason        string
	}{
		{"direct reads that work stay direct", refusal{vfs.OS(), 512, 1 << 40}, "direct", "direct", ""},
		{"an alignment that buffers have not is refused", refusal{vfs.OS(), 1 << 16, 1 << 40}, "buffered", "buffered", "65536"},
		{"a read that is refused is done again, buffered", refusal{vfs.OS(), 4096, page}, "direct", "buffered", "refused a read at 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := d.Alloc(page)
			if err != nil {
				t.Fatal(err)
			}
			f, err := d.OpenFile(c.fs, path)
			if err != nil {
				t.Fatal(err)
			}
			if r := f.Receipt(); r.Path != c.before {
				t.Errorf("opened %+v", r)
			}
			for _, offset := range []int64{0, page} {
				if err := f.ReadInto(b, 0, page, offset); err != nil {
					t.Error(err)
				}
			}
			r := f.Receipt()
			if r.Path != c.after || !strings.Contains(r.Reason, c.reason) || (r.Reason == "") != (r.Path == "direct") {
				t.Errorf("read %+v", r)
			}
			if r.Path == "buffered" && !strings.Contains(r.Reason, vfs.ErrNoDirect.Error()) {
				t.Errorf("reason %q does not say what is lacking", r.Reason)
			}
			if err := errors.Join(f.Close(), b.Free(), d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
