package command

import (
	"path"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

func utf16Text(text string) string {
	return string(dtype.BytesOf(utf16.Encode([]rune(text))))
}

// Errors about an input name the file, folder or column that is there and was probably meant, or what is wrong with
// a text.
func TestWhatIsThereIsNamed(t *testing.T) {
	const nodes = "nodes.csv"
	for _, c := range []struct {
		name, line string
		files      map[string]string
		code       int
		says       []string
	}{
		{"arrays under PyTorch Geometric's names", "import npy in -o g",
			map[string]string{"in/edge_index.npy": "arrays/edge_index.npy", "in/x.npy": "arrays/node_feat.npy"},
			exitCorrupt, []string{"x.npy is there: rename it to node_feat.npy"}},
		{"labels under another name", "import npy in -o g",
			map[string]string{"in/edge_index.npy": "arrays/edge_index.npy", "in/node_feat.npy": "arrays/node_feat.npy",
				"in/y.npy": "arrays/node_label.npy"},
			exitDone, []string{"y.npy is there: rename it to node_label.npy"}},
		{"tensors", "import npy in -o g", map[string]string{"in/edge_index.pt": "tensor"}, exitCorrupt,
			[]string{`numpy.save("edge_index.npy", torch.load("edge_index.pt").numpy())`}},
		{"the folder around an OGB data set", "import ogb in -o g", map[string]string{"in/arxiv/raw/edge.csv.gz": "x"},
			exitCorrupt, []string{"in/arxiv has one: give that"}},
		{"the folder within an OGB data set", "import ogb in/raw -o g", map[string]string{"in/raw/edge.csv.gz": "x"},
			exitCorrupt, []string{"its parent folder in has one: give that"}},
		{"a folder of arrays to train on", "train arrays --model sign", nil, exitCorrupt,
			[]string{"run hopfeed import npy arrays -o GRAPH"}},
		{"a folder of tables to propagate", "propagate in -o s", map[string]string{"in/edges.csv": "0,1\n"},
			exitCorrupt, []string{"run hopfeed import csv in -o GRAPH"}},
		{"a label that asks a question", "import csv edges.csv --node-table nodes.csv -o g",
			map[string]string{nodes: "id,is_fraud,amount\n0,1,2.5\n1,0,3\n"}, exitDone,
			[]string{"(--label-column is_fraud takes"}},
		{"a label that is left out", "import csv edges.csv --node-table nodes.csv -o g",
			map[string]string{nodes: "id,segment,amount\n0,a,2.5\n1,b,3\n"}, exitDone,
			[]string{"(--label-column segment takes"}},
		{"UTF-16", "import csv in.csv -o g", map[string]string{"in.csv": utf16Text("\ufeffsrc,dst\n0,1\n")},
			exitCorrupt, []string{"in.csv", "UTF-16"}},
		{"UTF-16 without a mark", "import csv in.csv -o g", map[string]string{"in.csv": utf16Text("src,dst\n0,1\n")},
			exitCorrupt, []string{"in.csv", "UTF-16"}},
		{"lines that end with CR", "import csv in.csv -o g", map[string]string{"in.csv": "src,dst\r0,1\r1,0\r"},
			exitCorrupt, []string{"in.csv", "carriage return alone"}},
		{"a line that ends with CR LF", "import csv in.csv -o g", map[string]string{"in.csv": "0,1\r\n"}, exitDone,
			nil},
		{"edges with a field of two lines", "import csv in.csv -o g",
			map[string]string{"in.csv": "src,dst,note\n0,1,\"a\nb\"\n"}, exitCorrupt,
			[]string{"in.csv: line 3: 1 fields (want 3); if a quoted field goes on in another line"}},
		{"edges with a field too many, and inches", "import csv in.csv -o g",
			map[string]string{"in.csv": "src,dst,size\n0,1,12\",x\n"}, exitCorrupt,
			[]string{"in.csv: line 2: 4 fields (want 3)"}},
		{"nodes with a field of two lines", "import csv edges.csv --node-table nodes.csv -o g",
			map[string]string{nodes: "id,name,label\n0,\"a\nb\",1\n1,c,0\n"}, exitCorrupt,
			[]string{"line 2: 2 fields (want 3, as the first line has); if a quoted field goes on in another line"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := disk(t, generateLine, exportLine)
			write(t, d, "edges.csv", "src,dst\n0,1\n1,0\n")
			for name, text := range c.files {
				if err := d.MkdirAll(path.Dir(name)); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(text, "arrays/") {
					text = content(t, d, text)
				}
				write(t, d, name, text)
			}
			o := hopfeed(t, d, c.line)
			for _, said := range c.says {
				if !strings.Contains(o.stderr, said) {
					t.Errorf("does not say %q", said)
				}
			}
			if o.code != c.code || o.code != exitDone && strings.Count(o.stderr, "\n") != 1 || t.Failed() {
				t.Errorf("exit status %d: %s", o.code, o.stderr)
			}
		})
	}
}

// Each row of a table of predictions is one line, whatever classes and nodes are called.
func TestNamesAreEscapedInCSV(t *testing.T) {
	d := disk(t, generateLine, exportLine)
	meta := strings.Replace(content(t, d, "arrays/meta.json"), "{", `{"class_names": ["a\nb", "c\u001b[31m", "d,e"],`,
		1)
	write(t, d, "arrays/meta.json", meta)
	must(t, d, "import npy arrays -o named")
	must(t, d, "propagate named -o store --hops 1")
	must(t, d, "train store --model sgc --epochs 1 --run run")
	must(t, d, "predict --checkpoint run store -o out.csv")
	text := content(t, d, "out.csv")
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\"a\n") ||
		!strings.Contains(text, `p_a\nb,p_c\x1b[31m,"p_d,e"`) {
		t.Errorf("%.300q", text)
	}
}
