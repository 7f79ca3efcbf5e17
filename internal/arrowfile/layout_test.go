package arrowfile

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
)

// check fails unless everything a layout points to lies in the file.
func check(t *testing.T, l *Layout, size int64) {
	t.Helper()
	for i, b := range l.Batches {
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
			if _, err := ReadLayout(bytes.NewReader(buf.Bytes()[:n]), int64(n)); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s: %d of %d bytes: %v", c.name, n, buf.Len(), err)
			}
			if _, err := ReadLayout(bytes.NewReader(buf.Bytes()[:n]), int64(buf.Len())); !errors.Is(err, ErrInvalid) {
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
				if l, err := ReadLayout(bytes.NewReader(b), int64(len(b))); err == nil {
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
	if _, err := ReadLayout(bytes.NewReader(buf.Bytes()), int64(buf.Len())); !errors.Is(err, ErrInvalid) {
		t.Errorf("a stream: %v", err)
	}
}

func FuzzReadLayout(f *testing.F) {
	for _, c := range contents()[18:] {
		var buf bytes.Buffer
		c.write(f, &buf)
		if buf.Len() < 64<<10 {
			f.Add(buf.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ReadLayout(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		check(t, l, int64(len(b)))
	})
}
