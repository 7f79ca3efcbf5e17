package arrowfile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
)

// Batch is one record batch.
type Batch struct {
	Rows    int64
	Offset  int64 // of the body in the file
	Length  int64 // of the body, padding included
	Buffers []Buffer
}

// Buffer is a data buffer (not a validity buffer), columns in order, offsets before values.
type Buffer struct {
	Offset int64 // in the file
	Length int64
}

// Limits of files that are read, far above those of written ones.
const (
	maxFooter  = 64 << 20
	maxMessage = 1 << 20
)

// ReadBatches reads from the metadata of a file of size bytes where its record batches lie. Whatever the bytes are,
// what it returns lies inside the file and fits schema and rows; bytes that are not such a file are ErrInvalid. It
// reads no values.
func ReadBatches(r io.ReaderAt, size int64, schema *arrow.Schema) ([]Batch, error) {
	const tail = 4 + len(magic)
	if size < int64(8+8+8+tail) {
		return nil, invalid("%d bytes are too few", size)
	}
	buf, err := readAt(r, nil, 0, 16)
	if err != nil {
		return nil, err
	}
	if string(buf[:8]) != magic+"\x00\x00" {
		return nil, invalid("it does not start with %s", magic)
	}
	metadata := int64(binary.LittleEndian.Uint32(buf[12:]))
	if metadata > maxMessage {
		return nil, invalid("a schema of %d bytes", metadata)
	}
	header, _, err := readMessage(r, nil, headerSchema, 8, metadata+8, size)
	if err != nil {
		return nil, err
	}
	if err := matchSchema(header, schema); err != nil {
		return nil, err
	}
	if buf, err = readAt(r, buf, size-int64(tail), tail); err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(buf))
	if string(buf[4:]) != magic {
		return nil, invalid("it does not end with %s", magic)
	}
	if length > maxFooter || length > size-int64(tail) {
		return nil, invalid("a footer of %d bytes", length)
	}
	if buf, err = readAt(r, nil, size-int64(tail)-length, int(length)); err != nil {
		return nil, err
	}
	footer := openFlatbuffer(buf)
	if footer.int16(0) != metadataVersion {
		return nil, invalid("metadata version %d", footer.int16(0)+1)
	}
	if err := matchSchema(footer.table(1), schema); err != nil {
		return nil, err
	}
	blocks := footer.vector(3, 24)
	if dictionaries := footer.vector(2, 24); dictionaries.n != 0 {
		return nil, invalid("it has dictionaries")
	}
	if footer.err() != nil {
		return nil, footer.err()
	}

	batches := make([]Batch, blocks.n)
	scratch := make([]byte, 0, Align)
	end := 8 + 8 + metadata
	for i := range batches {
		offset, body := blocks.int64(i, 24, 0), blocks.int64(i, 24, 16)
		metadata := int64(int32(blocks.int64(i, 24, 8)))
		if offset != end {
			return nil, invalid("record batch %d is at byte %d, want %d", i, offset, end)
		}
		b, err := readBatch(r, scratch, schema, offset, metadata, body, size)
		if err != nil {
			return nil, fmt.Errorf("record batch %d: %w", i, err)
		}
		batches[i] = b
		end = b.Offset + b.Length
	}
	if end+8 != size-int64(tail)-length {
		return nil, invalid("%d bytes after the last record batch", size-end)
	}
	return batches, nil
}

func readBatch(r io.ReaderAt, scratch []byte, schema *arrow.Schema, offset, metadata, body, size int64) (Batch, error) {
	header, found, err := readMessage(r, scratch, headerBatch, offset, metadata, size)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{Rows: header.int64(0), Offset: offset + metadata, Length: body}
	if body != found || body < 0 || body > size-b.Offset {
		return b, invalid("a body of %d bytes at byte %d of %d", body, b.Offset, size)
	}
	if header.present(3) {
		return b, invalid("it is compressed")
	}
	nodes, buffers := header.vector(1, 16), header.vector(2, 16)
	order := bufferOrder(schema)
	if len(order) != buffers.n {
		return b, invalid("%d buffers, want %d", buffers.n, len(order))
	}
	var lengths []int64
	for i, isData := range order {
		at, n := buffers.int64(i, 16, 0), buffers.int64(i, 16, 8)
		if at < 0 || n < 0 || at > body || n > body-at {
			return b, invalid("a buffer of %d bytes at %d in a body of %d", n, at, body)
		}
		if isData {
			b.Buffers = append(b.Buffers, Buffer{b.Offset + at, n})
			lengths = append(lengths, n)
		} else if n != 0 {
			return b, invalid("a validity buffer of %d bytes", n)
		}
	}
	want, err := fieldNodes(schema, b.Rows, lengths)
	if err != nil {
		return b, invalid("%v", err)
	}
	if len(want) != nodes.n {
		return b, invalid("%d field nodes, want %d", nodes.n, len(want))
	}
	for i, n := range want {
		if nodes.int64(i, 16, 0) != n || nodes.int64(i, 16, 8) != 0 {
			return b, invalid("field node %d has %d values and %d nulls, want %d and 0", i, nodes.int64(i, 16, 0),
				nodes.int64(i, 16, 8), n)
		}
	}
	return b, header.err()
}

// readMessage reads the message at offset, of length bytes with its prefix, and returns its header and the length of
// its body.
func readMessage(r io.ReaderAt, scratch []byte, kind uint8, offset, length, size int64) (table, int64, error) {
	if length < 8 || length > maxMessage || offset < 0 || offset > size || length > size-offset {
		return table{}, 0, invalid("a message of %d bytes at byte %d of %d", length, offset, size)
	}
	buf, err := readAt(r, scratch, offset, int(length))
	if err != nil {
		return table{}, 0, err
	}
	if binary.LittleEndian.Uint32(buf) != continuation || int64(binary.LittleEndian.Uint32(buf[4:])) != length-8 {
		return table{}, 0, invalid("no message of %d bytes at byte %d", length, offset)
	}
	m := openFlatbuffer(buf[8:])
	version, found, body, header := m.int16(0), m.uint8(1), m.int64(3), m.table(2)
	if m.err() != nil {
		return table{}, 0, m.err()
	}
	if version != metadataVersion || found != kind {
		return table{}, 0, invalid("a message of version %d and kind %d at byte %d, want %d and %d", version, found,
			offset, metadataVersion, kind)
	}
	return header, body, nil
}

// readAt reads n bytes, into buf where they fit.
func readAt(r io.ReaderAt, buf []byte, offset int64, n int) ([]byte, error) {
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if got, err := r.ReadAt(buf, offset); got < n {
		if err == io.EOF {
			return nil, invalid("it ends at byte %d", offset+int64(got))
		}
		return nil, err
	}
	return buf, nil
}
