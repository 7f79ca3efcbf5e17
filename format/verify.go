package format

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// VerifyReport is what Verify found.
type VerifyReport struct {
	Files, Chunks int
	Bytes         int64
	Bad           []CorruptError
}

// Verify reads every byte of a directory and checks it: all checksums, that the
// Arrow files hold what index and manifest say, that values are in range, and
// that no file is there that nobody listed. Damage goes into the report; the
// error is for what kept it from looking.
func Verify(ctx context.Context, fsys vfs.FS, dir string, threads int, p progress.Reporter) (*VerifyReport, error) {
	return nil, errUnbuilt
}
