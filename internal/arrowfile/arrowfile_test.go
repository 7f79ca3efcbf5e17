package arrowfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// content is a file in terms of its parts.
type content struct {
	name    string
	schema  *arrow.Schema
	rows    []int64
	batches [][][]byte // data buffers of each batch
}

func field(name string, t arrow.DataType, metadata ...string) arrow.Field {
	f := arrow.Field{Name: name, Type: t}
	if len(metadata) > 0 {
		f.Metadata = arrow.NewMetadata(metadata[:1], metadata[1:])
	}
	return f
}

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

func noise(rng *rand.Rand, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// lists are ascending offsets of rows lists over values bytes.
func lists(rng *rand.Rand, rows, values int64) []byte {
	b := make([]byte, 8*(rows+1))
	for i, at := int64(0), int64(0); i <= rows; i++ {
		if i == rows {
			at = values
		} else if i > 0 {
			at += rng.Int64N(values - at + 1)
		}
		for k := range 8 {
			b[8*i+int64(k)] = byte(at >> (8 * k))
		}
	}
	return b
}

func numbers() []arrow.DataType {
	return []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32,
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Uint16,
		arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Float64}
}

// contents are files of every type and of odd sizes.
func contents() []content {
	rng := rand.New(rand.NewPCG(1, 2))
	var out []content
	for _, t := range numbers() {
		plain := content{name: t.Name(), schema: schemaOf(field("v", t))}
		list := content{name: "lists of " + t.Name(), schema: schemaOf(field("v", arrow.FixedSizeListOfNonNullable(7,
			t), "hopfeed.dtype", "bfloat16"))}
		for _, rows := range []int64{0, 1, 3, 1000, 17} {
			plain.rows, list.rows = append(plain.rows, rows), append(list.rows, rows)
			plain.batches = append(plain.batches, [][]byte{noise(rng, rows*width(t))})
			list.batches = append(list.batches, [][]byte{noise(rng, 7*rows*width(t))})
		}
		out = append(out, plain, list)
	}
	adjacency := content{name: "large lists", schema: schemaOf(field("neighbors",
		arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Uint32)))}
	table := content{name: "several columns", schema: schemaOf(
		field("node", arrow.PrimitiveTypes.Uint32), field("label", arrow.PrimitiveTypes.Int32),
		field("splits", arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Uint8)), field("orig_id",
			arrow.BinaryTypes.LargeString))}
	for _, rows := range []int64{0, 1, 5, 3000} {
		adjacency.rows, table.rows = append(adjacency.rows, rows), append(table.rows, rows)
		m := min(rows, 1) * rng.Int64N(10*rows+1)
		adjacency.batches = append(adjacency.batches, [][]byte{lists(rng, rows, m), noise(rng, 4*m)})
		text := bytes.Repeat([]byte("q"), int(min(rows, 1)*rng.Int64N(10*rows+1)))
		table.batches = append(table.batches, [][]byte{noise(rng, 4*rows), noise(rng, 4*rows), noise(rng, 3*rows),
			lists(rng, rows, int64(len(text))), text})
	}
	wide := content{name: "more columns than a page of metadata", rows: []int64{9}, batches: [][][]byte{nil}}
	var fields []arrow.Field
	for i := range 64 {
		fields = append(fields, field(fmt.Sprint("a rather long name of column ", i),
			arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Int16)))
		wide.batches[0] = append(wide.batches[0], noise(rng, 9*4))
	}
	wide.schema = schemaOf(fields...)
	none := content{name: "no batches", schema: schemaOf(field("v", arrow.PrimitiveTypes.Int8))}
	return append(out, adjacency, table, wide, none)
}

