package npy_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Writes an array [3,2] of int32 to a file, and reads its last two rows as float32.
func Example() {
	folder, err := os.MkdirTemp("", "npy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "array.npy")
	bytes := npy.AppendHeader(nil, npy.Int32, 1, 3, 2)
	for _, v := range []int32{1, 2, 3, 4, 5, 6} {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(v))
	}
	if err := os.WriteFile(path, bytes, 0o600); err != nil {
		log.Fatal(err)
	}

	array, err := npy.Open(vfs.OS(), path)
	if err != nil {
		log.Fatal(err)
	}
	defer array.Close()
	rows := make([]float32, 2*2)
	if err := npy.ReadRows(array, rows, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(array.Type, array.Shape, rows)
	// Output:
	// int32 [3 2] [3 4 5 6]
}
