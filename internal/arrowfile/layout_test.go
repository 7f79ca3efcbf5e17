package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
)

// check fails unless everything a layout points to lies in the file.
func check(t *testing.T, batches []Batch, size int64) {
	t.Helper()
	for i, b := range batches {
		if b.Rows < 0 || b.Offset < 0 || b.Length < 0 || b.Offset+b.Length > size {
			t.Fatalf("batch %d: %+v", i, b)
		}
		for _, at := range b.Buffers {
			if at.Offset < b.Offset || at.Length < 0 || at.Offset+at.Length > b.Offset+b.Length {
				t.Fatalf("batch %d: %+v", i, b)
			}
		}
	}
}

func TestLayoutOfEveryShortenedFileIsRefused(t *testing.T) {
	for _, c := range contents()[18:] {
		var buf bytes.Buffer
		c.write(t, &buf)
		step := max(1, buf.Len()/1000)
		for n := 0; n < buf.Len(); n++ {
			if n%step != 0 && n%Align > 1 && buf.Len()-n > 64 {
				continue
			}
			if _, err := ReadBatches(bytes.NewReader(buf.Bytes()[:n]), int64(n), c.schema); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s: %d of %d bytes: %v", c.name, n, buf.Len(), err)
			}
			if _, err := ReadBatches(bytes.NewReader(buf.Bytes()[:n]), int64(buf.Len()), c.schema); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s: %d of %d bytes, shortened while open: %v", c.name, n, buf.Len(), err)
			}
		}
	}
}

func TestLayoutOfDamagedMetadataStaysInsideTheFile(t *testing.T) {
	for _, c := range contents()[18:22] {
		var buf bytes.Buffer
		extents := c.write(t, &buf).Extents()
		b := buf.Bytes()
		for i := 0; i < len(b); i++ {
			if len(extents) > 0 && int64(i) == extents[0].Offset { // layouts do not depend on data
				i += int(extents[0].Length) - 1
				extents = extents[1:]
				continue
			}
			if b[i] == 0 && i%61 != 0 { // zeros are mostly padding
				continue
			}
			for _, x := range []byte{1, 0x80, 0xff} {
				b[i] ^= x
				if l, err := ReadBatches(bytes.NewReader(b), int64(len(b)), c.schema); err == nil {
					check(t, l, int64(len(b)))
				} else if !errors.Is(err, ErrInvalid) {
					t.Fatalf("%s: byte %d: %v", c.name, i, err)
				}
				b[i] ^= x
			}
		}
	}
}

func TestLayoutRefusesFilesOfOtherWriters(t *testing.T) {
	schema := schemaOf(field("v", arrow.PrimitiveTypes.Int32))
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(schema))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBatches(bytes.NewReader(buf.Bytes()), int64(buf.Len()), schema); !errors.Is(err, ErrInvalid) {
		t.Errorf("a stream: %v", err)
	}
}

// pieces are the metadata of a file of one batch at most, without padding.
type pieces struct {
	schema, batch, footer []byte
	body                  uint32
}

// cut takes the i-th batch of a file.
func (c content) cut(t testing.TB, i int) pieces {
	if len(c.rows) > 0 {
		c.rows, c.batches = c.rows[i:i+1], c.batches[i:i+1]
	}
	var buf bytes.Buffer
	w := c.write(t, &buf)
	b := buf.Bytes()
	end := len(b) - 4 - len(magic)
	p := pieces{footer: b[end-int(binary.LittleEndian.Uint32(b[end:])) : end]}
	metadata := int64(end-len(p.footer)) - 8 // where the schema's message ends
	if len(w.blocks) > 0 {
		metadata = w.blocks[0].offset
		p.batch = bytes.TrimRight(b[metadata+8:][:w.blocks[0].metadata-8], "\x00")
		p.body = uint32(w.blocks[0].body)
	}
	p.schema = bytes.TrimRight(b[16:metadata], "\x00")
	return p
}

// file puts pieces together.
func (p pieces) file() []byte {
	b := []byte(magic + "\x00\x00")
	for _, metadata := range [][]byte{p.schema, p.batch} {
		if len(metadata) > 0 {
			end := roundUp(int64(len(b)+8+len(metadata)), Align)
			b = binary.LittleEndian.AppendUint32(b, continuation)
			b = binary.LittleEndian.AppendUint32(b, uint32(end-int64(len(b))-4))
			b = append(b, metadata...)
			b = append(b, make([]byte, end-int64(len(b)))...)
		}
	}
	b = append(b, make([]byte, p.body%(1<<18)+8)...)
	b = append(b, p.footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(p.footer))), magic...)
}

func TestPiecesOfAFileMakeOne(t *testing.T) {
	for _, c := range contents() {
		for i := range max(1, len(c.rows)) {
			b := c.cut(t, i).file()
			if l, err := ReadBatches(bytes.NewReader(b), int64(len(b)), c.schema); err != nil ||
				len(l) != min(1, len(c.rows)) {
				t.Errorf("%s: batch %d: %v", c.name, i, err)
			}
		}
	}
}

// FuzzReadBatches takes the metadata alone, so that inputs are small.
func FuzzReadBatches(f *testing.F) {
	all := contents()
	for k, c := range all {
		for _, i := range []int{0, max(0, len(c.rows)-1)} {
			p := c.cut(f, i)
			f.Add(uint8(k), p.schema, p.batch, p.footer, p.body)
		}
	}
	f.Fuzz(func(t *testing.T, k uint8, schema, batch, footer []byte, body uint32) {
		b := pieces{schema, batch, footer, body}.file()
		l, err := ReadBatches(bytes.NewReader(b), int64(len(b)), all[int(k)%len(all)].schema)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		check(t, l, int64(len(b)))
	})
}
