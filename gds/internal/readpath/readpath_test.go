package readpath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// What is read is tested by the suite of devices, gdstest.

func TestReceiptsSayWhatIsLacking(t *testing.T) {
	disk := vfs.NewMem()
	f, err := disk.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fs   vfs.FS
		want string
	}{
		{disk, "direct:"},
		{struct{ vfs.FS }{disk}, "buffered: " + vfs.ErrNoDirect.Error() + ": the file system has none"},
		{wide{disk}, "buffered: " + vfs.ErrNoDirect.Error() + ": reads would have to be aligned to 65536 bytes"},
	} {
		file, err := Open(c.fs, "file", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := file.Receipt()
		if got := strings.TrimSpace(r.Path + ": " + r.Reason); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// wide has direct reads of an alignment that buffers have not.
type wide struct{ vfs.FS }

func (w wide) OpenDirect(string) (vfs.File, error) {
	return nil, fmt.Errorf("%w: reads would have to be aligned to %d bytes", vfs.ErrNoDirect, 1<<16)
}
