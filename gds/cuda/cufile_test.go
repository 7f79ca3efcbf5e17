//go:build cuda && cgo && linux

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// cuFileMode is the environment variable by which a test runs itself again with another cuFile.
const cuFileMode = "HOPFEED_TEST_CUFILE"

// softwareFile is what the software cuFile lets tests set: see softcuda/cufile.cpp.
type softwareFile struct {
	fail        func(n, with int32)
	short       func(bytes uint64)
	failPins    func(yes int32)
	slow        func(milliseconds int32)
	held, reads func() uint64
}

func softwareCuFile(t *testing.T) (s softwareFile) {
	handle, err := purego.Dlopen(os.Getenv("HOPFEED_LIBCUFILE"), purego.RTLD_NOW)
	if err == nil {
		_, err = purego.Dlsym(handle, "softcufile_fail")
	}
	if err != nil {
		t.Skip("for the software cuFile alone")
	}
	purego.RegisterLibFunc(&s.fail, handle, "softcufile_fail")
	purego.RegisterLibFunc(&s.short, handle, "softcufile_short")
	purego.RegisterLibFunc(&s.failPins, handle, "softcufile_fail_pins")
	purego.RegisterLibFunc(&s.slow, handle, "softcufile_slow")
	purego.RegisterLibFunc(&s.held, handle, "softcufile_held")
	purego.RegisterLibFunc(&s.reads, handle, "softcufile_reads")
	t.Cleanup(func() {
		s.fail(0, 0)
		s.short(0)
		s.failPins(0)
		s.slow(0)
		if n := s.held(); n != 0 {
			t.Errorf("%d files and buffers are still registered with cuFile", n)
		}
	})
	return s
}

// aFile writes a file of random bytes where direct reads can be had, or skips the test.
func aFile(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	path, content = filepath.Join(t.TempDir(), "file"), make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content)
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().(vfs.Directer).OpenDirect(path)
	if errors.Is(err, vfs.ErrNoDirect) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return path, content
}

// With each kind of cuFile, the suite of files passes, and receipts and the list of devices say what there is.
func TestFilesAreReadByWhatThereIsOfCuFile(t *testing.T) {
	soft := softwareCuFile(t)
	path, _ := aFile(t, 4096)
	best, storage := "gds:", "GPUDirect Storage (nvidia-fs 2.17)"
	var system syscall.Statfs_t
	if err := syscall.Statfs(path, &system); err != nil {
		t.Fatal(err)
	}
	if system.Type != 0xef53 && system.Type != 0x58465342 {
		best = "gds-compat: cuFile reads through memory of the host: nvidia-fs 2.17 has no way to file systems of type"
	}
	_ = soft
	library := os.Getenv("HOPFEED_LIBCUFILE")
	for _, c := range []struct{ mode, library, receipt, storage string }{
		{"gds", library, best, storage},
		{"compat", library, "gds-compat: cuFile reads through memory of the host: nvidia-fs is not loaded",
			"cuFile in compatibility mode: nvidia-fs is not loaded"},
		{"refused", library, "direct: cuFile does not start: cuFile error 5001: nvidia-fs is not loaded",
			"through memory of the host: cuFile does not start"},
		{"gds", filepath.Join(t.TempDir(), "none"), "direct: there is no cuFile (",
			"through memory of the host: there is no cuFile ("},
		{"gds", "", "direct: there is no cuFile (it is not looked for where HOPFEED_LIBCUDA names another driver",
			"through memory of the host: there is no cuFile"},
	} {
		again := exec.Command(os.Args[0], "-test.run", "^TestSuite$/^files$|^TestReceiptOfAFile$", "-test.v")
		again.Env = append(os.Environ(), "SOFTCUFILE="+c.mode, "HOPFEED_LIBCUFILE="+c.library, cuFileMode+"="+path)
		out, err := again.CombinedOutput()
		if err != nil {
			t.Errorf("%s, %q: %v\n%s", c.mode, c.library, err, out)
		}
		for _, want := range []string{"receipt " + c.receipt, "storage " + c.storage} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s, %q: no %q in\n%s", c.mode, c.library, want, out)
			}
		}
	}
}

