package export_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/export"
)

// writeTable writes rows of every type in batches of different sizes, and returns what they say.
func writeTable(t *testing.T, name string) (file *bytes.Buffer, rows [][]string) {
	t.Helper()
	file = &bytes.Buffer{}
	w, err := export.NewTableWriter(file, name, arrow.NewSchema([]arrow.Field{
		{Name: "node_id", Type: arrow.PrimitiveTypes.Uint32}, {Name: "class", Type: arrow.BinaryTypes.LargeString},
		{Name: "number, of what", Type: arrow.PrimitiveTypes.Int32}, {Name: "p", Type: arrow.PrimitiveTypes.Float32},
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"plain", "", `quoted "q", with comma`, "two\nlines", " é "}
	for _, n := range []int{2, 0, 5} {
		var ids []uint32
		var numbers []int32
		var p []float32
		offsets, text := []int64{0}, ""
		for range n {
			at := len(rows)
			id, number, value, name := math.MaxUint32-uint32(at), int32(-at), float32(math.Exp(-float64(at*at))),
				names[at%len(names)]
			ids, numbers, p, text = append(ids, id), append(numbers, number), append(p, value), text+name
			offsets = append(offsets, int64(len(text)))
			rows = append(rows, []string{fmt.Sprint(id), name, fmt.Sprint(number),
				strconv.FormatFloat(float64(value), 'x', -1, 32)})
		}
		if err := w.Batch(int64(n), dtype.BytesOf(ids), dtype.BytesOf(offsets), []byte(text), dtype.BytesOf(numbers),
			dtype.BytesOf(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file, rows
}

func TestATableOfCommaSeparatedValuesReadsBack(t *testing.T) {
	file, want := writeTable(t, "t.CSV")
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) != len(want)+1 || rows[0][2] != "number, of what" {
		t.Fatalf("%v, %v", rows, err)
	}
	for i, row := range rows[1:] {
		value, err := strconv.ParseFloat(row[3], 32)
		if err != nil {
			t.Fatal(err)
		}
		if row[3] = strconv.FormatFloat(value, 'x', -1, 32); !slices.Equal(row, want[i]) {
			t.Errorf("row %d is %q, want %q", i, row, want[i])
		}
	}
}

func TestAnArrowTableIsReadByArrow(t *testing.T) {
	file, want := writeTable(t, "t.arrow")
	r, err := ipc.NewFileReader(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got [][]string
	for i := range r.NumRecords() {
		b, err := r.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		for k := range int(b.NumRows()) {
			got = append(got, []string{
				fmt.Sprint(b.Column(0).(*array.Uint32).Value(k)),
				strings.Clone(b.Column(1).(*array.LargeString).Value(k)),
				fmt.Sprint(b.Column(2).(*array.Int32).Value(k)),
				strconv.FormatFloat(float64(b.Column(3).(*array.Float32).Value(k)), 'x', -1, 32),
			})
		}
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTablesOfOtherFormatsAreRefused(t *testing.T) {
	for _, name := range []string{"t", "t.xlsx", "csv"} {
		if _, err := export.NewTableWriter(&bytes.Buffer{}, name, arrow.NewSchema(nil, nil)); err == nil ||
			!strings.Contains(err.Error(), ".arrow, .csv, .parquet") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
