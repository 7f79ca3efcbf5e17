package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	ours "github.com/hopfeed/hopfeed/tools/parquet"
	theirs "github.com/parquet-go/parquet-go"
)

// digest is a checksum of all values that a library has read.
type digest uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (d *digest) add(values []byte) {
	*d = digest(crc32.Update(uint32(*d), castagnoli, values))
}

// libraries read all values of a file, and what it says of nulls and lists.
var libraries = []struct {
	name string
	read func(data []byte) (digest, error)
}{{"ours", readOurs}, {"parquet-go", readTheirs}, {"arrow", readArrow}}

func readOurs(data []byte) (d digest, err error) {
	const path, memory = "/x.parquet", 64 << 20
	disk := vfs.NewMem()
	if err := folder.WriteFiles(disk, "/", []string{path}, [][]byte{data}); err != nil {
		return d, err
	}
	t, err := ours.Open(disk, path, memory)
	if err != nil {
		return d, err
	}
	defer t.Close()
	for i := range t.Columns {
		if t.Columns[i].Kind == ours.Other {
			continue
		}
		r, err := t.Read(&t.Columns[i])
		if err != nil {
			return d, err
		}
		for cells := (*ours.Cells)(nil); err == nil; {
			if cells, err = r.Next(1 << 12); err == nil {
				d.addCells(cells)
			}
		}
		if err := r.Close(); err != nil {
			return d, err
		}
		if err != io.EOF {
			return d, err
		}
	}
	return d, nil
}

func (d *digest) addCells(c *ours.Cells) {
	d.add(dtype.BytesOf(c.Floats))
	d.add(dtype.BytesOf(c.Ints))
	for i := range c.N {
		if c.Null[i] {
			d.add([]byte("null"))
		} else if c.Floats == nil && c.Ints == nil {
			d.add(c.Text(i, nil))
		}
		if c.Starts != nil && c.Starts[i] {
			d.add([]byte("row"))
		}
	}
}

// limited is a file in memory that fails when more than left bytes are read.
type limited struct {
	*bytes.Reader
	left int
}

func (l *limited) ReadAt(p []byte, at int64) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("too many bytes are read")
	}
	return l.Reader.ReadAt(p, at)
}

// readTheirs may read 64 MB and a million values by parquet-go: without limits it would not end on some files.
func readTheirs(data []byte) (d digest, err error) {
	from := &limited{bytes.NewReader(data), 64e6}
	f, err := theirs.OpenFile(from, int64(len(data)), theirs.SkipPageIndex(true), theirs.SkipBloomFilters(true))
	if err != nil {
		return d, err
	}
	left, buffer := 1_000_000, make([]theirs.Value, 1000)
	page := func(p theirs.Page) error {
		defer theirs.Release(p)
		for r := p.Values(); ; {
			n, err := r.ReadValues(buffer)
			if left -= n; left < 0 {
				return errors.New("too many values are returned")
			}
			for _, v := range buffer[:n] {
				stored := v.Bytes()
				d.add([]byte{byte(v.RepetitionLevel()), byte(v.DefinitionLevel()), byte(len(stored))})
				d.add(stored)
			}
			if err == io.EOF || err == nil && n == 0 {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	for _, g := range f.RowGroups() {
		for _, chunk := range g.ColumnChunks() {
			pages := chunk.Pages()
			p, err := pages.ReadPage()
			for ; err == nil; p, err = pages.ReadPage() {
				if err = page(p); err != nil {
					break
				}
			}
			if err := pages.Close(); err != nil {
				return d, err
			}
			if err != io.EOF {
				return d, err
			}
		}
	}
	return d, nil
}

func readArrow(data []byte) (d digest, err error) {
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return d, err
	}
	defer r.Close()
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		for c := range group.NumColumns() {
			column, err := group.Column(c)
			if err == nil {
				err = d.addColumn(column)
			}
			if err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

func (d *digest) addColumn(c file.ColumnChunkReader) error {
	switch r := c.(type) {
	case *file.BooleanColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []bool) { d.add(fmt.Append(nil, v)) })
	case *file.Int32ColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []int32) { d.add(dtype.BytesOf(v)) })
	case *file.Int64ColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []int64) { d.add(dtype.BytesOf(v)) })
	case *file.Float32ColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []float32) { d.add(dtype.BytesOf(v)) })
	case *file.Float64ColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []float64) { d.add(dtype.BytesOf(v)) })
	case *file.Int96ColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []parquet.Int96) { d.add(fmt.Append(nil, v)) })
	case *file.ByteArrayColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []parquet.ByteArray) { texts(d, v) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return batches(c, r.ReadBatch, func(v []parquet.FixedLenByteArray) { texts(d, v) })
	}
	return fmt.Errorf("column of %T", c)
}

// batches calls add with all values of a column, at most 4096 at a time.
func batches[T any](c file.ColumnChunkReader, read func(int64, []T, []int16, []int16) (int64, int, error),
	add func([]T)) error {
	const most = 1 << 12
	values, definitions, repetitions := make([]T, most), make([]int16, most), make([]int16, most)
	for {
		rows, n, err := read(most, values, definitions, repetitions)
		if err = errors.Join(err, c.Err()); err != nil || rows == 0 {
			return err
		}
		add(values[:n])
	}
}

func texts[T ~[]byte](d *digest, values []T) {
	for _, v := range values {
		d.add(v)
	}
}
