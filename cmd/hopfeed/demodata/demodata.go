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
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("demo graph %q: %w", name, err)
		}
		if err := write(fsys, path.Join(dir, path.Base(h.Name)), files); err != nil {
			return err
		}
	}
}

func write(fsys vfs.FS, name string, content io.Reader) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Commit()
}
