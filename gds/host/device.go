// Package host is the device on the processor: its memory is host memory off the Go heap, each stream is a goroutine
// with a queue of its own, and the operations are Go and the assembly of internal/kernel. It is in every build, and
// other devices are compared with it.
//
// Sums run over fixed groups of rows for any number of threads, and no
// result depends on where in memory an operand lies.
package host

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/readpath"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Options describe a host device.
type Options struct {
	MemoryBytes int64 // what Alloc hands out at most; 0: what the machine can map
	Threads     int   // that one operation runs on; 0: parallel.Threads
	// Discrete makes memory from Alloc the device's own, as on a card: it has no
	// Bytes, and only streams and files reach it.
	Discrete bool
	// Unmapped makes it a device that cannot read pinned memory by itself.
	Unmapped bool
	// LinkBytesPerSecond is how fast copies and reads reach that memory, each way; 0: as fast as memory is.
	LinkBytesPerSecond int64
	// Stop ends the waiting for that link once it is closed. nil: never.
	Stop <-chan struct{}
	Name string // "": "host"
}

// page is the alignment of allocations; sizes are rounded up to it.
const page = gds.Align

// Device is the processor and its memory.
type Device struct {
	options Options
	in, out *link // to and from memory of its own
	lock    func(*offheap.Buffer) error

	mu      sync.Mutex
	usage   gds.Usage
	buffers map[*buffer]origin // allocated
	streams int                // open
	closed  bool
}

var _ gds.Device = (*Device)(nil)

// New opens a device.
func New(o Options) (*Device, error) {
	if o.MemoryBytes < 0 || o.Threads < 0 || o.LinkBytesPerSecond < 0 {
		return nil, fmt.Errorf("host device: memory of %d bytes, %d threads, link of %d bytes a second: want no "+
			"negative numbers",
			o.MemoryBytes, o.Threads, o.LinkBytesPerSecond)
	}
	if o.Name == "" {
		o.Name = "host"
	}
	if o.Threads == 0 {
		o.Threads = parallel.Threads()
	}
	return &Device{
		options: o,
		in:      &link{bytesPerSecond: o.LinkBytesPerSecond},
		out:     &link{bytesPerSecond: o.LinkBytesPerSecond},
		lock:    (*offheap.Buffer).Lock,
		buffers: make(map[*buffer]origin),
	}, nil
}

// Info describes a device with these options.
func (o Options) Info() gds.Info {
	kind := "host"
	if o.Discrete {
		kind = "emulated"
	}
	return gds.Info{
		Name: o.Name, Kind: kind, Unified: !o.Discrete, MemoryBytes: o.MemoryBytes, MapsPinned: !o.Unmapped,
		Products: "kernels of this program",
	}
}

func (d *Device) Info() gds.Info {
	return d.options.Info()
}

func (d *Device) Usage() gds.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usage
}

// Close reports streams that are still open and buffers still allocated; these stay usable.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("host device: %w", gds.ErrClosed)
	}
	d.closed = true
	var errs []error
	if d.streams > 0 {
		errs = append(errs, fmt.Errorf("host device closed with %d streams open", d.streams))
	}
	if len(d.buffers) > 0 {
		errs = append(errs, fmt.Errorf("host device closed with %d buffers of %d bytes not freed%s",
			len(d.buffers), d.usage.InUse+d.usage.PinnedInUse, origins(d.buffers)))
	}
	return errors.Join(errs...)
}

// OpenFile opens a file, for direct reads if its file system has them.
func (d *Device) OpenFile(fsys vfs.FS, path string) (gds.File, error) {
	f, err := readpath.Open(fsys, path, d.read)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// read reads from a file into memory of this device, over its link, or pinned memory.
func (d *Device) read(f *readpath.File, buf gds.Buffer, bufOffset, length, offset int64) error {
	b, err := hostBuffer(buf)
	if err != nil {
		return err
	}
	pages, err := b.use()
	if err != nil {
		return err
	}
	defer b.leave()
	var arrival time.Time
	if !b.pinned {
		if b.device != d {
			return errors.New("the buffer is of another device")
		}
		arrival = d.in.send(int(length))
	}
	err = f.Fill(pages[bufOffset:], length, offset)
	d.waitFor(arrival)
	return err
}
