package arrowfile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// Writer streams a file. After an error every call returns it.
type Writer struct {
	w       io.Writer
	schema  *arrow.Schema
	builder *flatbuffers.Builder
	size    int64
	crc     uint32 // of the bytes outside extents
	blocks  []block
	extents []Extent
	batch   *batchInProgress
	err     error
}

// block is where a record batch lies: its message, and its body after it.
type block struct {
	offset   int64
	metadata int32
	body     int64
}

type batchInProgress struct {
	offsets []int64 // of the data buffers in the body
	lengths []int64
	next    int   // buffer that bytes go to
	filled  int64 // bytes of it that are there
	at      int64 // position in the body
	extent  Extent
}

// NewWriter starts a file with the schema's message. It does not buffer.
func NewWriter(w io.Writer, schema *arrow.Schema) (*Writer, error) {
	if err := checkSchema(schema); err != nil {
		return nil, err
	}
	out := &Writer{w: w, schema: schema, builder: flatbuffers.NewBuilder(1024)}
	out.writeUncovered([]byte(magic + "\x00\x00"))
	out.message(headerSchema, 0, appendSchema(out.builder, schema))
	return out, out.err
}

// Batch writes one record batch. Its data buffers are given column by column, offsets before values; validity buffers
// are not.
func (w *Writer) Batch(rows int64, buffers ...[]byte) error {
	lengths := make([]int64, len(buffers))
	for i, b := range buffers {
		lengths[i] = int64(len(b))
	}
	if err := w.Begin(rows, lengths...); err != nil {
		return err
	}
	for _, b := range buffers {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.End()
}

// Begin starts a record batch whose data buffers have these lengths; Write then takes their bytes, one buffer after
// another, and End finishes it.
func (w *Writer) Begin(rows int64, lengths ...int64) error {
	if w.err != nil {
		return w.err
	}
	if w.batch != nil {
		return w.fail(fmt.Errorf("record batch %d is not finished", len(w.blocks)))
	}
	nodes, err := fieldNodes(w.schema, rows, lengths)
	if err != nil {
		return w.fail(err)
	}
	offsets, end := Place(lengths...)
	body := roundUp(end, Align)

	b := w.builder
	order := bufferOrder(w.schema)
	b.StartVector(16, len(order), 8)
	offset := end
	for i, k := len(order)-1, len(lengths)-1; i >= 0; i-- {
		length := int64(0) // of validity, which lies where its data begin
		if order[i] {
			offset, length = offsets[k], lengths[k]
			k--
		}
		b.Prep(8, 16)
		b.PrependInt64(length)
		b.PrependInt64(offset)
	}
	bufferList := b.EndVector(len(order))
	b.StartVector(16, len(nodes), 8)
	for i := len(nodes) - 1; i >= 0; i-- {
		b.Prep(8, 16)
		b.PrependInt64(0) // nulls
		b.PrependInt64(nodes[i])
	}
	nodeList := b.EndVector(len(nodes))
	b.StartObject(5)
	b.PrependInt64Slot(0, rows, 0)
	b.PrependUOffsetTSlot(1, nodeList, 0)
	b.PrependUOffsetTSlot(2, bufferList, 0)

	start := w.size
	w.message(headerBatch, body, b.EndObject())
	w.blocks = append(w.blocks, block{start, int32(w.size - start), body})
	w.batch = &batchInProgress{offsets: offsets, lengths: lengths, extent: Extent{Offset: w.size}}
	return w.err
}

// Write appends to the data of the batch that Begin has started.
func (w *Writer) Write(p []byte) (int, error) {
	b := w.batch
	if w.err == nil && b == nil {
		w.fail(fmt.Errorf("no record batch is begun"))
	}
	written := 0
	for w.err == nil && written < len(p) {
		w.nextUnfilledBuffer()
		if b.next == len(b.lengths) {
			w.fail(fmt.Errorf("record batch %d gets more bytes than its buffers have", len(w.blocks)-1))
			break
		}
		n := int(min(int64(len(p)-written), b.lengths[b.next]-b.filled))
		w.writeCovered(p[written : written+n])
		written += n
		b.filled += int64(n)
	}
	return written, w.err
}

// nextUnfilledBuffer moves on to the buffer that the next byte belongs to.
func (w *Writer) nextUnfilledBuffer() {
	b := w.batch
	for b.next < len(b.lengths) && b.filled == b.lengths[b.next] {
		b.next, b.filled = b.next+1, 0
		if b.next < len(b.lengths) {
			w.writeCovered(make([]byte, b.offsets[b.next]-b.at))
		}
	}
}

// End finishes the batch and fails if bytes are missing.
func (w *Writer) End() error {
	b := w.batch
	if w.err != nil {
		return w.err
	}
	if b == nil {
		return w.fail(fmt.Errorf("no record batch is begun"))
	}
	w.nextUnfilledBuffer()
	if b.next < len(b.lengths) {
		return w.fail(fmt.Errorf("record batch %d: buffer %d has %d of %d bytes",
			len(w.blocks)-1, b.next, b.filled, b.lengths[b.next]))
	}
	w.endExtent()
	w.zeros(w.blocks[len(w.blocks)-1].body - b.at)
	w.batch = nil
	return w.err
}

// Close writes the footer. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.batch != nil {
		return w.fail(fmt.Errorf("record batch %d is not finished", len(w.blocks)-1))
	}
	w.writeUncovered([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})

	b := w.builder
	b.Reset()
	schema := appendSchema(b, w.schema)
	b.StartVector(24, len(w.blocks), 8)
	for i := len(w.blocks) - 1; i >= 0; i-- {
		b.Prep(8, 24)
		b.PrependInt64(w.blocks[i].body)
		b.Pad(4)
		b.PrependInt32(w.blocks[i].metadata)
		b.PrependInt64(w.blocks[i].offset)
	}
	blocks := b.EndVector(len(w.blocks))
	b.StartVector(24, 0, 8)
	dictionaries := b.EndVector(0)
	b.StartObject(5)
	b.PrependInt16Slot(0, metadataVersion, 0)
	b.PrependUOffsetTSlot(1, schema, 0)
	b.PrependUOffsetTSlot(2, dictionaries, 0)
	b.PrependUOffsetTSlot(3, blocks, 0)
	b.Finish(b.EndObject())
	footer := b.FinishedBytes()
	w.writeUncovered(footer)
	w.writeUncovered(append(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))), magic...))
	if w.err == nil {
		w.err = fmt.Errorf("the file is finished")
		return nil
	}
	return w.err
}