// TestReceiptOfAFile is run by the test above.
func TestReceiptOfAFile(t *testing.T) {
	path := os.Getenv(cuFileMode)
	if path == "" {
		t.Skip("it is run by another test")
	}
	d := open(t, 0)
	f, err := d.OpenFile(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("receipt %s: %s\nstorage %s\n", f.Receipt().Path, f.Receipt().Reason, d.Info().Storage)
	if err := errors.Join(f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// reading reads a file into a device's memory, and compares it with its checksum there.
func reading(t *testing.T, d *cuda.Device, f gds.File, content []byte, at, length, offset int64) error {
	t.Helper()
	b, err := d.Alloc(at + length)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := d.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(s.Close(), sum.Free(), b.Free()); err != nil {
			t.Error(err)
		}
	}()
	if err := f.ReadInto(b, at, length, offset); err != nil {
		return err
	}
	s.Checksum(gds.NewTensor(sum, 1, 1, gds.Uint32),
		gds.Tensor{Buf: b, Offset: at, Rows: 1, Cols: int(length), Stride: int(length), DType: gds.Uint8})
	got := make([]uint32, 1)
	if err := gds.Download(d, s, got, gds.NewTensor(sum, 1, 1, gds.Uint32)); err != nil {
		t.Fatal(err)
	}
	if want := crc32.Checksum(content[offset:offset+length], crc32.MakeTable(crc32.Castagnoli)); got[0] != want {
		t.Errorf("%d bytes at %d have checksum %#x on the device, want %#x", length, offset, got[0], want)
	}
	return nil
}

func TestDirectReadsTakeOverWhereTheyAreFaster(t *testing.T) {
	soft := softwareCuFile(t)
	const size = 1 << 20
	path, content := aFile(t, size)
	d := open(t, 0)
	f, err := d.OpenFile(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	soft.slow(50)
	before := soft.reads()
	for range 40 { // by both in turn, until each has had 16
		if err := reading(t, d, f, content, 0, size, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := soft.reads() - before; n != 16 {
		t.Errorf("%d reads by cuFile, want 16", n)
	}
	if r := f.Receipt(); r.Path != "direct" || !strings.Contains(r.Reason, "direct reads were faster than cuFile") {
		t.Errorf("%+v", r)
	}
	if err := errors.Join(f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestCuFileReadsIntoMemoryOfTheDevice(t *testing.T) {
	soft := softwareCuFile(t)
	const size = 300_000
	path, content := aFile(t, size)
	d := open(t, 1)
	f, err := d.OpenFile(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	if p := f.Receipt().Path; p != "gds" && p != "gds-compat" {
		t.Fatalf("%+v", f.Receipt())
	}
	before := soft.reads()
	for _, c := range [][3]int64{{0, size, 0}, {4096, 5, 8192}, {8192, 100_000, 4096}, {0, size - 4096, 4096},
		{0, 4096, 0}} {
		for _, most := range []uint64{0, 4096, 40_960} { // short reads
			for _, pins := range []int32{0, 1} {
				soft.short(most)
				soft.failPins(pins)
				if err := reading(t, d, f, content, c[0], c[1], c[2]); err != nil {
					t.Errorf("%v, at most %d bytes: %v", c, most, err)
				}
			}
		}
	}
	if soft.reads() < before+30 {
		t.Errorf("%d reads", soft.reads()-before)
	}
	var together sync.WaitGroup
	soft.short(0)
	for range 8 {
		together.Go(func() {
			if err := reading(t, d, f, content, 0, 200_000, 4096); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if err := errors.Join(f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestWhatCuFileRefusesIsReadOtherwise(t *testing.T) {
	soft := softwareCuFile(t)
	path, content := aFile(t, 100_000)
	d := open(t, 0)
	for _, c := range []struct {
		with    int32
		failing error  // or nil: it is read otherwise
		reason  string // then
	}{
		{5008, nil, "cuFile error 5008: the file is not supported"},
		{5099, nil, "cuFile error 5099"},
		{-int32(syscall.EINVAL), nil, "it refused a read at 4096"},
		{-int32(syscall.EIO), syscall.EIO, ""},
	} {
		f, err := d.OpenFile(vfs.OS(), path)
		if err != nil {
			t.Fatal(err)
		}
		first := f.Receipt()
		soft.fail(1, c.with)
		err = reading(t, d, f, content, 0, 50_000, 4096)
		soft.fail(0, 0)
		if !errors.Is(err, c.failing) || (err == nil) != (c.failing == nil) || err != nil &&
			!strings.Contains(err.Error(), path) {
			t.Errorf("%d: %v", c.with, err)
		}
		want := gds.Receipt{Path: "direct", Reason: c.reason}
		if c.failing != nil {
			want = first
		}
		if r := f.Receipt(); r.Path != want.Path || !strings.HasPrefix(r.Reason, want.Reason) {
			t.Errorf("%d: read by %+v, want %+v", c.with, r, want)
		}
		before := soft.reads()
		if err := reading(t, d, f, content, 4096, 50_001, 8192); err != nil {
			t.Errorf("after %d: %v", c.with, err)
		}
		if again := soft.reads() > before; again != (c.failing != nil) {
			t.Errorf("after %d: cuFile reads: %t", c.with, again)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// Pinned memory is the host's: a file is read into it past the page cache, also where cuFile has it.
func TestFilesOfCuFileAreReadIntoPinnedMemory(t *testing.T) {
	soft := softwareCuFile(t)
	path, content := aFile(t, 50_000)
	d := open(t, 0)
	f, err := d.OpenFile(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.AllocPinned(50_000)
	if err != nil {
		t.Fatal(err)
	}
	before := soft.reads()
	if err := f.ReadInto(b, 0, 50_000, 0); err != nil || !bytes.Equal(b.Bytes(), content) || soft.reads() != before {
		t.Errorf("%v, the right bytes: %t, %d reads by cuFile", err, bytes.Equal(b.Bytes(), content),
			soft.reads()-before)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Synchronize(context.Background()), s.Close(), b.Free(), f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
