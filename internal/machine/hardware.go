package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ErrHardware is returned when a description of hardware cannot be used.
var ErrHardware = errors.New("unusable description of hardware")

// Hardware describes a machine, to plan for one that is not there. Rates are
// what is reached, not what a data sheet promises; 0 where nothing is known.
type Hardware struct {
	Cores  int
	Memory units.Bytes // of the host, that a job may use
	// Pinnable is how much of Memory can be locked, for devices to copy from; 0: all.
	Pinnable units.Bytes
	// MemoryBandwidth is of all cores reading in order, GatherBandwidth of copying scattered rows, in bytes of rows.
	MemoryBandwidth, GatherBandwidth units.Rate
	Devices                          Devices
	Storage                          Storage
	Bucket                           Bucket
}

// Bucket is an object store in which the data are, if its rate is not 0.
type Bucket struct {
	Read  units.Rate  // over the network, by all requests on their way
	Write units.Rate  // 0: as Read
	All   units.Rate  // of all machines that share it, together; 0: any number of times Read
	Cache units.Bytes // of what is read from it, that Storage keeps
}

// Devices are accelerators that are all the same.
type Devices struct {
	Count     int         // 0: the processor alone
	Memory    units.Bytes // of each
	Link      units.Rate  // from host memory to each
	Peer      units.Rate  // from the memory of another device; 0: by Link
	Bandwidth units.Rate  // of each one's memory
	GFLOPS    int         // of each: 10^9 operations a second in products of float32 matrices
}

// Storage is the disks that data are spread over, all the same.
type Storage struct {
	Count       int
	Read, Write units.Rate // of each, in long runs
}

// ReadRate and WriteRate are the sums over all disks.
func (s Storage) ReadRate() units.Rate  { return units.Rate(s.Count) * s.Read }
func (s Storage) WriteRate() units.Rate { return units.Rate(s.Count) * s.Write }

// setting is a line of a description.
type setting struct {
	key      string
	value    interface{ Set(string) error }
	required bool
}

const maxHardwareBytes = 1 << 16

// settings are the keys of a description, in the order of its documentation.
func (h *Hardware) settings() []setting {
	devices := h.Devices != Devices{}
	return []setting{
		{"cores", (*count)(&h.Cores), true},
		{"memory", &h.Memory, true},
		{"pinnable", &h.Pinnable, false},
		{"memory_bandwidth", &h.MemoryBandwidth, true},
		{"gather_bandwidth", &h.GatherBandwidth, false},
		{"devices.count", (*count)(&h.Devices.Count), false},
		{"devices.memory", &h.Devices.Memory, devices},
		{"devices.link", &h.Devices.Link, devices},
		{"devices.peer", &h.Devices.Peer, false},
		{"devices.bandwidth", &h.Devices.Bandwidth, false},
		{"devices.gflops", (*count)(&h.Devices.GFLOPS), false},
		{"storage.count", (*count)(&h.Storage.Count), false},
		{"storage.read", &h.Storage.Read, true},
		{"storage.write", &h.Storage.Write, true},
		{"bucket.read", &h.Bucket.Read, false},
		{"bucket.write", &h.Bucket.Write, false},
		{"bucket.all", &h.Bucket.All, false},
		{"bucket.cache", &h.Bucket.Cache, false},
	}
}

// count is a whole number above zero.
type count int

func (c *count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<30 {
		return fmt.Errorf("%q is no number of things (write a whole number from 1 on)", s)
	}
	*c = count(n)
	return nil
}

// ReadHardware reads a description in YAML:
//
//	cores: 48
//	memory: 380GB
//	pinnable: 100GB           # of it, that a job may lock (ulimit -l); if left out, all
//	memory_bandwidth: 200GB/s
//	gather_bandwidth: 60GB/s  # if left out, a third of memory_bandwidth: reading, and writing elsewhere
//	devices:                  # if left out, the processor computes
//	  count: 4                # if left out, 1
//	  memory: 48GB            # of each, as what follows
//	  link: 25GB/s            # from host memory
//	  peer: 50GB/s            # from another device; if left out, by link
//	  bandwidth: 768GB/s      # of its own memory; may be left out
//	  gflops: 20000           # in float32; may be left out
//	storage:
//	  count: 2                # if left out, 1
//	  read: 6.9GB/s           # of each, in long runs
//	  write: 4GB/s
//	bucket:                   # if left out, the data are in storage
//	  read: 1GB/s             # over the network
//	  write: 1GB/s            # if left out, as read
//	  all: 100GB/s            # of all machines together (plan --machines); if left out, no limit
//	  cache: 1TB              # of it, that storage keeps; if left out, nothing
//
// What is wrong is ErrHardware, and told by file, line and key.
func ReadHardware(fsys vfs.FS, path string) (h Hardware, err error) {
	text, err := vfs.ReadFile(fsys, path, maxHardwareBytes)
	if errors.Is(err, vfs.ErrSize) {
		return h, fmt.Errorf("%w: %s: %w", ErrHardware, path, vfs.WithoutPath(err))
	}
	if err != nil {
		return h, err
	}
	if h, err = parseHardware(text); err != nil {
		return Hardware{}, fmt.Errorf("%w: %s: %w", ErrHardware, path, err)
	}
	return h, nil
}

func parseHardware(text []byte) (h Hardware, err error) {
	var document, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&document); err == io.EOF {
		return h, errors.New("it is empty (want cores, memory, memory_bandwidth, storage and, if there are any, " +
			"devices)")
	} else if err != nil {
		return h, err
	}
	if documents.Decode(&more) != io.EOF {
		return h, errors.New("want one document")
	}
	given := map[string]int{} // the line of each key
	if err := h.readMapping(document.Content[0], "", given); err != nil {
		return h, err
	}
	for _, s := range h.settings() {
		if s.required && given[s.key] == 0 {
			return h, fmt.Errorf("%s is missing", s.key)
		}
	}
	if h.Devices.Memory > 0 {
		h.Devices.Count = max(h.Devices.Count, 1)
	}
	h.Storage.Count = max(h.Storage.Count, 1)
	if h.GatherBandwidth == 0 {
		h.GatherBandwidth = h.MemoryBandwidth / 3
	}
	return h, nil
}

// readMapping takes the keys of a mapping, which are called prefix and their name.
func (h *Hardware) readMapping(node *yaml.Node, prefix string, given map[string]int) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want keys and values", node.Line)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		key := prefix + name.Value
		if line := given[key]; line != 0 {
			return fmt.Errorf("line %d: %s was given in line %d", name.Line, key, line)
		}
		given[key] = name.Line
		if prefix == "" && (key == "devices" || key == "storage" || key == "bucket") {
			if err := h.readMapping(value, key+".", given); err != nil {
				return err
			}
			continue
		}
		if err := h.set(key, value); err != nil {
			return fmt.Errorf("line %d: %w", name.Line, err)
		}
	}
	return nil
}

func (h *Hardware) set(key string, value *yaml.Node) error {
	var known []string
	for _, s := range h.settings() {
		if s.key == key {
			if err := s.value.Set(value.Value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if reflect.ValueOf(s.value).Elem().IsZero() {
				return fmt.Errorf("%s: must be above zero", key)
			}
			return nil
		}
		known = append(known, s.key)
	}
	return fmt.Errorf("there is no %q (want %s)", key, strings.Join(known, ", "))
}
