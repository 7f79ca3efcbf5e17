package ingest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/ingest"
)

// Makes a graph directory from a table of edges, whose nodes have no features but a column of ones.
func Example() {
	folder, err := os.MkdirTemp("", "ingest")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	table, output := filepath.Join(folder, "edges.csv"), filepath.Join(folder, "graph")
	if err := os.WriteFile(table, []byte("source,destination\n0,1\n1,2\n2,0\n1,2\n"), 0o600); err != nil {
		log.Fatal(err)
	}

	ctx, files := context.Background(), vfs.OS()
	source, err := ingest.OpenCSV(ctx, files, table, ingest.ScratchOptions{Output: output}, ingest.TableOptions{
		NodeFiles: ingest.NodeFiles{Features: ingest.Ones},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	r, err := ingest.Run(ctx, files, source, output, ingest.Options{Direction: ingest.Undirected})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d nodes, %d edges, %d feature\n", r.Nodes, r.Edges, r.Features)
	// Output:
	// 3 nodes, 6 edges, 1 feature
}
