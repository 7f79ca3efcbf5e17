// Package demodata carries the graphs of hopfeed demo, in the npy layout, one compressed archive each. NOTICE names
// their origin and licences; each archive's meta.json says more.
package demodata

import (
	"archive/tar"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/klauspost/compress/zstd"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

//go:generate ./pack.sh $DATA amazon_photo gamora_csa8 gamora_csa32

//go:embed *.tar.zst
var archives embed.FS

// Unpack writes the files of a graph into the directory dir, which it makes.
func Unpack(fsys vfs.FS, dir, name string) error {
	packed, err := archives.ReadFile(name + ".tar.zst")
	if err != nil {
		return fmt.Errorf("no demo graph %q", name)
	}
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	defer z.Close()
	var names []string
	var contents [][]byte
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return folder.WriteFiles(fsys, dir, names, contents)
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(files)
		}
		if err != nil {
			return fmt.Errorf("demo graph %q: %w", name, err)
		}
		names, contents = append(names, path.Base(h.Name)), append(contents, content)
	}
}
