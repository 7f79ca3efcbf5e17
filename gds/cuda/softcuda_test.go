//go:build cuda && cgo && linux

package cuda_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

func TestMemoryIsHandedOutUpToWhatTheDeviceHas(t *testing.T) {
	testdevice.Software(t).Memory(8 << 20)
	d := open(t, 0)
	first, err := d.Alloc(6 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Alloc(3 << 20)
	if !errors.Is(err, gds.ErrOutOfMemory) || !strings.Contains(err.Error(), "3145728 bytes, 2 MiB of 8 MiB left") {
		t.Errorf("3 MiB of 2: %v", err)
	}
	second, err := d.Alloc(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if u := d.Usage(); u.InUse != 8<<20 || u.Peak != 8<<20 {
		t.Errorf("%+v", u)
	}
	if info, free, err := cuda.Describe(0, cuda.Options{}); err != nil || info != d.Info() || free != 0 {
		t.Errorf("a full device: %+v, %d bytes free, %v", info, free, err)
	}
	if err := errors.Join(first.Free(), second.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

// use does a little of everything on a device.
func use() (err error) {
	d, err := cuda.Open(0, cuda.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	pinned, err := d.AllocPinned(8000)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pinned.Free()) }()
	b, err := d.Alloc(8000)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Free()) }()
	other, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	x := gds.NewTensor(b, 40, 50, gds.Float32)
	s.Copy(x, gds.NewTensor(pinned, 40, 50, gds.Float32))
	s.Fill(x.Columns(0, 9), 1)
	s.SumRows(x.Slice(0, 1), 0, x.Slice(1, 40))
	other.WaitEvent(s.Record())
	other.Copy(gds.NewTensor(pinned, 40, 50, gds.Float32).Columns(0, 9), x.Columns(0, 9))
	return other.Synchronize(context.Background())
}

func TestEveryCallThatFailsIsAnError(t *testing.T) {
	soft := testdevice.Software(t)
	for _, function := range []string{
		"cuDeviceGet", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData",
		"cuModuleGetFunction",
		"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamWaitEvent", "cuEventCreate",
		"cuEventRecord", "cuMemAlloc_v2", "cuMemFree_v2",
		"cuMemHostAlloc", "cuMemFreeHost", "cuMemsetD8Async", "cuMemcpyAsync", "cuMemcpy2DAsync_v2", "cuLaunchKernel",
	} {
		fails := 0
		for n := int32(1); ; n++ {
			cuda.Forget()
			soft.Fail(function, n, testdevice.Unknown)
			if err := use(); err == nil {
				break
			}
			fails++
		}
		if fails == 0 {
			t.Errorf("%s is not called, or its failure is no error", function)
		}
	}
}

func TestAContextAndItsKernelsAreMadeOnceInAProcess(t *testing.T) {
	soft := testdevice.Software(t)
	if err := use(); err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{"cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuDevicePrimaryCtxRelease_v2"} {
		soft.Fail(function, 1, testdevice.Unknown)
		_, _, err := cuda.Describe(0, cuda.Options{})
		if err := errors.Join(err, use()); err != nil {
			t.Errorf("%s is called again: %v", function, err)
		}
	}
}

func TestAGPUThatIsTooOldIsNotListed(t *testing.T) {
	testdevice.Software(t).Capability(7)
	_, _, err := cuda.Describe(0, cuda.Options{})
	if err == nil || !strings.Contains(err.Error(), "compute capability 7.0: want 8.0") {
		t.Errorf("described: %v", err)
	}
	if _, err = cuda.Open(0, cuda.Options{}); err == nil || !strings.Contains(err.Error(), "compute capability 7.0") {
		t.Errorf("opened: %v", err)
	}
}

// What the software driver takes, others take too: handles end with their objects, streams belong to a context, small
// memory is aligned to 512 bytes alone.
func TestTheSoftwareDriverIsStrict(t *testing.T) {
	testdevice.Software(t)
	first, second := open(t, 0), open(t, 1)
	var s cu.Stream
	err := first.Do(func() (err error) {
		if s, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return err
		}
		var all uint64
		for range 7 {
			p, err := cu.MemAlloc(1000)
			if err != nil {
				return err
			}
			all |= uint64(p)
			if err := cu.MemFree(p); err != nil || cu.MemFree(p) == nil {
				t.Errorf("memory is freed twice: %v", err)
			}
		}
		if all%1024 != 512 {
			t.Errorf("addresses are multiples of more than 512, or less: %#x", all)
		}
		return s.Synchronize()
	})
	if err := second.Do(func() error { return s.Synchronize() }); err == nil {
		t.Error("a stream is used in another context")
	}
	err = errors.Join(err, first.Do(func() error {
		stream := s // Destroy forgets it
		if err := s.Destroy(); err != nil {
			return err
		}
		if stream.Synchronize() == nil {
			t.Error("a stream is used after it was destroyed")
		}
		return nil
	}), first.Close(), second.Close())
	if err != nil {
		t.Error(err)
	}
}

