package session

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/ingest"
)

// TestMain makes the store of the example on disk.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hopfeed-session-")
	if err == nil {
		graph := ingest.GenerateOptions{Nodes: 100, Edges: 300, Features: 4, Classes: 2, Labeled: 1}
		err = makeStore(context.Background(), vfs.OS(), dir, graph, preprop.Options{})
	}
	if err != nil {
		panic(err)
	}
	os.Setenv("STORE", filepath.Join(dir, "store"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// makeStore makes a store of two hops of a random graph, in dir/store.
func makeStore(ctx context.Context, fsys vfs.FS, dir string, o ingest.GenerateOptions, p preprop.Options) error {
	source, err := ingest.SBM(ingest.SBMOptions{GenerateOptions: o, Homophily: 0.8, Separation: 2})
	if err != nil {
		return err
	}
	graph := filepath.Join(dir, "graph")
	if _, err = ingest.Run(ctx, fsys, source, graph, ingest.Options{}); err != nil {
		return err
	}
	p.Hops = 2
	if p.Operators, err = operator.ParseList("sym", operator.DefaultTolerance); err != nil {
		return err
	}
	_, err = preprop.Propagate(ctx, fsys, graph, filepath.Join(dir, "store"), p)
	return err
}
