//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/readpath"
)

// stage is pinned memory through which files are read into device memory, and a stream to copy on.
type stage struct {
	memory unsafe.Pointer
	stream cu.Stream
}

// stageBytes is how much of a file goes through a stage at a time.
const stageBytes = 1 << 20

// read reads from a file into memory of this device, or pinned memory.
func (d *Device) read(f *readpath.File, buf gds.Buffer, bufOffset, length, offset int64) error {
	b, err := cudaBuffer(buf)
	if err != nil {
		return err
	}
	start, err := b.address()
	if err != nil {
		return err
	}
	if b.pinned {
		return f.Fill(b.pages()[bufOffset:], length, offset)
	}
	if b.device != d {
		return errors.New("the buffer is of another device")
	}
	if file, ok := f.Library(); ok {
		way, why := d.trial.choose(length)
		began := time.Now()
		if way == byDirect {
			defer func() { d.trial.add(byDirect, length, time.Since(began)) }()
		} else if why == nil {
			err := d.readByCuFile(file, b, bufOffset, length, offset)
			var giveUp errGiveUp
			if !errors.As(err, &giveUp) {
				d.trial.add(byCuFile, length, time.Since(began))
				return err
			}
			why = giveUp
		}
		if why != nil {
			f.GiveUpLibrary(why)
		}
	}
	s, err := take(d, &d.staging, d.newStage)
	if err != nil {
		return d.errorf("%w", err)
	}
	defer give(d, &d.staging, s)
	for done := int64(0); done < length; done += stageBytes {
		n := min(stageBytes, length-done)
		if err := f.Fill(unsafe.Slice((*byte)(s.memory), stageBytes), n, offset+done); err != nil {
			return err
		}
		to := C.uint64_t(start + uint64(bufOffset+done))
		err := check(C.hopfeed_copy(handle(d.context), handle(s.stream), to, C.uint64_t(uintptr(s.memory)),
			C.size_t(n)))
		if err == nil {
			err = d.do(s.stream.Synchronize)
		}
		if err != nil {
			return d.errorf("%w", err)
		}
	}
	return nil
}

// newStage makes a stage. There are as many as there have been reads at once.
func (d *Device) newStage() (s *stage, err error) {
	s = &stage{}
	if s.memory, err = d.hostAlloc(stageBytes); err != nil {
		return nil, err
	}
	if s.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return nil, errors.Join(err, cu.MemFreeHost(s.memory))
	}
	return s, nil
}