func TestCuBLASIsTheFirstThatWorks(t *testing.T) {
	testdevice.Software(t)
	library := os.Getenv("HOPFEED_LIBCUBLAS")
	if library == "" {
		t.Skip("for the software cuBLAS alone")
	}
	for _, c := range []struct{ names, want string }{
		{"/none:" + library, "cuBLAS 12.0"}, {library, "cuBLAS 12.0"}, {"/none", "kernels of this program: there is no"},
	} {
		t.Setenv("HOPFEED_LIBCUBLAS", c.names)
		cuda.Forget()
		info, _, err := cuda.Describe(0, cuda.Options{})
		if err != nil || !strings.HasPrefix(info.Products, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.names, info.Products, err, c.want)
		}
	}
	cuda.Forget()
}

func TestADeviceThatIsLostIsAnErrorAndNothingHangs(t *testing.T) {
	soft := testdevice.Software(t)
	d := open(t, 0)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(3 * 512 * 512 * 4)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	x := gds.NewTensor(b, 3*512, 512, gds.Float32)
	for range 20 {
		s.Gemm(false, false, 1, x.Slice(0, 512), x.Slice(512, 1024), 0, x.Slice(1024, 1536))
	}
	busy := s.Record()
	waited := make(chan error)
	go func() { waited <- busy.Wait(context.Background()) }()
	soft.Lose(true)
	lost := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "cuda device 0") {
			t.Errorf("%s: %v", what, err)
		}
	}
	lost("waiting", <-waited)
	s.Fill(x, 1)
	lost("working", s.Synchronize(context.Background()))
	_, err = d.Alloc(1)
	lost("allocating", err)
	_, err = d.NewStream()
	lost("opening a stream", err)
	lost("closing a stream", s.Close())
	lost("freeing", b.Free())
	if err := errors.Join(second.Free(), d.Close()); err != nil {
		t.Errorf("what freeing has told is told again: %v", err)
	}
}

func TestADeviceThatMapsNoHostMemoryDoesNotGatherFromIt(t *testing.T) {
	testdevice.Software(t).Map(false)
	d := open(t, 0)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := d.AllocPinned(8)
	if err != nil {
		t.Fatal(err)
	}
	x := gds.NewTensor(b, 1, 2, gds.Uint32)
	s.Gather(x, gds.NewTensor(pinned, 1, 2, gds.Uint32), x.Columns(0, 1))
	if err := s.Close(); d.Info().MapsPinned || err == nil || !strings.Contains(err.Error(), "Gather") {
		t.Errorf("%+v, %v", d.Info(), err)
	}
	if err := errors.Join(b.Free(), pinned.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestAGroupThatCannotBeMadeIsDroppedAndTheStreamGoesOn(t *testing.T) {
	soft := testdevice.Software(t)
	d := open(t, 0)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(400)
	if err != nil {
		t.Fatal(err)
	}
	grouper, x := s.(gds.Grouper), gds.NewTensor(b, 10, 10, gds.Float32)
	fill := func(value float32) error {
		if err := grouper.BeginGroup(); err != nil {
			return err
		}
		s.Fill(x, value)
		return grouper.EndGroup()
	}
	for i, function := range []string{"cuGraphInstantiateWithFlags", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
		"cuLaunchKernel", "cuGraphLaunch", "cuGraphExecUpdate_v2"} {
		s.Fill(x, float32(i))
		soft.Fail(function, 1, testdevice.Unknown)
		err := fill(-1)
		want := float32(i)
		if function == "cuGraphExecUpdate_v2" { // another graph is made
			want = -1
		}
		if (err == nil) != (want == -1) {
			t.Errorf("%s fails: %v", function, err)
		}
		got := make([]float32, 100)
		if err := gds.Download(d, s, got, x); err != nil || got[0] != want || got[99] != want {
			t.Errorf("%s fails: %v, %v, want %v", function, got[0], err, want)
		}
		if err := fill(100); err != nil {
			t.Errorf("after %s: %v", function, err)
		}
	}
	if made, changed := soft.Graphs(), soft.Changes(); made < 2 || changed == 0 {
		t.Errorf("%d graphs were made, %d times one was changed", made, changed)
	}
	if err := errors.Join(s.Close(), b.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}
