package export_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/export"
)

// Writes a hop store as arrays that numpy.load reads.
func ExampleNPY() {
	folder, err := os.MkdirTemp("", "export")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	arrays := filepath.Join(folder, "arrays")
	r, err := export.NPY(context.Background(), vfs.OS(), "../../format/testdata/v2/store", arrays, export.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range r.Files {
		fmt.Println(filepath.Base(file))
	}
	// Output:
	// node_id.npy
	// x_hop-0.npy
	// sym_hop-1.npy
	// node_label.npy
	// splits.npy
	// meta.json
}
