//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda/internal/driver"
	"github.com/hopfeed/hopfeed/gds/internal/readpath"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Count is how many devices there are. The error says why there is none.
func Count() (int, error) {
	if err := driver.Load(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	if err == nil && n == 0 {
		err = errors.New("the NVIDIA driver has no device that this process may use (see CUDA_VISIBLE_DEVICES)")
	}
	return n, err
}

// reserveBytes is what a process takes of a device beside its buffers: kernels, the work space of operations, and that
// of cuBLAS for two streams.
func (d *Device) reserveBytes() int64 { return 64<<20 + 2*d.blasWorkspace() }

// Describe says what device i is, and how many bytes of its memory are free for buffers.
func Describe(i int, o Options) (info gds.Info, freeBytes int64, err error) {
	d := &Device{ordinal: i, options: o}
	if err := d.connect(); err != nil {
		return info, 0, err
	}
	err = d.do(func() (err error) {
		freeBytes, _, err = cu.MemInfo()
		return err
	})
	return d.Info(), max(0, freeBytes-d.reserveBytes()), err
}

// Options are settings of a device.
type Options struct {
	// TF32 lets cuBLAS round factors to 10 bits of fraction, for the speed of tensor cores.
	TF32 bool
}

// Device is a GPU.
type Device struct {
	ordinal     int
	options     Options
	name        string
	memoryBytes int64
	processors  int
	capability  int // of compute: the major number
	mapsPinned  bool
	device      cu.Device
	context     cu.CUContext
	kernels     map[string]C.uintptr_t
	setup       cu.Stream // zeroes new memory

	mu       sync.Mutex
	usage    gds.Usage
	buffers  int // allocated
	streams  int // open
	closed   bool
	released bool
	leaks    bool // freeing has failed: see once
	faults   faultPool
	peers    map[int]bool // by their ordinals: see reachPeer
	trial    trial

	idle    sync.Mutex // of what follows
	events  []cu.Event // to be recorded again
	made    []cu.Event // all of them, which are destroyed with the device
	staging []*stage
	waits   sync.WaitGroup // for events
	gone    bool           // no wait begins any more
}

var _ gds.Device = (*Device)(nil)

// Open opens device i.
func Open(i int, o Options) (*Device, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= n {
		return nil, fmt.Errorf("there is no cuda device %d: there are %d", i, n)
	}
	d := &Device{ordinal: i, options: o}
	if err := d.connect(); err != nil {
		return nil, err
	}
	err = d.do(func() (err error) {
		if d.kernels, err = d.loadedKernels(); err != nil {
			return err
		}
		d.setup, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, errors.Join(d.errorf("%w", err), d.disconnect())
	}
	return d, nil
}

// primary is the primary context of a device, and the kernels that are loaded there, if they are. A process keeps both:
// other users of the GPU in the process share the context, and to make it and to load the kernels takes long.
type primary struct {
	context cu.CUContext
	kernels map[string]C.uintptr_t
}

var primaries = struct {
	mu sync.Mutex
	of map[int]*primary // by the ordinals of devices
}{of: make(map[int]*primary)}

// retain is the primary context of the device.
func (d *Device) retain() (cu.CUContext, error) {
	primaries.mu.Lock()
	defer primaries.mu.Unlock()
	if p := primaries.of[d.ordinal]; p != nil {
		return p.context, nil
	}
	context, err := d.device.RetainPrimaryCtx()
	if err == nil {
		primaries.of[d.ordinal] = &primary{context: context}
	}
	return context, err
}

// loadedKernels are the kernels in the context of the device, which is current.
func (d *Device) loadedKernels() (kernels map[string]C.uintptr_t, err error) {
	primaries.mu.Lock()
	defer primaries.mu.Unlock()
	p := primaries.of[d.ordinal]
	if p.kernels == nil {
		p.kernels, err = loadKernels()
	}
	return p.kernels, err
}

// leastCapability is the first compute capability that takes the kernels: Ampere.
const leastCapability = 8

// connect asks what the device is, and retains its primary context.
func (d *Device) connect() error {
	maps, unified, minor := 0, 0, 0
	attribute := func(a cu.DeviceAttribute) func() (int, error) {
		return func() (int, error) { return d.device.Attribute(a) }
	}
	err := driver.Load()
	ask(&err, &d.device, func() (cu.Device, error) { return cu.GetDevice(d.ordinal) })
	ask(&err, &d.name, func() (string, error) { return d.device.Name() })
	ask(&err, &d.memoryBytes, func() (int64, error) { return d.device.TotalMem() })
	ask(&err, &d.processors, attribute(cu.MultiprocessorCount))
	ask(&err, &maps, attribute(cu.CanMapHostMemory))
	ask(&err, &unified, attribute(cu.UnifiedAddressing))
	ask(&err, &d.capability, attribute(cu.ComputeCapabilityMajor))
	ask(&err, &minor, attribute(cu.ComputeCapabilityMinor))
	if err == nil && d.capability < leastCapability {
		err = fmt.Errorf("%s has compute capability %d.%d: want %d.0 (Ampere) or later", d.name, d.capability, minor,
			leastCapability)
	}
	ask(&err, &d.context, d.retain)
	if err != nil {
		return d.errorf("%w", err)
	}
	d.mapsPinned = maps != 0 && unified != 0 // so that kernels reach pinned memory by the host's address
	return nil
}

// ask sets a value, unless there is an error already.
func ask[T any](err *error, value *T, of func() (T, error)) {
	if *err == nil {
		*value, *err = of()
	}
}

// do runs f on a thread on which the context is current.
func (d *Device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return err
	}
	return f()
}

func (d *Device) errorf(format string, args ...any) error {
	return fmt.Errorf("cuda device %d: "+format, append([]any{d.ordinal}, args...)...)
}

func (d *Device) Info() gds.Info {
	return gds.Info{Name: d.name, Kind: "cuda", MemoryBytes: d.memoryBytes, MapsPinned: d.mapsPinned,
		Products: d.products(), Storage: d.storage(), DirectStorage: d.hasDirectStorage(), EdgeWork: true}
}

func (d *Device) Usage() gds.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usage
}

