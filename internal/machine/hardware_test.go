package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// paperMachine is the machine of preprop-gnn, Appendix C.
const paperMachine = `
cores: 48
memory: 380GB # two sockets
memory_bandwidth: 200GB/s
devices:
  count: 4
  memory: 48GB
  link: 25GB/s
  gflops: 20000
storage: {count: 2, read: 6.5GB/s, write: 4GB/s}
`

// put writes a file into a directory that is there.
func put(t *testing.T, fsys vfs.FS, name, text string) {
	t.Helper()
	if err := vfs.WriteFile(fsys, name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func readHardware(t *testing.T, text string) (Hardware, error) {
	t.Helper()
	disk := vfs.NewMem()
	put(t, disk, "machine.yaml", text)
	return ReadHardware(disk, "machine.yaml")
}

func TestHardwareIsReadAsDescribed(t *testing.T) {
	got, err := readHardware(t, paperMachine)
	want := Hardware{
		Cores: 48, Memory: 380e9, MemoryBandwidth: 200e9, GatherBandwidth: 66_666_666_666,
		Devices: Devices{Count: 4, Memory: 48e9, Link: 25e9, GFLOPS: 20000},
		Storage: Storage{Count: 2, Read: 6.5e9, Write: 4e9},
	}
	if err != nil || got != want {
		t.Errorf("got %+v (%v)\nwant %+v", got, err, want)
	}
	if got.Storage.ReadRate() != 13e9 || got.Storage.WriteRate() != 8e9 {
		t.Errorf("two disks read %s and write %s", got.Storage.ReadRate(), got.Storage.WriteRate())
	}

	got, err = readHardware(t,
		"cores: 2\nmemory: 16GiB\npinnable: 64MiB\nmemory_bandwidth: 10GB/s\ngather_bandwidth: 5GB/s\nstorage: "+
			"{read: 1GB/s, write: 1GB/s}\n")
	want = Hardware{Cores: 2, Memory: 16 << 30, Pinnable: 64 << 20, MemoryBandwidth: 10e9, GatherBandwidth: 5e9,
		Storage: Storage{Count: 1, Read: 1e9, Write: 1e9}}
	if err != nil || got != want {
		t.Errorf("got %+v (%v)\nwant %+v", got, err, want)
	}
}

func TestWhatIsWrongInHardwareIsToldByPlace(t *testing.T) {
	const processor = "cores: 2\nmemory: 16GiB\nmemory_bandwidth: 10GB/s\nstorage: {read: 1GB/s, write: 1GB/s}\n"
	for _, c := range []struct{ name, text, want string }{
		{"an unknown key", processor + "gpus: 1\n", `line 5: there is no "gpus" (want cores, memory,`},
		{"an unknown key in a section", processor + "devices:\n  memory: 1GB\n  speed: 3\n", `line 7: there is no ` +
			`"devices.speed"`},
		{"a key of a section outside", "link: 1GB/s\n", `line 1: there is no "link"`},
		{"a key twice", "cores: 2\ncores: 3\n", "line 2: cores was given in line 1"},
		{"no number", "cores: many\n", `line 1: cores: "many" is no number of things`},
		{"a number below one", "cores: 0\n", `line 1: cores: "0"`},
		{"no size", "cores: 2\nmemory: 16 apples\n", `line 2: memory: "16 apples" is no size`},
		{"no memory", "memory: 0\n", "line 1: memory: must be above zero"},
		{"no rate", "memory_bandwidth: 10GB\n", `line 1: memory_bandwidth: "10GB" is no rate`},
		{"a list for a value", "memory: [1GB]\n", "line 1: memory: "},
		{"a value for a section", "storage: 1GB/s\n", "line 1: want keys and values"},
		{"a list", "- cores\n", "line 1: want keys and values"},
		{"nothing", "# nothing\n", "it is empty"},
		{"no YAML", "cores: [\n", "line 1"},
		{"two documents", processor + "---\n" + processor, "one document"},
		{"a key that is missing", "cores: 2\n", "memory is missing"},
		{"a section that is missing", "cores: 2\nmemory: 1GB\nmemory_bandwidth: 1GB/s\n", "storage.read is missing"},
		{"devices without memory", processor + "devices: {count: 2}\n", "devices.memory is missing"},
		{"far too much", strings.Repeat("#\n", maxHardwareBytes), "at most 65536 are expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readHardware(t, c.text)
			if !errors.Is(err, ErrHardware) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "machine.yaml: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, c.want)
			}
		})
	}
	if _, err := ReadHardware(vfs.NewMem(), "none.yaml"); err == nil || errors.Is(err, ErrHardware) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzParseHardware(f *testing.F) {
	f.Add([]byte(paperMachine))
	f.Add([]byte("a: &x [*x]\n<<: *x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHardware(text)
		if err == nil && (h.Cores < 1 || h.Memory < 1 || h.Storage.Count < 1 || h.Devices.Count > 0 &&
			h.Devices.Link < 1) {
			t.Errorf("%q gives %+v", text, h)
		}
	})
}
