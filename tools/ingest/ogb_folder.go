package ingest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ogbFolder is a folder of a data set.
type ogbFolder struct {
	dir   string
	names []string
}

func openOGBFolder(fsys vfs.FS, path ...string) (f ogbFolder, err error) {
	f.dir = filepath.Join(path...)
	entries, err := fsys.ReadDir(f.dir)
	for _, e := range entries {
		f.names = append(f.names, e.Name())
	}
	return f, err
}

// find returns the path of the file of that name, or with the ending of a text file behind it, or "".
func (f ogbFolder) find(name string) string {
	for _, ending := range append([]string{""}, textEndings...) {
		if full := strings.TrimSuffix(name+"."+ending, "."); slices.Contains(f.names, full) {
			return filepath.Join(f.dir, full)
		}
	}
	return ""
}

// need is find for a file that must be there.
func (f ogbFolder) need(name string) (path string, err error) {
	if path := f.find(name); path != "" {
		return path, nil
	}
	if !strings.HasSuffix(name, ".npz") {
		name += ".csv.gz"
	}
	return "", invalid(f.dir, "no %s", name)
}

// left are the text files with other names than these.
func (f ogbFolder) left(used ...string) []string {
	return slices.DeleteFunc(slices.Clone(f.names), func(name string) bool {
		base, ending, _ := strings.Cut(name, ".")
		return slices.Contains(used, base) || !slices.Contains(textEndings, ending)
	})
}

// ogbSplits is the folder split of a data set, and the names of the folders in it.
func ogbSplits(fsys vfs.FS, root string) (f ogbFolder, err error) {
	f.dir = filepath.Join(root, "split")
	if there, err := exists(fsys, f.dir); err != nil || !there {
		return f, err
	}
	f.names, err = foldersIn(fsys, f.dir)
	for _, name := range f.names {
		if !printable(name) {
			return f, fmt.Errorf("%w: %q: the file name has a character that cannot be printed: rename the file",
				ErrInvalid, filepath.Join(f.dir, name))
		}
	}
	return f, err
}
