package format

// Manifest is manifest.json: everything about a directory but its rows.
type Manifest struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"` // KindGraph or KindStore
	Tool   string `json:"tool"` // version that wrote it
	Name   string `json:"name"` // of the data set

	Nodes    int64 `json:"nodes"` // of the graph
	Edges    int64 `json:"edges"` // of the graph as stored, each direction counted
	Directed bool  `json:"directed"`
	Weighted bool  `json:"weighted"`

	Features  int      `json:"features"`
	DType     string   `json:"dtype"`
	Classes   int      `json:"classes"`       // of single labels; 0 if unlabelled
	Labels    int      `json:"label_columns"` // 0 none, 1 single-label, L multi-label
	Splits    int      `json:"splits"`        // shipped splits kept
	Rows      int64    `json:"rows"`          // stored rows: all nodes in a graph
	ChunkRows int      `json:"chunk_rows"`
	Regions   []Region `json:"regions"`

	// Of a store.
	Operators []Operator `json:"operators,omitempty"`
	Split     int        `json:"split,omitempty"` // that the regions follow
	RowSet    string     `json:"row_set,omitempty"`
	Seed      uint64     `json:"seed,omitempty"` // of the order of training rows

	// Input is what the directory was made from: the importer or generator with
	// its options, or the fingerprint of the graph.
	Input       map[string]string `json:"input"`
	Fingerprint string            `json:"fingerprint"` // SHA-256 over content, see docs/format.md

	Files       []FileEntry `json:"files"`
	IndexCRC32C string      `json:"index_crc32c"`
	CRC32C      string      `json:"crc32c"` // of this file with these eight digits zeroed
}

// Operator is one propagation operator of a store.
type Operator struct {
	Name string `json:"name"` // canonical spelling
	Hops int    `json:"hops"`
}

// FileEntry is one file of a directory, path relative to it, with slashes.
type FileEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	CRC32C string `json:"crc32c"` // of all bytes outside chunk bodies
}
