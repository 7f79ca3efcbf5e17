package checkpoint

import (
	"syscall"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/trainer"
)

func TestASaveThatFailsIsNotDueAtOnce(t *testing.T) {
	for name, p := range map[string]Stopped{"no result": stopped{err: syscall.EIO}, "nothing to save": stopped{}} {
		s, err := OpenSaver(SaveOptions{FS: vfs.NewMem(), Dir: "run"})
		if err != nil {
			t.Fatal(err)
		}
		if !s.Due() {
			t.Errorf("%s: the first save is not due", name)
		}
		s.options.MinInterval = time.Hour
		if s.SaveRun(p); s.Due() {
			t.Errorf("%s: the next save is due", name)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stopped is a run without a state.
type stopped struct {
	r   *trainer.Result
	err error
}

func (s stopped) Result() (*trainer.Result, error) { return s.r, s.err }
func (s stopped) State() (*trainer.State, error)   { return nil, nil }
