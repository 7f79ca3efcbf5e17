// Command parquet compares our decoder of Parquet tables (tools/parquet) with github.com/parquet-go/parquet-go and
// Arrow's. It is a module of its own, since nothing else needs these.
//
//	go run . damage FILE...    how each reads damaged copies of small files
//	go run . speed FILE...     processor time of each for large files (make_tables.py), in turn
//
// Damage reads each file as it is, and then 200 damaged copies of each file that could be read: a bit changed anywhere
// or in the metadata, up to eight bytes changed, cut off, some bytes cut out. All read from memory, each in a process
// with 8 GiB of address space, which is started again when it ends or a file takes more than ten seconds. The calls of
// a library are within a recover, and parquet-go may read 64 MB and return a million values a file: without these
// limits it
// would not end on some.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"log"
	"math"
	"os"

	"github.com/hopfeed/hopfeed/internal/vfs"
	ours "github.com/hopfeed/hopfeed/tools/parquet"
	theirs "github.com/parquet-go/parquet-go"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: parquet damage|speed FILE...")
	}
	var err error
	switch command, rest := os.Args[1], os.Args[2:]; command {
	case "damage":
		err = damage(rest)
	case "speed":
		err = speed(rest)
	case "read": // by damage, in processes of their own
		err = serve(rest[0])
	default:
		err = fmt.Errorf("%s: no such command", command)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// library is a decoder.
type library struct {
	name string
	// digest reads all values of a file, and returns a hash of them.
	digest func(data []byte) (uint64, error)
	// sum returns a function that reads all values of a file, and adds up the numbers.
	sum func(data []byte) (func() (float64, error), error)
}

var libraries = []library{{"ours", ourDigest, ourSum}, {"parquet-go", theirDigest, theirSum},
	{"arrow", arrowDigest, arrowSum}}

// inMemory is a disk with one file.
func inMemory(data []byte) (vfs.FS, error) {
	disk := vfs.NewMem()
	f, err := disk.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	return disk, f.Commit()
}

const path = "/x.parquet"

// eachCells calls body with the cells of every column that our decoder reads.
func eachCells(disk vfs.FS, memory int64, body func(cells *ours.Cells)) error {
	t, err := ours.Open(disk, path, memory)
	if err != nil {
		return err
	}
	defer t.Close()
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Kind == ours.Other {
			continue
		}
		r, err := t.Read(c)
		if err != nil {
			return err
		}
		for {
			cells, err := r.Next(1 << 12)
			if err == io.EOF {
				break
			} else if err != nil {
				return errors.Join(err, r.Close())
			}
			body(cells)
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

// add hashes a number.
func add(h hash.Hash64, v uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, v)) }

func ourDigest(data []byte) (uint64, error) {
	disk, err := inMemory(data)
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	err = eachCells(disk, 64<<20, func(cells *ours.Cells) {
		for i := range cells.N {
			if cells.Null[i] {
				add(h, math.MaxUint64)
				continue
			}
			h.Write(cells.Text(i, nil))
			if cells.Starts != nil && cells.Starts[i] {
				add(h, 1)
			}
		}
	})
	return h.Sum64(), err
}

func ourSum(data []byte) (func() (float64, error), error) {
	disk, err := inMemory(data)
	return func() (sum float64, err error) {
		err = eachCells(disk, 0, func(cells *ours.Cells) {
			sum += total(cells.Floats, nil) + total(cells.Ints, nil)
		})
		return sum, err
	}, err
}

// limited is a file in memory that fails when more than left bytes are read.
type limited struct {
	data []byte
	left int
}

func (l *limited) ReadAt(p []byte, at int64) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("too many bytes are read")
	}
	if at < 0 || at > int64(len(l.data)) {
		return 0, io.EOF
	}
	n := copy(p, l.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// eachPage calls body with every page that parquet-go reads.
func eachPage(data []byte, readable int, body func(kind theirs.Kind, p theirs.Page) error) error {
	f, err := theirs.OpenFile(&limited{data, readable}, int64(len(data)), theirs.SkipPageIndex(true),
		theirs.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	for _, g := range f.RowGroups() {
		for _, chunk := range g.ColumnChunks() {
			pages := chunk.Pages()
			for {
				p, err := pages.ReadPage()
				if err == io.EOF {
					break
				}
				if err == nil {
					err = body(chunk.Type().Kind(), p)
					theirs.Release(p)
				}
				if err != nil {
					return errors.Join(err, pages.Close())
				}
			}
			if err := pages.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func theirDigest(data []byte) (uint64, error) {
	h, left := fnv.New64a(), 1_000_000
	buffer := make([]theirs.Value, 1000)
	err := eachPage(data, 64e6, func(_ theirs.Kind, p theirs.Page) error {
		for r := p.Values(); ; {
			n, err := r.ReadValues(buffer)
			if left -= n; left < 0 {
				return errors.New("too many values are returned")
			}
			for _, v := range buffer[:n] {
				add(h, uint64(int64(v.RepetitionLevel())<<32|int64(v.DefinitionLevel())))
				h.Write(v.Bytes())
			}
			if err == io.EOF || err == nil && n == 0 {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	return h.Sum64(), err
}

func theirSum(data []byte) (func() (float64, error), error) {
	return func() (sum float64, err error) {
		err = eachPage(data, math.MaxInt, func(kind theirs.Kind, p theirs.Page) error {
			values := p.Data()
			var index []int32
			if d := p.Dictionary(); d != nil {
				index, values = values.Int32(), d.Page().Data()
			}
			switch kind {
			case theirs.Float:
				sum += total(values.Float(), index)
			case theirs.Double:
				sum += total(values.Double(), index)
			case theirs.Int32:
				sum += total(values.Int32(), index)
			case theirs.Int64:
				sum += total(values.Int64(), index)
			default:
				return fmt.Errorf("column of %v: want numbers", kind)
			}
			return nil
		})
		return sum, err
	}, nil
}

// total adds up values, or values[i] for each i in index if there is one.
func total[T float32 | float64 | int32 | int64](values []T, index []int32) (sum float64) {
	if index == nil {
		for _, v := range values {
			sum += float64(v)
		}
	}
	for _, i := range index {
		sum += float64(values[i])
	}
	return sum
}
