package offheap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has the name gives another file.
func TestMemoryThatIsNotSharedIsChargedWhole(t *testing.T) {
	name := fmt.Sprint(t.Name(), os.Getpid())
	l, err := net.ListenUnix("unix", addressOf(name, 1<<20, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	rights := unix.UnixRights(int(other.Fd()))
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_, _, _ = c.WriteMsgUnix([]byte{0}, rights, nil)
			_ = c.Close()
		}
	}()
	var p Pool
	fill := func(*Buffer) error { return nil }
	if _, err := p.Get(t.Context(), name, 1<<20, Holders{Processes: 2}, fill); !errors.Is(err, ErrUnshared) {
		t.Error("charged for a part: ", err)
	}
	before := InUse()
	b, err := p.Get(t.Context(), name, 1<<20, Holders{Processes: 2, Whole: true}, fill)
	if err != nil || InUse()-before != 1<<20 || b.Free() != nil {
		t.Error("charged for the whole: ", err, InUse()-before)
	}
	alone := name + " alone" // which can be shared
	if b, err = p.Get(t.Context(), alone, 1<<20, Holders{Processes: 2, Whole: true}, fill); err != nil {
		t.Fatal(err)
	}
	if InUse()-before != 1<<20 || b.Free() != nil {
		t.Errorf("charged for %d bytes of what others may leave", InUse()-before)
	}
}