// Size is the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// CRC32C covers the bytes written so far that are in no extent.
func (w *Writer) CRC32C() uint32 { return w.crc }

// Extents lists the extents of the finished batches, ascending.
func (w *Writer) Extents() []Extent { return w.extents }

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// message writes a message with the header that has just been built.
func (w *Writer) message(kind byte, body int64, header flatbuffers.UOffsetT) {
	b := w.builder
	b.StartObject(5)
	b.PrependInt64Slot(3, body, 0)
	b.PrependUOffsetTSlot(2, header, 0)
	b.PrependInt16Slot(0, metadataVersion, 0)
	b.PrependByteSlot(1, kind, 0)
	b.Finish(b.EndObject())
	metadata := b.FinishedBytes()
	end := roundUp(w.size+8+int64(len(metadata)), Align)
	prefix := binary.LittleEndian.AppendUint32(nil, continuation)
	w.writeUncovered(binary.LittleEndian.AppendUint32(prefix, uint32(end-w.size-8)))
	w.writeUncovered(metadata)
	w.zeros(end - w.size)
	b.Reset()
}

// writeUncovered writes bytes outside of extents.
func (w *Writer) writeUncovered(p []byte) {
	if w.write(p) {
		w.crc = kernel.CRC32C(w.crc, p)
	}
}

func (w *Writer) zeros(n int64) {
	var page [Align]byte
	for ; n > 0 && w.err == nil; n -= min(n, Align) {
		w.writeUncovered(page[:min(n, Align)])
	}
}

// writeCovered writes bytes of extents.
func (w *Writer) writeCovered(p []byte) {
	e := &w.batch.extent
	for len(p) > 0 && w.err == nil {
		n := min(int64(len(p)), ExtentBytes-e.Length)
		if !w.write(p[:n]) {
			return
		}
		e.CRC32C = kernel.CRC32C(e.CRC32C, p[:n])
		e.Length += n
		w.batch.at += n
		p = p[n:]
		if e.Length == ExtentBytes {
			w.endExtent()
		}
	}
}

func (w *Writer) endExtent() {
	e := &w.batch.extent
	if e.Length > 0 {
		w.extents = append(w.extents, *e)
	}
	*e = Extent{Offset: w.size}
}

func (w *Writer) write(p []byte) bool {
	if w.err != nil {
		return false
	}
	n, err := w.w.Write(p)
	w.size += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
	return err == nil
}