// Close reports streams that are still open and buffers still allocated; these stay usable, and
// what the device has made for itself goes with the last of them.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.errorf("%w", gds.ErrClosed)
	}
	d.closed = true
	var errs []error
	if d.streams > 0 {
		errs = append(errs, d.errorf("closed with %d streams open", d.streams))
	}
	if d.buffers > 0 {
		errs = append(errs, d.errorf("closed with %d buffers of %d bytes not freed", d.buffers,
			d.usage.InUse+d.usage.PinnedInUse))
	}
	return errors.Join(append(errs, d.releaseUnused())...)
}

// releaseUnused lets all go once the device is closed and nothing of it is in use. d.mu is held.
func (d *Device) releaseUnused() error {
	if !d.closed || d.released || d.streams > 0 || d.buffers > 0 {
		return nil
	}
	d.released = true
	return d.disconnect()
}

// once is an error of freeing something, the first time. A device that is lost fails them all, and what is
// left of it goes with the process. d.mu is held.
func (d *Device) once(err error) error {
	if err == nil || d.leaks {
		return nil
	}
	d.leaks = true
	return err
}

// disconnect lets all go that open, events, waits and reads have made.
func (d *Device) disconnect() error {
	d.idle.Lock()
	d.gone = true
	events, staging := d.made, d.staging
	d.made, d.events, d.staging = nil, nil, nil
	d.idle.Unlock()
	d.waits.Wait() // all work is done
	err := d.do(func() error {
		var errs []error
		for i := range events {
			errs = append(errs, cu.DestroyEvent(&events[i]))
		}
		if d.setup != cu.NoStream {
			errs = append(errs, d.setup.Destroy())
		}
		for _, s := range staging {
			errs = append(errs, s.stream.Destroy(), cu.MemFreeHost(s.memory))
		}
		return errors.Join(append(errs, d.faults.free())...)
	})
	if err = d.once(err); err != nil {
		return d.errorf("closing: %w", err)
	}
	return nil
}

// take takes an idle one or, if there is none, makes one in the device's context.
func take[T any](d *Device, idle *[]T, create func() (T, error)) (one T, err error) {
	d.idle.Lock()
	if n := len(*idle); n > 0 {
		one, *idle = (*idle)[n-1], (*idle)[:n-1]
		d.idle.Unlock()
		return one, nil
	}
	d.idle.Unlock()
	err = d.do(func() (err error) {
		one, err = create()
		return err
	})
	return one, err
}

// give gives it back. After the device was released, its context has freed it.
func give[T any](d *Device, idle *[]T, one T) {
	d.idle.Lock()
	defer d.idle.Unlock()
	*idle = append(*idle, one)
}

// OpenFile opens a file, for reads by cuFile, or direct ones, if its file system has them.
func (d *Device) OpenFile(fsys vfs.FS, path string) (gds.File, error) {
	f, err := readpath.Open(fsys, path, d.read)
	if err != nil {
		return nil, err
	}
	d.addToCuFile(f)
	return f, nil
}
