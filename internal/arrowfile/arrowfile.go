// Package arrowfile writes and reads Arrow IPC files whose data can be found, checked and read in place. Every stock
// reader of Arrow opens them, as a file or, from byte 8 on, as a stream; what is special is only where things lie:
//
//	"ARROW1\0\0"
//	schema message, padded so that it ends at a multiple of Align
//	each record batch:
//	    message, padded to a multiple of Align
//	    body, which starts and ends at multiples of Align
//	end of stream: ff ff ff ff 00 00 00 00
//	footer, its length (uint32), "ARROW1"
//
// A message is ff ff ff ff, a length (uint32), a flatbuffer, and zeros; the length counts flatbuffer and zeros;
// padding of a body is included in its bodyLength. Inside a body the buffers follow each other at multiples of 64, with
// zeros between; a column of one buffer starts where its body starts. All is little endian, metadata version 5, without
// nulls (validity buffers have length 0), dictionaries and compression.
//
// Checksums are CRC-32C. The data of a body, from the start of its first buffer to the end of its last, are covered by
// consecutive extents of at most ExtentBytes each, with a checksum each; one more covers all other bytes of the file,
// in order.
//
// A Writer belongs to one goroutine; ReadBatches is safe for concurrent use.
package arrowfile

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow/go/v17/arrow"
)

const (
	// Align: bodies start and end at multiples of it.
	Align = 4096
	// ExtentBytes is the most that one checksum covers.
	ExtentBytes = 16 << 20
	// BlockBytes is the size of a record batch's entry in the footer.
	BlockBytes = 24
)

const (
	bufferAlign     = 64
	magic           = "ARROW1"
	continuation    = 0xffffffff
	metadataVersion = 4 // V5

	headerSchema = 1
	headerBatch  = 3
)

// ErrInvalid is returned when bytes are not a file such as this package writes.
var ErrInvalid = errors.New("invalid Arrow file")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Extent is a run of data bytes in the file and their CRC-32C.
type Extent struct {
	Offset int64
	Length int64
	CRC32C uint32
}

// Place tells where buffers of the given lengths lie in a body, and where the last of them ends.
func Place(lengths ...int64) (offsets []int64, end int64) {
	offsets = make([]int64, len(lengths))
	for i, n := range lengths {
		offsets[i] = roundUp(end, bufferAlign)
		end = offsets[i] + n
	}
	return offsets, end
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// width is the size of a number in bytes, 0 where t is none that we store.
func width(t arrow.DataType) int64 {
	switch t := t.(type) {
	case *arrow.Int8Type, *arrow.Uint8Type, *arrow.Int16Type, *arrow.Uint16Type, *arrow.Int32Type, *arrow.Uint32Type,
		*arrow.Int64Type, *arrow.Uint64Type, *arrow.Float16Type, *arrow.Float32Type, *arrow.Float64Type:
		return int64(t.(arrow.FixedWidthDataType).Bytes())
	}
	return 0
}

// maxRows bounds the rows of a batch, so that nothing computed from it overflows.
const maxRows = 1 << 48

// bufferOrder tells for each buffer of a record batch whether it holds data (true) or validity.
func bufferOrder(schema *arrow.Schema) (order []bool) {
	for _, f := range schema.Fields() {
		t := typeOf(f.Type)
		order = append(order, false)
		if t.offsets {
			order = append(order, true)
		}
		if t.item != nil {
			order = append(order, false)
		}
		order = append(order, true)
	}
	return order
}

// fieldNodes checks the lengths of a batch's data buffers, columns in order and offsets before values, against schema
// and number of rows, and returns the lengths of the field nodes.
func fieldNodes(schema *arrow.Schema, rows int64, lengths []int64) (nodes []int64, err error) {
	if rows < 0 || rows > maxRows {
		return nil, fmt.Errorf("a batch cannot have %d rows", rows)
	}
	next := 0
	// take checks a buffer of elements of size bytes; if elements is negative, of any number of them.
	take := func(f arrow.Field, elements, size int64) (int64, error) {
		if next == len(lengths) {
			return 0, fmt.Errorf("column %q lacks a buffer", f.Name)
		}
		n := lengths[next]
		next++
		if n < 0 || n%size != 0 || elements >= 0 && n/size != elements {
			return 0, fmt.Errorf("column %q has a buffer of %d bytes for %d values of %d bytes",
				f.Name, n, elements, size)
		}
		return n / size, nil
	}
	for _, f := range schema.Fields() {
		t, values := typeOf(f.Type), rows
		if t.kind == typeFixedSizeList {
			hi, n := bits.Mul64(uint64(rows), uint64(t.number))
			if hi != 0 || n > math.MaxInt64 {
				return nil, fmt.Errorf("column %q has too many values", f.Name)
			}
			values = int64(n)
		}
		if t.offsets {
			if _, err := take(f, rows+1, 8); err != nil {
				return nil, err
			}
			values = -1
		}
		if values, err = take(f, values, t.width); err != nil {
			return nil, err
		}
		nodes = append(nodes, rows)
		if t.item != nil {
			nodes = append(nodes, values)
		}
	}
	if next != len(lengths) {
		return nil, fmt.Errorf("%d buffers for columns that have %d", len(lengths), next)
	}
	return nodes, nil
}
