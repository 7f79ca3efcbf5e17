package ingest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func openMTX(t testing.TB, text string) (Source, error) {
	return OpenMTX(context.Background(), layout{"m": []byte(text)}.put(t), "in/m", ScratchOptions{Output: "out/graph"},
		NodeFiles{})
}

func TestMatricesReadInAnyLayout(t *testing.T) {
	for _, c := range []struct {
		name      string
		text      string
		want      string
		nodes     int64
		direction Direction
	}{
		{"a pattern", "%%MatrixMarket matrix coordinate pattern general\n% rows are sources\n\n3 3 2\n1 2\n3 1\n",
			"0-1 2-0", 3, UnknownDirection},
		{"real values", "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 0.5\n3 1 1e2\n", "0-1:0.5 2-0:100",
			3, UnknownDirection},
		{"integers in another case", "%%matrixmarket MATRIX Coordinate Integer General\n 3\t3 2\n 1  2 7\n3 1 0",
			"0-1:7 2-0:0", 3, UnknownDirection},
		{"the lower triangle of a symmetric matrix",
			"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n", "0-0 1-0 2-1", 3, Undirected},
		{"an array, column by column", "%%MatrixMarket matrix array real general\n2 2\n0\n3\n2.5\n0\n", "1-0:3 0-1:2.5",
			2, UnknownDirection},
		{"the lower triangle of a symmetric array",
			"%%MatrixMarket matrix array integer symmetric\n3 3\n1\n0\n2\n0\n3\n0\n", "0-0:1 2-0:2 2-1:3", 3,
			Undirected},
		{"no entries", "%%MatrixMarket matrix coordinate real general\n4 4 0\n", "", 4, UnknownDirection},
	} {
		for packed, text := range map[string]string{"": c.text, ", packed": string(gzipped(c.text))} {
			s, err := openMTX(t, text)
			if err != nil {
				t.Errorf("%s%s: %v", c.name, packed, err)
				continue
			}
			info := s.Info()
			if got := strings.Join(weightedEdges(t, s), " "); got != c.want || info.Nodes != c.nodes ||
				info.Direction != c.direction || info.Weighted == strings.Contains(c.text, "pattern") {
				t.Errorf("%s%s: %s, %+v", c.name, packed, got, info)
			}
			s.Close()
		}
	}
}

func TestMatricesThatAreNoGraphAreRefusedByLine(t *testing.T) {
	const general = "%%MatrixMarket matrix coordinate real general\n"
	for _, c := range []struct {
		name, text string
		say        []string
	}{
		{"empty", "", []string{"line 1", "banner"}},
		{"no banner", "1 2\n", []string{"line 1", "banner"}},
		{"complex values", "%%MatrixMarket matrix coordinate complex general\n", []string{"line 1", "complex"}},
		{"hermitian", "%%MatrixMarket matrix coordinate real hermitian\n", []string{"line 1", "hermitian"}},
		{"skew-symmetric", "%%MatrixMarket matrix coordinate real skew-symmetric\n",
			[]string{"line 1", "skew-symmetric"}},
		{"a vector", "%%MatrixMarket vector coordinate real general\n", []string{"line 1", "banner"}},
		{"a pattern of everything", "%%MatrixMarket matrix array pattern general\n",
			[]string{"line 1", "without values"}},
		{"no size", general + "% x\n", []string{"no size line"}},
		{"a size short", general + "3 3\n", []string{"line 2", `"3 3"`}},
		{"a negative size", general + "3 3 -1\n", []string{"line 2", `"3 3 -1"`}},
		{"not square", general + "3 4 1\n", []string{"line 2", "3 rows and 4 columns"}},
		{"2^32 rows", general + "4294967296 4294967296 1\n", []string{"line 2", "4294967296 nodes"}},
		{"more entries than places", general + "2 2 5\n", []string{"line 2", "5 entries"}},
		{"row 0", general + "3 3 1\n0 1 1\n", []string{"line 3: column 1", "no node 0", "3 nodes, numbered from 1"}},
		{"column 4", general + "3 3 1\n1 4 1\n", []string{"line 3: column 2", "no node 4"}},
		{"no value", general + "3 3 1\n1 2\n", []string{"line 3", "2 fields"}},
		{"a value too many", "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2 1\n",
			[]string{"line 3", "3 fields"}},
		{"a negative value", general + "3 3 1\n1 2 -1\n", []string{"line 3", `"-1"`}},
		{"an entry short", general + "3 3 2\n1 2 1\n", []string{"1 of 2 edges"}},
		{"an entry too many", general + "3 3 1\n1 2 1\n2 1 1\n", []string{"line 4", "more than 1 edges"}},
		{"the upper triangle", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n1 2\n",
			[]string{"line 3", "row 1, column 2", "lower"}},
		{"an array cut short", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", []string{"row 2, column 2"}},
		{"an array of words", "%%MatrixMarket matrix array real general\n1 1\nx\n", []string{"line 3", `"x"`}},
	} {
		refused(t, c.name, readSource(openMTX(t, c.text)), append(c.say, "in/m")...)
	}
}

func TestASymmetricMatrixBecomesAnUndirectedGraph(t *testing.T) {
	disk := layout{"m": []byte("%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 5\n2 1 6\n3 2 7\n")}.put(t)
	for _, c := range []struct {
		asked Direction
		want  error
	}{{Directed, ErrOptions}, {Undirected, nil}} {
		s, err := OpenMTX(context.Background(), disk, "in/m", ScratchOptions{Output: "out/graph"}, NodeFiles{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(context.Background(), disk, s, "out/graph", Options{Direction: c.asked})
		s.Close()
		if !errors.Is(err, c.want) {
			t.Errorf("asked %d: %v", c.asked, err)
		}
	}
	d := openGraph(t, disk, "out/graph")
	csc, err := d.Topology(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer csc.Close()
	if d.Manifest.Directed || !slices.Equal(csc.Offsets, []int64{0, 2, 4, 5}) ||
		!slices.Equal(csc.Neighbors, []uint32{0, 1, 0, 2, 1}) || !slices.Equal(csc.Weights, []float32{5, 6, 6, 7, 7}) {
		t.Errorf("%v, %v, %v", csc.Offsets, csc.Neighbors, csc.Weights)
	}
	if got := storedFeatures(t, d); !slices.Equal(got, []float32{1, 1, 1}) {
		t.Errorf("features %v", got)
	}
}

func FuzzMatrix(f *testing.F) {
	f.Add([]byte("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 0.5\n3 1 1e2\n"))
	f.Add([]byte("%%MatrixMarket matrix coordinate pattern symmetric\n%\n3 3 1\n3 1\n"))
	f.Add([]byte("%%MatrixMarket matrix array integer symmetric\n2 2\n1\n0\n2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openMTX(t, string(data))
		if err == nil {
			defer s.Close()
			err = s.Edges(context.Background(), 1, func(Edges) error { return nil })
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}
