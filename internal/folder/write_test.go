package folder

import (
	"errors"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestFilesAreWrittenTogetherOrNotAtAll(t *testing.T) {
	names, data := []string{"a", "b", "c"}, [][]byte{[]byte("one"), []byte("two"), []byte("three")}
	for n := int64(1); ; n++ {
		m := vfs.NewMem()
		faulty := vfs.NewFault(m)
		faulty.FailAt(n, syscall.EIO)
		err := WriteFiles(faulty, "out", names, data)
		_, gone := m.Stat("out")
		if faulty.Operations() < n {
			if err != nil || len(tree(t, m, "out")) != 3 {
				t.Errorf("without a fault: %v", err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) || gone == nil && len(tree(t, m, "out")) > 0 {
			t.Errorf("operation %d failed: %v, and left something", n, err)
		}
	}
}

// A file that was not replaced stays as it was.
func TestAFileThatCannotBeReplacedStays(t *testing.T) {
	for n := int64(1); ; n++ {
		m := vfs.NewMem()
		if err := m.MkdirAll("out"); err != nil {
			t.Fatal(err)
		}
		put(t, m, "out/a", "old")
		faulty := vfs.NewFault(m)
		faulty.FailAt(n, syscall.EIO)
		err := WriteFiles(faulty, "out", []string{"a"}, [][]byte{[]byte("new")})
		if faulty.Operations() < n {
			break
		}
		got := make([]byte, 3)
		f, openErr := m.Open("out/a")
		if openErr != nil {
			t.Fatal(openErr)
		}
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err == nil || len(tree(t, m, "out")) != 1 || string(got) != "old" && string(got) != "new" {
			t.Errorf("operation %d failed: %v, left %q", n, err, got)
		}
	}
}
