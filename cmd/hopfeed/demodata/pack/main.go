// Command pack makes the archives of package demodata: pack DATA GRAPH... packs
// each folder DATA/GRAPH into GRAPH.tar.zst. The same files give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Of each graph, what the npy importer reads; its further files say the same
// otherwise.
var wanted = []string{"meta.json", "edge_index.npy", "node_feat.np[yz]", "node_label.npy", "splits*.npy"}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: pack DATA GRAPH...")
	}
	for _, graph := range os.Args[2:] {
		if err := pack(filepath.Join(os.Args[1], graph), graph+".tar.zst"); err != nil {
			log.Fatal(err)
		}
	}
}

func pack(dir, archive string) error {
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	out := tar.NewWriter(z)
	for _, pattern := range wanted {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return fmt.Errorf("%s: there is no %s", dir, pattern)
		}
		slices.Sort(names)
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			header := &tar.Header{Name: filepath.Base(name), Mode: 0o644, Size: int64(len(content)),
				Format: tar.FormatUSTAR}
			if err := out.WriteHeader(header); err != nil {
				return err
			}
			if _, err := out.Write(content); err != nil {
				return err
			}
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, packed.Bytes(), 0o644)
}
