package host

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Emulation describes cards that the machine has not, so that what depends on
// them can be tried. As text, and as a flag: "gpu=1,mem=2GiB,link=12GiB/s".
type Emulation struct {
	GPUs   int         // 0: none are emulated
	Memory units.Bytes // of each
	Link   units.Rate  // of each to host memory, each way; 0: as fast as memory is
}

// maxGPUs is more than machines have.
const maxGPUs = 64

// Set reads the text: gpu is 1 and link has no limit where they are not given.
func (e *Emulation) Set(text string) error {
	out := Emulation{GPUs: 1}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "gpu":
			out.GPUs, err = strconv.Atoi(value)
			if err != nil || out.GPUs < 1 || out.GPUs > maxGPUs {
				err = fmt.Errorf("%q is no number of devices (want 1 to %d)", value, maxGPUs)
			}
		case "mem":
			err = out.Memory.Set(value)
		case "link":
			err = out.Link.Set(value)
		default:
			err = fmt.Errorf("unknown setting (want gpu, mem and link)")
		}
		if err != nil {
			return fmt.Errorf("%q: %w", field, err)
		}
	}
	if out.Memory == 0 {
		return fmt.Errorf("%q says nothing of memory (write gpu=1,mem=2GiB,link=12GiB/s)", text)
	}
	*e = out
	return nil
}

func (e *Emulation) String() string {
	if e.GPUs == 0 {
		return ""
	}
	text := fmt.Sprintf("gpu=%d,mem=%dB", e.GPUs, int64(e.Memory))
	if e.Link > 0 {
		text += fmt.Sprintf(",link=%dB/s", int64(e.Link))
	}
	return text
}

// Type makes Emulation a flag value.
func (e *Emulation) Type() string { return "devices" }

// Device is what opens emulated device i, which computes on so many threads.
func (e *Emulation) Device(i, threads int) Options {
	return Options{
		Name:        fmt.Sprintf("emulated gpu %d", i),
		MemoryBytes: int64(e.Memory), LinkBytesPerSecond: int64(e.Link), Discrete: true, Threads: threads,
	}
}
