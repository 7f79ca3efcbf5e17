//go:build cuda && cgo && linux

package cuda

/*
#include <stdlib.h>
#include "cufile.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/hopfeed/hopfeed/gds/cuda/internal/driver"
	"github.com/hopfeed/hopfeed/gds/internal/readpath"
	"github.com/hopfeed/hopfeed/internal/units"
)

// cuFileVariable is the environment variable that names another cuFile than the system's.
const cuFileVariable = "HOPFEED_LIBCUFILE"

// cuFileDriver reads files into memory of GPUs (GPUDirect Storage).
type cuFileDriver struct {
	fileSystems uint // bits: to which nvidia-fs has a way
	loaded      bool // nvidia-fs; else all reads go through memory of the host
	version     string
}

// cuFile is cuFile's driver, once it has been looked for, or why there is none. It stays open: to open it again takes
// long.
var cuFile struct {
	once   sync.Once
	driver *cuFileDriver
	err    error
}

// openCuFile loads cuFile and opens its driver in the device's context, the first time.
func (d *Device) openCuFile() (*cuFileDriver, error) {
	cuFile.once.Do(func() { cuFile.driver, cuFile.err = loadCuFile(handle(d.context)) })
	return cuFile.driver, cuFile.err
}

func loadCuFile(context C.uintptr_t) (*cuFileDriver, error) {
	runtime.LockOSThread() // whose the text of an error is
	defer runtime.UnlockOSThread()
	path, named := environment(cuFileVariable)
	if _, other := environment(driver.Variable); other && !named {
		return nil, fmt.Errorf("there is no cuFile (it is not looked for where %s names another driver; %s names one)",
			driver.Variable, cuFileVariable)
	}
	if !named {
		path = "libcufile.so.0"
		if syscall.Access("/proc/driver/nvidia-fs", 0) != nil {
			return nil, fmt.Errorf("nvidia-fs is not loaded, without which cuFile would do the same (%s names a cuFile to "+
				"try)", cuFileVariable) // and it takes 1.5 s to start
		}
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if text := C.hopfeed_load_cufile(&name, 1); text != nil {
		return nil, fmt.Errorf("there is no cuFile (%s)", C.GoString(text))
	}
	var d C.hopfeed_cufile_driver
	C.hopfeed_cufile_open(context, &d)
	if d.error != 0 {
		return nil, fmt.Errorf("cuFile does not start: %w", cuFileError(d.error))
	}
	const peerToPeer = 1 << 11
	return &cuFileDriver{
		fileSystems: uint(d.file_systems), loaded: d.major > 0 || d.file_systems&peerToPeer != 0,
		version: fmt.Sprintf("nvidia-fs %d.%d", d.major, d.minor),
	}, nil
}

// environment is a variable of the environment, as C has it, and whether it is set to anything.
func environment(name string) (string, bool) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	v := C.getenv(c)
	if v == nil || *v == 0 {
		return "", false
	}
	return C.GoString(v), true
}

// cuFileError is a CUfileOpError.
type cuFileError C.int

var cuFileErrors = map[cuFileError]string{
	5001: "nvidia-fs is not loaded, and the compatibility mode is not allowed (allow_compat_mode in cufile.json)",
	5004: "nvidia-fs is of another version", 5005: "the version of nvidia-fs cannot be read",
	5007: "the platform is not supported",
	5008: "the file is not supported", 5009: "the GPU is not supported", 5010: "nvidia-fs fails",
	5011: "the CUDA driver fails",
	5018: "files of this type are not supported", 5020: "the file is not open for direct reads",
	5025: "access is denied",
	5027: "the file cannot be registered, as where udev says nothing of its volume (see CUFILE_LOGFILE_PATH)",
	5033: "nvidia-fs cannot be set up", 5034: "it is switched off for the file",
	5036: "memory of the GPU cannot be pinned for it",
}

func (e cuFileError) Error() string {
	if text := cuFileErrors[e]; text != "" {
		return fmt.Sprintf("cuFile error %d: %s", int(e), text)
	}
	return fmt.Sprintf("cuFile error %d", int(e))
}

func checkCuFile(status C.int) error {
	if status == 0 {
		return nil
	}
	return cuFileError(status)
}

// fileSystems are the bits of the file systems that nvidia-fs may read from, by the type that statfs
// gives. File systems on disks need one of several bits.
var fileSystems = map[int64]uint{
	0xef53:     1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<11, // ext4: NVMe, NVMe over fabrics, SCSI and others
	0x58465342: 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<11, // XFS
	0x0bd00bd0: 1 << 0,                                   // Lustre
	0x6969:     1 << 2,                                   // NFS
	0x47504653: 1 << 3,                                   // GPFS
	0x19830326: 1 << 9,                                   // BeeGFS
}

// path is how cuFile reads a file: "gds", or "gds-compat" with the reason.
func (c *cuFileDriver) path(descriptor uintptr) (path, reason string) {
	if !c.loaded {
		return "gds-compat", "cuFile reads through memory of the host: nvidia-fs is not loaded"
	}
	kind := int64(C.hopfeed_file_system(C.int(descriptor)))
	if c.fileSystems&fileSystems[kind] == 0 {
		return "gds-compat", fmt.Sprintf("cuFile reads through memory of the host: %s has no way to file systems of "+
			"type %#x", c.version, kind)
	}
	return "gds", ""
}

// storage says how files are read into memory of GPUs, and why not better.
func (d *Device) storage() string {
	c, err := d.openCuFile()
	switch {
	case err != nil:
		return "through memory of the host: " + err.Error()
	case !c.loaded:
		return "cuFile in compatibility mode: nvidia-fs is not loaded"
	}
	return "GPUDirect Storage (" + c.version + ")"
}

func (d *Device) hasDirectStorage() bool {
	c, err := d.openCuFile()
	return err == nil && c.loaded
}

// addToCuFile lets cuFile read a file, if there is one and the file is open for direct reads.
func (d *Device) addToCuFile(f *readpath.File) {
	c, err := d.openCuFile()
	if err != nil {
		f.Explain(err)
		return
	}
	descriptor, ok := f.Descriptor()
	if !ok {
		return // the receipt says why it is not read directly
	}
	var file C.uintptr_t
	if err := checkCuFile(C.hopfeed_cufile_add(handle(d.context), C.int(descriptor), &file)); err != nil {
		f.Explain(err)
		return
	}
	path, reason := c.path(descriptor)
	f.UseLibrary(path, reason, uintptr(file), func() { C.hopfeed_cufile_remove(handle(d.context), file) })
}

// pinForCuFile registers the memory of a buffer, the first time that a file is read into it. Where that
// fails, cuFile reads through memory of its own.
func (b *buffer) pinForCuFile() {
	b.cuFile.Do(func() {
		b.pinnedForCuFile = C.hopfeed_cufile_pin(handle(b.device.context), C.uint64_t(b.start),
			C.size_t(b.reserved())) == 0
	})
}

func (b *buffer) unpinForCuFile() error {
	if !b.pinnedForCuFile {
		return nil
	}
	b.pinnedForCuFile = false
	return checkCuFile(C.hopfeed_cufile_unpin(handle(b.device.context), C.uint64_t(b.start)))
}

// errGiveUp is why cuFile does not read a file any more, which can be read otherwise.
type errGiveUp struct{ error }

// readByCuFile reads whole pages, as direct reads do.
func (d *Device) readByCuFile(file uintptr, b *buffer, bufOffset, length, offset int64) error {
	b.pinForCuFile()
	end := (length + page - 1) / page * page
	for done := int64(0); done < length; {
		n := int64(C.hopfeed_cufile_read(handle(d.context), C.uintptr_t(file), C.uint64_t(b.start), C.size_t(end-done),
			C.int64_t(offset+done), C.int64_t(bufOffset+done)))
		switch {
		case n < -5000:
			return errGiveUp{cuFileError(-n)}
		case n == -int64(syscall.EINVAL):
			return errGiveUp{fmt.Errorf("it refused a read at %d (%w)", offset+done, syscall.EINVAL)}
		case n < 0:
			return syscall.Errno(-n)
		case n == 0:
			return io.ErrUnexpectedEOF
		case done+n >= length:
			return nil
		}
		if done += n / page * page; n < page { // it goes on at a page
			return errors.Join(io.ErrUnexpectedEOF, fmt.Errorf("%d bytes came", done+n))
		}
	}
	return nil
}

// trial compares cuFile with direct reads through pinned memory on a device: the first large reads go by both in turn,
// all others by cuFile, unless direct reads were faster.
type trial struct {
	mu     sync.Mutex
	begun  [2]int // reads by cuFile, and direct ones
	done   [2]int
	bytes  [2]int64
	took   [2]time.Duration
	faster error // says that direct reads were
}

// A trial has trialReads reads of at least trialBytes each way. Direct reads are chosen if they are faster by a tenth.
const (
	trialReads = 16
	trialBytes = 256 << 10
	byCuFile   = 0
	byDirect   = 1
)

// choose is how a read goes. The error says why not by cuFile any more.
func (t *trial) choose(length int64) (way int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faster != nil || length < trialBytes || t.begun[byDirect] == trialReads {
		return byCuFile, t.faster
	}
	if t.begun[byCuFile] > t.begun[byDirect] {
		way = byDirect
	}
	t.begun[way]++
	return way, nil
}

// add adds a read that has ended to the trial, and ends the trial with the last.
func (t *trial) add(way int, length int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if length < trialBytes || t.done[way] == trialReads {
		return
	}
	t.done[way]++
	t.bytes[way] += length
	t.took[way] += took
	if t.done != [2]int{trialReads, trialReads} {
		return
	}
	var rates [2]float64 // of one read
	for way := range rates {
		rates[way] = float64(t.bytes[way]) / t.took[way].Seconds()
	}
	if rates[byDirect] > 1.1*rates[byCuFile] {
		t.faster = fmt.Errorf("direct reads were faster than cuFile: %v/s, %v/s", units.Bytes(rates[byDirect]),
			units.Bytes(rates[byCuFile]))
	}
}
