package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

var everyType = []arrow.Field{
	{Name: "node_id", Type: arrow.PrimitiveTypes.Uint32},
	{Name: "name", Type: arrow.BinaryTypes.LargeString},
	{Name: "class", Type: arrow.PrimitiveTypes.Int32},
	{Name: "p", Type: arrow.PrimitiveTypes.Float32},
}

// textOf are the buffers of a column of texts.
func textOf(texts ...string) [][]byte {
	offsets := []int64{0}
	for _, s := range texts {
		offsets = append(offsets, offsets[len(offsets)-1]+int64(len(s)))
	}
	return [][]byte{dtype.BytesOf(offsets), []byte(strings.Join(texts, ""))}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	many := make([]arrow.Field, 20) // more than a short list of the metadata has
	for i := range many {
		many[i] = arrow.Field{Name: fmt.Sprintf("p_%d", i), Type: arrow.PrimitiveTypes.Float32}
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, arrow.NewSchema(append(slices.Clone(everyType), many...), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]any{}
	add := func(name string, v any) { want[name] = append(want[name], v) }
	next := 0
	for _, rows := range []int{3, 0, 200, 1} {
		var nodes []uint32
		var classes []int32
		var p []float32
		var names []string
		for range rows {
			nodes, classes = append(nodes, math.MaxUint32-uint32(next)), append(classes, int32(next)-2)
			p, names = append(p, float32(next)/7), append(names, strings.Repeat("é", next%5))
			add("node_id", fmt.Sprint(nodes[len(nodes)-1]))
			add("class", fmt.Sprint(classes[len(classes)-1]))
			add("p", float64(p[len(p)-1]))
			add("name", names[len(names)-1])
			next++
		}
		buffers := append([][]byte{dtype.BytesOf(nodes)}, textOf(names...)...)
		buffers = append(buffers, dtype.BytesOf(classes), dtype.BytesOf(p))
		for i := range many {
			values := make([]float32, rows)
			for j := range values {
				values[j] = float32(i)
				add(many[i].Name, float64(i))
			}
			buffers = append(buffers, dtype.BytesOf(values))
		}
		if err := w.Batch(int64(rows), buffers...); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewMem()
	f, err := disk.Create("t.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(file.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	table, err := Open(disk, "t.parquet", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if table.Rows != 204 || len(table.Groups()) != 4 || len(table.Columns) != len(want) {
		t.Errorf("%d rows in %d groups, %d columns", table.Rows, len(table.Groups()), len(table.Columns))
	}
	for i, name := range []string{"int32", "text", "int32", "float32"} {
		if table.Columns[i].Type != name {
			t.Errorf("column %d is %s, want %s", i, table.Columns[i].Type, name)
		}
	}
	for name, values := range want {
		got, err := column(table, find(table, name), 50, 0, len(table.Groups()))
		if err != nil || !same(got, values) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, values)
		}
	}
}

// brief takes so many bytes and then fails.
type brief int

var errBrief = errors.New("full")

func (b *brief) Write(p []byte) (int, error) {
	if *b -= brief(len(p)); *b < 0 {
		return 0, errBrief
	}
	return len(p), nil
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	double := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64}
	if _, err := NewWriter(&bytes.Buffer{}, arrow.NewSchema([]arrow.Field{double}, nil)); err == nil ||
		!strings.Contains(err.Error(), `"x" has type float64`) {
		t.Errorf("float64: %v", err)
	}
	number := arrow.NewSchema(everyType[:1], nil)
	for wants, buffers := range map[string][][]byte{`no data for column "node_id"`: nil,
		`7 bytes of column "node_id" in 2 rows`: {make([]byte, 7)}} {
		w, err := NewWriter(&bytes.Buffer{}, number)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the error stays
			if err := w.Batch(2, buffers...); err == nil || !strings.Contains(err.Error(), wants) {
				t.Errorf("%v, want %s", err, wants)
			}
		}
		if w.Close() == nil {
			t.Errorf("%s: closed", wants)
		}
	}
	ended := false
	for room := brief(0); !ended; room++ {
		left := room
		w, err := NewWriter(&left, number)
		if err == nil {
			err = errors.Join(w.Batch(1, make([]byte, 4)), w.Close())
		}
		if ended = err == nil; !ended && !errors.Is(err, errBrief) {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
	}
}
