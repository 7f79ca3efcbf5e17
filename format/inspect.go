package format

import (
	"slices"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Description is what people want to know of a directory.
type Description struct {
	Path      string `json:"path"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Tool      string `json:"tool"`
	Nodes     int64  `json:"nodes"`
	Edges     int64  `json:"edges"`
	Directed  bool   `json:"directed"`
	Weighted  bool   `json:"weighted"`
	Features  int    `json:"features"`
	DType     string `json:"dtype"`
	Classes   int    `json:"classes"`
	Labels    int    `json:"label_columns"`
	Splits    int    `json:"splits"`
	OrigIDs   bool   `json:"orig_ids"`
	Rows      int64  `json:"rows"`
	ChunkRows int    `json:"chunk_rows"`

	Regions   []Region   `json:"regions"`
	Operators []Operator `json:"operators,omitempty"`
	Split     int        `json:"split"`
	RowSet    string     `json:"row_set,omitempty"`
	Seed      uint64     `json:"seed"`

	Input       map[string]string  `json:"input"`
	Fingerprint string             `json:"fingerprint"`
	Tables      []TableDescription `json:"tables"`
	Bytes       int64              `json:"bytes"` // of all files
}

// TableDescription is one table: the topology, the rows, or a matrix.
type TableDescription struct {
	Folder string `json:"folder"`
	Files  int    `json:"files"`
	Chunks int    `json:"chunks"`
	Bytes  int64  `json:"bytes"`
}

// Inspect describes a directory of either kind. It reads manifest and index, and
// checks that the files are there with their sizes.
func Inspect(fsys vfs.FS, dir string) (*Description, error) {
	d, err := OpenAny(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	m := &d.Manifest
	out := &Description{
		Path: dir, Kind: m.Kind, Name: m.Name, Tool: m.Tool, Nodes: m.Nodes, Edges: m.Edges, Directed: m.Directed, Weighted: m.Weighted,
		Features: m.Features, DType: m.DType, Classes: m.Classes, Labels: m.Labels, Splits: m.Splits, OrigIDs: m.OrigIDs,
		Rows: m.Rows, ChunkRows: m.ChunkRows, Regions: slices.Clone(m.Regions), Operators: m.Operators, Split: m.Split,
		RowSet: m.RowSet, Seed: m.Seed, Input: m.Input, Fingerprint: m.Fingerprint, Bytes: m.IndexSize + m.filesBytes() + int64(len(m.encode())),
	}
	for _, t := range m.tables() {
		t := d.table(t.folder)
		description := TableDescription{Folder: t.folder, Files: len(t.parts), Chunks: t.chunks}
		for _, p := range t.parts {
			description.Bytes += m.Files[p.file].Size
		}
		out.Tables = append(out.Tables, description)
	}
	return out, nil
}
