package preprop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// TestTheRateOfReadingIsMeasuredWhereFeaturesAre has them in the graph, or at odd places of a file elsewhere.
func TestTheRateOfReadingIsMeasuredWhereFeaturesAre(t *testing.T) {
	root := t.TempDir()
	g := randomGraph(4, 3000, 20)
	g.write(t, vfs.OS(), filepath.Join(root, "own"))

	const header = 10
	data := filepath.Join(root, "x")
	if err := os.WriteFile(data, make([]byte, header+4*len(g.x)), 0o644); err != nil {
		t.Fatal(err)
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: 3000}}, 0, 20, format.Float32)
	w, err := format.Create(vfs.OS(), filepath.Join(root, "elsewhere"), layout, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	err = w.UseSources(context.Background(), []format.SourceFile{{Path: data, Offset: header, Rows: 3000}}, 1,
		func(int64, []byte) error { return nil })
	if err := errors.Join(err, w.Topology(g.csc()), w.Rows(&g.rows),
		w.Publish(&format.Manifest{Classes: 4})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "elsewhere"} {
		fsys := &rememberingFS{FS: vfs.OS()}
		dir, err := format.OpenGraph(fsys, filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		m, err := dir.Matrix(format.Input)
		if err != nil {
			t.Fatal(err)
		}
		in := engine.NewInput(m, nil, format.Float32)
		if rate, err := engine.MeasureRead(context.Background(), in, 1); err != nil || rate <= 0 {
			t.Errorf("%s: %g bytes a second, %v", name, rate, err)
		}
		if want := map[string]string{"own": filepath.Join(root,
			filepath.FromSlash(format.PartPath("own/features/x/hop-0", 0))),
			"elsewhere": data}[name]; fsys.opened != want {
			t.Errorf("%s: read from %s, want %s", name, fsys.opened, want)
		}
	}
}

// rememberingFS remembers what was opened last.
type rememberingFS struct {
	vfs.FS
	opened string
}

func (c *rememberingFS) Open(path string) (vfs.File, error) {
	c.opened = path
	return c.FS.Open(path)
}