func (c content) write(t testing.TB, w io.Writer) *Writer {
	t.Helper()
	out, err := NewWriter(w, c.schema)
	if err != nil {
		t.Fatal(err)
	}
	for i, buffers := range c.batches {
		if err := out.Batch(c.rows[i], buffers...); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// dataOf lists the data buffers of a column, as arrow/go has read them.
func dataOf(d arrow.ArrayData) [][]byte {
	var out [][]byte
	for _, b := range d.Buffers()[1:] {
		if b == nil {
			out = append(out, nil)
		} else {
			out = append(out, b.Bytes())
		}
	}
	for _, child := range d.Children() {
		out = append(out, dataOf(child)...)
	}
	return out
}

func (c content) compare(t *testing.T, i int, got arrow.Record) {
	t.Helper()
	if !got.Schema().Equal(c.schema) || got.NumRows() != c.rows[i] {
		t.Fatalf("batch %d: %d rows of %v", i, got.NumRows(), got.Schema())
	}
	next := 0
	for _, column := range got.Columns() {
		if column.NullN() != 0 {
			t.Errorf("batch %d has nulls", i)
		}
		if full, ok := column.(interface{ ValidateFull() error }); ok && full.ValidateFull() != nil {
			t.Errorf("batch %d: %v", i, full.ValidateFull())
		}
		for _, b := range dataOf(column.Data()) {
			if !bytes.Equal(b, c.batches[i][next]) && c.rows[i] > 0 { // arrow/go drops buffers of empty columns
				t.Fatalf("batch %d: buffer %d differs", i, next)
			}
			next++
		}
	}
	if next != len(c.batches[i]) {
		t.Errorf("batch %d: %d buffers, want %d", i, next, len(c.batches[i]))
	}
}

func TestArrowGoReadsEveryFileAsAFileAndAsAStream(t *testing.T) {
	for _, c := range contents() {
		t.Run(c.name, func(t *testing.T) {
			var buf bytes.Buffer
			c.write(t, &buf)
			file, err := ipc.NewFileReader(bytes.NewReader(buf.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if file.NumRecords() != len(c.batches) {
				t.Fatalf("%d batches, want %d", file.NumRecords(), len(c.batches))
			}
			for i := range c.batches {
				r, err := file.Record(i)
				if err != nil {
					t.Fatal(err)
				}
				c.compare(t, i, r)
			}
			stream, err := ipc.NewReader(bytes.NewReader(buf.Bytes()[8:]))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for ; stream.Next(); n++ {
				c.compare(t, n, stream.Record())
			}
			if stream.Err() != nil || n != len(c.batches) {
				t.Fatalf("stream ends after %d of %d batches: %v", n, len(c.batches), stream.Err())
			}
		})
	}
}

func TestArrowGoReadsTheValuesOfLists(t *testing.T) {
	var buf bytes.Buffer
	c := content{schema: schemaOf(field("neighbors", arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Uint32)),
		field("id", arrow.BinaryTypes.LargeString)),
		rows: []int64{2}, batches: [][][]byte{{
			{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, {7, 0, 0, 0, 8, 1, 0, 0, 9, 0, 0,
				0},
			{0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, []byte("abc")}}}
	c.write(t, &buf)
	file, err := ipc.NewFileReader(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := file.Record(0)
	if err != nil {
		t.Fatal(err)
	}
	ids := r.Column(1).(*array.LargeString)
	if got := r.Column(0).String(); got != "[[7] [264 9]]" || ids.Value(0) != "ab" || ids.Value(1) != "c" {
		t.Errorf("lists %s, strings %v", got, ids)
	}
}

func TestLayoutTellsWhereEverythingLies(t *testing.T) {
	for _, c := range contents() {
		t.Run(c.name, func(t *testing.T) {
			var buf bytes.Buffer
			w := c.write(t, &buf)
			b := buf.Bytes()
			if w.Size() != int64(len(b)) {
				t.Errorf("size %d of %d", w.Size(), len(b))
			}
			batches, err := ReadBatches(bytes.NewReader(b), int64(len(b)), c.schema)
			if err != nil || len(batches) != len(c.batches) {
				t.Fatalf("%d batches: %v", len(batches), err)
			}
			var covered []byte // by extents
			for i, batch := range batches {
				if batch.Rows != c.rows[i] || batch.Offset%Align != 0 || batch.Length%Align != 0 {
					t.Errorf("batch %d: %+v", i, batch)
				}
				for k, at := range batch.Buffers {
					if got := b[at.Offset : at.Offset+at.Length]; !bytes.Equal(got, c.batches[i][k]) {
						t.Fatalf("batch %d: buffer %d differs", i, k)
					}
					if at.Offset%bufferAlign != 0 || len(batch.Buffers) == 1 && at.Offset != batch.Offset {
						t.Errorf("batch %d: buffer %d is at %d", i, k, at.Offset)
					}
				}
				if n := len(batch.Buffers); n > 0 {
					last := batch.Buffers[n-1]
					covered = append(covered, b[batch.Offset:last.Offset+last.Length]...)
				}
			}
			outside := bytes.Clone(b)
			var inside []byte
			for i := len(w.Extents()) - 1; i >= 0; i-- {
				e := w.Extents()[i]
				data := b[e.Offset : e.Offset+e.Length]
				if e.Offset%Align != 0 || kernel.CRC32C(0, data) != e.CRC32C {
					t.Errorf("extent %d: %+v", i, e)
				}
				inside = append(bytes.Clone(data), inside...)
				outside = append(outside[:e.Offset], outside[e.Offset+e.Length:]...)
			}
			if !bytes.Equal(inside, covered) {
				t.Error("extents do not cover the data")
			}
			if kernel.CRC32C(0, outside) != w.CRC32C() {
				t.Error("the checksum of the bytes outside extents is wrong")
			}
		})
	}
}

func TestLargeDataHaveAnExtentEverySixteenMiB(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	values := noise(rng, 2*ExtentBytes+400)
	offsets := lists(rng, 999, int64(len(values)/4))
	var whole, pieces bytes.Buffer
	schema := schemaOf(field("neighbors", arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Uint32)))
	w := content{schema: schema, rows: []int64{999}, batches: [][][]byte{{offsets, values}}}.write(t, &whole)
	p, err := NewWriter(&pieces, schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(999, int64(len(offsets)), int64(len(values))); err != nil {
		t.Fatal(err)
	}
	for all := append(bytes.Clone(offsets), values...); len(all) > 0; {
		n := min(len(all), 1+rng.IntN(5<<20))
		if got, err := p.Write(all[:n]); err != nil || got != n {
			t.Fatal(got, err)
		}
		all = all[n:]
	}
	if err := errors.Join(p.End(), p.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole.Bytes(), pieces.Bytes()) {
		t.Error("written in pieces the file differs")
	}
	if n := len(w.Extents()); n != 3 || w.Extents()[1].Length != ExtentBytes ||
		w.Extents()[2].Offset != w.Extents()[1].Offset+ExtentBytes {
		t.Errorf("extents %+v", w.Extents())
	}
	for i, e := range w.Extents() {
		if kernel.CRC32C(0, whole.Bytes()[e.Offset:e.Offset+e.Length]) != e.CRC32C || p.Extents()[i] != e {
			t.Errorf("extent %d is wrong", i)
		}
	}
}

func TestWriterRefusesWrongUse(t *testing.T) {
	lists := schemaOf(field("v", arrow.FixedSizeListOfNonNullable(4, arrow.PrimitiveTypes.Float32)))
	for name, use := range map[string]func(w *Writer) error{
		"too few bytes":           func(w *Writer) error { return w.Batch(2, make([]byte, 31)) },
		"no buffers":              func(w *Writer) error { return w.Batch(2) },
		"too many buffers":        func(w *Writer) error { return w.Batch(2, make([]byte, 32), nil) },
		"negative rows":           func(w *Writer) error { return w.Batch(-1, nil) },
		"rows beyond all numbers": func(w *Writer) error { return w.Begin(1<<62, 1<<62) },
		"bytes before a batch":    func(w *Writer) error { _, err := w.Write([]byte{1}); return err },
		"end before a batch":      func(w *Writer) error { return w.End() },
		"a batch within a batch":  func(w *Writer) error { return errors.Join(w.Begin(1, 16), w.Begin(1, 16)) },
		"an unfinished batch":     func(w *Writer) error { return errors.Join(w.Begin(1, 16), w.End()) },
		"an unfinished file":      func(w *Writer) error { return errors.Join(w.Begin(1, 16), w.Close()) },
		"a batch after the end":   func(w *Writer) error { return errors.Join(w.Close(), w.Batch(0, nil)) },
		"more bytes than announced": func(w *Writer) error {
			err := w.Begin(1, 16)
			if err == nil {
				_, err = w.Write(make([]byte, 17))
			}
			return err
		},
	} {
		w, err := NewWriter(io.Discard, lists)
		if err != nil {
			t.Fatal(err)
		}
		if use(w) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	metadata := arrow.NewMetadata([]string{"a"}, []string{"b"})
	for _, s := range []*arrow.Schema{
		schemaOf(arrow.Field{Name: "v", Type: arrow.PrimitiveTypes.Int32, Nullable: true}),
		schemaOf(field("v", arrow.FixedWidthTypes.Boolean)),
		arrow.NewSchema(nil, &metadata),
		schemaOf(field("v", arrow.FixedSizeListOf(4, arrow.PrimitiveTypes.Float32))),
		schemaOf(field("v", arrow.LargeListOfNonNullable(arrow.BinaryTypes.LargeString))),
	} {
		if _, err := NewWriter(io.Discard, s); err == nil {
			t.Errorf("%v is accepted", s)
		}
	}
}

// limited fails once n bytes are written.
type limited struct{ n int }

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.n {
		return l.n, errors.New("disk full")
	}
	l.n -= len(p)
	return len(p), nil
}

func TestAFileOfOtherColumnsIsNotRead(t *testing.T) {
	list := func(n int32, of arrow.DataType) arrow.DataType { return arrow.FixedSizeListOfNonNullable(n, of) }
	types := append(numbers(), arrow.BinaryTypes.LargeString, list(2, arrow.PrimitiveTypes.Int8), list(3,
		arrow.PrimitiveTypes.Int8), list(2, arrow.PrimitiveTypes.Uint8),
		arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Int8))
	schemas := []*arrow.Schema{schemaOf(), schemaOf(field("w", types[0])), schemaOf(field("v", types[0], "a", "b")),
		schemaOf(field("v", types[0], "a", "c")), schemaOf(field("v", types[0]), field("w", types[0]))}
	for _, of := range types {
		schemas = append(schemas, schemaOf(field("v", of)))
	}
	for i, written := range schemas {
		var file bytes.Buffer
		content{schema: written}.write(t, &file)
		for k, wanted := range schemas {
			if _, err := ReadBatches(bytes.NewReader(file.Bytes()), int64(file.Len()), wanted); errors.Is(err,
				ErrInvalid) != (i != k) {
				t.Errorf("%v read as %v: %v", written, wanted, err)
			}
		}
	}
}

func TestWriterReportsAFailedWriteWhereverItHappens(t *testing.T) {
	c := content{schema: schemaOf(field("v", arrow.PrimitiveTypes.Int32)), rows: []int64{2},
		batches: [][][]byte{{make([]byte, 8)}}}
	var whole bytes.Buffer
	c.write(t, &whole)
	for n := range whole.Len() {
		w, err := NewWriter(&limited{n}, c.schema)
		if err == nil {
			err = w.Batch(2, c.batches[0][0])
		}
		if err == nil {
			err = w.Close()
		}
		if err == nil {
			t.Fatalf("a disk full after %d of %d bytes is not reported", n, whole.Len())
		}
	}
}
